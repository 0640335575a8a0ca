"""Morphological inflection: from a lemma and tags to the inflected form, character by character.

    gehen TAB V;PST;3;SG  ->  ging

The forms come from files such as those of CoNLL-SIGMORPHON 2017, task 1 (Cotterell et al. 2017, arXiv 1706.09031), see
inflection_files.py; without a language and files, they come from a made-up language, see made_language.py.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

from attn_jax.data.alignments import Links, align_letters
from attn_jax.data.tags import unseen_tags
from attn_jax.data.vocabulary import Characters, Inflections, TaggedLemmas
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import SEED, TextOptions
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text.inflection_files import COLUMNS, names_of, paths_of, read_forms, read_splits
from attn_jax.tasks.text.made_forms import copies, hallucinate
from attn_jax.tasks.text.made_language import EXAMPLES, make_splits

TAGS = {"first": Inflections, "apart": TaggedLemmas}
HALLUCINATED = 2019  # seed of forms with random stems, also independent of the seed of a run


@dataclasses.dataclass(frozen=True, kw_only=True)
class InflectionOptions(TextOptions):
    """Options of the task of inflecting a lemma.

    The source is `lemma TAB tags`, with ";" between tags. The files of a language are data_dir/LANGUAGE-train-SIZE,
    LANGUAGE-dev for validation, and, if it exists, LANGUAGE-uncovered-test or LANGUAGE-test; `train`, `valid` and
    `test` name other files. If `train` names a file and there is no validation file from `language` or `valid`, the
    last `valid_size` forms of a fixed shuffle are held out, and training forms with a held-out lemma and tags are
    dropped. Without a language and files, forms of the made-up language are sampled, and no lemma is in two splits. The
    forms of a smaller `num_examples` are a subset of the forms of a larger one. The source vocabulary is a class of
    TAGS, the target vocabulary is Characters, both of the training split.
    """

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
        """Makes the task; raises a UserError if a file is wrong, or a number is out of range."""
        if paths := self._paths(data_dir):
            splits, told = read_splits(paths, self.columns, self.valid_size, self.num_examples)
            examples = tuple(splits["valid"].source[: len(EXAMPLES)])
        else:
            splits, told, examples = make_splits(self.num_examples, self.valid_size, SEED), {}, EXAMPLES
        stats = {name: len(split) for name, split in splits.items()} | told | unseen_tags(splits, "forms")
        pairs = splits["train"]
        made = {"training forms with random stems": hallucinate(pairs, self.hallucinated, seed=HALLUCINATED)}
        made |= {"training words to copy": copies(pairs)} if self.copy_words else {}
        for what, more in made.items():
            pairs = Pairs([*pairs.source, *more.source], [*pairs.target, *more.target])
            stats |= {what: len(more)} if len(more) else {}
        splits["train"] = pairs
        sides = ((TAGS[self.tags], pairs.source), (Characters, pairs.target))
        vocabularies = kept or [kind.train(lines, vocab_size=0) for kind, lines in sides]
        return Task("inflection", splits, *vocabularies, stats=stats, examples=examples)

    def _paths(self, data_dir: str) -> dict[str, pathlib.Path]:
        """Returns the files of the splits; {} for the made-up language."""
        given, folder = names_of(self.train, self.valid, self.test), pathlib.Path(data_dir)
        if self.language:
            return paths_of(folder, self.language, self.size, given)
        if given and "train" not in given:
            split, name = next(iter(given.items()))
            raise UserError(f"task.{split} names {name}; expected task.train=('NAME', '') or task.language beside it")
        if data_dir and not given:
            what = f"data_dir {data_dir} has files of languages"
            raise UserError(f"{what}; set task.language, such as german, or task.train=('NAME', '')")
        return {split: folder / name for split, name in given.items()}

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        names = ("train", "valid", "valid_size", "language", "num_examples")
        return {} if self.language or any(self.valid) else {"valid": names}

    def read_file(self, path: pathlib.Path) -> Pairs:
        return read_forms(path, self.columns)

    def align(self, source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
        """Returns the letters of the form that come from the lemma; the letters of a suffix have no link."""
        return align_letters(source, target)
