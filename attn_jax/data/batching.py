"""Batches of sentence pairs in a few fixed shapes. The batch of a step depends only on (seed, step).

A batch is a dict of int32 arrays of one bucket (S source positions, T target positions):

    source     [B, S]  tokens, eos, pad ...
    target_in  [B, T]  bos, tokens, pad ...
    target_out [B, T]  tokens, eos, pad ...

and, if the pairs have evidence (attn_jax/data/pairs.py), with E the largest number of supporting statements of a pair,

    evidence   [B, E]  numbers of statements, 0 ...

The source of a batch of images is a Picture, see attn_jax/tasks/images/pictures.py.

A position is real if it is not pad. Rows that fill up a batch are all pad and do not count.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from attn_jax.data.buckets import Buckets, make_buckets
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError, lookup
from attn_jax.token_ids import BOS, EOS, PAD, UNK
from attn_jax.types import Picture

ORDER = 0xA77  # the order of buckets in an epoch comes from (ORDER, epoch): all seeds share the shape of each step
ROUND_UP = 16  # sides of evaluation batches that no bucket holds are rounded up to a multiple of this
FILL = -1  # index of a row without a pair
LONG, LONG_SHARE = 1000, 20  # warn of buckets longer than both: tokens, and times the mean length
LARGEST_SHARE = 0.2  # of unk among the training tokens; a larger share gives a message


class Ragged(NamedTuple):
    """Sequences of different lengths stored in one array: sequence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: Int[np.ndarray, " n"]
    offsets: Int[np.ndarray, " m"]  # m = number of sequences + 1

    @property
    def lengths(self) -> Int[np.ndarray, " m"]:
        return np.diff(self.offsets)

    def gather(self, indices: Int[np.ndarray, "..."], length: int) -> tuple[Int[np.ndarray, "..."], np.ndarray]:
        """Returns the sequences at `indices` [...], padded to [..., length], and their mask; FILL gives pad only."""
        start = self.offsets[indices]  # for FILL: of an arbitrary sequence, masked below
        own = np.where(indices == FILL, 0, self.offsets[np.where(indices == FILL, 0, indices + 1)] - start)
        position = np.arange(length)
        real = position < own[..., None]
        if not real.any():  # there may be no token at all
            return np.full(real.shape, PAD, np.int32), real
        tokens = self.tokens[np.where(real, start[..., None] + position, 0)].astype(np.int32, copy=False)
        return np.where(real, tokens, np.int32(PAD)), real


class EncodedPairs(NamedTuple):
    """Pairs as ids, each sequence with its eos, and their evidence if there is any."""

    source: Ragged
    target: Ragged
    evidence: Ragged | None = None

    def __len__(self) -> int:  # number of pairs, not of fields
        return len(self.source.offsets) - 1

    def batch(self, indices: Int[np.ndarray, "..."], shape: tuple[int, int]) -> dict[str, np.ndarray | Picture]:
        """Returns the batch of the pairs at `indices` [...]: arrays [..., S], [..., T] and, with evidence, [..., E].

        The index FILL gives a row of pad.
        """
        source, _ = self.source.gather(indices, shape[0])
        target_out, real = self.target.gather(indices, shape[1])
        shifted = np.concatenate([np.full_like(target_out[..., :1], BOS), target_out[..., :-1]], axis=-1)
        batch = {"source": source, "target_in": np.where(real, shifted, np.int32(PAD)), "target_out": target_out}
        if self.evidence is not None:  # padded with 0, which is no statement's number
            batch["evidence"], _ = self.evidence.gather(indices, int(self.evidence.lengths.max(initial=1)))
        return batch


def encode(texts: Sequence[str], vocabulary: Vocabulary) -> Ragged:
    """Encodes each text, followed by eos."""
    return make_ragged([[*vocabulary.encode(text), EOS] for text in texts])


