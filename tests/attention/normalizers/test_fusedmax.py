"""Fusedmax next to the definition of its proximal operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.normalizers.entmax import sparsemax
from attn_jax.attention.normalizers.fusedmax import fuse, fusedmax

RNG = np.random.default_rng(0)
KEYS = 9
SCORES = RNG.normal(0, 1, (60, KEYS)).astype(np.float32)
MASK = RNG.random(SCORES.shape) < 0.75
MASK[:3] = [[False] * KEYS, [True] * KEYS, [False] * 4 + [True] + [False] * 4]
FUSIONS = np.array([1e-3, 0.05, 0.3, 1, 50], np.float32)
SENSES = RNG.normal(size=SCORES.shape).astype(np.float32)


@compiled
def all_of(scores, mask, fusions):
    """For each fusion: what is fused, the weights, and the gradients of SENSES . fused in scores and fusion."""

    def one(fusion):
        fused, pull = jax.vjp(fuse, scores, mask, fusion)
        gradient, _, by_fusion = pull(jnp.asarray(SENSES * mask))
        return fused, fusedmax(scores, mask, fusion), gradient, by_fusion

    return jax.vmap(one)(fusions)


@pytest.mark.slow
def test_its_optimality_on_every_row():
    """scores - fused = D^T u, where u is the fusion times the sign of a step between groups, and within them at most
    the fusion in size."""
    fused, *_ = all_of(SCORES, MASK, FUSIONS)
    num_fused = 0
    for number, fusion in enumerate(FUSIONS):
        for row, scores, mask in zip(fused[number].astype(np.float64), SCORES, MASK, strict=True):
            if mask.any():
                dual, steps = -np.cumsum(scores[mask] - row[mask]), np.diff(row[mask])
                np.testing.assert_allclose(dual[-1], 0, atol=1e-5)
                assert np.all(np.abs(dual) <= fusion + 1e-5)
                np.testing.assert_allclose(dual[:-1][steps != 0], (fusion * np.sign(steps))[steps != 0], atol=1e-5)
                num_fused += np.sum(steps == 0)
    assert num_fused > 100


@pytest.mark.slow
def test_the_gradient_averages_over_the_groups():
    """A group is the mean of its scores, moved towards each neighbour by fusion / size."""
    fused, _, gradient, by_fusion = all_of(SCORES, MASK, FUSIONS)
    for number in range(len(FUSIONS)):
        expected_by_fusion = 0.0
        for row, senses, mask, got in zip(fused[number], SENSES, MASK, gradient[number], strict=True):
            groups = np.cumsum(np.diff(row[mask], prepend=row[mask][:1]) != 0)
            expected = [senses[mask][groups == group].mean() for group in groups]
            np.testing.assert_allclose(got[mask], expected, atol=1e-5)
            np.testing.assert_array_equal(got[~mask], 0)
            if mask.any():
                first = np.diff(groups, prepend=-1) != 0  # the first key of each group
                up = np.r_[0, np.sign(np.diff(row[mask][first])), 0]  # to the next group
                expected_by_fusion += np.dot(np.array(expected)[first], np.diff(up))
        np.testing.assert_allclose(by_fusion[number], expected_by_fusion, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_its_weights():
    fused, weights, *_ = all_of(SCORES, MASK, FUSIONS)
    call = compiled(lambda fused, mask: sparsemax(fused, mask))
    for number in range(len(FUSIONS)):
        np.testing.assert_allclose(weights[number], call(fused[number], MASK), atol=1e-6)
    uniform = MASK / np.maximum(MASK.sum(-1, keepdims=True), 1)
    np.testing.assert_allclose(weights[-1], uniform, atol=1e-6)  # a large fusion
    got = compiled(lambda x: fusedmax(x, None, 0.1))(np.array([1, 2.1, 1.9], np.float32))
    np.testing.assert_allclose(got, [0, 0.5, 0.5], atol=1e-6)


def test_no_fusion_is_sparsemax():
    small = all_of(SCORES, MASK, FUSIONS * 1e-6)[1][0]
    for weights in (small, compiled(lambda x, mask: fusedmax(x, mask, 0))(SCORES, MASK)):
        np.testing.assert_allclose(weights, compiled(lambda x, mask: sparsemax(x, mask))(SCORES, MASK), atol=1e-6)


def test_many_keys_with_a_long_memory():
    scores = (np.cumsum(np.random.default_rng(1).normal(size=400)) + 300).astype(np.float32)
    fused = compiled(fuse)(scores, np.ones(400, bool), np.float32(3))
    dual = -np.cumsum(scores.astype(np.float64) - fused)
    assert np.all(np.abs(dual) <= 3 + 2e-2) and 10 < np.sum(np.diff(fused) != 0) < 200


def test_a_negative_fusion_is_refused():
    with pytest.raises(ValueError, match="fusion of fusedmax is -1, but at least 0 was expected"):
        fusedmax(jnp.asarray(SCORES), None, -1)


@pytest.mark.slow
@pytest.mark.parametrize("low", [-1e2, -1e9])
def test_how_far_below_a_key_is_changes_nothing(low):
    """A mask that is added as a large negative number costs the other keys no digits."""
    scores, sense = np.float32([low, low, 0.1, 0.3, 0.2]), jnp.array([1.0, 2.0, -2.0, 0.5, 3.0])
    both = compiled(lambda x: (fusedmax(x), jax.grad(lambda x: sense @ fusedmax(x))(x)))
    weights, slope = both(scores)
    np.testing.assert_allclose(weights, [0, 0, 0.8 / 3, 1.1 / 3, 1.1 / 3], atol=1e-6)
    np.testing.assert_allclose(slope, both(np.float32([-9, -9, 0.1, 0.3, 0.2]))[1], atol=1e-6)
