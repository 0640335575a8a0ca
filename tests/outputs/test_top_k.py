"""The k largest of many numbers in two stages, and what the layers say of a wrong k; counts of words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.outputs import OUTPUTS, OutputSetting
from attn_jax.outputs.frequencies import Frequencies
from attn_jax.outputs.top_k import GROUP, best_by_logit, best_extensions, top_k


@pytest.mark.slow
@pytest.mark.parametrize("size, k", [(5, 5), (GROUP, 1), (7 * GROUP + 5, 3)])
def test_they_are_those_of_a_search_among_all(size, k):
    x = jnp.asarray(np.random.default_rng(size).normal(size=(2, 3, size)), jnp.float32)
    x = x.at[0].set(-jnp.inf).at[0, :, -1].set(0.0).at[1, 0].set(-(x[1, 0] ** 2))
    both = compiled(lambda x: (top_k(x, k), jax.lax.top_k(x, k)))
    for got, expected in zip(*both(x), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("size", [9, 3 * GROUP, 20 * GROUP + 5])
@pytest.mark.parametrize("forbidden", [(), (0, 2), (0, GROUP)])
def test_the_best_extensions_of_all_rows_are_those_of_a_search_among_all(size, forbidden):
    """Also where forbidden words would be the best, where a row is impossible, and where numbers are equal."""
    rng = np.random.default_rng(size)
    logits = jnp.asarray(rng.normal(size=(2, 4, size)).round(1), jnp.float32).at[..., jnp.array([0, 2])].add(9.0)
    before = jnp.array([[0.0, -jnp.inf, -jnp.inf, -jnp.inf], [-1.0, -1.5, -3.0, -0.2]])
    words = jnp.broadcast_to(jnp.arange(size), logits.shape)
    n = 6
    found, expected = (
        best_by_logit(logits, before, n, forbidden),
        best_extensions(jax.nn.log_softmax(logits), words, before, n, forbidden),
    )
    np.testing.assert_allclose(found.log_prob, expected.log_prob, atol=2e-6)
    assert not np.isin(found.word, forbidden).any() and (np.asarray(found.row)[0] == 0).all()
    for got in (found, expected):  # equal sums may come in another order
        sums = jnp.take_along_axis(before, got.row, axis=1) + got.log_prob
        direct = jax.nn.log_softmax(logits)[jnp.arange(2)[:, None], got.row, got.word]
        np.testing.assert_allclose(got.log_prob, direct, atol=2e-6)
        assert (jnp.diff(sums, axis=1) <= 2e-6).all()
        assert len({(int(r), int(w)) for r, w in zip(got.row[1], got.word[1], strict=True)}) == n


def test_of_equal_numbers_the_first_are_taken():
    values, places = top_k(jnp.ones((2, 1000)), 4)
    np.testing.assert_array_equal(values, 1.0)
    np.testing.assert_array_equal(places, [[0, 1, 2, 3]] * 2)


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("k", [0, 10])
def test_no_words_and_more_than_there_are_is_an_error_of_each_layer(name, k):
    options = {"num_samples": 2} if hasattr(OUTPUTS[name], "num_samples") else {}
    layer = OUTPUTS[name](**options).build(OutputSetting(vocab_size=9, counts=np.arange(1, 10)))
    with pytest.raises(ValueError, match=rf"top_k: k is {k}; expected 1 to 9"):
        jax.eval_shape(lambda rng: layer.init(rng, jnp.ones((2, 3)), k, method="top_k"), jax.random.key(0))


def test_counts_are_whole_numbers():
    with pytest.raises(ValueError, match="expected one whole number of at least 0 for each word"):
        Frequencies(np.array([0.9, 0.5, 2.7]))
    assert Frequencies(np.array([2.0, 0.0])).counts.tolist() == [2, 0]
