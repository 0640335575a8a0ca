"""Means that can be merged over batches, devices and hosts."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np


def _module(x):
    """Returns jax.numpy for jax arrays; numpy for other values, which stay on the host in float64."""
    return jnp if isinstance(x, jax.Array) else np


class Mean(flax.struct.PyTreeNode):
    """The mean total / count, stored as sum and count so that means can be merged.

    `total` and `count` may have leading axes, such as a seed axis, with one mean per entry. `psum` of a Mean over
    devices is the mean over all devices.
    """

    total: Any  # [...]
    count: Any  # [...]

    @classmethod
    def of(cls, values, mask=None) -> "Mean":
        """Returns the mean of `values`, over all entries or over those where `mask` (the same shape) is True."""
        xp = _module(values)
        values = xp.asarray(values)
        if mask is None:
            return cls(total=values.sum(), count=xp.asarray(values.size))
        # where, not a product: masked values may be inf or nan
        return cls(total=xp.where(mask, values, 0).sum(), count=xp.asarray(mask, bool).sum())

    @classmethod
    def empty(cls) -> "Mean":
        """Returns the identity of merge: total 0, count 0."""
        return cls(total=np.float64(0), count=np.float64(0))

    def merge(self, other: "Mean") -> "Mean":
        """Returns the mean over the values of both, summed in float64 on the host."""

        def add(a, b):
            if isinstance(a, jax.Array) or isinstance(b, jax.Array):
                return a + b
            return np.add(a, b, dtype=np.float64)

        return Mean(total=add(self.total, other.total), count=add(self.count, other.count))

    def compute(self):
        """total / count; nan where count is 0."""
        xp = _module(self.total)
        nonzero = xp.asarray(self.count) > 0
        return xp.where(nonzero, self.total / xp.where(nonzero, self.count, 1), xp.nan)[()]
