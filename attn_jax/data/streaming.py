"""Batches of more pairs than fit into memory: no array in memory is as long as the number of pairs.

Tokens, offsets and the members of each bucket are arrays in files, mapped into memory. The order of an epoch is a
permutation that is computed element by element (attn_jax/data/shuffle.py). The batch of a step depends only on
(seed, step), as in attn_jax/data/batching.py.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer

from attn_jax.data.batching import BATCH_UNITS, FILL, ORDER, EncodedPairs, own_rows, real_shares
from attn_jax.data.buckets import Buckets
from attn_jax.data.shuffle import permuted
from attn_jax.errors import UserError, lookup


class StreamedBatches:
    """Endless shuffled batches; see attn_jax.data.batching.Batches, which has the same attributes and methods.

    An epoch has every pair exactly once. The last batch of a bucket is filled up with rows of pad.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        buckets: Buckets,
        members: Sequence[Integer[np.ndarray, " n"]],
        batch_size: int,
        *,
        batch_unit: str = "sentences",
        seeds: Sequence[int] = (0,),
        row_multiple: int = 1,
        share: tuple[int, int] = (0, 1),
        longest: int,
        messages: Sequence[tuple[str, str]] = (),
    ):
        """
        Args:
            pairs: the training split.
            buckets: (source, target) lengths.
            members: numbers of the pairs of each bucket.
            batch_size, batch_unit, seeds, row_multiple, share: see Batches.
            longest: length of the longest source.
            messages: notices for the user.

        Raises:
            UserError: a wrong unit, size or seed.
        """
        if not seeds or any(seed < 0 for seed in seeds):
            raise UserError(f"seeds {tuple(seeds)}: expected one or more integers >= 0")
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: expected at least 1")
        rows_of = lookup(BATCH_UNITS, batch_unit, "batch_unit")
        self._pairs, self._seeds, self._share = pairs, tuple(seeds), share
        used = [i for i in range(len(buckets)) if len(members[i])]
        self._members = [members[i] for i in used]
        self.shapes = [(rows_of(batch_size, row_multiple, buckets[i][1]), *buckets[i]) for i in used]
        counts = [-(-len(m) // rows) for m, (rows, _, _) in zip(self._members, self.shapes, strict=True)]
        self._ends = np.cumsum(counts)  # end of each bucket's batches, which are numbered bucket by bucket
        self.steps_per_epoch = int(self._ends[-1])
        self.num_pairs = sum(map(len, self._members))
        self.dropped = len(pairs) - self.num_pairs
        self.longest, self.messages = longest, list(messages)

    @property
    def real(self) -> tuple[float, float]:
        """Shares of the source and target positions of an epoch that are tokens."""
        return real_shares(self._pairs, self._members, self.shapes)

    def batch_at(self, step: int) -> dict[str, np.ndarray]:
        """Returns the batch of a step: arrays [B, S] and [B, T], or [N, B, S] and [N, B, T] for several seeds."""
        epoch, position = divmod(step, self.steps_per_epoch)
        number = int(permuted(np.array(position), self.steps_per_epoch, (ORDER, epoch)))
        bucket = int(np.searchsorted(self._ends, number, side="right"))
        which = number - (int(self._ends[bucket - 1]) if bucket else 0)
        rows, *shape = self.shapes[bucket]
        members = self._members[bucket]
        places = np.arange(which * rows, (which + 1) * rows)
        real = places < len(members)
        indices = np.full((len(self._seeds), rows), FILL)
        for i, seed in enumerate(self._seeds):
            indices[i, real] = members[permuted(places[real], len(members), (seed, epoch, bucket))]
        indices = own_rows(indices, self._share)
        return self._pairs.batch(indices if len(self._seeds) > 1 else indices[0], tuple(shape))