def encode_targets(pairs: Pairs, vocabulary: Vocabulary) -> Ragged:
    """Encodes each target, followed by eos; a decoded target keeps the ids that it was decoded from."""
    if pairs.target_ids is None:
        return encode(pairs.target, vocabulary)
    known = zip(pairs.target, pairs.target_ids, strict=True)
    return make_ragged([[*(vocabulary.encode(text) if ids is None else ids), EOS] for text, ids in known])


def make_ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Concatenates the rows."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Ragged(np.fromiter((i for row in rows for i in row), np.int32, count=int(offsets[-1])), offsets)


def encode_pairs(pairs: Pairs, source_vocabulary: Vocabulary, target_vocabulary: Vocabulary) -> EncodedPairs:
    """Encodes both sides of the pairs. For sources without targets, use empty target texts."""
    evidence = None if pairs.evidence is None else make_ragged(pairs.evidence)
    return EncodedPairs(encode(pairs.source, source_vocabulary), encode_targets(pairs, target_vocabulary), evidence)


def check_labels(encoded: EncodedPairs, pairs: Pairs, where: str) -> None:
    """Raises a UserError for the first target that is not a single token; `where` names the origin of the pairs."""
    wrong = np.flatnonzero(encoded.target.lengths != 2)  # a token and eos
    if len(wrong):
        raise UserError(
            f"{where}: the target {pairs.target[wrong[0]]!r:.60} has {encoded.target.lengths[wrong[0]] - 1} tokens; "
            "the model needs labels, targets of one token each"
        )


def assign(pairs: EncodedPairs, buckets: Buckets) -> Int[np.ndarray, " n"]:
    """Index of the first bucket that each pair fits into; len(buckets) if there is none."""
    source, target = pairs.source.lengths, pairs.target.lengths
    fits = [(source <= s) & (target <= t) for s, t in buckets]
    return np.argmax(np.stack([*fits, np.ones(len(pairs), bool)]), axis=0)


class _Epoch(NamedTuple):
    number: int
    steps: Int[np.ndarray, "steps 2"]  # bucket of the step, and number of the batch in the bucket
    rows: list[Int[np.ndarray, "seeds n"]]  # per bucket: the pairs in this epoch's order, FILL at the end


