"""A story while it is told: statements, and questions with their answer and the statements that it rests on.

What all worlds of attn_jax.tasks.babi.worlds share: words, the hidden state that is told of, and which questions are
asked. All text is in lower case and has no "." or "?" yet.
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

PEOPLE = ("mary", "john", "daniel", "sandra")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
MOVE_VERBS = ("moved to", "went to", "went back to", "journeyed to", "travelled to")
RECENT = 5  # a question is about one of so many last clauses


class Question(NamedTuple):
    """A question about the first `after` statements."""

    after: int
    text: str
    answer: str
    evidence: tuple[int, ...]


class Story:
    """Statements and questions in the order of telling. The first statement is number 1."""

    def __init__(self):
        self.statements: list[str] = []
        self.questions: list[Question] = []

    def say(self, text: str) -> int:
        """Adds a statement and gives its number."""
        self.statements.append(text)
        return len(self.statements)

    def ask(self, text: str, answer: str, evidence: Iterable[int]) -> None:
        """Adds a question about all statements so far."""
        self.questions.append(Question(len(self.statements), text, answer, tuple(evidence)))


def other(rng: random.Random, options: Sequence[str], *excluded: str) -> str:
    """One of the options that is none of the excluded."""
    return rng.choice([option for option in options if option not in excluded])


def moves(rng: random.Random, who: str, place: str) -> str:
    """That someone moves to a place, in any of five ways."""
    return f"{who} {rng.choice(MOVE_VERBS)} the {place}"
