"""Tags beside the sources of a task: lines `text TAB tags`, with ";" between tags."""

import pathlib
from collections.abc import Sequence

from attn_jax.errors import UserError
from attn_jax.tasks.pairs import Pairs
from attn_jax.tasks.text import read_lines
from attn_jax.tasks.vocabulary import tags_of

SHOWN = 3  # tags that a message names


def add_tags(texts: Sequence[str], source: pathlib.Path, path: pathlib.Path) -> list[str]:
    """Returns `text TAB tags` for each text, with the tags of the same line of a file.

    Args:
        texts: lines of the file `source`.
        source: for messages.
        path: file of tags, such as V;PST.

    Raises:
        UserError: as `read_lines`; another number of lines; a text with a tab; a line with an empty tag or a tab.
    """
    lines = read_lines(path, expected="the tags of a source line, such as V;PST")
    if len(lines) != len(texts):
        raise UserError(
            f"{path} has {len(lines)} lines but {source} has {len(texts)}; expected in line i the tags of line i of "
            "the source"
        )
    for number, (text, tags) in enumerate(zip(texts, lines, strict=True), 1):
        if "\t" in text:
            raise UserError(
                f"{source}, line {number}: has a tab, which is between a source and its tags; expected none"
            )
        if "\t" in tags or not all(tag.strip() for tag in tags.split(";")):
            raise UserError(
                f"{path}, line {number}: expected tags with ; between them, such as V;PST, got {tags[:40]!r}"
            )
    return [f"{text}\t{tags}" for text, tags in zip(texts, lines, strict=True)]


def unseen_tags(splits: dict[str, Pairs], what: str) -> dict[str, int]:
    """Counts the sources of each split with a tag that training has not; the key names some of these tags.

    Args:
        splits: "train" and others.
        what: word for the sources in messages.
    """
    known = {tag for text in splits["train"].source for tag in tags_of(text)}
    counts = {}
    for name in [name for name in splits if name != "train"]:
        unseen = [[tag for tag in tags_of(text) if tag not in known] for text in splits[name].source]
        if count := sum(map(bool, unseen)):
            tags = list(dict.fromkeys(tag for some in unseen for tag in some))
            some = ", ".join(tags[:SHOWN]) + (", ..." if len(tags) > SHOWN else "")
            counts[f"{name} {what} with a tag that training has not ({some})"] = count
    return counts