class Batches:
    """Endless shuffled training batches.

    Step n belongs to epoch n // steps_per_epoch, and an epoch has every pair exactly once. The order of the pairs
    depends on (seed, epoch), the order of the buckets on the epoch only. The last batch of a bucket is filled up with
    rows of pad, so all batches of a bucket have the same shape.

    Attributes:
        steps_per_epoch: number of batches of each epoch.
        shapes: (rows, S, T) of each bucket that has pairs.
        num_pairs: number of pairs that fit into a bucket; dropped: number of longer pairs.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        buckets: Sequence,
        batch_size: int,
        batch_unit: str = "sentences",
        seeds: Sequence[int] = (0,),
        row_multiple: int = 1,
        share: tuple[int, int] = (0, 1),
    ):
        """
        Args:
            pairs: the training split.
            buckets: lengths or pairs of lengths, eos included: see `make_buckets`.
            batch_size: rows of a batch, or padded target positions if batch_unit is "tokens".
            batch_unit: a key of BATCH_UNITS.
            seeds: with several, batches have a leading seed axis, and each slice is the batch of one seed.
            row_multiple: the number of rows is a multiple of this number, such as the number of devices.
            share: (number of this process, number of processes) that train together; see `own_rows`.

        Raises:
            UserError: a wrong bucket, unit, size or seed; no pair fits into a bucket.
        """
        buckets = make_buckets(buckets)
        if not seeds or any(seed < 0 for seed in seeds):
            raise UserError(f"seeds {tuple(seeds)}: expected one or more integers >= 0")
        bucket_of = assign(pairs, buckets)
        self._pairs, self._seeds, self._share = pairs, tuple(seeds), share
        used = [i for i in range(len(buckets)) if (bucket_of == i).any()]
        if not used:
            shortest = int(pairs.source.lengths.min()), int(pairs.target.lengths.min())
            raise UserError(
                f"no pair fits any of the buckets {buckets}: the shortest source has {shortest[0]} tokens, the "
                f"shortest target {shortest[1]}, eos included"
            )
        self._members = [np.flatnonzero(bucket_of == i) for i in used]
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: expected at least 1")
        rows_of = lookup(BATCH_UNITS, batch_unit, "batch_unit")
        self.shapes = [(rows_of(batch_size, row_multiple, buckets[i][1]), *buckets[i]) for i in used]
        self._counts = [-(-len(m) // rows) for m, (rows, _, _) in zip(self._members, self.shapes, strict=True)]
        self.steps_per_epoch = sum(self._counts)
        self.num_pairs = sum(map(len, self._members))
        self.dropped = len(pairs) - self.num_pairs
        self._epoch = self._make_epoch(0)

    @property
    def real(self) -> tuple[float, float]:
        """Shares of the source and target positions of an epoch that are tokens; the others are padding."""
        return real_shares(self._pairs, self._members, self.shapes)

    @property
    def longest(self) -> int:
        """Length of the longest source, including sources that fit into no bucket."""
        return int(self._pairs.source.lengths.max())

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Notices about the batches for the user: (topic, one line of text)."""
        found = []
        if self.dropped:
            found.append(
                (
                    "data",
                    f"{self.dropped:,} of {len(self._pairs):,} training pairs are longer than any bucket and left out; "
                    "see task.buckets",
                )
            )
        longest = max(self.shapes, key=lambda shape: max(shape[1:]))
        mean = max(float(side.lengths.mean()) for side in (self._pairs.source, self._pairs.target))
        if max(longest[1:]) > max(LONG, LONG_SHARE * mean):
            found.append(
                (
                    "data",
                    f"batches of the longest pairs are {longest[0]} x {longest[1]:,} source and {longest[2]:,} target "
                    f"tokens, and the mean pair has {mean:.0f}; smaller task.buckets.shapes leave out what is longer",
                )
            )
        for side, texts in (("source", self._pairs.source), ("target", self._pairs.target)):
            share = np.sum(texts.tokens == UNK) / max(1, np.sum(texts.tokens != EOS))
            if share > LARGEST_SHARE:
                percent = f"{side}: {100 * share:.0f} % of the training tokens are unk"
                found.append(("vocabulary", f"{percent}; see task.vocab_size and min_count"))
        return found

    def batch_at(self, step: int) -> dict[str, np.ndarray | Picture]:
        """Returns the batch of a step: arrays [B, S] and [B, T], or [N, B, S] and [N, B, T] for several seeds."""
        number, position = divmod(step, self.steps_per_epoch)
        epoch = self._epoch
        if epoch.number != number:
            epoch = self._epoch = self._make_epoch(number)
        bucket, which = epoch.steps[position]
        rows, *shape = self.shapes[bucket]
        indices = epoch.rows[bucket][:, which * rows : (which + 1) * rows]
        return self._gather(indices if len(self._seeds) > 1 else indices[0], tuple(shape), step)

    def _gather(
        self, indices: Int[np.ndarray, "..."], shape: tuple[int, int], step: int
    ) -> dict[str, np.ndarray | Picture]:
        """Returns the batch of the pairs at `indices` that this process reads; FILL gives a row of pad."""
        return self._pairs.batch(own_rows(indices, self._share), shape)

    def _make_epoch(self, number: int) -> _Epoch:
        steps = np.array([(bucket, which) for bucket, n in enumerate(self._counts) for which in range(n)])
        steps = np.random.default_rng((ORDER, number)).permutation(steps)
        rows = [
            np.full((len(self._seeds), n * size), FILL)
            for n, (size, _, _) in zip(self._counts, self.shapes, strict=True)
        ]
        for i, seed in enumerate(self._seeds):
            rng = np.random.default_rng((seed, number))
            for members, filled in zip(self._members, rows, strict=True):
                filled[i, : len(members)] = rng.permutation(members)
        return _Epoch(number, steps, rows)


