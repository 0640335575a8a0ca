"""Translation between the lines of two text files."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from attn_jax.errors import UserError, lookup
from attn_jax.options import option
from attn_jax.tasks.options import PIECES, VocabularyOptions
from attn_jax.tasks.splits import hold_out
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text import read_parallel
from attn_jax.tasks.vocabulary import VOCABULARIES, Vocabulary

HELD_OUT = 2015  # seed of the permutation for validation pairs and subsets, independent of the seed of a run


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
) -> Task:
    """Translates line i of a source file into line i of a target file.

    Without validation files, the last `valid_size` training pairs of a fixed shuffle are held out, and training pairs
    equal to one of them are dropped. The pairs of a smaller `num_examples` are a subset of those of a larger one.

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
    cut = hold_out(
        pairs,
        held_out,
        valid_size=valid_size,
        num_examples=num_examples,
        seed=HELD_OUT,
        same=lambda pairs: list(zip(pairs.source, pairs.target, strict=True)),
        what="pairs",
    )
    stats = {} if held_out is not None else {"training pairs equal to a held-out one": cut.equal}
    pairs = cut.train
    splits = {"train": pairs, "valid": cut.valid} | ({"test": test_pairs} if test_pairs is not None else {})

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
        stats={name: len(split) for name, split in splits.items()} | stats,
        examples=tuple(cut.valid.source[:3]),
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelTextOptions(VocabularyOptions):
    """Options of the task of translating lines."""

    name: str = option("parallel_text", "name of the task")
    joint_vocabulary: bool = option(False, "share one vocabulary, of size vocab_size[0], between source and target")
    sample_pieces: float = option(
        0.0,
        "training splits texts at random: bpe leaves out a merge with this probability, unigram takes one of the best "
        "splits with its probability to this power; 0: the best split",
        at_least=0,
        at_most=1,
        only=("vocabulary", PIECES),
    )

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        task = parallel_text(joint_vocabulary=self.joint_vocabulary, **self.file_arguments(data_dir, kept))
        return dataclasses.replace(task, sample_pieces=self.sample_pieces)
