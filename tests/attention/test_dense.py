"""Products in bfloat16: as those in float32 of the rounded operands, by any layout; and Dense is that of flax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention import dense

RNG = np.random.default_rng(0)
X, W, G = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((2, 3, 8), (8, 16), (2, 3, 16)))


def rounded(x):
    return jnp.asarray(x, jnp.bfloat16).astype(jnp.float32)


def gradients(function, x=X, w=W):
    return jax.grad(lambda x, w: jnp.sum(function(x, w) * rounded(G)), (0, 1))(x, w)


def test_a_product_in_bfloat16_is_the_product_of_rounded_operands():
    """The sums have float32's precision, and so has the gradient of w; that of x is rounded once."""
    half = lambda x, w: dense.product(x, w, jnp.bfloat16)  # noqa: E731
    x, w, g = rounded(X), rounded(W), rounded(G)
    np.testing.assert_allclose(half(X, W), x @ w, rtol=1e-6, atol=1e-6)
    d_x, d_w = gradients(half)
    np.testing.assert_allclose(d_w, jnp.einsum("btd,bte->de", x, g), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(d_x, rounded(g @ w.T))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_products_are_the_same_under_vmap_and_jit(dtype):
    """Several seeds are one vmapped program."""
    run = lambda x, w: (dense.product(x, w, dtype), *gradients(lambda x, w: dense.product(x, w, dtype), x, w))  # noqa: E731
    xs, ws = jnp.stack([X, 2 * X]), jnp.stack([W, W + 1])
    together = jax.jit(jax.vmap(run))(xs, ws)
    for i in range(2):
        for one, several in zip(run(xs[i], ws[i]), together, strict=True):
            np.testing.assert_allclose(several[i], one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_dense_is_that_of_flax(dtype, use_bias):
    """Same parameters, same values up to the rounding of the sum before the bias is added."""
    options = {"use_bias": use_bias, "dtype": dtype, "bias_init": nn.initializers.normal(1.0)}
    ours, theirs = dense.Dense(features=16, **options), nn.Dense(16, **options)
    params = theirs.init(jax.random.key(0), X)
    jax.tree.map(np.testing.assert_array_equal, ours.init(jax.random.key(0), X), params)
    first, second = ours.apply(params, X), theirs.apply(params, X)
    assert first.dtype == second.dtype
    close = {"rtol": 1e-2, "atol": 2e-2} if dtype == "bfloat16" else {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(first, second, **close)


def test_a_small_bias_has_an_effect_on_a_sum_in_bfloat16():
    """Added to sums above 1 that are rounded already, 1e-3 would be lost each time, and so in their mean."""
    kernel = np.stack([np.ones(1000), np.linspace(0, 0.5, 1000)]).astype(np.float32)
    params = {"kernel": kernel, "bias": np.full(1000, 1e-3, np.float32)}

    def mean(layer):
        outputs = layer(features=1000, dtype=jnp.bfloat16).apply({"params": params}, jnp.ones((1, 2)))
        return float(jnp.mean(outputs, dtype=jnp.float32) - jnp.mean(jnp.sum(rounded(kernel), axis=0)))

    assert abs(mean(nn.Dense)) < 1e-4 and mean(dense.Dense) == pytest.approx(1e-3, rel=0.2)


@pytest.mark.parametrize(("platform", "copies"), [("cpu", True), ("cuda", False), ("tpu", False)])
def test_only_a_cpu_copies_transposes(platform, copies):
    """On other devices a product is a plain one, in bfloat16."""
    run = jax.jit(
        lambda x, w: (
            dense.product(x, w, jnp.bfloat16),
            *gradients(lambda x, w: dense.product(x, w, jnp.bfloat16), x, w),
        )
    )
    text = run.trace(X, W).lower(lowering_platforms=(platform,)).as_text()
    assert ("LayoutConstraint" in text) == copies
    forward = next(line for line in text.splitlines() if "dot_general" in line)
    assert forward.endswith("tensor<2x3x16xf32>" if copies else "tensor<2x3x16xbf16>")