def real_shares(
    pairs: EncodedPairs, members: Sequence[Int[np.ndarray, "..."]], shapes: Sequence[tuple[int, int, int]]
) -> tuple[float, float]:
    """Returns the shares of (source, target) positions that are tokens, in batches of these shapes."""
    rows = [-(-len(own) // size) * size for own, (size, _, _) in zip(members, shapes, strict=True)]
    shares = []
    for number, side in enumerate((pairs.source, pairs.target), 1):
        positions = sum(count * shape[number] for count, shape in zip(rows, shapes, strict=True))
        shares.append(sum(int(side.lengths[own].sum()) for own in members) / positions)
    return shares[0], shares[1]


def own_rows(indices: Int[np.ndarray, "... n"], share: tuple[int, int]) -> Int[np.ndarray, "... n"]:
    """Replaces the rows of a batch that a process does not read by FILL.

    Process p of P reads rows p n / P to (p + 1) n / P, which its devices compute. If P does not divide n, which no mesh
    allows, each process reads all rows.
    """
    number, processes = share
    rows = indices.shape[-1]
    if processes == 1 or rows % processes:
        return indices
    part = np.arange(rows) // (rows // processes)
    return np.where(part == number, indices, FILL)


def eval_batches(
    pairs: EncodedPairs, batch_size: int, buckets: Sequence = (), largest: tuple[int, int] = (0, 0)
) -> Iterator[tuple[Int[np.ndarray, " r"], dict[str, np.ndarray | Picture]]]:
    """Yields (indices of the pairs, batch), each pair once, with pairs of similar length in the same batch.

    A batch has the shape of the first bucket it fits into, or else the result of `round_up`, so no pair is too long.
    Row r of the batch is pair indices[r]; rows from len(indices) on are pad.
    """
    if batch_size < 1:
        raise UserError(f"batch_size {batch_size}: expected at least 1")
    buckets = make_buckets(buckets) if buckets else ()
    source, target = pairs.source.lengths, pairs.target.lengths
    order = np.lexsort((np.arange(len(pairs)), target, source, assign(pairs, buckets)))
    rows = max(1, min(batch_size, len(pairs)))
    for start in range(0, len(pairs), rows):
        indices = order[start : start + rows]
        longest = int(source[indices].max()), int(target[indices].max())
        own = round_up(longest, largest)
        shape = next((b for b in buckets if b[0] >= longest[0] and b[1] >= longest[1]), own)
        filled = np.full(rows, FILL)
        filled[: len(indices)] = indices
        yield indices, pairs.batch(filled, shape)


def round_up(lengths: tuple[int, int], largest: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Rounds the lengths of source and target up to a multiple of ROUND_UP, so that few shapes are compiled.

    A length within `largest`, the largest lengths in training, is not rounded beyond them, since a model may have no
    more positions.
    """
    rounded = [_to_multiple(length, ROUND_UP) for length in lengths]
    own = zip(lengths, rounded, largest, strict=True)
    return tuple(min(most, up) if length <= most else up for length, up, most in own)


def _to_multiple(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _rows_of_sentences(batch_size: int, row_multiple: int, target_length: int) -> int:
    if batch_size % row_multiple:
        raise UserError(
            f"batch_size {batch_size} cannot be shared equally by {row_multiple} devices; the next size that can is "
            f"{_to_multiple(batch_size, row_multiple)}"
        )
    return batch_size


def _rows_of_tokens(batch_size: int, row_multiple: int, target_length: int) -> int:
    return max(1, batch_size // target_length // row_multiple) * row_multiple


# (batch_size, row_multiple, target_length of a bucket) -> number of rows of its batches
BATCH_UNITS = {"sentences": _rows_of_sentences, "tokens": _rows_of_tokens}
