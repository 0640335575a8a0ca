"""Morphological inflection: from a lemma and tags to the inflected form, character by character.

    gehen TAB V;PST;3;SG  ->  ging

The forms come from files such as those of CoNLL-SIGMORPHON 2017, task 1 (Cotterell et al. 2017, arXiv 1706.09031), see
inflection_files.py, or, without a language and files, from a made-up language, see made_language.py.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from attn_jax.data.alignments import Links, align_letters
from attn_jax.data.facts import Vocabularies
from attn_jax.data.tags import unseen_tags
from attn_jax.data.vocabulary import Characters, Inflections, TaggedLemmas
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text.inflection_files import COLUMNS, names_of, paths_of, read_forms, read_splits
from attn_jax.tasks.text.made_forms import copies, hallucinate
from attn_jax.tasks.text.made_language import EXAMPLES, make_splits

TAGS = {"first": Inflections, "apart": TaggedLemmas}
HALLUCINATED = 2019  # seed of forms with random stems, also independent of the seed of a run
ALL = sys.maxsize  # as a vocab_size: whatever occurs in training


def inflection(
    *,
    data_dir: str | pathlib.Path,
    language: str,
    size: str,
    num_examples: int,
    valid_size: int,
    train: Sequence[str] = ("", ""),
    valid: Sequence[str] = ("", ""),
    test: Sequence[str] = ("", ""),
    columns: str = COLUMNS[0],
    tags: str = "first",
    hallucinated: int = 0,
    copy_words: bool = False,
    vocabularies: Vocabularies | None = None,
    seed: int = 0,
) -> Task:
    """Inflects a lemma: the source is `lemma TAB tags`, with ";" between tags, the target is the form.

    The files of a language are data_dir/LANGUAGE-train-SIZE, LANGUAGE-dev for validation, and, if there is one,
    LANGUAGE-uncovered-test or LANGUAGE-test; `train`, `valid` and `test` name others. If `train` names a file and
    neither `language` nor `valid` gives one for validation, the last `valid_size` forms of a fixed shuffle are held
    out, and training forms of the same lemma and tags are dropped. Without a language and files, forms of the made-up
    language are sampled with `seed`, and no lemma is in two splits. The forms of a smaller `num_examples` are a subset
    of those of a larger one. The vocabularies are one of TAGS of the training sources and Characters of the training
    targets.

    Args:
        data_dir: folder of the files.
        language: for example "german"; "" is the made-up language, or that of `train`.
        size: of the training file of a language, "high", "medium" or "low".
        num_examples: training forms; 0 means all of the file, or NUM_EXAMPLES of the made-up language.
        valid_size: forms to hold out, or validation forms of the made-up language; its test split has TEST_SIZE.
        train, valid, test: file names in data_dir, (name, "") each, in place of those of a language.
        columns: one of COLUMNS, the order of the columns of all files.
        tags: a key of TAGS: where the tags of a source are.
        hallucinated: number of forms with random stems that are made from the training forms and added to them.
        copy_words: also train to copy each lemma and each form.
        vocabularies: (source, target) of an earlier run; None makes them.
        seed: of the made-up language: its lemmas, their splits and its forms.

    Raises:
        UserError: something is wrong with a file, or a number of forms is out of range.
    """
    given = names_of(train, valid, test)
    folder = pathlib.Path(data_dir)
    if language:
        paths = paths_of(folder, language, size, given)
    elif given and "train" not in given:
        split, name = next(iter(given.items()))
        raise UserError(f"task.{split} names {name}; expected task.train=('NAME', '') or task.language beside it")
    elif str(data_dir) and not given:
        raise UserError(
            f"data_dir {data_dir} has files of languages; set task.language, such as german, or task.train=('NAME', '')"
        )
    else:
        paths = {split: folder / name for split, name in given.items()}
    if paths:
        splits, stats = read_splits(paths, columns, valid_size, num_examples)
        examples = tuple(splits["valid"].source[: len(EXAMPLES)])
    else:
        splits, stats, examples = make_splits(num_examples, valid_size, seed), {}, EXAMPLES
    stats = {name: len(split) for name, split in splits.items()} | stats | unseen_tags(splits, "forms")
    pairs = splits["train"]
    made = {"training forms with random stems": hallucinate(pairs, hallucinated, seed=HALLUCINATED)}
    made |= {"training words to copy": copies(pairs)} if copy_words else {}
    for what, more in made.items():
        pairs = Pairs([*pairs.source, *more.source], [*pairs.target, *more.target])
        stats |= {what: len(more)} if len(more) else {}
    splits["train"] = pairs
    if vocabularies is None:
        vocabularies = (
            TAGS[tags].train(pairs.source, vocab_size=ALL),
            Characters.train(pairs.target, vocab_size=ALL),
        )
    return Task("inflection", splits, *vocabularies, stats=stats, examples=examples)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InflectionOptions(TextOptions):
    """Options of the task of inflecting a lemma."""

    name: ClassVar[str] = "inflection"
    has_tags: ClassVar[bool] = True

    language: str = option("", "language of the files in data_dir, such as german; empty: a generated language")
    size: str = option("high", "size of the training file of the language", choices=("high", "medium", "low"))
    train: tuple = option(
        ("", ""), "(name, ''): training file in data_dir, in place of language and size", each=str, path=True
    )
    valid: tuple = option(
        ("", ""),
        "(name, ''): validation file; empty: that of the language, or valid_size forms are held out",
        each=str,
        path=True,
    )
    test: tuple = option(
        ("", ""), "(name, ''): test file; empty: that of the language, if there is one", each=str, path=True
    )
    columns: str = option(COLUMNS[0], "order of the columns of the files", choices=COLUMNS)
    valid_size: int = option(
        500, "generated language, or no file for validation: number of validation forms", at_least=1
    )
    tags: str = option(
        "first",
        "first: tags are the first tokens of the source; apart: after its end, see model.tags",
        choices=TAGS,
        afterwards=False,
    )
    hallucinated: int = option(
        0,
        "number of forms with random stems, made from the training forms and added to them",
        at_least=0,
        afterwards=False,
    )
    copy_words: bool = option(False, "also train to copy each lemma and each form, with the tag COPY", afterwards=False)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        return inflection(
            data_dir=data_dir,
            language=self.language,
            size=self.size,
            num_examples=self.num_examples,
            valid_size=self.valid_size,
            train=self.train,
            valid=self.valid,
            test=self.test,
            columns=self.columns,
            tags=self.tags,
            hallucinated=self.hallucinated,
            copy_words=self.copy_words,
            vocabularies=kept,
        )

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        names = ("train", "valid", "valid_size", "language", "num_examples")
        return {} if self.language or any(self.valid) else {"valid": names}

    def read_file(self, path: pathlib.Path) -> Pairs:
        return read_forms(path, self.columns)

    def align(self, source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
        """Returns the letters of the form that are those of the lemma; the letters of a suffix have no link."""
        return align_letters(source, target)
