"""Rule-based solver of the twenty bAbI tasks: an oracle for generated stories and for the reader of the files.

It repeats the words of attn_jax.tasks.stories.worlds on purpose: sharing no code, it can check the generator. On the
files of version 1.2 (tests/oracles/test_babi_solver.py counts, with BABI_DIR naming their folder), 1,000 training and
1,000 test questions of each task in en, 10,000 training questions of each but task 3 in en-10k:

- every answer equals the file's, except for 1 training and 2 test questions of task 5 in en (18 training ones in
  en-10k). They ask what A gave to B after A gave B two different things; the file names the first thing, the solver the
  last one, and the text does not decide.
- the evidence equals the file's, in its order, except in task 18, where a comparison can follow from several pairs of
  statements: the file has another pair in 98 training and 99 test questions of en (1,188 training ones of en-10k).

Rules that could be read in another way:

- task 8 lists things in the order in which the person first had them, not in the order of the last gets;
- tasks 3 and 14 ask for the place before the last stay at the named place;
- task 16 takes the colour of the last animal of the same kind, not the most frequent colour;
- in task 17 a shape can be both above and left of another;
- tasks 9 and 10 use only the last statement about the person.
"""

import collections
import itertools
import re
from collections.abc import Callable

from oracles.babi_solver_people import (
    Answer,
    Statements,
    how_many,
    is_person_there,
    is_person_there_maybe,
    parse,
    what_is_held,
    where_before,
    where_is_person,
    where_is_thing,
    where_was_thing,
    who_gave_what,
)

from attn_jax.errors import UserError, lookup

SINGULAR = {"mice": "mouse", "cats": "cat", "wolves": "wolf", "sheep": "sheep"}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
SIDES = {"above": (0, 1), "below": (0, -1), "to the right of": (1, 0), "to the left of": (-1, 0)}
DESTINATION = {"hungry": "kitchen", "thirsty": "kitchen", "bored": "garden", "tired": "bedroom"}


def solve(number: int, statements: Statements, question: str) -> str:
    """Returns the answer to a question. Sentences are those of attn_jax.tasks.stories.format.split_story.

    Raises:
        UserError: see `explain`.
    """
    return explain(number, statements, question)[0]


def explain(number: int, statements: Statements, question: str) -> Answer:
    """Returns the answer to a question of task `number`, and the numbers of the supporting statements.

    Raises:
        UserError: no such task, a sentence that does not belong to it, or the statements do not tell the answer.
    """
    solver = lookup({str(n): solver for n, solver in SOLVERS.items()}, str(number), "bAbI task")
    try:
        answer, evidence = solver(statements, question)
        if not answer or 0 in evidence:
            raise LookupError
        return answer, evidence
    except (LookupError, ValueError, StopIteration) as error:  # a person or thing that no statement is about
        if isinstance(error, UserError):
            raise
        raise UserError(f"task {number}: the statements do not tell the answer to {question!r}") from None


def what_is_north_of(statements: Statements, question: str) -> Answer:
    """Task 4: a is north of b if b is south of a."""
    found = {}
    for place, side, number, other in _steps(statements):
        found[side, other] = place, (number,)
    if match := re.fullmatch(r"what is (\w+) of the (\w+)", question):
        return found[match[1], match[2]]
    place, side = parse(r"what is the (\w+) (\w+) of", question)
    return found[OPPOSITE[side], place]


def what_afraid_of(statements: Statements, question: str) -> Answer:
    """Task 15: the fear of the person's kind."""
    (person,) = parse(r"what is (\w+) afraid of", question)
    kind, first = _told(r"(\w+) is a (\w+)", statements)[person]
    fears = _told(r"(\w+) are afraid of (\w+)", statements)
    fear, second = next(fears[plural] for plural, singular in SINGULAR.items() if singular == kind)
    return SINGULAR[fear], (first, second)


def what_colour(statements: Statements, question: str) -> Answer:
    """Task 16: the colour of the last animal of the same kind."""
    (person,) = parse(r"what color is (\w+)", question)
    kinds, colours = _told(r"(\w+) is a (\w+)", statements), _told(r"(\w+) is (\w+)", statements)
    kind, first = kinds[person]
    alike = [other for other in kinds if kinds[other][0] == kind and other in colours]
    colour, third = colours[alike[-1]]
    return colour, (first, kinds[alike[-1]][1], third)


