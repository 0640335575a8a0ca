"""Morphological inflection: from a lemma and tags to the inflected form, character by character.

    gehen TAB V;PST;3;SG  ->  ging

The forms come from files such as those of CoNLL-SIGMORPHON 2017, task 1 (Cotterell et al. 2017, arXiv 1706.09031), or,
without a language and files, from a made-up language with these rules:

- vowels are front (e i ö ü) or back (a o u);
- a noun's lemma is its stem, a verb's lemma is its stem with -nA. Stems have two or three syllables, and end in a
  vowel or in one of p t k s l r n m;
- a capital letter in a suffix depends on the letters before it. A O U are e ö ü if the last vowel before is front, and
  a o u if it is back. D is t after p t k s, and d elsewhere;
- before a suffix that begins with a vowel, a last p t k becomes b d g, and after a last vowel y is put in between.

Nouns take number, then case; the plural of the genitive is one suffix for both:

              NOM    ACC    DAT   GEN   LOC    INS
    N;...;SG  -      -Un    -A    -Or   -DA    -sU
    N;...;PL  -lO    -lO-Un -lO-A -Os   -lO-DA -lO-sU

Verbs take tense, then person and number; the third person singular of the present is one suffix for all:

               1;SG   2;SG   3;SG  1;PL    2;PL    3;PL
    V;PRS;...  -U-m   -U-s   -Ur   -U-mUk  -U-sUk  -U-lO
    V;PST;...  -DO-m  -DO-s  -DO   -DO-mUk -DO-sUk -DO-lO

    V;NFIN -nA    V;IMP;2;SG -    V;IMP;2;PL -kO    V.PTCP;PRS -An    V.PTCP;PST ge- and -Ut

So, in steps:

    sölkit   N;ACC;SG    sölkit-Un          sölkidün      i is front; t becomes d
    garo     N;DAT;PL    garo-lO-A          garoloya      o is back; y between the vowels
    tümak    N;GEN;PL    tümak-Os           tümagos       the last vowel counts, not the first
    medupna  V;PST;1;PL  medup-DO-mUk       meduptomuk    D is t after p
    vohirne  V;PRS;3;SG  vohir-Ur           vohirür
    kazelne  V.PTCP;PST  ge-kazel-Ut        gekazelüt     a prefix does not change
"""

import collections
import dataclasses
import difflib
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from attn_jax.errors import UserError, lookup
from attn_jax.options import option
from attn_jax.tasks.alignments import Links, align_letters
from attn_jax.tasks.made_forms import copies, hallucinate
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.splits import check_count, hold_out, seen_in_training
from attn_jax.tasks.tags import unseen_parts, unseen_tags
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text import read_lines
from attn_jax.tasks.vocabulary import Characters, Inflections, TaggedLemmas, Vocabulary

TAGS = {"first": Inflections, "apart": TaggedLemmas}
SUBSET = 2017  # seed of the permutation for subsets of a file, independent of the seed of a run
HALLUCINATED = 2019  # seed of forms with random stems, also independent of the seed of a run
ALL = sys.maxsize  # as a vocab_size: whatever occurs in training
COLUMNS = tuple(map(" ".join, itertools.permutations(("lemma", "form", "tags"))))  # orders; the first is the default
NO_FILE = (("", ""), ("train.source", "train.target"))  # the second is in runs of before 2026-11-23

NUM_EXAMPLES = 10_000  # training forms of the made-up language by default, as in size "high" of the files
TEST_SIZE = 1000
NUM_LEMMAS = 12_000
HELD_OUT_SHARE = 0.05  # of all lemmas for validation, and as many for the test
EXAMPLES = tuple(
    f"{lemma}\t{tags}"
    for lemma, tags in (
        ("sölkit", "N;ACC;SG"),
        ("garo", "N;DAT;PL"),
        ("tümak", "N;GEN;PL"),
        ("medupna", "V;PST;1;PL"),
        ("vohirne", "V;PRS;3;SG"),
        ("kazelne", "V.PTCP;PST"),
    )
)

FRONT, BACK = "eiöü", "aou"
VOWELS = FRONT + BACK
TO_FRONT, TO_BACK = str.maketrans("AOU", "eöü"), str.maketrans("AOU", "aou")
VOICED = {"p": "b", "t": "d", "k": "g"}
VOICELESS = "ptks"
ONSETS = "bdfghklmnprstvz"
CODAS = ("", "", "", "l", "n", "r", "s")  # of a syllable that is not the last
ENDINGS = ("", "", "p", "t", "k", "s", "l", "r", "n", "m")

