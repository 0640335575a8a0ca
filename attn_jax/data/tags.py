"""Tags beside the sources of a task: lines `text TAB tags`, with ";" between tags."""

import pathlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from attn_jax.data.pairs import Pairs
from attn_jax.data.text import read_lines
from attn_jax.data.vocabulary import tags_of
from attn_jax.errors import UserError

SHOWN = 3  # number of tags or other parts that a message names


def add_tags(texts: Sequence[str], source: pathlib.Path, path: pathlib.Path) -> list[str]:
    """Returns `text TAB tags` for each text, with the tags of the same line of a file. Spaces around a tag are dropped.

    Args:
        texts: lines of the file `source`.
        source: path of the texts, for messages.
        path: file of tags, such as V;PST.

    Raises:
        UserError: as `read_lines`; the numbers of lines differ; a text has a tab; a line has an empty tag or a tab.
    """
    lines = read_lines(path, expected="the tags of a source line, such as V;PST")
    if len(lines) != len(texts):
        raise UserError(
            f"{path} has {len(lines)} lines but {source} has {len(texts)}; expected in line i the tags of line i of "
            "the source"
        )
    found = []
    for number, (text, line) in enumerate(zip(texts, lines, strict=True), 1):
        if "\t" in text:
            raise UserError(
                f"{source}, line {number}: has a tab, which is between a source and its tags; expected none"
            )
        tags = [tag.strip() for tag in line.split(";")]
        if "\t" in line or not all(tags):
            raise UserError(
                f"{path}, line {number}: expected tags with ; between them, such as V;PST, got {line[:40]!r}"
            )
        found.append(f"{text}\t{';'.join(tags)}")
    return found


def unseen_tags(splits: dict[str, Pairs], what: str) -> dict[str, int]:
    """Counts the sources of each split with a tag that never occurs in training; the key names some of the tags.

    Args:
        splits: "train" and others.
        what: word for the sources in messages.
    """
    return unseen_parts(splits, what, "tag", lambda pairs: map(tags_of, pairs.source))


def unseen_parts(
    splits: dict[str, Pairs], what: str, kind: str, parts: Callable[[Pairs], Iterable[Iterable[str]]]
) -> dict[str, int]:
    """Counts the examples of each split with a part that never occurs in training; the key names some of the parts.

    Args:
        splits: "train" and others.
        what: word for the examples in messages.
        kind: word for a part, such as tag.
        parts: maps pairs to the parts of each of them.
    """
    known = {part for of_one in parts(splits["train"]) for part in of_one}
    counts = {}
    for name in [name for name in splits if name != "train"]:
        unseen = [[part for part in of_one if part not in known] for of_one in parts(splits[name])]
        if count := sum(map(bool, unseen)):
            different = list(dict.fromkeys(part for some in unseen for part in some))
            some = ", ".join(map(_visible, different[:SHOWN])) + (", ..." if len(different) > SHOWN else "")
            counts[f"{name} {what} with a {kind} that training has not ({some})"] = count
    return counts


def _visible(part: str) -> str:
    """Returns a part of a text; as an escape in quotes if it is empty, or its start or end would be invisible."""
    return ascii(part) if part != part.strip() or not part or unicodedata.combining(part[0]) else part
