"""Translation between the lines of two text files."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

from attn_jax.data.facts import Vocabularies
from attn_jax.data.splits import hold_out, same_text, seen_in_training
from attn_jax.data.tags import add_tags, unseen_tags
from attn_jax.data.text import read_parallel
from attn_jax.data.vocabulary import TEXT_VOCABULARIES, VOCABULARIES, TaggedTexts, Vocabulary
from attn_jax.data.vocabulary_options import SAMPLED_OPTIONS, VocabularyChoice
from attn_jax.errors import UserError, lookup
from attn_jax.parts import choice, option
from attn_jax.tasks.options import VocabularyOptions
from attn_jax.tasks.task import Pairs, Task

SPLITS = ("train", "valid", "test")
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
    tag_files: Sequence[str] = ("", "", ""),
    vocabularies: Vocabularies | None = None,
) -> Task:
    """Translates line i of a source file into line i of a target file.

    With files of tags a source is `line TAB tags`, and the source vocabulary is TaggedTexts over that of the lines.

    Without validation files, the last `valid_size` training pairs of a fixed shuffle are held out, and training pairs
    equal to one of them are dropped. The pairs of a smaller `num_examples` are a subset of those of a larger one.

    Args:
        data_dir: folder of the files.
        train, valid, test: (source, target) file names; two empty names where there is none.
        valid_size: pairs to hold out where there are no validation files.
        num_examples: training pairs to use; 0 means all.
        vocabulary: name in TEXT_VOCABULARIES, in earlier runs in VOCABULARIES.
        vocab_size: of source and target.
        joint_vocabulary: one vocabulary for both sides, trained on both, of the first size.
        min_count, sentencepiece: see `min_count` and `model` in attn_jax.data.vocabulary_options.
        tag_files: of the sources of train, valid and test; empty names where there is none.
        vocabularies: (source, target) of an earlier run; None trains them on the training split.

    Raises:
        UserError: something is wrong with a file (see attn_jax.data.text), a size or a name.
    """
    kind = lookup(TEXT_VOCABULARIES if vocabularies is None else VOCABULARIES, vocabulary, "vocabulary")
    if len(tag_files) != len(SPLITS):
        raise UserError(
            f"task.tag_files is {tuple(tag_files)}; expected three names, of train, valid and test, or empty"
        )
    tagged = any(tag_files)
    read = [
        _read(data_dir, names, split, tags, tagged)
        for split, names, tags in zip(SPLITS, (train, valid, test), tag_files, strict=True)
    ]
    pairs, held_out, test_pairs = read
    if pairs is None:
        raise UserError("task.train names no files; expected a source file and a target file")
    cut = hold_out(
        pairs,
        held_out,
        valid_size=valid_size,
        num_examples=num_examples,
        seed=HELD_OUT,
        same=_both_sides,
        what="pairs",
    )
    stats = {} if held_out is not None else {"training pairs equal to a held-out one": cut.equal}
    pairs = cut.train
    splits = {"train": pairs, "valid": cut.valid} | ({"test": test_pairs} if test_pairs is not None else {})
    stats |= seen_in_training(splits, _both_sides, "pairs")

    if vocabularies is None:
        sizes = (vocab_size[0],) if joint_vocabulary else vocab_size
        vocabularies = _train(kind, pairs, sizes, tagged, min_count=min_count, model_type=sentencepiece)
    if tagged:
        stats |= unseen_tags(splits, "sources")
    return Task(
        "parallel_text",
        splits,
        *vocabularies,
        stats={name: len(split) for name, split in splits.items()} | stats,
    )


def _both_sides(pairs: Pairs) -> list[tuple[str, str]]:
    return list(zip(map(same_text, pairs.source), map(same_text, pairs.target), strict=True))


def _read(
    data_dir: str | pathlib.Path, names: Sequence[str], split: str, tags: str = "", tagged: bool = False
) -> Pairs | None:
    if len(names) != 2 or bool(names[0]) != bool(names[1]):
        raise UserError(f"task.{split} is {tuple(names)}; expected a source file and a target file, or two empty names")
    if tagged and bool(names[0]) != bool(tags):
        there, missing = ("sources", "tags") if names[0] else ("tags", "sources")
        raise UserError(f"task.{split} has {there} and no {missing}; expected in task.tag_files a name for each split")
    if not names[0]:
        return None
    folder = pathlib.Path(data_dir)
    source, target = read_parallel(folder / names[0], folder / names[1])
    return Pairs(add_tags(source, folder / names[0], folder / tags) if tagged else source, target)


def _train(
    kind: type[Vocabulary], pairs: Pairs, sizes: Sequence[int], tagged: bool, **options: Any
) -> tuple[Vocabulary, Vocabulary]:
    """Trains the vocabularies of source and target; of one size, one vocabulary on both."""
    texts = [text.partition("\t")[0] for text in pairs.source] if tagged else pairs.source
    sides = {"joint": [*texts, *pairs.target]} if len(sizes) == 1 else {"source": texts, "target": pairs.target}
    found = []
    for (side, lines), size in zip(sides.items(), sizes, strict=True):
        try:
            found.append(kind.train(lines, vocab_size=size, **options))
        except UserError as error:
            raise UserError(f"the {side} vocabulary: {error}") from None
    source = TaggedTexts.of_lines(found[0], pairs.source) if tagged else found[0]
    return source, found[-1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelTextOptions(VocabularyOptions):
    """Options of the task of translating lines."""

    name: ClassVar[str] = "parallel_text"
    has_tags: ClassVar[bool] = True

    joint_vocabulary: bool = option(
        False, "share one vocabulary, of size vocab_size[0], between source and target", afterwards=False
    )
    tag_files: tuple = option(
        ("", "", ""),
        "files of tags such as V;PST beside the source lines of train, valid and test, see model.tags; empty: none",
        each=str,
        path=True,
    )
    vocabulary: VocabularyChoice = choice(SAMPLED_OPTIONS, "words", "tokenizer and vocabulary", afterwards=False)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        task = parallel_text(
            joint_vocabulary=self.joint_vocabulary, tag_files=self.tag_files, **self.file_arguments(data_dir, kept)
        )
        return dataclasses.replace(task, sample_pieces=self.vocabulary.sample)
