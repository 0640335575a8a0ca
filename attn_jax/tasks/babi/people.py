"""Worlds of people who move and handle things: tasks 1 to 3, 5 to 8 and 11 to 13.

Hidden are the place of each person and thing; one who is told to be somewhere has come from another place. An action
is drawn by kind, then person, each uniform, until one is possible:

    go      to a place, which is drawn too, where the person is not
    get     a thing that lies where the person is
    drop    a thing that the person holds
    give    a thing to someone at the same place: of all that is possible, whoever the person

After every two statements, five times a story, a question is asked where one can be, about what one of the last five
clauses tells of (two people who move are two clauses).
"""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_jax.tasks.babi.story import PEOPLE, PLACES, RECENT, Question, Story, moves, other

THINGS = ("apple", "football", "milk")
GIVERS = ("bill", "fred", "jeff", "mary")
GET_VERBS = ("got", "took", "grabbed", "picked up")
DROP_VERBS = ("dropped", "discarded", "left", "put down")
GIVE_VERBS = ("gave", "handed", "passed")
THERE = 0.2  # how often a drop ends in "there", and a get of task 3; the other gets always do
LATER = ("after that", "following that", "then", "afterwards")
PRONOUNS = {"mary": "she", "sandra": "she", "john": "he", "daniel": "he"}
NUMERALS = ("none", "one", "two", "three")
QUESTIONS = 5  # of a story
WHAT_GIVEN = 1 / 3  # share of task 5's questions that are about the thing; the other four kinds share the rest


class Clause(NamedTuple):
    """What a statement tells of one person."""

    kind: str
    person: str
    thing: str = ""
    receiver: str = ""
    number: int = 0  # of the statement
    move: int = 0  # the person's last move before a drop; 0: not told


class Move(NamedTuple):
    """Someone's move to a place: the statement that tells it."""

    place: str
    number: int


class Stage:
    """People and things at places, and the story that tells of them."""

    def __init__(self, rng: random.Random, kinds: tuple[str, ...], people=PEOPLE, there: float = 1.0):
        self.rng, self.kinds, self.people, self.there = rng, kinds, people, there
        self.story = Story()
        self.clauses: list[Clause] = []
        self.place = {person: rng.choice(PLACES) for person in people}
        self.lies = {thing: rng.choice(PLACES) for thing in THINGS}  # those that nobody holds
        self.holder: dict[str, str] = {}
        self.moved: dict[str, tuple[int, ...]] = {}  # the statements of each person's last move
        self.acted: dict[str, int] = {}  # the last statement that a thing was got or dropped
        self.carried: dict[str, list[Move]] = {}  # moves with a thing since it was got last
        self.handled: dict[str, dict[str, list[int]]] = {person: {} for person in people}

    def step(self) -> None:
        """One action that is possible, told."""
        while True:
            kind, person = self.rng.choice(self.kinds), self.rng.choice(self.people)
            if kind == "go":
                options = [place for place in [self.rng.choice(PLACES)] if place != self.place[person]]
            elif kind == "get":
                options = [thing for thing in self.lies if self.lies[thing] == self.place[person]]
            elif kind == "drop":
                options = [thing for thing, holder in self.holder.items() if holder == person]
            else:
                options = [
                    (thing, receiver)
                    for thing, holder in self.holder.items()
                    for receiver in self.people
                    if receiver != holder and self.place[receiver] == self.place[holder]
                ]
            if options:
                break
        what = self.rng.choice(options)
        if kind == "go":
            self.go((person,), what, person)
        elif kind == "give":
            self._give(*what)
        else:
            self._get_or_drop(kind, person, what)

    def go(self, people: tuple[str, ...], place: str, subject: str, before: tuple[int, ...] = ()) -> int:
        """People, told as `subject`, move to a place; `before` are statements needed to know who they are."""
        number = self.story.say(moves(self.rng, subject, place))
        for person in people:
            self.clauses.append(Clause("go", person, number=number))
            self.place[person], self.moved[person] = place, (*before, number)
            for thing in [thing for thing, holder in self.holder.items() if holder == person]:
                self.carried[thing].append(Move(place, number))
        return number

    def recent(self, *kinds: str) -> Iterator[Clause]:
        """Those of the last clauses that are of these kinds."""
        return (clause for clause in self.clauses[-RECENT:] if clause.kind in kinds)

    def _get_or_drop(self, kind: str, person: str, thing: str) -> None:
        verbs, there = (GET_VERBS, self.there) if kind == "get" else (DROP_VERBS, THERE)
        ending = " there" if self.rng.random() < there else ""
        number = self.story.say(f"{person} {self.rng.choice(verbs)} the {thing}{ending}")
        move = self.moved[person][-1] if person in self.moved else 0
        self.clauses.append(Clause(kind, person, thing, number=number, move=move))
        if kind == "get":
            del self.lies[thing]
            self.holder[thing] = person
            self.carried[thing] = []
        else:
            del self.holder[thing]
            self.lies[thing] = self.place[person]
        self.acted[thing] = number
        self._handle(person, thing, number)

    def _give(self, thing: str, receiver: str) -> None:
        giver = self.holder[thing]
        number = self.story.say(f"{giver} {self.rng.choice(GIVE_VERBS)} the {thing} to {receiver}")
        self.clauses.append(Clause("give", giver, thing, receiver, number))
        self.holder[thing] = receiver
        self._handle(giver, thing, number)
        self._handle(receiver, thing, number)

    def _handle(self, person: str, thing: str, number: int) -> None:
        self.handled[person].setdefault(thing, []).append(number)


