"""Worlds of people with partly known places: tasks 9 (negation), 10 (indefinite knowledge) and 14 (time)."""

import random
from collections.abc import Callable

from attn_jax.tasks.stories.story import PEOPLE, PLACES, RECENT, Story, moves, other

TOWN = ("bedroom", "cinema", "kitchen", "office", "park", "school")  # the places of tasks 10 and 14
FRIENDS = ("bill", "fred", "julie", "mary")
TIMES = ("yesterday", "this morning", "this afternoon", "this evening")
QUESTIONS = 5  # per story, each after two more statements
TRUTH_FIRST = 0.6  # probability that the true place is the first of two


def is_person_there_negated(rng: random.Random) -> Story:
    """Task 9: asks whether a person is at a place; a quarter of the statements are negations.

    Half of the statements are moves, a quarter say that someone "is in" a new place, and a quarter that someone "is not
    in" or "is no longer in" the previous place. A question is about a person of one of the last statements. After a
    negation it asks for the negated place, otherwise half of the time for the true place. Evidence: the last statement
    about the person.
    """

    def make_statement(person: str, place: str) -> tuple[str, str, Callable[[], tuple[str, str]]]:
        now = other(rng, PLACES, place)
        if rng.random() < 0.25:
            negation = rng.choice(("not", "no longer"))
            return f"{person} is {negation} in the {place}", now, lambda: (place, "no")
        return _statement(rng, person, now), now, lambda: _yes_or_no(rng, now, PLACES)

    return _make_story(rng, PEOPLE, PLACES, make_statement)


def is_person_there_or_there(rng: random.Random) -> Story:
    """Task 10: asks whether a person is at a place; a quarter of the statements name two possible places.

    Half of the statements are moves, a quarter say "is in the L", a quarter "is either in the L or the L". A question
    is about a person of one of the last statements and asks for the true place half of the time; with two possible
    places, the answer for both is "maybe". Evidence: the last statement about the person.
    """

    def make_statement(person: str, place: str) -> tuple[str, str, Callable[[], tuple[str, str]]]:
        now = other(rng, TOWN, place)
        if rng.random() < 0.25:
            two = [now, other(rng, TOWN, now)]
            if rng.random() >= TRUTH_FIRST:
                two.reverse()

            def ask() -> tuple[str, str]:
                question_place, _ = _yes_or_no(rng, now, TOWN)
                return question_place, "maybe" if question_place in two else "no"

            return f"{person} is either in the {two[0]} or the {two[1]}", now, ask
        return _statement(rng, person, now), now, lambda: _yes_or_no(rng, now, TOWN)

    return _make_story(rng, FRIENDS, TOWN, make_statement)


def _statement(rng: random.Random, person: str, place: str) -> str:
    """Returns a statement that someone is at a new place: a move with probability 2 / 3, else "is in"."""
    return f"{person} is in the {place}" if rng.random() < 1 / 3 else moves(rng, person, place)


def _yes_or_no(rng: random.Random, place: str, places: tuple[str, ...]) -> tuple[str, str]:
    """Samples a place to ask for, half of the time the true `place`; returns it with the answer."""
    return (place, "yes") if rng.random() < 0.5 else (other(rng, places, place), "no")


def _make_story(
    rng: random.Random, people: tuple[str, ...], places: tuple[str, ...], make_statement: Callable
) -> Story:
    """Makes a story with the statements of `make_statement(person, place)`.

    `make_statement` returns the text, the new place, and a function that returns a place to ask for and the answer.
    """
    story = Story()
    place = {person: rng.choice(places) for person in people}
    last: dict[str, tuple[int, Callable]] = {}
    subjects: list[str] = []  # person of each statement
    for _ in range(QUESTIONS):
        for _ in range(2):
            person = rng.choice(people)
            text, place[person], ask = make_statement(person, place[person])
            last[person] = story.say(text), ask
            subjects.append(person)
        person = rng.choice(subjects[-RECENT:])
        number, ask = last[person]
        question_place, answer = ask()
        story.ask(f"is {person} in the {question_place}", answer, (number,))
    return story


def where_before(rng: random.Random) -> Story:
    """Task 14: asks where a person was before the last stay at a place.

    Each person is at one place at each of TIMES, different from the place before. Statements come in groups of two,
    each about the next time of a random person; the first group grows by two until someone has two places. Each group
    is shuffled so that no statement stays in its position. The question is about one of the last five statements in the
    order before shuffling. Evidence: the statement of the place, then of the place before.
    """
    story = Story()
    places = {person: _walk(rng) for person in FRIENDS}
    num_times = dict.fromkeys(FRIENDS, 0)  # number of statements about each person
    numbers: dict[tuple[str, int], int] = {}
    order: list[tuple[str, int]] = []  # before the shuffling
    for _ in range(QUESTIONS):
        group: list[tuple[str, int]] = []
        while not group or max(num_times.values()) < 2:
            for _ in range(2):
                person = rng.choice([one for one in FRIENDS if num_times[one] < len(TIMES)])
                group.append((person, num_times[person]))
                num_times[person] += 1
        order += group
        for i in range(len(group) - 1, 0, -1):  # Sattolo's algorithm: a random cyclic permutation
            j = rng.randrange(i)
            group[i], group[j] = group[j], group[i]
        for person, time in group:
            when, event = TIMES[time], moves(rng, person, places[person][time])
            numbers[person, time] = story.say(rng.choice((f"{when} {event}", f"{event} {when}")))
        options = [
            (person, time)
            for person, time in order[-RECENT:]
            if time and places[person][time] not in places[person][time + 1 : num_times[person]]
        ]
        person, time = rng.choice(options)
        evidence = numbers[person, time], numbers[person, time - 1]
        story.ask(f"where was {person} before the {places[person][time]}", places[person][time - 1], evidence)
    return story


def _walk(rng: random.Random) -> list[str]:
    walk = [rng.choice(TOWN)]
    while len(walk) < len(TIMES):
        walk.append(other(rng, TOWN, walk[-1]))
    return walk
