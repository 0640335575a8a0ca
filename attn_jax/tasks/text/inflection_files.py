"""Files of inflected forms: three columns in any order, as in the SIGMORPHON shared tasks."""

import collections
import difflib
import itertools
import os
import pathlib
import re
from collections.abc import Sequence

from attn_jax.data.pairs import Pairs
from attn_jax.data.splits import hold_out, seen_in_training
from attn_jax.data.tags import unseen_parts
from attn_jax.data.text import read_lines
from attn_jax.errors import UserError, lookup

SUBSET = 2017  # seed of the permutation for subsets of a file, independent of the seed of a run
COLUMNS = tuple(map(" ".join, itertools.permutations(("lemma", "form", "tags"))))  # orders; the first is the default
NO_FILE = (("", ""), ("train.source", "train.target"))  # default values: now, and in runs from before 2026-11-23


def names_of(train: Sequence[str], valid: Sequence[str], test: Sequence[str]) -> dict[str, str]:
    """Returns the file names by split, for the splits that have one."""
    names = {"train": ("", "") if tuple(train) in NO_FILE else train, "valid": valid, "test": test}
    for split, files in names.items():
        if any(files[1:]):
            raise UserError(
                f"task.{split} is {tuple(files)}; expected one file, such as ('{files[0] or files[1]}', '')"
            )
    return {split: files[0] for split, files in names.items() if any(files)}


def paths_of(folder: pathlib.Path, language: str, size: str, given: dict[str, str]) -> dict[str, pathlib.Path]:
    """Returns the files of a language by split; files in `given` replace the files of the language."""
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


def read_splits(
    paths: dict[str, pathlib.Path], columns: str, valid_size: int, num_examples: int
) -> tuple[dict[str, Pairs], dict[str, int]]:
    """Reads the split files; returns the splits, and statistics to print."""
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
    return splits, stats | _statistics(splits)


def _statistics(splits: dict[str, Pairs]) -> dict[str, int]:
    """Counts held-out forms seen in training, unseen lemmas and characters, and (lemma, tags) with several forms."""
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
    """Reads the lines of a file, such as `lemma TAB form TAB tags`, as pairs (`lemma TAB tags`, form); spaces are kept.

    Args:
        path: path of the file.
        columns: one of COLUMNS.

    Raises:
        UserError: as in attn_jax.data.text.read_lines; a line does not have three columns, or has an empty one; the
            columns seem to be in another order; or the tags have another separator.
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

    The forms look like tags if most have ";" and no tags have it; or if there are fewer different forms than tags, and
    the forms have fewer letters in common with the lemmas, as with tags of one part.
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
    """Raises a UserError that lists the languages in the folder, or the sizes of this language.

    Returns if the folder is missing; reading the file then raises the error.
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
