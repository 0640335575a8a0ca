"""Batches of points."""

import numpy as np
from jaxtyping import Int


class PointBatches:
    """Batches of training points: indices of the points to predict, with all points as the memory.

    The attributes are those of attn_jax.tasks.batching.Batches.
    """

    def __init__(self, memory: dict[str, np.ndarray], batch_size: int, seeds: tuple[int, ...]):
        self._memory, self._seeds = memory, seeds
        self.num_pairs = self.longest = memory["inputs"].shape[1]
        self.dropped = 0
        self.rows = min(batch_size, self.num_pairs)
        self.steps_per_epoch = -(-self.num_pairs // self.rows)

    def batch_at(self, step: int) -> dict[str, np.ndarray]:
        """Returns "index" [B], "inputs" [n, d] and "targets" [n, v], with a leading axis for several seeds."""
        index = np.stack([self._index(seed, step) for seed in self._seeds])
        batch = {"index": index, **self._memory}
        return batch if len(self._seeds) > 1 else {name: x[0] for name, x in batch.items()}

    def _index(self, seed: int, step: int) -> Int[np.ndarray, " b"]:
        if self.rows == self.num_pairs:
            return np.arange(self.rows, dtype=np.int32)
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(self.num_pairs).astype(np.int32)
        return np.take(order, np.arange(place * self.rows, (place + 1) * self.rows), mode="wrap")
