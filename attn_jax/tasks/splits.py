"""Cutting the pairs of one file into those trained on and those held out."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from attn_jax.errors import UserError
from attn_jax.tasks.task import Pairs


class Cut(NamedTuple):
    """What became of the pairs of a training file."""

    train: Pairs
    valid: Pairs
    equal: int  # pairs left out, as they are equal to a held-out one


def hold_out(
    pairs: Pairs,
    valid: Pairs | None,
    *,
    valid_size: int,
    num_examples: int,
    seed: int,
    same: Callable[[Pairs], list[Hashable]],
    what: str,
) -> Cut:
    """Without validation pairs the last `valid_size` pairs of a shuffle are held out, and those equal to them left out.

    A smaller `num_examples` takes a subset of a larger one's training pairs, and the order is that of the file.

    Args:
        pairs: of the training file.
        valid: of the validation file, or None.
        valid_size: pairs to hold out.
        num_examples: training pairs to use; 0 means all.
        seed: of the one shuffle, whatever the seed of a run.
        same: of each pair what makes it equal to another.
        what: a pair is called, for errors.

    Raises:
        UserError: one of the sizes is out of range, or no training pair is left.
    """
    order, equal = np.random.default_rng(seed).permutation(len(pairs)), 0
    if valid is None:
        if len(pairs) < 2:
            raise UserError(f"{len(pairs)} training {what} and no file for validation; expected at least 2")
        if not 0 < valid_size < len(pairs):
            raise UserError(
                f"task.valid_size {valid_size}: expected 1 to {len(pairs) - 1}, as there are {len(pairs)} training "
                f"{what} and no file for validation"
            )
        order, valid = order[:-valid_size], pairs.select(order[-valid_size:])
        seen, keys = set(same(valid)), same(pairs)
        kept = order[[keys[i] not in seen for i in order]]
        order, equal = kept, len(order) - len(kept)
        check_left(len(order), len(pairs), len(valid), what)
    check_count(num_examples, len(order), what)
    return Cut(pairs.select(np.sort(order[: num_examples or None])), valid, equal)


def check_left(left: int, total: int, held_out: int, what: str) -> None:
    """UserError where of all training `what` none is left to train on."""
    if not left:
        raise UserError(
            f"no training {what} are left: of {total:,} there are {held_out:,} held out for validation, and the others "
            "equal one of these; set a smaller task.valid_size, or name a validation file in task.valid"
        )


def check_count(num_examples: int, most: int, what: str, default: str = "all") -> None:
    """UserError unless there are so many training `what`, of which 0 means the `default`."""
    if not 0 <= num_examples <= most:
        raise UserError(
            f"task.num_examples {num_examples}: expected 0 ({default}) to {most}, the training {what} there are"
        )