INFINITIVE = "nA"
CASES = {"NOM": "", "ACC": "Un", "DAT": "A", "GEN": "Or", "LOC": "DA", "INS": "sU"}
TENSES = {"PRS": "U", "PST": "DO"}
PERSONS = {"1;SG": "m", "2;SG": "s", "3;SG": "", "1;PL": "mUk", "2;PL": "sUk", "3;PL": "lO"}
# tags -> suffixes in the order in which they follow the stem, separated by spaces
NOUN = (
    {f"N;{case};SG": suffix for case, suffix in CASES.items()}
    | {f"N;{case};PL": f"lO {suffix}" for case, suffix in CASES.items()}
    | {"N;GEN;PL": "Os"}
)
VERB = (
    {f"V;{tense};{who}": f"{first} {then}" for tense, first in TENSES.items() for who, then in PERSONS.items()}
    | {"V;PRS;3;SG": "Ur"}
    | {"V;NFIN": INFINITIVE, "V;IMP;2;SG": "", "V;IMP;2;PL": "kO", "V.PTCP;PRS": "An", "V.PTCP;PST": "Ut"}
)
PREFIXES = {"V.PTCP;PST": "ge"}


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
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
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
    given = _names(train, valid, test)
    folder = pathlib.Path(data_dir)
    if language:
        paths = _paths_of(folder, language, size, given)
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
        splits, stats = _read_splits(paths, columns, valid_size, num_examples)
        examples = tuple(splits["valid"].source[: len(EXAMPLES)])
    else:
        splits, stats, examples = _make_splits(num_examples, valid_size, seed), {}, EXAMPLES
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


def inflect(lemma: str, tags: str) -> str:
    """Inflects a lemma of the made-up language. The tags are a key of NOUN or of VERB."""
    word, suffixes = (lemma, NOUN[tags]) if tags in NOUN else (lemma[: -len(INFINITIVE)], VERB[tags])
    for suffix in suffixes.split():
        word = attach(word, suffix)
    return PREFIXES.get(tags, "") + word


def attach(word: str, suffix: str) -> str:
    """Attaches a suffix by the rules above. The word must have a vowel, the suffix a letter."""
    last_vowel = next(letter for letter in reversed(word) if letter in VOWELS)
    if suffix[0] in "AOU":
        word = word + "y" if word[-1] in VOWELS else word[:-1] + VOICED.get(word[-1], word[-1])
    suffix = suffix.replace("D", "t" if word[-1] in VOICELESS else "d")
    return word + suffix.translate(TO_FRONT if last_vowel in FRONT else TO_BACK)


def _make_splits(num_examples: int, valid_size: int, seed: int) -> dict[str, Pairs]:
    """Samples the splits of the made-up language. No lemma is in two splits, whatever the sizes."""
    rng = np.random.default_rng(seed)
    lexicon = _lexicon(rng)
    drawn = list(lexicon)
    lemmas = [drawn[i] for i in rng.permutation(len(drawn))]
    held_out = int(len(lemmas) * HELD_OUT_SHARE)
    parts = {"valid": lemmas[:held_out], "test": lemmas[held_out : 2 * held_out], "train": lemmas[2 * held_out :]}
    cells = {name: [(lemma, tags) for lemma in part for tags in lexicon[lemma]] for name, part in parts.items()}
    check_count(num_examples, len(cells["train"]), "forms", str(NUM_EXAMPLES))
    if not 1 <= valid_size <= len(cells["valid"]):
        raise UserError(
            f"task.valid_size {valid_size}: expected 1 to {len(cells['valid'])}, the validation forms there are"
        )
    sizes = {"train": num_examples or NUM_EXAMPLES, "valid": valid_size, "test": TEST_SIZE}
    splits = {}
    for name, count in sizes.items():
        # Shuffled as a whole, then cut: the size of one split changes no other form.
        chosen = [cells[name][i] for i in rng.permutation(len(cells[name]))[:count]]
        splits[name] = Pairs([f"{lemma}\t{tags}" for lemma, tags in chosen], [inflect(*cell) for cell in chosen])
    return splits


