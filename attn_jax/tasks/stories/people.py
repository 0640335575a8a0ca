"""Worlds of people who move and handle things: tasks 1 to 3, 5 to 8 and 11 to 13.

The hidden state is the place of each person and thing. The kind and the person of an action are sampled uniformly until
the action is possible:

    go      to a random place, other than where the person is
    get     a thing that lies where the person is
    drop    a thing that the person holds
    give    a thing to someone at the same place: uniform on all possible gifts, whoever the sampled person is

Each story has five questions, at most one after every two statements. A question is about one of the last five clauses
(a statement that two people move has two clauses).
"""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from attn_jax.tasks.stories.story import PEOPLE, PLACES, RECENT, Question, Story, moves, other

THINGS = ("apple", "football", "milk")
GIVERS = ("bill", "fred", "jeff", "mary")
GET_VERBS = ("got", "took", "grabbed", "picked up")
DROP_VERBS = ("dropped", "discarded", "left", "put down")
GIVE_VERBS = ("gave", "handed", "passed")
THERE = 0.2  # share of drops, and of gets in task 3, that end in "there"; gets in other tasks always do
LATER = ("after that", "following that", "then", "afterwards")
PRONOUNS = {"mary": "she", "sandra": "she", "john": "he", "daniel": "he"}
NUMERALS = ("none", "one", "two", "three")
QUESTIONS = 5  # per story
WHAT_GIVEN = 1 / 3  # share of questions of task 5 about the thing; the other four kinds share the rest equally


class Clause(NamedTuple):
    """The content of a statement about one person."""

    kind: str
    person: str
    thing: str = ""
    receiver: str = ""
    number: int = 0  # number of the statement
    move: int = 0  # number of the person's last move before a drop; 0 if there was none


class Move(NamedTuple):
    """A move to a place, with the number of its statement."""

    place: str
    number: int


class Stage:
    """The state of a world of people and things, and the story told so far."""

    def __init__(self, rng: random.Random, kinds: tuple[str, ...], people=PEOPLE, there: float = 1.0):
        self.rng, self.kinds, self.people, self.there = rng, kinds, people, there
        self.story = Story()
        self.clauses: list[Clause] = []
        self.place = {person: rng.choice(PLACES) for person in people}
        self.lies = {thing: rng.choice(PLACES) for thing in THINGS}  # place of each thing that nobody holds
        self.holder: dict[str, str] = {}
        self.moved: dict[str, tuple[int, ...]] = {}  # statements of the last move of each person
        self.acted: dict[str, int] = {}  # last statement in which each thing was got or dropped
        self.carried: dict[str, list[Move]] = {}  # moves of each thing since it was last got
        self.handled: dict[str, dict[str, list[int]]] = {person: {} for person in people}

    def step(self) -> None:
        """Takes one random possible action and adds its statement."""
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
        chosen = self.rng.choice(options)
        if kind == "go":
            self.go((person,), place=chosen, subject=person)
        elif kind == "give":
            thing, receiver = chosen
            self._give(thing, receiver)
        else:
            self._get_or_drop(kind, person, thing=chosen)

    def go(self, people: tuple[str, ...], place: str, subject: str, before: tuple[int, ...] = ()) -> int:
        """Moves people, called `subject` in the statement; `before` are statements that identify the subject."""
        number = self.story.say(moves(self.rng, subject, place))
        for person in people:
            self.clauses.append(Clause("go", person, number=number))
            self.place[person], self.moved[person] = place, (*before, number)
            for thing in [thing for thing, holder in self.holder.items() if holder == person]:
                self.carried[thing].append(Move(place, number))
        return number

    def recent(self, *kinds: str) -> Iterator[Clause]:
        """Returns clauses of these kinds among the last RECENT clauses."""
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


def make_story(stage: Stage, add_statements: Callable[[], None], candidates: Callable[[], Iterator[Question]]) -> Story:
    """Makes a story: after each `add_statements`, asks a random one of the candidates, if there are any."""
    while len(stage.story.questions) < QUESTIONS:
        add_statements()
        if questions := list(candidates()):
            question = stage.rng.choice(questions)
            stage.story.ask(question.text, question.answer, question.evidence)
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
    """Task 1: people move; asks where a person is. Evidence: the person's last move."""
    stage = Stage(rng, ("go",))
    return make_story(stage, lambda: _two_steps(stage), lambda: _where_is_person(stage))


