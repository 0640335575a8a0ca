"""Means that can be added up over batches, devices and hosts."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np


def _module(x):
    """numpy for what lies on the host (and stays in float64 there), jax.numpy for the rest."""
    return jnp if isinstance(x, jax.Array) else np


@flax.struct.dataclass
class Mean:
    """A mean that can be added up over batches, devices and hosts: the sum of what was counted, and its number.

    Everything is elementwise, so `total` and `count` may carry a leading axis of seeds; `compute` then gives one
    mean for each seed. `psum` of a Mean over devices is their merge.
    """

    total: Any  # any leading axes
    count: Any  # the same

    @classmethod
    def of(cls, values, mask=None) -> "Mean":
        """The mean of all `values`, or of those where `mask` (the same shape, True = counts)."""
        xp = _module(values)
        values = xp.asarray(values)
        if mask is None:
            return cls(total=values.sum(), count=xp.asarray(values.size))
        # where, not a product: what is masked may be inf or nan
        return cls(total=xp.where(mask, values, 0).sum(), count=xp.asarray(mask, bool).sum())

    @classmethod
    def empty(cls) -> "Mean":
        """Of nothing: where a merge begins."""
        return cls(total=np.float64(0), count=np.float64(0))

    def merge(self, other: "Mean") -> "Mean":
        """The mean of both together. On the host it is summed in float64."""

        def add(a, b):
            if isinstance(a, jax.Array) or isinstance(b, jax.Array):
                return a + b
            return np.add(a, b, dtype=np.float64)

        return Mean(total=add(self.total, other.total), count=add(self.count, other.count))

    def compute(self):
        """total / count, and nan where nothing was counted."""
        xp = _module(self.total)
        nonzero = xp.asarray(self.count) > 0
        return xp.where(nonzero, self.total / xp.where(nonzero, self.count, 1), xp.nan)[()]
