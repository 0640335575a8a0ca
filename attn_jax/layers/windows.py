"""Convolutions as products of windows with one matrix.

With different weights for each of several seeds XLA makes a grouped convolution, which is slow on a CPU; this stays a
product.
"""

import itertools
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.dense import product
from attn_jax.types import Array, Dtype, Float


def windows(
    x: Float[Array, "b *places c"], sizes: Sequence[int], strides: Sequence[int]
) -> Float[Array, "b *windows d"]:
    """Returns the windows of arrays that are padded with zeros, half before and half after, an odd one after.

    There are ceil(places / stride) windows along an axis. The columns d are the c columns of each place of a window,
    row by row.
    """
    counts = [-(-n // stride) for n, stride in zip(x.shape[1:-1], strides, strict=True)]
    reach = [(count - 1) * stride + size for count, stride, size in zip(counts, strides, sizes, strict=True)]
    short = [max(end - n, 0) for end, n in zip(reach, x.shape[1:-1], strict=True)]
    x = jnp.pad(x, [(0, 0), *((zeros // 2, zeros - zeros // 2) for zeros in short), (0, 0)])
    last = [(count - 1) * stride + 1 for count, stride in zip(counts, strides, strict=True)]
    starts = itertools.product(*map(range, sizes))
    index = [[slice(i, i + n, stride) for i, n, stride in zip(start, last, strides, strict=True)] for start in starts]
    return jnp.concatenate([x[:, *slices] for slices in index], axis=-1)


class Conv(nn.Module, kw_only=True):
    """Computes b + sum_o x_{stride p + o} K_o over the places o of a window, with the parameters of flax.linen.Conv.

    Attributes:
        features: width of the result.
        sizes: of the window, one for each axis between the first and the last.
        strides: steps from one window to the next; () for steps of 1.
        dtype: type of the product and of the result.
    """

    features: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "b *places c"]) -> Float[Array, "b *windows d"]:
        shape = (*self.sizes, x.shape[-1], self.features)
        kernel = jnp.asarray(self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32))
        bias = jnp.asarray(self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32))
        each = windows(x, self.sizes, self.strides or (1,) * len(self.sizes))
        outputs = product(each, kernel.reshape(-1, self.features), self.dtype)
        return (outputs + jnp.expand_dims(bias, range(outputs.ndim - 1))).astype(self.dtype)