def where_is_thing(rng: random.Random) -> Story:
    """Task 2: asks where a thing is that was recently got or dropped; a thing still held must have been carried.

    Evidence: the last get or drop of the thing, and the person's last move (the last one before a drop).
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

    return make_story(stage, lambda: _two_steps(stage), candidates)


def where_was_thing(rng: random.Random) -> Story:
    """Task 3: asks where a thing, recently got or dropped, was before its last stay at a place.

    It was carried to both places since it was last got. Evidence: the last get or drop, the move to the place, the move
    to the place before.
    """
    stage = Stage(rng, ("go", "get", "drop"), there=THERE)

    def candidates() -> Iterator[Question]:
        for clause in stage.recent("get", "drop"):
            thing = clause.thing
            if clause.number != stage.acted[thing]:
                continue
            carried = stage.carried[thing]
            for i, (before, move) in enumerate(itertools.pairwise(carried), 1):
                is_last_stay = all(later.place != move.place for later in carried[i + 1 :])
                if is_last_stay:
                    text = f"where was the {thing} before the {move.place}"
                    yield _question(text, before.place, (clause.number, move.number, before.number))

    return make_story(stage, lambda: _two_steps(stage), candidates)


def who_gave_what(rng: random.Random) -> Story:
    """Task 5: asks who gave what to whom, about the last gift of a thing. Evidence: the statement of the gift.

    The question asks for the thing only if this is the last gift from this giver to this receiver; otherwise the answer
    would not be unique.
    """
    stage = Stage(rng, ("go", "get", "drop", "give"), people=GIVERS)

    def candidates() -> Iterator[Question]:
        gifts = [clause for clause in stage.clauses if clause.kind == "give"]
        for clause in stage.recent("give"):
            giver, thing, receiver, number = clause.person, clause.thing, clause.receiver, clause.number
            last_of_thing = max(gift.number for gift in gifts if gift.thing == thing)
            if number < last_of_thing:
                continue
            if rng.random() < WHAT_GIVEN:
                last_of_pair = max(gift.number for gift in gifts if (gift.person, gift.receiver) == (giver, receiver))
                if number == last_of_pair:
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

    return make_story(stage, lambda: _two_steps(stage), candidates)


def is_person_there(rng: random.Random) -> Story:
    """Task 6: asks whether a person is at a place; half of the places are true. Evidence: the person's last move."""
    stage = Stage(rng, ("go", "get", "drop"))

    def candidates() -> Iterator[Question]:
        for clause in stage.recent("go"):
            person, place = clause.person, stage.place[clause.person]
            question_place = place if rng.random() < 0.5 else other(rng, PLACES, place)
            answer = "yes" if question_place == place else "no"
            yield _question(f"is {person} in the {question_place}", answer, stage.moved[person])

    return make_story(stage, lambda: _two_steps(stage), candidates)


def _handlers(stage: Stage) -> Iterator[tuple[str, list[str]]]:
    """Yields people who recently got, dropped or gave something, and the things they hold, by first possession."""
    for clause in stage.recent("get", "drop", "give"):
        person = clause.person
        yield person, [thing for thing in stage.handled[person] if stage.holder.get(thing) == person]


def how_many(rng: random.Random) -> Story:
    """Task 7: asks how many things a person holds. Evidence: all gets, drops and gifts of the person, in order."""
    stage = Stage(rng, ("go", "get", "drop", "give"))

    def candidates() -> Iterator[Question]:
        for person, held in _handlers(stage):
            evidence = sorted(number for numbers in stage.handled[person].values() for number in numbers)
            yield _question(f"how many objects is {person} carrying", NUMERALS[len(held)], tuple(evidence))

    return make_story(stage, lambda: _two_steps(stage), candidates)


def what_is_held(rng: random.Random) -> Story:
    """Task 8: asks which things a person holds, listed in the order the person first had them.

    Evidence: all gets and drops of the person, thing by thing.
    """
    stage = Stage(rng, ("go", "get", "drop"))

    def candidates() -> Iterator[Question]:
        for person, held in _handlers(stage):
            evidence = tuple(number for numbers in stage.handled[person].values() for number in numbers)
            yield _question(f"what is {person} carrying", ",".join(held) or "nothing", evidence)

    return make_story(stage, lambda: _two_steps(stage), candidates)


def _places(stage: Stage, people: tuple[str, ...]) -> str:
    """Samples a place where none of these people is."""
    return other(stage.rng, PLACES, *(stage.place[person] for person in people))


def _pair(stage: Stage) -> tuple[str, str]:
    first, second = stage.rng.sample(stage.people, 2)
    return first, second


def where_is_pronoun(rng: random.Random) -> Story:
    """Task 11: a person moves, then "he" or "she" moves. Evidence: the last two statements about the person."""
    stage = Stage(rng, ("go",))

    def add_statements() -> None:
        person = rng.choice(PEOPLE)
        number = stage.go((person,), _places(stage, (person,)), person)
        stage.go((person,), _places(stage, (person,)), f"{rng.choice(LATER)} {PRONOUNS[person]}", (number,))

    return make_story(stage, add_statements, lambda: _where_is_person(stage))


def where_is_one_of_two(rng: random.Random) -> Story:
    """Task 12: two people move together, twice. Evidence: the person's last move."""
    stage = Stage(rng, ("go",))

    def add_statements() -> None:
        for _ in range(2):
            people = _pair(stage)
            stage.go(people, _places(stage, people), " and ".join(people))

    return make_story(stage, add_statements, lambda: _where_is_person(stage))


def where_is_one_of_them(rng: random.Random) -> Story:
    """Task 13: two people move together, then "they" move. Evidence: the last two statements about the person."""
    stage = Stage(rng, ("go",))

    def add_statements() -> None:
        people = _pair(stage)
        number = stage.go(people, _places(stage, people), " and ".join(people))
        stage.go(people, _places(stage, people), f"{rng.choice(LATER)} they", (number,))

    return make_story(stage, add_statements, lambda: _where_is_person(stage))
