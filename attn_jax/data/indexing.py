"""Writes a folder of encoded pairs from two text files of any size; see attn_jax/data/token_index.py.

The text is read in parts. After each part the files are on the disk and progress.json has their length, so an
interrupted indexing continues from there, with the same result. The texts must not change in between: their checksums
are computed at each start, while lines are counted, and again while they are encoded. Memory holds one part, the
vocabulary (for SentencePiece, its training lines), and the counts of the lengths.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from attn_jax.data.buckets import choose_buckets, make_buckets
from attn_jax.data.data_files import load_vocabularies, save_kept
from attn_jax.data.facts import Kept
from attn_jax.data.files import load_checked, reason, save_checked, text_checksum
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.text import decode
from attn_jax.data.token_index import (
    INDEX,
    MEMBERS,
    OFFSETS,
    PROGRESS,
    SIDES,
    VOCABULARIES,
    blocks_of,
    checksum_of,
    map_array,
    token_dtype,
)
from attn_jax.data.vocabulary import TEXT_VOCABULARIES, Vocabulary
from attn_jax.errors import UserError, lookup
from attn_jax.token_ids import EOS, UNK

PART = 20_000  # pairs
MOST_PAIRS = 2**32 - 1
EMPTY = "expected one sentence per line"
ANOTHER = "choose another folder, or remove it"
LATE = ("buckets", "max_length")  # options that are used only at the end, so a continued indexing may change them
Progress = Callable[[str, int, int], None]  # (what, done, total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Options of an index.

    Attributes:
        vocabulary: a key of TEXT_VOCABULARIES.
        vocab_size: sizes of source and target vocabulary.
        min_count, sentencepiece: see `min_count` and `model` in attn_jax.data.vocabulary_options.
        joint: one vocabulary for both sides, of the first size.
        sample: number of training lines of SentencePiece, evenly spread over the text.
        buckets: shapes of batches; () chooses them from the lengths.
        max_length: when buckets are chosen, longer texts, eos included, are in no bucket.
    """

    vocabulary: str = "words"
    vocab_size: tuple[int, int] = (8000, 8000)
    min_count: int = 2
    sentencepiece: str = "unigram"
    joint: bool = False
    sample: int = 1_000_000
    buckets: tuple = ()
    max_length: int = 256


