"""A folder of encoded pairs in files that are mapped into memory, made by `python -m attn_jax.cli.index`.

    source.tokens, target.tokens      ids of all pairs, one after the other, each pair with its eos; 2 or 4 bytes each
    source.offsets, target.offsets    int64: start of each pair, and end of the last pair
    members.0, members.1 ...          uint32: numbers of the pairs of each bucket, in their order
    vocabularies.json                 the vocabularies, with the counts of the target words
    index.json                        sizes, buckets, and the crc32 of each of these files and of both texts

All numbers are little-endian. A folder without index.json is unfinished.
"""

import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn_jax.data.batching import EncodedPairs, Ragged
from attn_jax.data.buckets import Buckets, make_buckets
from attn_jax.data.data_files import load_vocabularies
from attn_jax.data.files import load_checked, reason, text_checksum
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError

INDEX, PROGRESS, VOCABULARIES = "index.json", "progress.json", "vocabularies.json"
SIDES = ("source", "target")
OFFSETS, MEMBERS = np.dtype("<i8"), np.dtype("<u4")
BLOCK = 1 << 24  # bytes read at a time


class TokenIndex(NamedTuple):
    """An opened folder."""

    pairs: EncodedPairs
    vocabularies: tuple[Vocabulary, Vocabulary]
    buckets: Buckets
    members: tuple[np.ndarray, ...]  # numbers of the pairs of each bucket
    longest: int  # length of the longest source
    unknown: tuple[float, float]  # share of unk among the tokens of each side
    checksum: int  # of all files


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the smallest integer type for ids of a vocabulary."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<i4")


def open_index(folder: pathlib.Path) -> TokenIndex:
    """Opens a folder and checks the sizes of its files, without reading the large ones.

    Raises:
        UserError: a file is missing, the size of a file has changed, or the vocabularies have changed.
    """
    content = read_index(folder)
    for name, about in content["files"].items():
        size = size_of(folder / name)
        if size != about["bytes"]:
            raise UserError(f"{folder / name} has {size:,} bytes; expected {about['bytes']:,}: index the text again")
    if checksum_of(folder / VOCABULARIES) != content["files"][VOCABULARIES]["crc32"]:
        raise UserError(f"{folder / VOCABULARIES} is not that of the index (wrong checksum); put it back as it was")
    vocabularies = load_vocabularies(folder)
    sides = []
    for side, vocabulary in zip(SIDES, vocabularies, strict=True):
        tokens = map_array(folder / f"{side}.tokens", token_dtype(len(vocabulary)))
        sides.append(Ragged(tokens, map_array(folder / f"{side}.offsets", OFFSETS)))
    buckets = make_buckets([tuple(bucket) for bucket in content["buckets"]])
    members = tuple(map_array(folder / f"members.{i}", MEMBERS) for i in range(len(buckets)))
    return TokenIndex(
        EncodedPairs(*sides),
        vocabularies,
        buckets,
        members,
        content["longest"],
        tuple(content["unknown"]),
        text_checksum(content["files"]),
    )


def read_index(folder: pathlib.Path) -> dict[str, Any]:
    """Reads index.json.

    Raises:
        UserError: the file is missing or damaged.
    """
    if not (folder / INDEX).exists():
        kind = "is not finished; run the same command again" if (folder / PROGRESS).exists() else "has no index.json"
        raise UserError(f"{folder} {kind}; expected a folder of python -m attn_jax.cli.index")
    content, _ = load_checked(folder / INDEX)
    return content


def verify(folder: pathlib.Path, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Reads every file of a folder and compares its checksum; returns the number of bytes.

    Args:
        folder: a finished folder.
        progress: called with (bytes read, bytes in total).

    Raises:
        UserError: a file is missing or was changed.
    """
    files = read_index(folder)["files"]
    total, done = sum(about["bytes"] for about in files.values()), 0
    for name, about in files.items():
        if checksum_of(folder / name, tell=lambda read, before=done: progress(before + read, total)) != about["crc32"]:
            raise UserError(f"{folder / name} was changed since it was written (wrong checksum): index the text again")
        done += about["bytes"]
    return total


def verify_texts(folder: pathlib.Path, texts: Sequence[pathlib.Path]) -> None:
    """Checks by checksums that a folder was made from a source and a target text.

    Raises:
        UserError: a text differs or cannot be read, or the folder is of a version that stored no checksums.
    """
    kept = read_index(folder).get("texts")
    if kept is None:
        raise UserError(f"{folder} does not say which texts it is of, since an earlier version made it")
    for side, path in zip(SIDES, texts, strict=True):
        if checksum_of(path) != kept[side]:
            raise UserError(f"{folder} is an index of another {side} text than {path} (wrong checksum)")


def checksum_of(path: pathlib.Path, size: int | None = None, tell: Callable[[int], None] = lambda read: None) -> int:
    """Returns the crc32 of a file, or of its first `size` bytes.

    Args:
        path: path of the file.
        size: bytes to read; None: all.
        tell: called with the number of bytes read, after each block.

    Raises:
        UserError: the file cannot be read.
    """
    found, read = 0, 0
    try:
        for block in blocks_of(path, size):
            found, read = zlib.crc32(block, found), read + len(block)
            tell(read)
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from error
    return found


def blocks_of(path: pathlib.Path, size: int | None = None) -> Iterator[bytes]:
    """Yields the bytes of a file, or its first `size` bytes, in blocks."""
    with open(path, "rb") as file:
        while block := file.read(BLOCK if size is None else min(BLOCK, size)):
            size = None if size is None else size - len(block)
            yield block


def map_array(path: pathlib.Path, dtype: np.dtype) -> np.ndarray:
    """Maps a file into memory as a one-dimensional array; an empty file is an empty array."""
    if size_of(path) == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


def size_of(path: pathlib.Path) -> int:
    """Returns the size of a file in bytes; raises a UserError if it does not exist."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}; index the text again") from error
