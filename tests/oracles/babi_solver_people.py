"""Part of oracles.babi_solver: people who move and handle things, tasks 1 to 3 and 5 to 14."""

import collections
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from attn_jax.errors import UserError

Statements = Sequence[str]
Answer = tuple[str, tuple[int, ...]]  # answer, numbers of the supporting statements

MOVE = r"(?:moved|went|went back|journeyed|travelled) to the (\w+)"
ALONE, TOGETHER = rf"(\w+) {MOVE}", rf"(\w+) and (\w+) {MOVE}"
PRONOUN = rf"(?:after that|following that|then|afterwards) (?:he|she|they) {MOVE}"
GET = r"(\w+) (?:got|took|grabbed|picked up) the (\w+)(?: there)?"
DROP = r"(\w+) (?:dropped|discarded|left|put down) the (\w+)(?: there)?"
GIVE = r"(\w+) (?:gave|handed|passed) the (\w+) to (\w+)"
NUMERALS = ("none", "one", "two", "three")
TIMES = ("yesterday", "this morning", "this afternoon", "this evening")


def parse(pattern: str, text: str) -> tuple[str, ...]:
    """Returns the groups of a sentence that matches the pattern.

    Raises:
        UserError: the sentence does not match.
    """
    match = re.fullmatch(pattern, text)
    if match is None:
        raise UserError(f"cannot read {text!r}; expected a sentence such as {pattern}")
    return match.groups(default="")


class Stay(NamedTuple):
    """The place of a thing and the number of the move that brought it there; "" and 0 if unknown."""

    place: str
    move: int


class Give(NamedTuple):
    """A gift of a thing."""

    number: int
    giver: str
    thing: str
    receiver: str


class World:
    """Places of people and things after some statements. Numbers are those of statements, counted from 1."""

    def __init__(self, statements: Statements):
        self.place: dict[str, str] = {}  # of a person
        self.moves: dict[str, tuple[int, ...]] = {}  # what tells of a person's last move
        self.holder: dict[str, str] = {}  # of a thing
        self.action: dict[str, int] = {}  # last time that a thing was got or dropped
        self.stays: dict[str, list[Stay]] = collections.defaultdict(list)  # of a thing
        self.handled: dict[str, dict[str, list[int]]] = collections.defaultdict(dict)  # what a person did with a thing
        self.last_give: dict[str, Give] = {}  # of a thing
        subjects: tuple[str, ...] = ()
        for number, text in enumerate(statements, 1):
            if match := re.fullmatch(PRONOUN, text):
                self._move(subjects, match[1], (number - 1, number))
            elif match := re.fullmatch(TOGETHER, text):
                subjects = match[1], match[2]
                self._move(subjects, match[3], (number,))
            elif match := re.fullmatch(ALONE, text):
                subjects = (match[1],)
                self._move(subjects, match[2], (number,))
            elif match := re.fullmatch(GIVE, text):
                giver, thing, receiver = match.groups()
                self.holder[thing] = receiver
                self.last_give[thing] = Give(number, giver, thing, receiver)
                self.handled[giver].setdefault(thing, []).append(number)
                self.handled[receiver].setdefault(thing, []).append(number)
            else:
                gets = re.fullmatch(GET, text)
                person, thing = gets.groups() if gets else parse(DROP, text)
                self.action[thing] = number
                self.handled[person].setdefault(thing, []).append(number)
                self._stay(thing, person)
                if gets:
                    self.holder[thing] = person
                else:
                    self.holder.pop(thing, None)

    def held(self, person: str) -> list[str]:
        """Things that a person holds, in the order he or she first had them."""
        return [thing for thing in self.handled[person] if self.holder.get(thing) == person]

    def _move(self, people: tuple[str, ...], place: str, numbers: tuple[int, ...]) -> None:
        for person in people:
            self.place[person], self.moves[person] = place, numbers
            for thing in self.held(person):
                self._stay(thing, person)

    def _stay(self, thing: str, person: str) -> None:
        if person in self.place:
            self.stays[thing].append(Stay(self.place[person], self.moves[person][-1]))
        else:
            self.stays[thing].append(Stay("", 0))


def where_is_person(statements: Statements, question: str) -> Answer:
    """Tasks 1, 11, 12, 13: the place of the person's last move."""
    (person,) = parse(r"where is (\w+)", question)
    world = World(statements)
    return world.place[person], world.moves[person]


