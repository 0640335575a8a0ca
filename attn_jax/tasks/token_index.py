"""A folder of encoded pairs in files that are mapped into memory, made by `python -m attn_jax.cli.index`.

    source.tokens, target.tokens      ids of all pairs, one after the other, each pair with its eos; 2 or 4 bytes each
    source.offsets, target.offsets    int64: where each pair begins, and the end of the last one
    members.0, members.1 ...          uint32: numbers of the pairs of each bucket, in their order
    vocabularies.json                 the vocabularies, with the counts of the target words
    index.json                        sizes, buckets, and the crc32 of each of these files

All numbers are little-endian. A folder without index.json is unfinished.
"""

import pathlib
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attn_jax.errors import UserError
from attn_jax.tasks.batching import EncodedPairs, Ragged
from attn_jax.tasks.buckets import Buckets, make_buckets
from attn_jax.tasks.data_files import load_vocabularies
from attn_jax.tasks.files import load_checked, reason
from attn_jax.tasks.vocabulary import Vocabulary

INDEX, PROGRESS, VOCABULARIES = "index.json", "progress.json", "vocabularies.json"
SIDES = ("source", "target")
OFFSETS, MEMBERS = np.dtype("<i8"), np.dtype("<u4")
BLOCK = 1 << 24  # bytes read at a time


class TokenIndex(NamedTuple):
    """An opened folder."""

    pairs: EncodedPairs
    vocabularies: tuple[Vocabulary, Vocabulary]
    buckets: Buckets
    members: tuple[np.ndarray, ...]  # of each bucket
    longest: int  # source
    unknown: tuple[float, float]  # share of unk among the tokens of each side


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the smallest type of ids."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<i4")


def open_index(folder: pathlib.Path) -> TokenIndex:
    """Opens a folder; compares the sizes of its files, and reads none of the large ones.

    Raises:
        UserError: a file is missing, or has another size than when it was written.
    """
    content = read_index(folder)
    for name, about in content["files"].items():
        size = size_of(folder / name)
        if size != about["bytes"]:
            raise UserError(f"{folder / name} has {size:,} bytes; expected {about['bytes']:,}: index the text again")
    vocabularies = load_vocabularies(folder)
    sides = []
    for side, vocabulary in zip(SIDES, vocabularies, strict=True):
        tokens = map_array(folder / f"{side}.tokens", token_dtype(len(vocabulary)))
        sides.append(Ragged(tokens, map_array(folder / f"{side}.offsets", OFFSETS)))
    buckets = make_buckets([tuple(bucket) for bucket in content["buckets"]])
    members = tuple(map_array(folder / f"members.{i}", MEMBERS) for i in range(len(buckets)))
    return TokenIndex(
        EncodedPairs(*sides), vocabularies, buckets, members, content["longest"], tuple(content["unknown"])
    )


def read_index(folder: pathlib.Path) -> dict[str, Any]:
    """Reads index.json.

    Raises:
        UserError: there is none, or it is damaged.
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
        progress: called with (bytes read, bytes in all).

    Raises:
        UserError: a file is missing or was changed.
    """
    files = read_index(folder)["files"]
    total, done = sum(about["bytes"] for about in files.values()), 0
    for name, about in files.items():
        size_of(folder / name)
        found = 0
        try:
            with open(folder / name, "rb") as file:
                while block := file.read(BLOCK):
                    found = zlib.crc32(block, found)
                    done += len(block)
                    progress(done, total)
        except OSError as error:
            raise UserError(f"cannot read {folder / name}: {(error.strerror or str(error)).lower()}") from error
        if found != about["crc32"]:
            raise UserError(f"{folder / name} was changed since it was written (wrong checksum): index the text again")
    return total


def map_array(path: pathlib.Path, dtype: np.dtype) -> np.ndarray:
    """Maps a file into memory as a one-dimensional array; a file without bytes is an empty array."""
    if size_of(path) == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


def size_of(path: pathlib.Path) -> int:
    """Returns the bytes of a file; a UserError if it cannot be found."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}; index the text again") from error