def is_shape_there(statements: Statements, question: str) -> Answer:
    """Task 17: neighbours are one step apart on a grid."""
    sides = "|".join(SIDES)
    relations = [parse(rf"the ([\w ]+?) is ({sides}) the ([\w ]+)", text) for text in statements]
    a, side, b = parse(rf"is the ([\w ]+?) ({sides}) the ([\w ]+)", question)
    at = {b: (0, 0)}
    for _ in relations:  # each time at least one more shape finds its place
        for one, relation, other in relations:
            dx, dy = SIDES[relation]
            if other in at:
                at[one] = at[other][0] + dx, at[other][1] + dy
            elif one in at:
                at[other] = at[one][0] - dx, at[one][1] - dy
    x, y = (p * d for p, d in zip(at[a], SIDES[side], strict=True))
    first = next(n for n, (one, _, other) in enumerate(relations, 1) if a in (one, other))
    return "yes" if x + y > 0 else "no", (first, 3 - first)


def is_larger(statements: Statements, question: str) -> Answer:
    """Task 18: the first two comparisons that imply an answer."""
    if match := re.fullmatch(r"does the ([\w ]+) fit in the ([\w ]+)", question):
        small, large = match.groups()
    else:
        large, small = parse(r"is the ([\w ]+) bigger than the ([\w ]+)", question)
    pairs = []
    for number, text in enumerate(statements, 1):
        if match := re.fullmatch(r"the ([\w ]+) fits inside the ([\w ]+)", text):
            pairs.append((match[1], match[2], number))
        else:
            b, a = parse(r"the ([\w ]+) is bigger than the ([\w ]+)", text)
            pairs.append((a, b, number))
    for (a, b, first), (c, d, second) in itertools.permutations(pairs, 2):
        if b == c and (a, d) == (small, large):
            return "yes", (second, first)
        if b == c and (a, d) == (large, small):
            return "no", (first, second)
    raise LookupError


def which_way(statements: Statements, question: str) -> Answer:
    """Task 19: the way of two steps."""
    start, goal = parse(r"how do you go from the (\w+) to the (\w+)", question)
    ways = collections.defaultdict(list)
    for place, side, number, other in _steps(statements):
        ways[other].append((place, side[0], number))
    for middle, first, one in ways[start]:
        for place, second, two in ways[middle]:
            if place == goal:
                return f"{first},{second}", (one, two)
    raise LookupError


def why(statements: Statements, question: str) -> Answer:
    """Task 20: the state of a person gives the place and the reason."""
    asked, person = parse(r"(where will|why did) (\w+) (?:go|go to the \w+|get the \w+)", question)
    state, number = _told(r"(\w+) is (\w+)", statements)[person]
    return state if asked == "why did" else DESTINATION[state], (number,)


def _steps(statements: Statements) -> list[tuple[str, str, int, str]]:
    """Lists (a, side, number, b) with a on this side of b, in both directions."""
    found = []
    for number, text in enumerate(statements, 1):
        a, side, b = parse(r"the (\w+) is (\w+) of the (\w+)", text)
        found += [(a, side, number, b), (b, OPPOSITE[side], number, a)]
    return found


def _told(pattern: str, statements: Statements) -> dict[str, tuple[str, int]]:
    """Maps subject to (predicate, number) for the statements that match the pattern."""
    matches = [(re.fullmatch(pattern, text), number) for number, text in enumerate(statements, 1)]
    return {match[1]: (match[2], number) for match, number in matches if match}


SOLVERS: dict[int, Callable[[Statements, str], Answer]] = {
    1: where_is_person,
    2: where_is_thing,
    3: where_was_thing,
    4: what_is_north_of,
    5: who_gave_what,
    6: is_person_there,
    7: how_many,
    8: what_is_held,
    9: is_person_there_maybe,
    10: is_person_there_maybe,
    11: where_is_person,
    12: where_is_person,
    13: where_is_person,
    14: where_before,
    15: what_afraid_of,
    16: what_colour,
    17: is_shape_there,
    18: is_larger,
    19: which_way,
    20: why,
}