def write_index(
    source: pathlib.Path,
    target: pathlib.Path,
    folder: pathlib.Path,
    options: IndexOptions,
    progress: Progress = lambda what, done, total: None,
) -> int:
    """Writes the folder, or continues an interrupted process; returns the number of pairs.

    No other process may be writing to the folder, see attn_jax.runs.locks.

    Raises:
        UserError: a text is missing, empty, not UTF-8, has an empty line, or the numbers of lines differ; the folder is
            finished, or was begun with other options or texts that differ in any byte; a text changes while it is read,
            or files of an interrupted process were changed.
    """
    texts = (source, target)
    kind = lookup(TEXT_VOCABULARIES, options.vocabulary, "vocabulary")
    given = dataclasses.asdict(options) | {side: size_of_text(path) for side, path in zip(SIDES, texts, strict=True)}
    given = {name: list(map(_plain, value)) if isinstance(value, tuple) else value for name, value in given.items()}
    if (folder / INDEX).exists():
        raise UserError(f"{folder} is finished already; choose another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        state = _resumed(folder, given)
        pairs, sums = _count(texts, progress)
        if state is None:
            save_kept(folder, Kept(*_train(kind, texts, pairs, options, progress)))
            state = {"given": given, "texts": sums, "pairs": pairs, "done": 0, "read": [0, 0], "read_crc32": [0, 0]}
            state |= {"vocabularies": _numbering(folder), "tokens": [0, 0], "unk": [0, 0], "sums": {}, "counts": []}
            save_checked(folder / PROGRESS, state)
        else:
            _check_same(folder, texts, sums, state)
        state = _encode(folder, texts, state, progress)
        _finish(folder, state, options, progress)
    except OSError as error:
        where = error.filename or folder
        verb = "read" if str(where) in map(str, texts) else "write"
        raise UserError(f"cannot {verb} {where}: {reason(error)}") from error
    return state["pairs"]


def size_of_text(path: pathlib.Path) -> int:
    """Returns the size of a text file in bytes; raises a UserError if it is missing or empty."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}") from error
    if path.is_dir() or not size:
        raise UserError(f"{path}: {'is a directory' if path.is_dir() else 'the file is empty'}; {EMPTY}")
    return size


def lines(file: Iterable[bytes], path: pathlib.Path, number: int) -> Iterator[str]:
    """Yields the lines of an opened file like attn_jax.data.text.read_lines, after `number` lines read before."""
    for line in file:
        number += 1
        text = decode(line, str(path), number).removesuffix("\n").removesuffix("\r")
        if not text or text.isspace():
            raise UserError(f"{path}, line {number}: the line is empty; {EMPTY}")
        yield text


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _resumed(folder: pathlib.Path, given: dict[str, Any]) -> dict[str, Any] | None:
    """Reads the progress of an earlier process; None if there is none."""
    if not (folder / PROGRESS).exists():
        return None
    state, _ = load_checked(folder / PROGRESS)
    state["given"] |= {name: given[name] for name in LATE}
    for name, value in given.items():
        if (before := state["given"].get(name)) != value:
            what = f"a {name} text of {before:,} bytes" if name in SIDES else f"{name} {before}"
            raise UserError(f"{folder} was begun with {what}, now {value}; {ANOTHER}")
    return state


def _check_same(folder: pathlib.Path, texts: Sequence[pathlib.Path], sums: list[int], state: dict[str, Any]) -> None:
    """Raises a UserError if texts, vocabularies or encoded pairs have changed since a process was interrupted."""
    for side, path, before, now in zip(SIDES, texts, state.get("texts", (None, None)), sums, strict=True):
        if before != now:
            raise UserError(
                f"{folder} was begun with another {side} text than {path} is now (other content, wrong checksum); "
                f"{ANOTHER}"
            )
    if _numbering(folder) != state["vocabularies"]:
        raise UserError(f"{folder / VOCABULARIES} was changed since the index was begun; {ANOTHER}")
    for name, size in _sizes(folder, state).items() if state["done"] else ():
        if checksum_of(folder / name, size) != state["sums"][name]:
            raise UserError(f"{folder / name} was changed since it was written (wrong checksum); {ANOTHER}")


def _numbering(folder: pathlib.Path) -> int:
    """Returns the checksum of the vocabularies of a folder, without the counts that are added at the end."""
    return text_checksum([vocabulary.to_json() for vocabulary in load_vocabularies(folder)])


def _sizes(folder: pathlib.Path, state: dict[str, Any]) -> dict[str, int]:
    """Returns {name: bytes} of the tokens and offsets written so far."""
    dtypes = [token_dtype(len(vocabulary)) for vocabulary in load_vocabularies(folder)]
    return {
        f"{side}.{kind}": size
        for side, tokens, dtype in zip(SIDES, state["tokens"], dtypes, strict=True)
        for kind, size in (("tokens", tokens * dtype.itemsize), ("offsets", (state["done"] + 1) * OFFSETS.itemsize))
    }


def _count(texts: Sequence[pathlib.Path], progress: Progress) -> tuple[int, list[int]]:
    """Counts the lines of both texts, and computes the crc32 of each."""
    counts, sums = [], []
    for path in texts:
        count, crc32, last, done, total = 0, 0, b"\n", 0, path.stat().st_size
        for block in blocks_of(path):
            count, crc32, last, done = count + block.count(b"\n"), zlib.crc32(block, crc32), block, done + len(block)
            progress("counting", done, max(done, total))
        counts.append(count + (not last.endswith(b"\n")))
        sums.append(crc32)
    if counts[0] != counts[1]:
        raise UserError(
            f"{texts[0]} has {counts[0]} lines but {texts[1]} has {counts[1]}; expected line i of one to be the "
            "translation of line i of the other"
        )
    if counts[0] > MOST_PAIRS:
        raise UserError(f"{texts[0]} has {counts[0]:,} lines; expected at most {MOST_PAIRS:,}")
    return counts[0], sums


def _train(
    kind: type, texts: Sequence[pathlib.Path], pairs: int, options: IndexOptions, progress: Progress
) -> tuple[Vocabulary, Vocabulary]:
    """Trains the vocabularies on all lines, SentencePiece on every k-th."""
    every = -(-pairs // options.sample) if issubclass(kind, SentencePiece) else 1

    def read(paths: Sequence[pathlib.Path]) -> Iterator[str]:
        for path in paths:
            with open(path, "rb") as file:
                for number, line in enumerate(lines(file, path, 0)):
                    if number % PART == 0:
                        progress("vocabulary", number, pairs)
                    if number % every == 0:
                        yield line

    def train(paths: Sequence[pathlib.Path], size: int, side: str) -> Vocabulary:
        try:
            return kind.train(
                read(paths), vocab_size=size, min_count=options.min_count, model_type=options.sentencepiece
            )
        except UserError as error:
            raise UserError(f"the {side} vocabulary: {error}") from None

    if options.joint:
        both = train(texts, options.vocab_size[0], "joint")
        return both, both
    return train(texts[:1], options.vocab_size[0], "source"), train(texts[1:], options.vocab_size[1], "target")


def _encode(
    folder: pathlib.Path, texts: Sequence[pathlib.Path], state: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Writes tokens and offsets, part by part."""
    vocabularies = load_vocabularies(folder)
    dtypes = [token_dtype(len(vocabulary)) for vocabulary in vocabularies]
    sizes = _sizes(folder, state)
    names = list(sizes)
    if not state["done"]:
        zero = np.zeros(1, OFFSETS).tobytes()
        for name in names:
            (folder / name).write_bytes(zero if name.endswith("offsets") else b"")
            state["sums"][name] = zlib.crc32(zero) if name.endswith("offsets") else 0
    counts = np.zeros(len(vocabularies[1]), np.int64)
    counts[: len(state["counts"])] = state["counts"]
    with contextlib.ExitStack() as opened:
        readers = [opened.enter_context(open(path, "rb")) for path in texts]
        writers = [opened.enter_context(open(folder / name, "r+b")) for name in names]
        for writer, size in zip(writers, sizes.values(), strict=True):
            writer.truncate(size)  # remove bytes that a killed process wrote after its last report
            writer.seek(size)
        for reader, place in zip(readers, state["read"], strict=True):
            reader.seek(place)
        while state["done"] < state["pairs"]:
            many = min(PART, state["pairs"] - state["done"])
            for side in range(2):
                raw = list(itertools.islice(readers[side], many))
                if len(raw) < many:
                    raise _changed(texts[side], folder)
                encode, rows = vocabularies[side].encode, []
                for text in lines(iter(raw), texts[side], state["done"]):
                    rows.append(encode(text))
                    rows[-1].append(EOS)
                ids = np.fromiter((i for row in rows for i in row), np.int64)
                offsets = state["tokens"][side] + np.cumsum(np.fromiter(map(len, rows), np.int64))
                for name, array in (("tokens", ids.astype(dtypes[side])), ("offsets", offsets.astype(OFFSETS))):
                    data, place = array.tobytes(), 2 * side + (name == "offsets")
                    writers[place].write(data)
                    state["sums"][names[place]] = zlib.crc32(data, state["sums"][names[place]])
                state["tokens"][side] += len(ids)
                state["unk"][side] += int(np.sum(ids == UNK))
                state["read"][side] += sum(map(len, raw))
                state["read_crc32"][side] = zlib.crc32(b"".join(raw), state["read_crc32"][side])
                if side == 1:
                    counts += np.bincount(ids, minlength=len(counts))
            for writer in writers:
                writer.flush()
                os.fsync(writer.fileno())
            state["done"] += many
            state["counts"] = counts.tolist()
            save_checked(folder / PROGRESS, state)
            progress("pairs", state["done"], state["pairs"])
        for path, reader, encoded, counted in zip(texts, readers, state["read_crc32"], state["texts"], strict=True):
            if encoded != counted or reader.read(1):
                raise _changed(path, folder)
    return state


def _changed(path: pathlib.Path, folder: pathlib.Path) -> UserError:
    """Returns the error for a text that has changed since its lines were counted."""
    return UserError(f"{path} was changed while it was indexed: remove {folder}, and index it again")


def _finish(folder: pathlib.Path, state: dict[str, Any], options: IndexOptions, progress: Progress) -> None:
    """Chooses buckets, writes their members, the counts of the target words, and index.json at the end."""
    offsets = [map_array(folder / f"{side}.offsets", OFFSETS) for side in SIDES]

    def parts(what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (number of the first pair, lengths [2, n]) of each part."""
        for start in range(0, state["pairs"], 50 * PART):
            end = min(start + 50 * PART, state["pairs"])
            yield start, np.stack([np.diff(array[start : end + 1]) for array in offsets])
            progress(what, end, state["pairs"])

    lengths: collections.Counter = collections.Counter()
    for _, part in parts("lengths"):
        shapes, times = np.unique(part, axis=1, return_counts=True)
        lengths.update(dict(zip(map(tuple, shapes.T.tolist()), times.tolist(), strict=True)))
    longest = max(source for source, _ in lengths)
    buckets = make_buckets(options.buckets) if options.buckets else _choose(lengths, options.max_length)
    crc32 = dict.fromkeys([f"members.{i}" for i in range(len(buckets))], 0)
    sizes = dict.fromkeys(crc32, 0)
    with contextlib.ExitStack() as opened:
        writers = [opened.enter_context(open(folder / name, "wb")) for name in crc32]
        for start, (source, target) in parts("buckets"):
            fits = np.stack([*((source <= s) & (target <= t) for s, t in buckets), np.ones(len(source), bool)])
            bucket_of = np.argmax(fits, axis=0)
            for i, (name, writer) in enumerate(zip(crc32, writers, strict=True)):
                data = (start + np.flatnonzero(bucket_of == i)).astype(MEMBERS).tobytes()
                writer.write(data)
                crc32[name], sizes[name] = zlib.crc32(data, crc32[name]), sizes[name] + len(data)
        for writer in writers:
            writer.flush()
            os.fsync(writer.fileno())
    if not any(sizes.values()):
        raise UserError(f"no pair fits any of the buckets {buckets}")
    vocabularies = load_vocabularies(folder)
    vocabularies[1].counts = np.array(state["counts"], np.int64)
    save_kept(folder, Kept(*vocabularies))
    files = {name: {"bytes": (folder / name).stat().st_size, "crc32": crc} for name, crc in state["sums"].items()}
    files |= {name: {"bytes": sizes[name], "crc32": crc32[name]} for name in crc32}
    content = (folder / VOCABULARIES).read_bytes()
    files[VOCABULARIES] = {"bytes": len(content), "crc32": zlib.crc32(content)}
    words = [tokens - state["pairs"] for tokens in state["tokens"]]  # without eos
    about = {"pairs": state["pairs"], "tokens": state["tokens"], "longest": longest, "buckets": buckets}
    about |= {"unknown": [unk / max(1, n) for unk, n in zip(state["unk"], words, strict=True)], "files": files}
    about["texts"] = dict(zip(SIDES, state["texts"], strict=True))  # crc32 of both texts
    save_checked(folder / INDEX, {**about, "options": state["given"]})
    (folder / PROGRESS).unlink()


def _choose(lengths: collections.Counter, max_length: int) -> tuple[tuple[int, int], ...]:
    """Chooses buckets by choose_buckets, from about 100,000 pairs with the same distribution of lengths."""
    fitting = {shape: times for shape, times in lengths.items() if max(shape) <= max_length}
    if not fitting:
        raise UserError(f"every pair is longer than max_length {max_length}")
    scale = max(1.0, sum(fitting.values()) / 100_000)
    times = [max(1, round(count / scale)) for count in fitting.values()]
    source, target = np.repeat(np.array([*fitting]), times, axis=0).T
    return choose_buckets(source, target)