def _lexicon(rng: np.random.Generator) -> dict[str, dict[str, str]]:
    """Samples NUM_LEMMAS lemmas, none of them in EXAMPLES, and maps each to NOUN or VERB."""

    def pick(options):
        return options[rng.integers(len(options))]

    shown = {text.partition("\t")[0] for text in EXAMPLES}
    lexicon: dict[str, dict[str, str]] = {}
    while len(lexicon) < NUM_LEMMAS:
        syllables = [pick(ONSETS) + pick(VOWELS) for _ in range(pick((2, 3)))]
        stem = "".join(syllable + pick(CODAS) for syllable in syllables[:-1]) + syllables[-1] + pick(ENDINGS)
        paradigm = pick((NOUN, VERB))
        lemma = stem if paradigm is NOUN else attach(stem, INFINITIVE)
        if lemma not in shown:
            lexicon.setdefault(lemma, paradigm)
    return lexicon


def _names(train: Sequence[str], valid: Sequence[str], test: Sequence[str]) -> dict[str, str]:
    """Returns the names of files by split, of those that are named."""
    names = {"train": ("", "") if tuple(train) in NO_FILE else train, "valid": valid, "test": test}
    for split, files in names.items():
        if any(files[1:]):
            raise UserError(
                f"task.{split} is {tuple(files)}; expected one file, such as ('{files[0] or files[1]}', '')"
            )
    return {split: files[0] for split, files in names.items() if any(files)}


def _paths_of(folder: pathlib.Path, language: str, size: str, given: dict[str, str]) -> dict[str, pathlib.Path]:
    """Returns the files of a language by split, those that are `given` in place of its own."""
    train, valid = folder / f"{language}-train-{size}", folder / f"{language}-dev"
    if "train" not in given and not os.path.exists(train):
        _explain_missing(train, language, size)
    elif "valid" not in given and not os.path.exists(valid):
        raise UserError(
            f"{valid}: no such file; expected the validation forms of {language} next to {train.name}, or their file "
            f"in task.valid; task.train=('{train.name}', '') in place of task.language holds out task.valid_size forms"
        )
    paths = {"train": train, "valid": valid}
    tests = [folder / name for name in (f"{language}-uncovered-test", f"{language}-test")]
    if found := [path for path in tests if os.path.exists(path)]:
        paths["test"] = found[0]
    return paths | {split: folder / name for split, name in given.items()}


def _read_splits(
    paths: dict[str, pathlib.Path], columns: str, valid_size: int, num_examples: int
) -> tuple[dict[str, Pairs], dict[str, int]]:
    """Reads the files of the splits; returns these and what is to be told of them."""
    read = {split: read_forms(path, columns) for split, path in paths.items()}
    cut = hold_out(
        read["train"],
        read.get("valid"),
        valid_size=valid_size,
        num_examples=num_examples,
        seed=SUBSET,
        same=_cells,
        what="forms",
    )
    splits = read | {"train": cut.train, "valid": cut.valid}
    stats = {} if "valid" in read else {"training forms with the lemma and tags of a held-out one": cut.equal}
    return splits, stats | _told(splits)


def _told(splits: dict[str, Pairs]) -> dict[str, int]:
    """Counts what training has too, and what it has not; and the lemmas and tags that have several forms."""
    stats = seen_in_training(splits, lambda pairs: list(zip(pairs.source, pairs.target, strict=True)), "forms")
    stats |= unseen_parts(splits, "forms", "lemma", lambda pairs: [[lemma] for lemma in _lemmas(pairs)])
    stats |= unseen_parts(splits, "forms", "character of the lemma", _lemmas)
    stats |= unseen_parts(splits, "forms", "character", lambda pairs: pairs.target)
    for name, pairs in splits.items():
        forms = set(zip(pairs.source, pairs.target, strict=True))
        cells = collections.Counter(cell for cell, _ in forms)
        if several := sum(count > 1 for count in cells.values()):
            stats[f"{name} lemmas and tags with several forms"] = several
    return stats


def _lemmas(pairs: Pairs) -> list[str]:
    return [text.partition("\t")[0] for text in pairs.source]


def _cells(pairs: Pairs) -> list[str]:
    return pairs.source


