"""Stories of the bAbI generator: statements, and questions with their answer and supporting statements.

Also words shared by several modules of attn_jax.tasks.stories. All text is in lower case, without "." and "?".
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PEOPLE = ("mary", "john", "daniel", "sandra")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
MOVE_VERBS = ("moved to", "went to", "went back to", "journeyed to", "travelled to")
RECENT = 5  # a question is about one of this many latest clauses


class Question(NamedTuple):
    """A question about the first `after` statements of a story."""

    after: int
    text: str
    answer: str
    evidence: tuple[int, ...]  # numbers of the statements that support the answer


class Story:
    """Statements and questions in order. The first statement has number 1."""

    def __init__(self):
        self.statements: list[str] = []
        self.questions: list[Question] = []

    def say(self, text: str) -> int:
        """Adds a statement and returns its number."""
        self.statements.append(text)
        return len(self.statements)

    def ask(self, text: str, answer: str, evidence: Iterable[int]) -> None:
        """Adds a question about all statements so far."""
        self.questions.append(Question(len(self.statements), text, answer, tuple(evidence)))


def other(rng: random.Random, options: Sequence[str], *excluded: str) -> str:
    """Chooses one of the options that is not excluded."""
    return rng.choice([option for option in options if option not in excluded])


def moves(rng: random.Random, who: str, place: str) -> str:
    """Returns a statement that someone moves to a place, with one of five verbs."""
    return f"{who} {rng.choice(MOVE_VERBS)} the {place}"
