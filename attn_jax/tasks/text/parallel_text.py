"""Translation between the lines of two text files."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

from attn_jax.data.splits import hold_out, same_text, seen_in_training
from attn_jax.data.tags import add_tags, unseen_tags
from attn_jax.data.text import read_parallel
from attn_jax.data.text_tables import FIELDS, SUFFIXES, is_text_table, read_pairs
from attn_jax.data.vocabulary import TaggedTexts, Vocabulary
from attn_jax.data.vocabulary_options import SAMPLED_OPTIONS, VocabularyChoice
from attn_jax.errors import UserError
from attn_jax.notices import notice
from attn_jax.parts import choice, option
from attn_jax.tasks.options import VocabularyOptions
from attn_jax.tasks.task import Pairs, Task

SPLITS = ("train", "valid", "test")
HELD_OUT = 2015  # seed of the permutation for validation pairs and subsets, independent of the seed of a run


def _both_sides(pairs: Pairs) -> list[tuple[str, str]]:
    return list(zip(map(same_text, pairs.source), map(same_text, pairs.target), strict=True))


def _read(
    folder: pathlib.Path, names: Sequence[str], split: str, tags: str, tagged: bool, fields: Sequence[str]
) -> Pairs | None:
    table = len(names) == 2 and is_text_table(names[0]) and not names[1]
    if not table and (len(names) != 2 or bool(names[0]) != bool(names[1])):
        raise UserError(
            f"task.{split} is {tuple(names)}; expected a source file and a target file, or a file of both "
            f"({', '.join(SUFFIXES)}) and an empty name, or two empty names"
        )
    if tagged and bool(names[0]) != bool(tags):
        there, missing = ("sources", "tags") if names[0] else ("tags", "sources")
        raise UserError(f"task.{split} has {there} and no {missing}; expected in task.tag_files a name for each split")
    if not names[0]:
        return None
    if table:
        source, target = read_pairs(folder / names[0], fields)
        longest = " and ".join(f"{max(map(len, side)):,}" for side in (source, target))
        what = f"{len(source):,} rows of {names[0]}, {' and '.join(fields)}, longest {longest} letters"
        notice(f"{'read':<14}{split}: {what}")
    else:
        source, target = read_parallel(folder / names[0], folder / names[1])
    return Pairs(add_tags(source, folder / names[0], folder / tags) if tagged else source, target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelTextOptions(VocabularyOptions):
    """Options of the task of translating lines.

    The target of line i of a source file is line i of a target file. With files of tags a source is `line TAB tags`,
    and the source vocabulary is TaggedTexts, which wraps the vocabulary of the lines.

    A file of both, .jsonl, .csv or .tsv, has the sources and targets in two of its `fields`.

    Without validation files, the last `valid_size` training pairs of a fixed shuffle are held out, and training pairs
    equal to a held-out pair are dropped. The pairs of a smaller `num_examples` are a subset of the pairs of a larger
    one. The vocabularies are trained on the training split.
    """

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
    fields: tuple = option(
        FIELDS, "fields of sources and targets in a file of both, such as task.train=('pairs.jsonl', '')", each=str
    )
    vocabulary: VocabularyChoice = choice(SAMPLED_OPTIONS, "words", "tokenizer and vocabulary", afterwards=False)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task.

        Raises:
            UserError: a file (see attn_jax.data.text), a size or a name is wrong.
        """
        tagged, folder = any(self.tag_files), pathlib.Path(data_dir)
        if len(self.tag_files) != len(SPLITS):
            raise UserError(
                f"task.tag_files is {self.tag_files}; expected three names, of train, valid and test, or empty"
            )
        if len(set(self.fields)) != 2 or not all(self.fields):
            raise UserError(f"task.fields is {self.fields}; expected two different names, of sources and of targets")
        files = zip((self.train, self.valid, self.test), SPLITS, self.tag_files, strict=True)
        pairs, held_out, tested = [_read(folder, *given, tagged, self.fields) for given in files]
        if pairs is None:
            raise UserError("task.train names no files; expected a source file and a target file")
        cut = hold_out(
            pairs,
            held_out,
            valid_size=self.valid_size,
            num_examples=self.num_examples,
            seed=HELD_OUT,
            same=_both_sides,
            what="pairs",
        )
        splits = {"train": cut.train, "valid": cut.valid} | ({} if tested is None else {"test": tested})
        stats = {name: len(split) for name, split in splits.items()}
        stats |= {"training pairs equal to a held-out one": cut.equal} if held_out is None else {}
        stats |= seen_in_training(splits, _both_sides, "pairs")
        vocabularies = kept or self._vocabularies(cut.train, tagged)
        stats |= unseen_tags(splits, "sources") if tagged else {}
        return Task("parallel_text", splits, *vocabularies, stats=stats, sample_pieces=self.vocabulary.sample)

    def _vocabularies(self, pairs: Pairs, tagged: bool) -> tuple[Vocabulary, Vocabulary]:
        """Trains the vocabularies of source and target, or a joint one."""
        texts = [text.partition("\t")[0] for text in pairs.source] if tagged else pairs.source
        joint = self.joint_vocabulary
        sides = {"joint": [*texts, *pairs.target]} if joint else {"source": texts, "target": pairs.target}
        found = []
        for (side, lines), size in zip(sides.items(), self.vocab_size, strict=False):
            try:
                found.append(self.vocabulary.train(lines, size))
            except UserError as error:
                raise UserError(f"the {side} vocabulary: {error}") from None
        source = TaggedTexts.of_lines(found[0], pairs.source) if tagged else found[0]
        return source, found[-1]