def read_forms(path: pathlib.Path, columns: str = COLUMNS[0]) -> Pairs:
    """Reads the lines of a file, such as `lemma TAB form TAB tags`, as pairs (`lemma TAB tags`, form), spaces and all.

    Args:
        path: of the file.
        columns: one of COLUMNS.

    Raises:
        UserError: as attn_jax.tasks.text.read_lines, or a line has not three columns, or an empty one, or the
            columns seem to be in another order, or the tags have another sign between them.
    """
    order = lookup({known: known.split(" ") for known in COLUMNS}, columns, "task.columns")
    expected = " TAB ".join(order)
    source, target = [], []
    for number, line in enumerate(read_lines(path, expected=expected), 1):
        found = line.split("\t")
        if len(found) != len(order):
            blind = "; a file without forms is for --mode=predict --source" if len(found) == 2 else ""
            raise UserError(f"{path}, line {number}: expected the 3 columns {expected}, got {len(found)}{blind}")
        row = dict(zip(order, found, strict=True))
        for name, text in row.items():
            if not text.strip():
                raise UserError(f"{path}, line {number}: the column {name} is empty; expected {expected}")
        source.append(f"{row['lemma']}\t{row['tags']}")
        target.append(row["form"])
    pairs = Pairs(source, target)
    if _is_swapped(pairs):
        swap = {"form": "tags", "tags": "form"}
        other = [swap.get(name, name) for name in order]
        raise UserError(
            f"{path}: the columns look like {' TAB '.join(other)}; expected {expected}, or task.columns="
            f"'{' '.join(other)}'"
        )
    tags = source[0].partition("\t")[2]
    if "=" in tags and "," in tags and not any(";" in text for text in source):
        raise UserError(
            f"{path}: tags with , between them, such as {tags}; expected ;, such as {tags.replace(',', ';')}"
        )
    return pairs


def _is_swapped(pairs: Pairs) -> bool:
    """Returns whether forms and tags seem to be swapped.

    The forms look like tags if most have ";" and no tags have it; or if they are fewer than the tags, and have fewer
    letters in common with the lemmas, as tags of one part do.
    """
    forms, cells = pairs.target, [text.split("\t") for text in pairs.source]
    if sum(";" in form for form in forms) > len(forms) / 2 and not any(";" in text for text in pairs.source):
        return True
    if len(set(forms)) >= len({tags for _, tags in cells}):
        return False
    return sum(map(_common_letters, cells)) > sum(
        _common_letters((lemma, form)) for (lemma, _), form in zip(cells, forms, strict=True)
    )


def _common_letters(words: Sequence[str]) -> int:
    """Returns the number of different letters that two words have in common."""
    return len(set(words[0]) & set(words[1]))


def _explain_missing(path: pathlib.Path, language: str, size: str) -> None:
    """Raises UserError with the languages in the folder, or with the sizes of this language.

    Returns if the folder itself is missing; reading the file then raises the error.
    """
    found = [re.fullmatch("(.+)-train-(.+)", other.name) for other in path.parent.glob("*-train-*")]
    there = [match.groups() for match in found if match]
    if not there:
        if os.path.isdir(path.parent):
            raise UserError(
                f"{path}: no such file, and none of another language or size in the folder {path.parent}; files of "
                "other names are for task.train=('NAME', '') and task.valid"
            )
        return
    if sizes := {other_size for other, other_size in there if other == language}:
        what, asked, known = f"sizes of {language}", size, sorted(sizes)
    else:
        what, asked, known = "languages", language, sorted({other for other, _ in there})
    close = difflib.get_close_matches(asked, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UserError(f"{path}: no such file; {what} there: {', '.join(known)}{hint}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InflectionOptions(TextOptions):
    """Options of the task of inflecting a lemma."""

    name: str = option("inflection", "name of the task")
    language: str = option("", "language of the files in data_dir, such as german; empty: a generated language")
    size: str = option("high", "size of the training file of the language", choices=("high", "medium", "low"))
    train: tuple = option(("", ""), "(name, ''): training file in data_dir, in place of language and size", each=str)
    valid: tuple = option(
        ("", ""), "(name, ''): validation file; empty: that of the language, or valid_size forms are held out", each=str
    )
    test: tuple = option(("", ""), "(name, ''): test file; empty: that of the language, if there is one", each=str)
    columns: str = option(COLUMNS[0], "order of the columns of the files", choices=COLUMNS)
    valid_size: int = option(
        500, "generated language, or no file for validation: number of validation forms", at_least=1
    )
    tags: str = option(
        "first", "first: tags are the first tokens of the source; apart: after its end, see model.tags", choices=TAGS
    )

    hallucinated: int = option(
        0, "number of forms with random stems, made from the training forms and added to them", at_least=0
    )
    copy_words: bool = option(False, "also train to copy each lemma and each form, with the tag COPY")

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

    def read_file(self, path: pathlib.Path) -> Pairs:
        return read_forms(path, self.columns)

    def align(self, source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
        """Returns the letters of the form that are those of the lemma; the letters of a suffix have no link."""
        return align_letters(source, target)
