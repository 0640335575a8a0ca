"""Splits the pairs of one file into training and validation pairs."""

import unicodedata
from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from attn_jax.data.pairs import Pairs
from attn_jax.errors import UserError


class Cut(NamedTuple):
    """Training and validation pairs."""

    train: Pairs
    valid: Pairs
    equal: int  # training pairs dropped because they equal a validation pair


def same_text(text: str) -> str:
    """Returns a key, equal for texts that a vocabulary may encode equally: NFKC with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


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
    """Selects training pairs, and validation pairs if there is no validation file.

    Without a validation file, the last `valid_size` pairs of a fixed shuffle are the validation pairs, and training
    pairs equal to one of them are dropped. Training pairs keep the order of the file; a smaller `num_examples` selects
    a subset of a larger one.

    Args:
        pairs: pairs of the training file.
        valid: pairs of the validation file, or None.
        valid_size: number of validation pairs to take from the training file.
        num_examples: number of training pairs to use; 0 means all.
        seed: seed of the shuffle; independent of the seed of a run.
        same: maps pairs to one key each; pairs with the same key are equal.
        what: word for pairs in error messages.

    Raises:
        UserError: a size is out of range, or no training pair is left.
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
        rest = order[[keys[i] not in seen for i in order]]
        order, equal = rest, len(order) - len(rest)
        check_left(len(order), len(pairs), len(valid), what)
    check_count(num_examples, len(order), what)
    return Cut(pairs.select(np.sort(order[: num_examples or None])), valid, equal)


def seen_in_training(splits: dict[str, Pairs], same: Callable[[Pairs], list[Hashable]], what: str) -> dict[str, int]:
    """Counts the examples of each other split that are also in the training split.

    Returns:
        {"valid pairs that training has too": count, ...}, with `what` for "pairs", for splits with such examples.
    """
    known = set(same(splits["train"]))
    counts = {name: sum(key in known for key in same(split)) for name, split in splits.items() if name != "train"}
    return {f"{name} {what} that training has too": count for name, count in counts.items() if count}


def check_left(left: int, total: int, held_out: int, what: str) -> None:
    """Raises UserError if no training `what` is left."""
    if not left:
        raise UserError(
            f"no training {what} are left: of {total:,} there are {held_out:,} held out for validation, and the others "
            "equal one of these; set a smaller task.valid_size, or name a validation file in task.valid"
        )


def check_count(num_examples: int, most: int, what: str, default: str = "all") -> None:
    """Raises UserError unless num_examples is 0 (which means `default`) or at most the number of training `what`."""
    if not 0 <= num_examples <= most:
        raise UserError(
            f"task.num_examples {num_examples}: expected 0 ({default}) to {most}, the training {what} there are"
        )
