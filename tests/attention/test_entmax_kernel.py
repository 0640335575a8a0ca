"""The kernel of entmax-1.5 attention computes what the formula does, and can be compiled for a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention import attend
from attn_jax.attention.entmax_kernel import entmax15_attention

RNG = np.random.default_rng(0)
CASES = {
    "one_block": ((2, 5, 7), {}),
    "several": ((1, 130, 70), {"key_mask": True}),
    "causal": ((2, 130, 130), {"causal": True}),
    "causal_and_masked": ((1, 70, 70), {"causal": True, "key_mask": True}),
}


def made(shape, width=8, value_width=5):
    batch, queries, keys = shape
    sizes = (batch, queries, width), (batch, keys, width), (batch, keys, value_width), (batch, queries, value_width)
    return [jnp.asarray(RNG.normal(size=size), jnp.float32) for size in sizes]


def reference(query, keys, values, *, scale, key_mask=None, causal=False):
    mask = jnp.tril(jnp.ones((query.shape[-2], keys.shape[-2]), bool)) if causal else None
    return attend(scale * query, keys, values, key_mask=key_mask, mask=mask, score="dot", normalize="entmax15").context


@pytest.mark.parametrize("name", CASES)
def test_context_and_gradient_are_those_of_the_formula(name):
    shape, options = CASES[name]
    *arrays, sense = made(shape)
    key_mask = None
    if options.get("key_mask"):
        key_mask = RNG.random((shape[0], shape[2])) < 0.7
        key_mask[0, :4] = False  # the first queries of a causal order have no key
    options = {
        "scale": 0.8,
        "key_mask": None if key_mask is None else jnp.asarray(key_mask),
        "causal": options.get("causal", False),
    }

    def both(function):
        def run(*arrays):
            context, pull = jax.vjp(lambda *x: function(*x, **options), *arrays)
            return context, pull(jnp.asarray(sense))

        return compiled(run)(*arrays)

    for ours, theirs in zip(*map(jax.tree.leaves, map(both, (entmax15_attention, reference))), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3e-5)


def test_bfloat16_and_leading_axes():
    query, keys, values, _ = (jnp.asarray(x, jnp.bfloat16).reshape(1, 2, -1, x.shape[-1]) for x in made((2, 40, 50)))
    context = compiled(lambda *x: entmax15_attention(*x, scale=0.5))(query, keys, values)
    exact = reference(*(x.astype(jnp.float32) for x in (query, keys, values)), scale=0.5)
    assert context.shape == (1, 2, 40, 5) and context.dtype == jnp.bfloat16
    np.testing.assert_allclose(context.astype(np.float32), exact, atol=0.03)


def test_axes_that_differ_are_refused():
    query, keys, values, _ = made((2, 5, 7))
    with pytest.raises(ValueError, match=r"of shapes \(1, 5, 8\), \(2, 7, 8\), \(2, 7, 5\); expected the same leading"):
        entmax15_attention(query[:1], keys, values, scale=1.0)


def test_it_is_lowered_for_a_gpu():
    query, keys, values, _ = made((2, 128, 128), 64, 64)
    call = lambda *x: jnp.sum(entmax15_attention(*x, scale=0.1, causal=True, interpret=False))  # noqa: E731
    device = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", None, "cuda")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        traced = jax.jit(jax.grad(call, argnums=(0, 1, 2))).trace(query, keys, values)
        lowered = traced.lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("custom_call @__gpu$xla.gpu.triton") == 3  # forward, queries, keys and values
