"""Attention whose mean of the keys is the next query: energies fall, patterns are retrieved, the mean shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax import NORMALIZERS, Additive, Gaussian
from attn_jax.attention.build import build_attention

RNG = np.random.default_rng(0)
PATTERNS = RNG.normal(size=(5, 4))
QUERY = RNG.normal(size=(6, 4))
REGULARIZERS = {  # Omega of the normalizer: its weights maximize weights . scores - Omega(weights)
    "softmax": lambda w: np.sum(w * np.log(np.where(w > 0, w, 1)), axis=-1),
    "sparsemax": lambda w: (np.sum(w**2, axis=-1) - 1) / 2,
    "entmax15": lambda w: (np.sum(w**1.5, axis=-1) - 1) / 0.75,
}


def hopfield(iterations, score="dot", **options):
    return build_attention(score=score, iterations=iterations, **options)


def reads(iterations, query, keys, values=None, **options):
    attended = hopfield(iterations, **options).apply({}, *(jnp.asarray(x, jnp.float32) for x in (query, keys)), values)
    return attended.context, attended.weights


@pytest.mark.slow
def test_iterations_are_attention_with_the_context_as_next_query():
    values = jnp.asarray(RNG.normal(size=(5, 2)), jnp.float32)  # of another width: read at the end

    @compiled
    def run(query, patterns):
        once = query
        for _ in range(3):
            once = reads(1, once, patterns)[0]
        return once, reads(3, query, patterns)[0], *reads(3, query, patterns, values)

    once, several, context, weights = run(QUERY.astype(np.float32), PATTERNS.astype(np.float32))
    np.testing.assert_allclose(several, once, rtol=1e-5)
    np.testing.assert_allclose(context, weights @ values, rtol=1e-5)
    np.testing.assert_allclose(weights @ PATTERNS, once, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGULARIZERS)
def test_the_energy_falls_with_each_iteration(name):
    """E = |query|^2 / 2 - max over w of (w . patterns query - Omega(w))."""
    several = compiled(lambda query: [reads(n, query, PATTERNS, normalize=name)[0] for n in (1, 2, 3, 4)])
    states = [QUERY, *several(QUERY.astype(np.float32))]
    energies = []
    for state in states:
        weights = np.asarray(NORMALIZERS[name](jnp.asarray(state @ PATTERNS.T, jnp.float32)))
        conjugate = np.sum(weights * (state @ PATTERNS.T), axis=-1) - REGULARIZERS[name](weights)
        energies.append(np.sum(state**2, axis=-1) / 2 - conjugate)
    assert np.all(np.diff(energies, axis=0) < 1e-5) and np.all(np.diff(energies, axis=0)[0] < -1e-2)


@pytest.mark.slow
def test_noisy_patterns_are_retrieved_exactly_by_sparse_weights():
    patterns = np.sign(RNG.normal(size=(20, 64)))
    noisy = patterns * np.where(RNG.random(patterns.shape) < 0.15, -1, 1)
    assert np.all(np.any(noisy != patterns, axis=-1))
    found, weights = reads(3, noisy, patterns, normalize="sparsemax")
    np.testing.assert_array_equal(found, patterns)
    np.testing.assert_array_equal(weights, np.eye(20))


@pytest.mark.slow
def test_over_a_gaussian_kernel_it_is_the_mean_shift():
    points = RNG.normal(size=(30, 1)) * 0.3 + np.where(np.arange(30) % 2, 3.0, -3.0)[:, None]
    score = Gaussian(width=(1.0,))
    modes = reads(30, points, points, score=score)[0]
    np.testing.assert_allclose(modes, reads(1, modes, points, score=score)[0], atol=1e-4)  # a fixed point
    assert len(np.unique(np.round(modes, 3))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "stick_breaking"])
def test_masking_a_pattern_is_deleting_it(normalize):
    query, keys = (jnp.asarray(x, jnp.float32) for x in (QUERY, PATTERNS))
    keep = np.array([1, 0, 1, 1, 0], bool)
    attention = hopfield(3, normalize=normalize)
    run = lambda q, k, mask: attention.apply({}, q, k, mask=mask).weights  # noqa: E731
    rubbish = jnp.where(keep[:, None], keys, 100.0)
    weights = compiled(run)(query, rubbish, keep[None])
    np.testing.assert_allclose(weights[:, keep], compiled(run)(query, keys[keep], np.ones((1, 3), bool)), atol=1e-5)
    assert np.all(weights[:, ~keep] == 0)


@pytest.mark.slow
def test_derivatives_in_float64():
    total = lambda query, keys: jnp.sum(jnp.sin(hopfield(3).apply({}, query, keys).context))  # noqa: E731
    check_derivatives(total, QUERY, PATTERNS)


@pytest.mark.slow
def test_what_cannot_be_iterated_is_one_line():
    attention = hopfield(2, Additive(features=5))
    with pytest.raises(ValueError, match="keys that can be queries, of width 4; those of this score have 5 columns"):
        attention.init(jax.random.key(0), jnp.ones((1, 4)), jnp.ones((2, 4)))
