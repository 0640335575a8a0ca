"""Products with a matrix of parameters, which are fast on a CPU in bfloat16, too.

XLA multiplies bfloat16 on a CPU fast only if both operands lie in memory row by row and the result is float32. The
transposes in a gradient do not, so they are copied there first. On other devices the products are the usual ones.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

from attn_jax.attention import loops
from attn_jax.types import Array, Callable, Dtype, Float, wide, widest

HALF = jnp.dtype(jnp.bfloat16)


def product(x: Float[Array, "... d"], w: Float[Array | np.ndarray, "d e"], dtype: Dtype) -> Float[Array, "... e"]:
    """Computes x w, with both rounded to `dtype`; the result is in float32 at least.

    In bfloat16 on a CPU the sums are in float32, and neither they nor the gradient of w are rounded to bfloat16.
    """
    x = x.astype(dtype)
    if x.dtype != HALF:
        return wide(x @ w.astype(dtype))
    return _half(x, loops.vary(jnp.asarray(w), x))


class Dense(nn.Module, kw_only=True):
    """Computes x W + b by `product`, with the parameters of flax.linen.Dense.

    Attributes:
        features: width of the result.
        use_bias: whether there is a b.
        dtype: type of the product and of the result; None: the promoted type of x and W.
        kernel_init: initializer of W.
        bias_init: initializer of b.
    """

    features: int
    use_bias: bool = True
    dtype: Dtype | None = None
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    bias_init: Callable[..., Array] = nn.initializers.zeros

    @nn.compact
    def __call__(self, inputs: Float[Array, "... i"]) -> Float[Array, "... d"]:
        kernel = jnp.asarray(self.param("kernel", self.kernel_init, (inputs.shape[-1], self.features), jnp.float32))
        dtype = self.dtype or jnp.result_type(inputs, kernel)
        outputs = product(inputs, kernel, dtype)
        if self.use_bias:  # added before the sum is rounded: a small bias would have no effect on a rounded one
            bias = jnp.asarray(self.param("bias", self.bias_init, (self.features,), jnp.float32))
            outputs += jnp.expand_dims(bias, range(outputs.ndim - 1))
        return outputs.astype(dtype)


def wide_product(x: Float[Array, "... d"], y: Float[Array, "d e"]) -> Float[Array, "... e"]:
    """Computes x y with sums in float32 at least."""
    return jnp.matmul(x, y, preferred_element_type=widest(x, y))


def narrow_product(x: Float[Array, "... d"], y: Float[Array, "d e"]) -> Float[Array, "... e"]:
    """Computes x y in the type of x."""
    if x.dtype != HALF:
        return x @ y
    return jax.lax.platform_dependent(
        x, y, cpu=lambda x, y: wide_product(x, y).astype(x.dtype), default=lambda x, y: x @ y
    )


def outer_products(x: Float[Array, "... d"], y: Float[Array, "... e"]) -> Float[Array, "d e"]:
    """Computes the sum of x y^T over the leading axes, in float32 at least."""

    def call(x, y):
        return wide_product(transposed(x.reshape(-1, x.shape[-1])), y.reshape(-1, y.shape[-1]))

    return loops.by_compiler(call, whole=True)(x, y)


def transposed(x: Float[Array, "d e"]) -> Float[Array, "e d"]:
    """Returns the transpose, which in bfloat16 on a CPU lies in memory row by row."""
    if x.dtype != HALF:
        return x.T
    by_rows = Layout(major_to_minor=(0, 1))
    return jax.lax.platform_dependent(x, cpu=lambda x: with_layout_constraint(x.T, by_rows), default=lambda x: x.T)


@jax.custom_vjp
def _half(x, w):
    return _forward(x, w)[0]


def _forward(x, w):
    rounded = w.astype(x.dtype)
    return jax.lax.platform_dependent(x, rounded, cpu=wide_product, default=lambda x, w: wide(x @ w)), (x, w)


def _backward(residuals, g):
    x, w = residuals
    g = g.astype(x.dtype)
    return narrow_product(g, transposed(w.astype(g.dtype))), outer_products(x, g).astype(w.dtype)


_half.defvjp(_forward, _backward)
