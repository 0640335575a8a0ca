"""Means that can be added up over batches, devices and hosts."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np


def _module(x):
    """jax.numpy for jax arrays; numpy for all else, which stays on the host in float64."""
    return jnp if isinstance(x, jax.Array) else np


@flax.struct.dataclass
class Mean:
    """The mean total / count, kept as a sum and a count so that several of them can be merged.

    `total` and `count` may have leading axes, such as one of seeds, and then stand for a mean at each entry. `psum` of
    a Mean over devices is the mean over all devices.
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
        """Returns the mean of both together, summed in float64 on the host."""

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
