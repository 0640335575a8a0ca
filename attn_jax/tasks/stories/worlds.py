"""Generator of stories for the twenty bAbI tasks, with the words of version 1.2 and the rules found in its files.

Each function in WORLDS makes one story. Sources: Weston et al. 2015, arXiv 1502.05698, and statistics of the files,
which tests/tasks/stories/test_worlds.py checks on generated stories.
"""

import random
from collections.abc import Callable

from attn_jax.errors import UserError, lookup
from attn_jax.tasks.stories.format import join_story
from attn_jax.tasks.stories.logic import (
    is_larger,
    is_shape_there,
    what_afraid_of,
    what_colour,
    what_is_north_of,
    which_way,
    why,
)
from attn_jax.tasks.stories.people import (
    how_many,
    is_person_there,
    what_is_held,
    where_is_one_of_them,
    where_is_one_of_two,
    where_is_person,
    where_is_pronoun,
    where_is_thing,
    where_was_thing,
    who_gave_what,
)
from attn_jax.tasks.stories.states import is_person_there_negated, is_person_there_or_there, where_before
from attn_jax.tasks.stories.story import Story
from attn_jax.tasks.task import Pairs

PATIENCE = 2000  # number of stories without a new question after which generation stops with an error

WORLDS: dict[int, Callable[[random.Random], Story]] = {
    1: where_is_person,
    2: where_is_thing,
    3: where_was_thing,
    4: what_is_north_of,
    5: who_gave_what,
    6: is_person_there,
    7: how_many,
    8: what_is_held,
    9: is_person_there_negated,
    10: is_person_there_or_there,
    11: where_is_pronoun,
    12: where_is_one_of_two,
    13: where_is_one_of_them,
    14: where_before,
    15: what_afraid_of,
    16: what_colour,
    17: is_shape_there,
    18: is_larger,
    19: which_way,
    20: why,
}


def generate(number: int, num_questions: int, seed: int | str, exclude: set[str] | None = None) -> Pairs:
    """Generates questions of a task with evidence, story by story. A smaller number gives the first of a larger.

    Args:
        number: number of the task, 1 to 20.
        num_questions: number of questions.
        seed: seed of the stories.
        exclude: sources to leave out, which also makes all sources different; None keeps all.

    Raises:
        UserError: the task is unknown, or has too few different questions.
    """
    make_story = lookup({str(n): world for n, world in WORLDS.items()}, str(number), "bAbI task")
    rng = random.Random(f"babi {number} {seed}")
    known = None if exclude is None else set(exclude)
    source, target, evidence = [], [], []
    num_stale = 0
    while len(source) < num_questions:
        story = make_story(rng)
        before = len(source)
        for question in story.questions:
            text = join_story(story.statements[: question.after], question.text)
            if known is not None:
                if text in known:
                    continue
                known.add(text)
            source.append(text)
            target.append(question.answer)
            evidence.append(question.evidence)
        num_stale = num_stale + 1 if len(source) == before else 0
        if num_stale == PATIENCE:
            raise UserError(
                f"bAbI task {number}: no new question in {PATIENCE} stories after {len(source)} of {num_questions}; "
                f"expected fewer questions of it{_others(exclude)}"
            )
    return Pairs(source[:num_questions], target[:num_questions], evidence[:num_questions])


def _others(exclude: set[str] | None) -> str:
    """Suggests fewer training questions in the error message, since generation excludes them."""
    return f", or fewer than {len(exclude):,} different ones of the training (task.num_examples)" if exclude else ""
