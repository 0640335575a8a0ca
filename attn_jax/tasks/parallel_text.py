"""Translation between the lines of two text files."""

import pathlib
from collections.abc import Sequence

import numpy as np

from attn_jax.errors import UserError, lookup
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text import read_parallel
from attn_jax.tasks.vocabulary import VOCABULARIES, Vocabulary

HELD_OUT = 2015  # seed of the one permutation that chooses validation pairs and subsets, whatever the seed of a run


def parallel_text(
    *,
    data_dir: str | pathlib.Path,
    train: Sequence[str],
    valid: Sequence[str],
    test: Sequence[str],
    valid_size: int,
    num_examples: int,
    vocabulary: str,
    vocab_size: Sequence[int],
    joint_vocabulary: bool,
    min_count: int,
    sentencepiece: str,
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
    **_fields_of_other_tasks,
) -> Task:
    """The task of translating line i of a source file into line i of a target file.

    Without validation files the last `valid_size` training pairs of a fixed shuffle are held out; training pairs
    equal to a held-out one are left out. A smaller `num_examples` takes a subset of a larger one's pairs. The other
    fields of config.task are taken so that every entry of TASKS is called in the same way.

    Args:
        data_dir: folder of the files.
        train, valid, test: (source, target) file names; two empty names where there is none.
        valid_size: pairs to hold out where there are no validation files.
        num_examples: training pairs to use; 0 means all.
        vocabulary: name in VOCABULARIES.
        vocab_size: of source and target.
        joint_vocabulary: one vocabulary for both sides, trained on both, of the first size.
        min_count, sentencepiece: see configs/base.py.
        vocabularies: (source, target) of an earlier run; None trains them on the training split.

    Raises:
        UserError: something is wrong with a file (see attn_jax.tasks.text), a size or a name.
    """
    kind = lookup(VOCABULARIES, vocabulary, "vocabulary")
    pairs = _read(data_dir, train, "train")
    if pairs is None:
        raise UserError("task.train names no files; expected a source file and a target file")
    held_out, test_pairs = _read(data_dir, valid, "valid"), _read(data_dir, test, "test")
    note = {}
    order = np.random.default_rng(HELD_OUT).permutation(len(pairs))
    if held_out is None:
        if not 0 < valid_size < len(pairs):
            raise UserError(
                f"task.valid_size {valid_size}: expected 1 to {len(pairs) - 1}, as there are {len(pairs)} training "
                "pairs and no validation files"
            )
        order, held_out = order[:-valid_size], pairs.select(order[-valid_size:])
        seen = set(zip(held_out.source, held_out.target, strict=True))
        kept = order[[(pairs.source[i], pairs.target[i]) not in seen for i in order]]
        note["training pairs equal to a held-out one"] = len(order) - len(kept)
        order = kept
    if not 0 <= num_examples <= len(order):
        raise UserError(
            f"task.num_examples {num_examples}: expected 0 (all) to {len(order)}, the training pairs there are"
        )
    pairs = pairs.select(np.sort(order[:num_examples] if num_examples else order))
    splits = {"train": pairs, "valid": held_out} | ({"test": test_pairs} if test_pairs is not None else {})

    options = {"min_count": min_count, "model_type": sentencepiece}
    if vocabularies is None and joint_vocabulary:
        both = _train(kind, [*pairs.source, *pairs.target], "joint", vocab_size=vocab_size[0], **options)
        vocabularies = both, both
    if vocabularies is None:
        vocabularies = tuple(
            _train(kind, lines, side, vocab_size=size, **options)
            for side, lines, size in zip(("source", "target"), (pairs.source, pairs.target), vocab_size, strict=True)
        )
    return Task(
        "parallel_text",
        splits,
        *vocabularies,
        note={name: len(split) for name, split in splits.items()} | note,
        examples=tuple(held_out.source[:3]),
    )


def _read(data_dir: str | pathlib.Path, names: Sequence[str], split: str) -> Pairs | None:
    if len(names) != 2 or bool(names[0]) != bool(names[1]):
        raise UserError(f"task.{split} is {tuple(names)}; expected a source file and a target file, or two empty names")
    if not names[0]:
        return None
    return Pairs(*read_parallel(pathlib.Path(data_dir) / names[0], pathlib.Path(data_dir) / names[1]))


def _train(kind: type, lines: list[str], side: str, **options) -> Vocabulary:
    try:
        return kind.train(lines, **options)
    except UserError as error:
        raise UserError(f"the {side} vocabulary: {error}") from None
