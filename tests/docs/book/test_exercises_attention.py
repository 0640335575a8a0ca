"""Answers to the exercises of chapters 4 to 6 of the book: the formula, hard attention, self-attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn_jax
from attn_jax.layers.positions import sinusoids

THETA = jnp.array([0.5, -0.3, 1.0, 0.1])
LOSSES = jnp.array([1.0, 3.0, 0.5, 2.0])


def test_no_point_of_the_simplex_is_nearer_than_sparsemax():
    """Chapter 4, exercise 1. The distances of all points, beside that of sparsemax; softmax is farther away."""
    scores = jnp.array([1.2, 0.9, 0.1, -1.0])
    nearest = attn_jax.sparsemax(scores)
    points = np.random.default_rng(0).dirichlet(0.3 * np.ones(4), size=10_000)
    np.testing.assert_allclose(nearest.sum(), 1, rtol=1e-6)
    distance = np.sum((np.asarray(nearest) - scores) ** 2)
    others = np.sum((points - scores) ** 2, axis=1)
    assert distance <= others.min() + 1e-6
    assert np.sum((np.asarray(attn_jax.softmax(scores)) - scores) ** 2) > distance + 0.1  # softmax is no projection


def kernel_score(query, keys):
    """Chapter 4, exercise 2. The logarithm of the kernel: softmax takes its exponential again."""
    return -0.5 * jnp.sum((query[:, None] - keys[None]) ** 2, axis=-1)


@pytest.mark.slow
def test_softmax_of_the_log_kernel_is_kernel_regression():
    query, keys = jax.random.normal(jax.random.key(0), (2, 3)), jax.random.normal(jax.random.key(1), (5, 3))
    kernel = jnp.exp(kernel_score(query, keys))
    weights = attn_jax.attend(query, keys, score=attn_jax.Gaussian(width=(1.0,)), normalize="softmax").weights
    np.testing.assert_allclose(weights, kernel / kernel.sum(axis=1, keepdims=True), rtol=1e-4)


def mean_weights(scores):
    """Chapter 4, exercise 3. The mean, whatever the scores: softmax of equal scores."""
    return jnp.full_like(scores, 1 / scores.shape[-1])


def best_weights(scores):
    """Chapter 4, exercise 3. The value of the best key is hardmax."""
    return jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])


@pytest.mark.slow
def test_the_mean_and_the_best_value_are_normalizers():
    query, keys = jax.random.normal(jax.random.key(0), (2, 3)), jax.random.normal(jax.random.key(1), (5, 3))
    constant = attn_jax.attend(query, keys, score="constant", normalize="softmax").context
    np.testing.assert_allclose(mean_weights(query @ keys.T) @ keys, constant, rtol=1e-5)
    best = attn_jax.attend(query, keys, score="dot", normalize="hardmax").context
    np.testing.assert_allclose(best_weights(query @ keys.T) @ keys, best, rtol=1e-6)


class Manhattan(attn_jax.Score, kw_only=True):
    """Chapter 4, exercise 4. A subclass of Score computes it for all pairs; the module goes where a name goes."""

    def __call__(self, query, projected_keys):
        return -jnp.sum(jnp.abs(query[..., :, None, :] - projected_keys[..., None, :, :]), axis=-1)


def test_an_own_score_goes_where_a_name_goes():
    query, keys = jnp.array([[0.0, 0.0]]), jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, -3.0]])
    weights = attn_jax.attend(query, keys, score=Manhattan()).weights[0]
    np.testing.assert_allclose(weights, jax.nn.softmax(jnp.array([-1.0, -2.0, -3.0])), rtol=1e-6)


def test_soft_and_hard_losses_agree_for_linear_losses_only():
    """Chapter 5, exercise 1. f(E y) <= E f(y) for convex f (Jensen), equal for linear f or one key with all weight."""
    weights, values = jax.nn.softmax(THETA), jax.random.normal(jax.random.key(0), (4, 2))
    linear, convex = lambda y: y @ jnp.array([2.0, -1.0]), lambda y: jnp.sum(y**2, axis=-1)
    np.testing.assert_allclose(linear(weights @ values), weights @ linear(values), rtol=1e-5)
    assert convex(weights @ values) < weights @ convex(values) - 1e-2
    one = jnp.array([0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(convex(one @ values), one @ convex(values), rtol=1e-6)


def peeking_gradient():
    """Chapter 5, exercise 2. With b = f every factor f - b is 0: the scores get no gradient at all."""
    return jnp.zeros(4)


@pytest.mark.slow
def test_a_baseline_that_has_seen_the_sample_is_biased():
    def gradient(index, b):
        def surrogate(theta):
            sample = attn_jax.reinforce()(index, jax.nn.log_softmax(theta))
            return attn_jax.combine(sample, sample.rows @ LOSSES, b)

        return jax.grad(surrogate)(THETA)

    a, outcomes = jax.nn.softmax(THETA), jnp.arange(4)[:, None]
    exact = jax.grad(lambda theta: jax.nn.softmax(theta) @ LOSSES)(THETA)
    constant = a @ jax.vmap(gradient, (0, None))(outcomes, jnp.array(1.7))
    np.testing.assert_allclose(constant, exact, atol=1e-6)
    np.testing.assert_allclose(a @ jax.vmap(gradient)(outcomes, LOSSES), peeking_gradient(), atol=1e-6)
    assert jnp.abs(exact).max() > 0.1


def best_baseline(a, f, score):
    """Chapter 5, exercise 3. Var = E[(f - b)^2 s^2] - const; -2 E[(f - b) s^2] = 0 gives b = E[f s^2] / E[s^2]."""
    return a @ (f * score**2) / (a @ score**2)


def test_no_baseline_on_a_grid_has_less_variance_than_the_best_one():
    a = jax.nn.softmax(THETA)
    score = jax.jacobian(lambda u: jax.nn.log_softmax(THETA + u * jnp.array([1.0, -1.0, 0.5, 0.0])))(0.0)

    def variance(b):
        g = (LOSSES - b) * score
        return a @ g**2 - (a @ g) ** 2

    best = best_baseline(a, LOSSES, score)
    grid = jax.vmap(variance)(jnp.linspace(-5, 8, 400))
    assert variance(best) <= grid.min() + 1e-6
    assert variance(best) < variance(0.0)


@pytest.mark.slow
def test_the_marginal_loss_has_the_gradient_of_its_definition():
    """Chapter 5, exercise 4. With all keys enumerated, both its value and its gradient are exact."""

    def defined(theta):
        return -jnp.log(jax.nn.softmax(theta) @ jnp.exp(-LOSSES))

    def combined(theta):
        sample = attn_jax.enumeration()(None, jax.nn.log_softmax(theta))
        return attn_jax.combine_marginal(sample, sample.rows @ LOSSES)

    np.testing.assert_allclose(combined(THETA), defined(THETA), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(combined)(THETA), jax.grad(defined)(THETA), atol=1e-6)


def heads_and_words():
    """A MultiHead of width 8, its parameters, and five words."""
    words = jax.random.normal(jax.random.key(0), (5, 8))
    heads = attn_jax.MultiHead(attention=attn_jax.attention(score="scaled_dot"), num_heads=2, features=8)
    return heads, heads.init(jax.random.key(1), words, words), words


@pytest.mark.slow
def test_self_attention_without_positions_follows_a_permutation():
    """Chapter 6, exercise 1. The weights move with the words; positions added to the words stay where they are."""
    heads, params, words = heads_and_words()
    order = jnp.array([3, 0, 4, 1, 2])
    context, moved = (heads.apply(params, x, x).context for x in (words, words[order]))
    np.testing.assert_allclose(moved, context[order], atol=1e-5)
    places = sinusoids(jnp.arange(5), 8)
    context, moved = (heads.apply(params, x + places, x + places).context for x in (words, words[order]))
    assert np.abs(moved - context[order]).max() > 1e-2  # with positions it does not


@pytest.mark.slow
def test_no_output_of_causal_attention_depends_on_a_later_input():
    """Chapter 6, exercise 2. The gradient of output i is zero for inputs after i, and not for those before."""
    heads, params, words = heads_and_words()

    def outputs(x):
        return heads.apply(params, x, x, mask=attn_jax.causal_mask(5)).context.sum(axis=-1)

    gradient = jax.jacobian(outputs)(words)
    reach = np.abs(gradient).sum(axis=-1)
    np.testing.assert_array_equal(reach > 0, np.tril(np.ones((5, 5), bool)))


def shift(k, features):
    """Chapter 6, exercise 3. sin and cos of (p + k) w are a rotation of those of p w by the angle k w."""
    matrix = np.zeros((features, features))
    for i in range(0, features, 2):
        angle = k / 10_000 ** (i / features)
        matrix[i : i + 2, i : i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    return matrix


def test_a_shift_of_positions_is_one_matrix_for_all_positions():
    positions = np.asarray(sinusoids(jnp.arange(20), 8))
    np.testing.assert_allclose(positions[:17] @ shift(3, 8).T, positions[3:], atol=1e-4)


def num_parameters(d):
    """Chapter 6, exercise 4. Four matrices d x d with a bias; the heads share them out."""
    return 4 * (d * d + d)


def test_the_number_of_parameters_does_not_depend_on_the_number_of_heads():
    words = jnp.ones((5, 8))
    for num_heads in (1, 2, 4):
        heads = attn_jax.MultiHead(attention=attn_jax.attention(score="dot"), num_heads=num_heads, features=8)
        params = jax.eval_shape(heads.init, jax.random.key(0), words, words)
        assert sum(x.size for x in jax.tree.leaves(params)) == num_parameters(8)
