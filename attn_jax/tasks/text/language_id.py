"""Language identification: from a lemma, character by character, to the name of its language.

    Sitzfleisch  ->  german

The lemmas come from the files of CoNLL-SIGMORPHON 2017, task 1 (Cotterell et al. 2017, arXiv 1706.09031); without a
folder, they come from made-up languages. A made-up lemma has two or three syllables. Each syllable has an onset, a
vowel and a coda, sampled uniformly from lists of the language; "" is none. Lemmas that belong to several languages,
such as kali in valu and tekin, are left out.
"""

import dataclasses
import pathlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attn_jax.data.splits import check_count
from attn_jax.data.vocabulary import Characters
from attn_jax.errors import UserError, lookup
from attn_jax.parts import option
from attn_jax.tasks.options import SEED, TextOptions
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text.inflection_files import read_forms
from attn_jax.tasks.text.labelled_text import label_vocabulary

HELD_OUT = 2017  # seed of the permutation for the splits, independent of the seed of a run
HELD_OUT_SHARE = 0.1  # share of all lemmas for validation, and the same for the test
TEST_SIZE = 1000
NUM_LEMMAS = 4000  # number of lemmas of each made-up language


class Language(NamedTuple):
    """Parts of the syllables of a made-up language."""

    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]


LANGUAGES = {
    "garsk": Language(
        tuple("b br d f fl g gr k kl m r s sk st t".split()),
        tuple("aeiouåø"),
        tuple("d g k l n r s t nd rk rsk st".split()),
    ),
    "pirash": Language(tuple("ch d f j l m p r s sh t v z".split()), tuple("aeiou"), ("", "", "", "n", "r", "sh", "t")),
    "tekin": Language(tuple("bdgklmnrstvyz"), tuple("aeiouöü"), ("", "", "k", "l", "m", "n", "r", "t")),
    "valu": Language(("", *"fhklmnpstvw"), tuple("aeiou"), ("",)),
}


def read_lexicons(folder: pathlib.Path, size: str, labels: Sequence[str]) -> dict[str, list[str]]:
    """Reads the distinct lemmas of each language from the files LANGUAGE-train-SIZE, languages in alphabetical order.

    Raises:
        UserError: there are no such files, a language has no file, or as in read_forms of inflection_files.py.
    """
    found = [re.fullmatch(r"(\S+)-train-(\S+)", path.name) for path in folder.glob("*-train-*")]
    sizes: dict[str, dict[str, pathlib.Path]] = {}
    for match in filter(None, found):
        sizes.setdefault(match[2], {})[match[1]] = folder / match[0]
    if not sizes:
        what = "no files LANGUAGE-train-SIZE there" if folder.is_dir() else "no such folder"
        raise UserError(f"{folder}: {what}; expected such as german-train-high")
    files = lookup(sizes, size, f"task.size of the files in {folder}")
    chosen = sorted({name: lookup(files, name, f"language in {folder}") for name in labels} or files)
    return {
        name: list(dict.fromkeys(text.split("\t")[0] for text in read_forms(files[name]).source)) for name in chosen
    }


def make_lexicons(labels: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Samples NUM_LEMMAS different lemmas for each made-up language of `labels`; () means all of LANGUAGES.

    The lemmas of a language do not depend on the other languages.
    """
    chosen = {name: lookup(LANGUAGES, name, "language") for name in sorted(labels or LANGUAGES)}
    lexicons = {}
    for name, language in chosen.items():
        rng = np.random.default_rng((seed, list(LANGUAGES).index(name)))
        lemmas: dict[str, None] = {}
        while len(lemmas) < NUM_LEMMAS:
            parts = [part[rng.integers(len(part))] for _ in range(rng.integers(2, 4)) for part in language]
            lemmas["".join(parts)] = None
        lexicons[name] = list(lemmas)
    return lexicons


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageIdOptions(TextOptions):
    """Options of the task of naming the language of a word.

    The source is a lemma, the target the name, one token. The lemmas of a language are the first column of
    data_dir/LANGUAGE-train-SIZE, without repetitions; without a folder they are sampled. Lemmas of several languages
    are left out and counted in the stats. The others are shuffled and split into training, validation and test: no
    lemma is in two splits, and a smaller split is the beginning of a larger one. The test split has TEST_SIZE lemmas,
    or fewer if there are not enough. The vocabularies are the characters of the training sources, and the names.
    """

    name: ClassVar[str] = "language_id"

    size: str = option("high", "size of the training files", choices=("high", "medium", "low"))
    labels: tuple = option((), "languages to classify, such as ('german', 'french'); (): all available", each=str)
    valid_size: int = option(500, "number of validation examples", at_least=1)

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("valid", "test"), ("size", "labels"))  # the lemmas of all languages are split together

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task; raises a UserError if a file, a name, or a number of lemmas is wrong."""
        if data_dir:
            lexicons = read_lexicons(pathlib.Path(data_dir), self.size, self.labels)
        else:
            lexicons = make_lexicons(self.labels, SEED)
        names, every = label_vocabulary(lexicons, "task.labels"), ", ".join(lexicons)
        languages: dict[str, list[str]] = {}
        for name, lemmas in lexicons.items():
            for lemma in lemmas:
                languages.setdefault(lemma, []).append(name)
        own = {lemma: of[0] for lemma, of in languages.items() if len(of) == 1}
        if not own:
            raise UserError(f"{every}: every lemma is of several of these languages; choose other task.labels")
        pairs = Pairs(list(own), list(own.values()))
        order = np.random.default_rng(HELD_OUT).permutation(len(pairs))
        held_out = int(len(pairs) * HELD_OUT_SHARE)
        valid, test, train = order[:held_out], order[held_out : 2 * held_out], order[2 * held_out :]
        if not held_out:
            raise UserError(
                f"{every}: {len(pairs)} lemmas of one language alone; expected at least {round(1 / HELD_OUT_SHARE)}, a "
                "share of which is held out"
            )
        check_count(self.num_examples, len(train), "lemmas")
        if not 1 <= self.valid_size <= held_out:
            expected = f"expected 1 to {held_out}, the validation lemmas there are"
            raise UserError(f"task.valid_size {self.valid_size}: {expected}")
        chosen = {"train": train[: self.num_examples or None], "valid": valid[: self.valid_size]}
        splits = {name: pairs.select(indices) for name, indices in (chosen | {"test": test[:TEST_SIZE]}).items()}
        stats = {name: len(split) for name, split in splits.items()} | {"languages": len(lexicons)}
        if count := len(languages) - len(pairs):
            stats["lemmas of several languages, left out"] = count
        vocabularies = kept or (Characters.train(splits["train"].source, vocab_size=0), names)
        return Task("language_id", splits, *vocabularies, stats=stats)