def tell(stage: Stage, speak: Callable[[], None], candidates: Callable[[], Iterator[Question]]) -> Story:
    """Statements, and after each `speak` one of the candidates as a question, until there are enough."""
    while len(stage.story.questions) < QUESTIONS:
        speak()
        if found := list(candidates()):
            stage.story.ask(*stage.rng.choice(found)[1:])
    return stage.story


def _two_steps(stage: Stage) -> None:
    stage.step()
    stage.step()


def _question(text: str, answer: str, evidence: tuple[int, ...]) -> Question:
    return Question(0, text, answer, evidence)


def _where_is_person(stage: Stage) -> Iterator[Question]:
    for clause in stage.recent("go"):
        yield _question(f"where is {clause.person}", stage.place[clause.person], stage.moved[clause.person])


def where_is_person(rng: random.Random) -> Story:
    """Task 1: people move; where is one of them? Evidence: the last move."""
    stage = Stage(rng, ("go",))
    return tell(stage, lambda: _two_steps(stage), lambda: _where_is_person(stage))


def where_is_thing(rng: random.Random) -> Story:
    """Task 2: where is a thing that was got or dropped recently? One that is held must have been carried somewhere.

    Evidence: the last get or drop, and the person's last move, which is the one before a drop.
    """
    stage = Stage(rng, ("go", "get", "drop"))

    def candidates() -> Iterator[Question]:
        for clause in stage.recent("get", "drop"):
            person, thing = clause.person, clause.thing
            if clause.number == stage.acted[thing]:
                if clause.kind == "drop" and clause.move:
                    yield _question(f"where is the {thing}", stage.lies[thing], (clause.number, clause.move))
                elif clause.kind == "get" and stage.carried[thing]:
                    yield _question(f"where is the {thing}", stage.place[person], (clause.number, *stage.moved[person]))

    return tell(stage, lambda: _two_steps(stage), candidates)


def where_was_thing(rng: random.Random) -> Story:
    """Task 3: where was a thing before it was, last, at a place? One that was got or dropped recently.

    The place and the one before are two to which it was carried, one after the other, since it was got last.
    Evidence: the last get or drop, the move to the place, the move to the one before.
    """
    stage = Stage(rng, ("go", "get", "drop"), there=THERE)

    def candidates() -> Iterator[Question]:
        for clause in stage.recent("get", "drop"):
            thing, moved = clause.thing, stage.carried[clause.thing]
            if clause.number == stage.acted[thing]:
                for i in range(1, len(moved)):
                    place = moved[i].place
                    if all(later.place != place for later in moved[i + 1 :]):
                        text = f"where was the {thing} before the {place}"
                        evidence = (clause.number, moved[i].number, moved[i - 1].number)
                        yield _question(text, moved[i - 1].place, evidence)

    return tell(stage, lambda: _two_steps(stage), candidates)


