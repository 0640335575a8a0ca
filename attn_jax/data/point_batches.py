"""Standardized points, and their training batches."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

LARGEST = 4096  # number of training points up to which all pairs are compared at once


class StandardPoints(NamedTuple):
    """Standardized training points of each seed: inputs = center + scale * standard inputs, targets likewise.

    `memory` has the standard "inputs" [s, n, d] and "targets" [s, n, v], in float32. The targets are centred, so that
    the prediction is their mean if no training point is within reach.
    """

    memory: dict[str, np.ndarray]
    center: Float[np.ndarray, "s d"]
    scale: Float[np.ndarray, "s d"]
    target_center: Float[np.ndarray, "s v"]
    target_scale: Float[np.ndarray, "s v"]


def standardize(
    inputs: Float[np.ndarray, "s n d"], targets: Float[np.ndarray, "s n v"], *, scale_inputs: bool, scale_targets: bool
) -> StandardPoints:
    """Subtracts the means; optionally divides by the standard deviations of the inputs and of the targets."""
    center, target_center = inputs.mean(axis=1), targets.mean(axis=1)
    scale = inputs.std(axis=1) if scale_inputs else np.ones_like(center)
    target_scale = targets.std(axis=1) if scale_targets else np.ones_like(target_center)
    memory = {
        "inputs": ((inputs - center[:, None]) / scale[:, None]).astype(np.float32),
        "targets": ((targets - target_center[:, None]) / target_scale[:, None]).astype(np.float32),
    }
    return StandardPoints(memory, center, scale, target_center, target_scale)


class PointBatches:
    """Batches of training points: indices of the points to predict, with all points as the memory.

    It has the same attributes as attn_jax.data.batching.Batches.
    """

    messages = ()
    real = (1.0, 1.0)

    def __init__(self, points: StandardPoints, batch_size: int, seeds: tuple[int, ...]):
        self._memory, self._seeds = points.memory, seeds
        self.num_pairs = self.longest = self._memory["inputs"].shape[1]
        self.dropped = 0
        self.rows = min(batch_size, self.num_pairs)
        self.steps_per_epoch = -(-self.num_pairs // self.rows)
        self.shapes = [(self.rows, self.num_pairs, 1)]

    def batch_at(self, step: int) -> dict[str, np.ndarray]:
        """Returns {"index" [B] of the query points, "inputs" [n, d], "targets" [n, v]}; several seeds: leading axis."""
        index = np.stack([self._index(seed, step) for seed in self._seeds])
        batch = {"index": index, **self._memory}
        return batch if len(self._seeds) > 1 else {name: x[0] for name, x in batch.items()}

    def _index(self, seed: int, step: int) -> Int[np.ndarray, " b"]:
        if self.rows == self.num_pairs:
            return np.arange(self.rows, dtype=np.int32)
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(self.num_pairs).astype(np.int32)
        return np.take(order, np.arange(place * self.rows, (place + 1) * self.rows), mode="wrap")