def is_person_there(statements: Statements, question: str) -> Answer:
    """Task 6: compares with the place of the person's last move."""
    person, place = parse(r"is (\w+) in the (\w+)", question)
    world = World(statements)
    return "yes" if world.place[person] == place else "no", world.moves[person]


def where_is_thing(statements: Statements, question: str) -> Answer:
    """Task 2: evidence is the last get or drop, and the move that brought the thing to its place."""
    (thing,) = parse(r"where is the (\w+)", question)
    world = World(statements)
    stay = world.stays[thing][-1]
    return stay.place, (world.action[thing], stay.move)


def where_was_thing(statements: Statements, question: str) -> Answer:
    """Task 3: the place before the last stay at the named one."""
    thing, place = parse(r"where was the (\w+) before the (\w+)", question)
    world = World(statements)
    stays = world.stays[thing]
    i = _last(place, [stay.place for stay in stays])
    while stays[i - 1].place == place:
        i -= 1
    return stays[i - 1].place, (world.action[thing], stays[i].move, stays[i - 1].move)


def who_gave_what(statements: Statements, question: str) -> Answer:
    """Task 5: the last gift that matches the question, among the last gift of each thing."""
    patterns = {
        r"what did (?P<giver>\w+) give to (?P<receiver>\w+)": "thing",
        r"who gave the (?P<thing>\w+)": "giver",
        r"who gave the (?P<thing>\w+) to (?P<receiver>\w+)": "giver",
        r"who received the (?P<thing>\w+)": "receiver",
        r"who did (?P<giver>\w+) give the (?P<thing>\w+) to": "receiver",
    }
    match, asked = next(
        (match, asked) for pattern, asked in patterns.items() if (match := re.fullmatch(pattern, question))
    )
    fitting = [
        give._asdict()
        for give in World(statements).last_give.values()
        if match.groupdict().items() <= give._asdict().items()
    ]
    last = max(fitting, key=lambda give: give["number"])
    return last[asked], (last["number"],)


def how_many(statements: Statements, question: str) -> Answer:
    """Task 7: evidence is all gets, drops and gifts of the person, in order."""
    (person,) = parse(r"how many objects is (\w+) carrying", question)
    world = World(statements)
    return NUMERALS[len(world.held(person))], tuple(sorted(itertools.chain(*world.handled[person].values())))


def what_is_held(statements: Statements, question: str) -> Answer:
    """Task 8: evidence is all gets and drops of the person, thing by thing."""
    (person,) = parse(r"what is (\w+) carrying", question)
    world = World(statements)
    return ",".join(world.held(person)) or "nothing", tuple(itertools.chain(*world.handled[person].values()))


def is_person_there_maybe(statements: Statements, question: str) -> Answer:
    """Tasks 9 and 10: uses the last statement about the person."""
    person, asked = parse(r"is (\w+) in the (\w+)", question)
    number = max(n for n, text in enumerate(statements, 1) if text.split()[0] == person)
    text = statements[number - 1]
    if match := re.fullmatch(r"\w+ is either in the (\w+) or the (\w+)", text):
        return "maybe" if asked in match.groups() else "no", (number,)
    if re.fullmatch(r"\w+ is (?:not|no longer) in the \w+", text):
        return "no", (number,)
    is_in = re.fullmatch(r"\w+ is in the (\w+)", text)
    place = is_in[1] if is_in else parse(ALONE, text)[1]
    return "yes" if place == asked else "no", (number,)


def where_before(statements: Statements, question: str) -> Answer:
    """Task 14: the place at the known time before the person's last stay at the named place."""
    person, place = parse(r"where was (\w+) before the (\w+)", question)
    times = "|".join(TIMES)
    told: dict[str, tuple[str, int]] = {}
    for number, text in enumerate(statements, 1):
        before, who, where, after = parse(rf"(?:({times}) )?{ALONE}(?: ({times}))?", text)
        if who == person:
            told[before or after] = where, number
    order = [told[time] for time in TIMES if time in told]
    i = _last(place, [where for where, _ in order])
    return order[i - 1][0], (order[i][1], order[i - 1][1])


def _last(place: str, places: list[str]) -> int:
    """Index of the last occurrence of the place after the first entry."""
    return max(i for i in range(1, len(places)) if places[i] == place)