def who_gave_what(rng: random.Random) -> Story:
    """Task 5: who gave what to whom? About the last time that a thing was given. Evidence: this statement.

    Not asked, because the text would not decide: what was given from one person to another who later gave, by one
    of the two, something else too.
    """
    stage = Stage(rng, ("go", "get", "drop", "give"), people=GIVERS)

    def candidates() -> Iterator[Question]:
        given = [clause for clause in stage.clauses if clause.kind == "give"]
        for clause in stage.recent("give"):
            giver, thing, receiver, number = clause.person, clause.thing, clause.receiver, clause.number
            if number < max(one.number for one in given if one.thing == thing):
                continue
            if rng.random() < WHAT_GIVEN:
                if number == max(one.number for one in given if (one.person, one.receiver) == (giver, receiver)):
                    yield _question(f"what did {giver} give to {receiver}", thing, (number,))
                continue
            text, answer = rng.choice(
                (
                    (f"who gave the {thing}", giver),
                    (f"who gave the {thing} to {receiver}", giver),
                    (f"who received the {thing}", receiver),
                    (f"who did {giver} give the {thing} to", receiver),
                )
            )
            yield _question(text, answer, (number,))

    return tell(stage, lambda: _two_steps(stage), candidates)


def is_person_there(rng: random.Random) -> Story:
    """Task 6: is a person at a place? The right one half of the time, else any other. Evidence: the last move."""
    stage = Stage(rng, ("go", "get", "drop"))

    def candidates() -> Iterator[Question]:
        for clause in stage.recent("go"):
            person, place = clause.person, stage.place[clause.person]
            asked = place if rng.random() < 0.5 else other(rng, PLACES, place)
            yield _question(f"is {person} in the {asked}", "yes" if asked == place else "no", stage.moved[person])

    return tell(stage, lambda: _two_steps(stage), candidates)


def _handlers(stage: Stage) -> Iterator[tuple[str, list[str]]]:
    """Persons who have got, dropped or given recently, and what they hold in the order in which they first had it."""
    for clause in stage.recent("get", "drop", "give"):
        person = clause.person
        yield person, [thing for thing in stage.handled[person] if stage.holder.get(thing) == person]


def how_many(rng: random.Random) -> Story:
    """Task 7: how many things does a person hold? Evidence: all that was got, dropped, given or received, in order."""
    stage = Stage(rng, ("go", "get", "drop", "give"))

    def candidates() -> Iterator[Question]:
        for person, held in _handlers(stage):
            evidence = sorted(number for numbers in stage.handled[person].values() for number in numbers)
            yield _question(f"how many objects is {person} carrying", NUMERALS[len(held)], tuple(evidence))

    return tell(stage, lambda: _two_steps(stage), candidates)


def what_is_held(rng: random.Random) -> Story:
    """Task 8: which things does a person hold? They are listed in the order in which the person first had them.

    Evidence: all that the person got and dropped, thing by thing.
    """
    stage = Stage(rng, ("go", "get", "drop"))

    def candidates() -> Iterator[Question]:
        for person, held in _handlers(stage):
            evidence = tuple(number for numbers in stage.handled[person].values() for number in numbers)
            yield _question(f"what is {person} carrying", ",".join(held) or "nothing", evidence)

    return tell(stage, lambda: _two_steps(stage), candidates)


def _places(stage: Stage, people: tuple[str, ...]) -> str:
    """A place where none of these people is."""
    return other(stage.rng, PLACES, *(stage.place[person] for person in people))


def _pair(stage: Stage) -> tuple[str, str]:
    first, second = stage.rng.sample(stage.people, 2)
    return first, second


def where_is_pronoun(rng: random.Random) -> Story:
    """Task 11: a person moves, then he or she does. Evidence: both statements of the person's last moves."""
    stage = Stage(rng, ("go",))

    def speak() -> None:
        person = rng.choice(PEOPLE)
        number = stage.go((person,), _places(stage, (person,)), person)
        stage.go((person,), _places(stage, (person,)), f"{rng.choice(LATER)} {PRONOUNS[person]}", (number,))

    return tell(stage, speak, lambda: _where_is_person(stage))


def where_is_one_of_two(rng: random.Random) -> Story:
    """Task 12: two people move together, twice. Evidence: the last move."""
    stage = Stage(rng, ("go",))

    def speak() -> None:
        for _ in range(2):
            people = _pair(stage)
            stage.go(people, _places(stage, people), " and ".join(people))

    return tell(stage, speak, lambda: _where_is_person(stage))


def where_is_one_of_them(rng: random.Random) -> Story:
    """Task 13: two people move together, then they do. Evidence: both statements of the person's last moves."""
    stage = Stage(rng, ("go",))

    def speak() -> None:
        people = _pair(stage)
        number = stage.go(people, _places(stage, people), " and ".join(people))
        stage.go(people, _places(stage, people), f"{rng.choice(LATER)} they", (number,))

    return tell(stage, speak, lambda: _where_is_person(stage))
