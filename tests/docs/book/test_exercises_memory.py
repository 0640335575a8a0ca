"""Answers to the exercises of chapters 7 to 10 of the book: memory networks, output layers, kernels, images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn_jax
from attn_jax.attention.scores import Epanechnikov, Gaussian
from attn_jax.data.vocabulary import PERIOD_ID
from attn_jax.layers.pictures import ConvolutionGrid
from attn_jax.models.memory_networks.base import centred_feature, centred_position, find_sentences
from attn_jax.outputs import OUTPUTS, OutputSetting


def position_weights(length, width):
    """Chapter 7, exercise 1. l_kj = (1 - j / J) - (k / d) (1 - 2 j / J): word j is weighted by its position."""
    j, k = np.arange(1, length + 1)[:, None] / length, np.arange(1, width + 1) / width
    return (1 - j) - k * (1 - 2 * j)


def test_position_encoding_tells_word_orders_apart_and_a_bag_does_not():
    table = np.random.default_rng(0).normal(size=(3, 6))  # mary, saw, john
    one, other = table[[0, 1, 2]], table[[2, 1, 0]]
    np.testing.assert_allclose(one.sum(axis=0), other.sum(axis=0))
    weights = position_weights(3, 6)
    assert np.abs((weights * one).sum(axis=0) - (weights * other).sum(axis=0)).max() > 0.1


def test_the_position_encodings_of_chapter_7_are_that_of_the_paper_and_that_of_the_package():
    length, width = 5, 6
    j, k = np.arange(1, length + 1)[:, None], np.arange(1, width + 1)
    published = lambda j, k: 0.5 + 2 * (k / width - 0.5) * (j / length - 0.5)  # noqa: E731
    np.testing.assert_allclose(published(j, k), position_weights(length, width))
    layout = find_sentences(jnp.array([[*range(20, 20 + length), PERIOD_ID]]), 1)
    ours = 1 + np.outer(centred_position(layout)[0, :length], centred_feature(width))
    second = 1 + 4 / (width * length) * (k - (width + 1) / 2) * (j - (length + 1) / 2)
    np.testing.assert_allclose(ours, second, rtol=1e-5)
    np.testing.assert_allclose(second, 2 * published(j - 0.5, k - 0.5), rtol=1e-5)


def state_after_equal_keys(u, values):
    """Chapter 7, exercise 2. Equal keys have equal weights, so the hop adds the mean of the values."""
    return u + values.mean(axis=0)


@pytest.mark.slow
def test_a_hop_over_equal_keys_adds_the_mean():
    u, values = jnp.array([[1.0, 2.0]]), jax.random.normal(jax.random.key(0), (5, 2))
    hop = u + attn_jax.attend(u, jnp.ones((5, 2)), values, score="dot").context
    np.testing.assert_allclose(hop, state_after_equal_keys(u, values), rtol=1e-5)


def episode(gates, updates, h):
    """Chapter 7, exercise 3: h_i = g_i update(c_i, h) + (1 - g_i) h."""
    for g, update in zip(gates, updates, strict=True):
        h = g * np.tanh(update + h) + (1 - g) * h
    return h


def test_an_episode_with_closed_gates_is_its_first_state():
    updates = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(episode(np.zeros(4), updates, np.ones(3)), np.ones(3))
    skipped = episode([1, 0, 0, 1], updates, np.ones(3))
    np.testing.assert_array_equal(skipped, episode([1, 1], updates[[0, 3]], np.ones(3)))


def test_soft_reading_with_large_keys_is_the_argmax():
    """Chapter 7, exercise 4. The differences of the scores grow with the factor, and softmax becomes one-hot."""
    u, keys, values = (jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(1, 3), (6, 3), (6, 2)]))
    best = values[jnp.argmax(u @ keys.T)]
    contexts = [attn_jax.attend(u, c * keys, values, score="dot").context for c in (0.1, 1, 1000)]
    distance = [float(jnp.abs(context - best).max()) for context in contexts]
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 1e-5


def softmax_gradient(scores, target):
    """Chapter 8, exercise 1. d(-s_y + log Z) / d s_w = p_w - [w = y]."""
    return jax.nn.softmax(scores) - jax.nn.one_hot(target, len(scores))


def test_the_gradient_of_the_loss_is_the_probability_minus_the_target():
    scores = jnp.array([2.0, 1.0, -0.5, 0.0])
    gradient = jax.grad(lambda s: -jax.nn.log_softmax(s)[2])(scores)
    np.testing.assert_allclose(gradient, softmax_gradient(scores, 2), atol=1e-6)


def test_every_tree_with_any_parameters_sums_to_one():
    """Chapter 8, exercise 2. At each node the two branches share what arrives there: sigmoid(x) + sigmoid(-x) = 1."""
    hidden = jax.random.normal(jax.random.key(0), (2, 4))
    for tree in ("huffman", "balanced"):
        layer = OUTPUTS["hierarchical"](tree=tree).build(OutputSetting(vocab_size=9, counts=np.arange(1, 10)))
        params = layer.init(jax.random.key(1), hidden, method="log_probs")["params"]
        params = jax.tree.map(lambda x: 3 * jax.random.normal(jax.random.key(x.size), x.shape), params)
        total = jnp.exp(layer.apply({"params": params}, hidden, method="log_probs")).sum(axis=-1)
        np.testing.assert_allclose(total, 1, rtol=1e-5)


def log_bias(scores, q, k):
    """Chapter 8, exercise 3. log is concave (Jensen); to second order the bias is -Var / (2 k Z^2)."""
    Z = jnp.exp(scores).sum()
    variance = jnp.sum(jnp.exp(scores) ** 2 / q) - Z**2
    return -variance / (2 * k * Z**2)


@pytest.mark.slow
def test_the_logarithm_of_an_estimated_normalizer_is_too_small():
    scores, q, k = jnp.array([1.0, 0.5, 0.0, -0.5]), jnp.ones(4) / 4, 50
    words = jax.random.categorical(jax.random.key(0), jnp.log(q), shape=(20_000, k))
    bias = jnp.log(jnp.mean(jnp.exp(scores[words]) / q[words], axis=1)).mean() - jax.nn.logsumexp(scores)
    assert bias < 0
    np.testing.assert_allclose(bias, log_bias(scores, q, k), rtol=0.3)


def best_scores(p):
    """Chapter 8, exercise 4. sigmoid(s - log kq) = p / (p + kq), the share of real words: s = log p."""
    return jnp.log(p)


def test_the_best_scores_of_noise_contrastive_estimation_are_log_probabilities():
    p, q, k = jnp.array([0.6, 0.3, 0.1]), jnp.array([0.2, 0.3, 0.5]), 5

    def expected_loss(s):
        x = s - jnp.log(k * q)
        return -(p @ jax.nn.log_sigmoid(x)) - k * (q @ jax.nn.log_sigmoid(-x))

    np.testing.assert_allclose(jax.grad(expected_loss)(best_scores(p)), 0, atol=1e-6)
    assert jnp.abs(jax.grad(expected_loss)(best_scores(q))).max() > 0.1


@pytest.mark.slow
def test_parzen_and_nadaraya_watson_classify_alike():
    """Chapter 9, exercise 1. Both have the sign of sum_i y_i k(x, x_i); one divides by n, the other by sum_i k > 0."""
    x = jax.random.normal(jax.random.key(0), (30, 2))
    y = jnp.where(x[:, :1] > 0, 1.0, -1.0)
    query = jax.random.normal(jax.random.key(1), (200, 2))
    kernel = jnp.exp(-0.5 * jnp.sum((query[:, None] - x) ** 2, axis=-1))
    parzen = (kernel[:, y[:, 0] > 0].sum(axis=1) - kernel[:, y[:, 0] < 0].sum(axis=1)) / 30
    watson = attn_jax.attend(query, x, y, score=Gaussian(width=(1.0,)), normalize="kernel_sum").context[:, 0]
    np.testing.assert_array_equal(jnp.sign(parzen), jnp.sign(watson))
    assert len(np.unique(jnp.sign(watson))) == 2  # both classes occur


@pytest.mark.slow
def test_on_the_unit_sphere_a_gaussian_kernel_is_dot_product_attention():
    """Chapter 9, exercise 2. |q - k|^2 = 2 - 2 q . k, and exp(-1) cancels: softmax of the dot product."""
    unit = lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    query, keys = (unit(jax.random.normal(jax.random.key(i), (n, 3))) for i, n in enumerate((4, 6)))
    gaussian = attn_jax.attend(query, keys, score=Gaussian(width=(1.0,)), normalize="kernel_sum").weights
    np.testing.assert_allclose(gaussian, attn_jax.attend(query, keys, score="dot").weights, rtol=1e-4)
    other = attn_jax.attend(query, 2 * keys, score=Gaussian(width=(1.0,)), normalize="kernel_sum").weights
    assert np.abs(other - attn_jax.attend(query, keys, score="dot").weights).max() > 1e-2  # off the sphere it is not


@pytest.mark.slow
def test_the_fit_stays_in_the_range_of_the_values():
    """Chapter 9, exercise 3. Weights are not negative and sum to one: a mean lies between minimum and maximum."""
    x, y = jax.random.uniform(jax.random.key(0), (20, 1)), jax.random.normal(jax.random.key(1), (20, 1))
    query = jnp.linspace(0.0, 1.0, 50)[:, None]
    for score in (Gaussian(width=(0.1,)), Epanechnikov(width=(0.5,))):
        fit = attn_jax.attend(query, x, y, score=score, normalize="kernel_sum").context
        assert y.min() - 1e-5 <= fit.min() and fit.max() <= y.max() + 1e-5


def test_moving_and_rotating_everything_leaves_the_weights():
    """Chapter 9, exercise 4. The distance is all that a kernel sees."""
    query, keys = (jax.random.normal(jax.random.key(i), (n, 3)) for i, n in enumerate((4, 6)))
    rotation, move = jax.random.orthogonal(jax.random.key(2), 3), jnp.array([1.0, -2.0, 0.5])
    weights, moved, stretched = (
        attn_jax.attend(f(query), f(keys), score=Gaussian(width=(1.0,)), normalize="kernel_sum").weights
        for f in (lambda x: x, lambda x: x @ rotation + move, lambda x: 2 * x)
    )
    np.testing.assert_allclose(moved, weights, atol=1e-4)
    assert np.abs(stretched - weights).max() > 0.01


def receptive_field(kernels, strides):
    """Chapter 10, exercise 1. A layer adds (kernel - 1) times the product of the strides before it."""
    field, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        field, step = field + (kernel - 1) * step, step * stride
    return field


@pytest.mark.slow
def test_a_cell_sees_as_many_pixels_as_its_receptive_field():
    grid = ConvolutionGrid(features=2, channels=(3, 3), kernels=(3, 3), strides=(2, 2))
    pixels = jax.random.normal(jax.random.key(0), (1, 16, 16, 1))
    params = grid.init(jax.random.key(1), pixels)
    seen = jax.grad(lambda x: jnp.sum(grid.apply(params, x)[0, 2, 2] ** 2))(pixels)[0, :, :, 0] != 0
    assert int(seen.any(axis=0).sum()) == receptive_field((3, 3), (2, 2)) == grid.receptive_field


def doubly_stochastic_penalty(weights):
    """Chapter 10, exercise 2. Zero where every column sums to one: a permutation, or equal weights."""
    return jnp.sum((1 - weights.sum(axis=0)) ** 2)


def test_permutations_and_equal_weights_have_no_penalty():
    for weights in (jnp.eye(4)[jnp.array([2, 0, 3, 1])], jnp.full((4, 4), 0.25)):
        np.testing.assert_allclose(doubly_stochastic_penalty(weights), 0, atol=1e-6)
    assert doubly_stochastic_penalty(jnp.eye(4)[jnp.array([0, 0, 3, 1])]) > 1


@pytest.mark.slow
def test_attention_does_not_see_where_a_cell_is():
    """Chapter 10, exercise 3. The context is a sum over cells, and sums have no order."""
    query, cells = jax.random.normal(jax.random.key(0), (1, 4)), jax.random.normal(jax.random.key(1), (9, 4))
    order = jax.random.permutation(jax.random.key(2), 9)
    contexts = [attn_jax.attend(query, x).context for x in (cells, cells[order])]
    np.testing.assert_allclose(*contexts, atol=1e-5)


@pytest.mark.slow
def test_the_marginal_loss_is_at_most_the_expected_one():
    """Chapter 10, exercise 4. Jensen; equal where all cells with weight give the answer the same probability."""
    alpha, p = jax.nn.softmax(jnp.array([0.5, 1.0, -1.0])), jnp.array([0.9, 0.2, 0.5])
    assert -jnp.log(alpha @ p) < -(alpha @ jnp.log(p)) - 1e-2
    same = jnp.full(3, 0.4)
    np.testing.assert_allclose(-jnp.log(alpha @ same), -(alpha @ jnp.log(same)), rtol=1e-6)
