"""Marginals of a chain and of segmentations against the sum over all selections of keys."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled, params_of

from attn_jax.attention.normalizers.structured import (
    Chain,
    Segments,
    chain_marginals,
    log_partition,
    log_partition_of_segments,
    segment_marginals,
)

RNG = np.random.default_rng(0)
KEYS = 5
SCORES = RNG.normal(0, 1.5, (3, KEYS))
PAIRWISE = np.array([0.4, -0.9, -0.3, 1.2])
MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
SENSES = RNG.normal(size=SCORES.shape)


def selections(num_keys):
    return np.array(list(itertools.product((0, 1), repeat=num_keys)), int).reshape(2**num_keys, num_keys)


def enumerated(scores, pairwise):
    """(log Z, marginals) of one row of scores, by the sum over all selections."""
    z = selections(len(scores))
    b = jnp.asarray(pairwise).reshape(2, 2)
    energy = z @ jnp.asarray(scores) + b[z[:, :-1], z[:, 1:]].sum(-1)
    return jax.nn.logsumexp(energy), jax.nn.softmax(energy) @ z


pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.slow
def test_log_z_and_marginals_are_the_sum_over_all_selections_of_the_keys_that_are_left():
    log_z, weights = compiled(
        lambda s, m: (log_partition(s, jnp.asarray(PAIRWISE), m), chain_marginals(s, m, jnp.asarray(PAIRWISE)))
    )(SCORES, MASK)
    for row in range(2):
        kept = MASK[row]
        expected_log_z, expected = enumerated(SCORES[row, kept], PAIRWISE)
        np.testing.assert_allclose(log_z[row], expected_log_z, rtol=1e-12)
        np.testing.assert_allclose(weights[row, kept], expected, rtol=1e-10)
        assert np.all(weights[row, ~kept] == 0)
    assert log_z[2] == 0 and np.all(weights[2] == 0)


@pytest.mark.slow
def test_gradients_of_the_marginals_are_those_of_the_sum():
    def loss(scores, pairwise):
        return jnp.sum(chain_marginals(scores, jnp.asarray(MASK), pairwise) * SENSES)

    into_scores, into_pairwise = compiled(jax.grad(loss, (0, 1)))(SCORES, PAIRWISE)
    total = np.zeros(4)
    for row in range(2):
        kept = MASK[row]
        written = lambda s, b, row=row, kept=kept: jnp.sum(enumerated(s, b)[1] * SENSES[row, kept])  # noqa: E731
        expected, of_pairwise = jax.grad(written, (0, 1))(jnp.asarray(SCORES[row, kept]), jnp.asarray(PAIRWISE))
        np.testing.assert_allclose(into_scores[row, kept], expected, rtol=1e-9)
        total += of_pairwise
    np.testing.assert_allclose(into_pairwise, total, rtol=1e-9)
    assert np.all(into_scores[~MASK] == 0)


def test_without_pairwise_potentials_each_weight_is_a_sigmoid_of_its_score():
    np.testing.assert_allclose(compiled(chain_marginals)(SCORES), 1 / (1 + np.exp(-SCORES)), rtol=1e-12)


@pytest.mark.slow
def test_each_head_has_its_potentials_and_starts_with_sigmoids():
    module, scores = Chain(num_heads=2), jnp.asarray(RNG.normal(size=(2, 2, 3, KEYS)))
    assert module.init(jax.random.key(0), scores)["params"]["pairwise"].shape == (2, 1, 4)
    params = jax.tree.map(jnp.asarray, params_of(module, scores))
    weights = compiled(lambda s: module.apply({"params": params}, s))(scores)
    for batch, head, query in np.ndindex(2, 2, 3):
        _, expected = enumerated(np.asarray(scores[batch, head, query]), np.asarray(params["pairwise"])[head, 0])
        np.testing.assert_allclose(weights[batch, head, query], expected, rtol=1e-6)


def test_long_chains_stay_precise_in_single_precision():
    scores = RNG.normal(0, 30, (1, 3000)).astype(np.float32)
    exact, single = (
        compiled(lambda s: chain_marginals(s, None, jnp.asarray(PAIRWISE)))(scores.astype(kind))
        for kind in (np.float64, np.float32)
    )
    np.testing.assert_allclose(single, exact, atol=2e-5)


LENGTHS = np.array([0.3, -0.8, 1.1])


def enumerated_segments(scores, lengths):
    """(log Z, marginals) of one row: a selection has the lengths of its runs, none longer than there are lengths."""
    kept, energy = [], []
    for z in selections(len(scores)):
        runs = [len(list(run)) for selected, run in itertools.groupby(z) if selected]
        if max(runs, default=0) <= len(lengths):
            kept.append(z)
            energy.append(z @ scores + sum(lengths[run - 1] for run in runs))
    energy = np.array(energy)
    return jax.nn.logsumexp(energy), jax.nn.softmax(energy) @ np.array(kept)


@pytest.mark.slow
@pytest.mark.parametrize("longest", [1, 2, 3])
def test_segments_are_the_sum_over_all_segmentations_of_the_keys_that_are_left(longest):
    lengths = jnp.asarray(LENGTHS[:longest])
    log_z, weights = compiled(
        lambda s, m: (log_partition_of_segments(s, lengths, m), segment_marginals(s, m, lengths))
    )(SCORES, MASK)
    for row in range(2):
        kept = MASK[row]
        expected_log_z, expected = enumerated_segments(SCORES[row, kept], LENGTHS[:longest])
        np.testing.assert_allclose(log_z[row], expected_log_z, rtol=1e-12)
        np.testing.assert_allclose(weights[row, kept], expected, rtol=1e-10)
        assert np.all(weights[row, ~kept] == 0)
    assert log_z[2] == 0 and np.all(weights[2] == 0)


@pytest.mark.slow
def test_derivatives_of_segments():
    mask = jnp.asarray(MASK)
    check_derivatives(lambda s, c: jnp.sum(jnp.sin(3 * segment_marginals(s, mask, c))), SCORES, LENGTHS[:2])


@pytest.mark.slow
def test_each_head_has_its_lengths_and_none_is_below_one():
    module, scores = Segments(num_heads=2, longest_segment=2), jnp.asarray(RNG.normal(size=(2, 1, KEYS)))
    params = jax.tree.map(jnp.asarray, params_of(module, scores))
    assert params["lengths"].shape == (2, 1, 2)
    weights = compiled(lambda s: module.apply({"params": params}, s))(scores)
    for head in range(2):
        expected = enumerated_segments(np.asarray(scores[head, 0]), np.asarray(params["lengths"][head, 0]))[1]
        np.testing.assert_allclose(weights[head, 0], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="longest_segment is 0; expected at least 1"):
        Segments(longest_segment=0)


def test_many_keys_in_segments_stay_precise_in_single_precision():
    scores = RNG.normal(0, 30, (1, 3000)).astype(np.float32)
    exact, single = (
        compiled(lambda s: segment_marginals(s, None, jnp.asarray(LENGTHS)))(scores.astype(kind))
        for kind in (np.float64, np.float32)
    )
    np.testing.assert_allclose(single, exact, atol=2e-5)
