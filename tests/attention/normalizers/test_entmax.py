"""Entmax, sparsemax and their solver, next to closed forms, float64 references and other libraries."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from optax import projections

from attn_jax.attention import loops
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.entmax import entmax

RNG = np.random.default_rng(0)
ALPHAS = np.array([1.0001, 1.05, 1.33, 1.5, 1.8, 2.0, 2.5, 4.0], np.float32)[:, None, None]
SCORES = RNG.normal(0, 1, (6, 7)).astype(np.float32)
DIRECTION, SENSES = RNG.normal(size=(2, *SCORES.shape)).astype(np.float32)
TOLERANCE = 1e-10  # what rounding leaves of a sum of 100,000 terms in float64
SMOOTH = slice(
    0, 7
)  # the alphas up to 2.5: at 4 the slopes next to the edge of the support are too steep to difference


def powers(scores, alpha, d):
    """max(z + d, 0)^(1 / eps), and the sum of the lower power, in float64."""
    positive = np.maximum((alpha - 1) * (scores - scores.max(-1, keepdims=True)) + d, 0)
    inner = np.where(positive > 0, positive, 1)
    raised = np.where(positive > 0, inner ** (1 / (alpha - 1)), 0)
    return raised, np.where(positive > 0, raised / inner, 0).sum(-1, keepdims=True)


def reference(scores, alpha, rounds=100):
    """The weights by bisection of log(d)."""
    scores, alpha = scores.astype(np.float64), np.asarray(alpha, np.float64)
    low = -(alpha - 1) * np.log(scores.shape[-1]) * np.ones_like(scores[..., :1])
    high = np.zeros_like(low)
    for _ in range(rounds):
        middle = (low + high) / 2
        enough = powers(scores, alpha, np.exp(middle))[0].sum(-1, keepdims=True) >= 1
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    raised, _ = powers(scores, alpha, np.exp(high))
    return raised / raised.sum(-1, keepdims=True)


def newton(scores, alpha):
    """The weights by Newton's method in float64, until the norm is 1 to TOLERANCE."""
    scores = scores.astype(np.float64)
    d = np.ones_like(scores[..., :1])
    for _ in range(200):
        raised, lower = powers(scores, alpha, d)
        total = raised.sum(-1, keepdims=True)
        excess = total ** (alpha - 1) - 1
        if np.all(excess <= TOLERANCE):
            return raised / total
        d = d - excess / (lower * total ** (alpha - 2))
    raise AssertionError("Newton's method did not end")


@functools.cache
def of_alphas():
    """(scores, alphas) -> weights, their tangents along DIRECTION and along alpha, and the gradient of SENSES."""

    def all_of(scores, alpha):
        scores = jnp.broadcast_to(scores, (alpha.shape[0], *scores.shape))
        call = lambda scores, alpha: entmax(scores, None, alpha)  # noqa: E731
        weights, along = jax.jvp(
            lambda scores: call(scores, alpha), (scores,), (jnp.broadcast_to(DIRECTION, scores.shape),)
        )
        by_alpha = jax.jvp(lambda alpha: call(scores, alpha), (alpha,), (jnp.ones_like(alpha),))[1]
        gradient = jax.vjp(call, scores, alpha)[1](jnp.broadcast_to(SENSES, scores.shape))
        return weights, along, by_alpha, *gradient

    return compiled(all_of)


@functools.cache
def fixed(alpha):
    """scores -> (weights, gradient of SENSES) of entmax with a Python number."""

    def both(scores):
        weights, pull = jax.vjp(lambda scores: entmax(scores, None, alpha), scores)
        return weights, pull(jnp.asarray(SENSES))[0]

    return compiled(both)


def test_weights_solve_the_equation():
    weights, *_ = of_alphas()(SCORES, ALPHAS)
    expected = reference(SCORES, ALPHAS)
    assert np.any(expected == 0) and np.any((expected > 0) & (expected < 0.9)), "nothing to tell entmax by"
    np.testing.assert_allclose(weights[SMOOTH], expected[SMOOTH], atol=1e-6)
    np.testing.assert_allclose(weights, expected, atol=2e-5)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)


def test_derivatives_are_the_difference_quotients():
    """In float64 of the reference, where the support is the same on both sides."""
    _, along, by_alpha, gradient, alpha_gradient = of_alphas()(SCORES, ALPHAS)
    step, alphas = 1e-5, ALPHAS.astype(np.float64)
    for got, (ahead, behind) in {
        "scores": (along, [reference(SCORES + sign * step * DIRECTION.astype(np.float64), alphas) for sign in (1, -1)]),
        "alpha": (by_alpha, [reference(SCORES, alphas + sign * step) for sign in (1, -1)]),
    }.values():
        same = np.all((ahead > 0) == (behind > 0), axis=-1)[SMOOTH]
        assert same.mean() > 0.9
        np.testing.assert_allclose(got[SMOOTH][same], ((ahead - behind) / (2 * step))[SMOOTH][same], atol=2e-4)
    # What is pushed forward is pulled back.
    np.testing.assert_allclose(
        (gradient * DIRECTION).sum((-1, -2)), (along * SENSES).sum((-1, -2)), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(alpha_gradient[:, 0, 0], (by_alpha * SENSES).sum((-1, -2)), rtol=1e-4, atol=1e-5)


def test_the_jacobian_is_its_closed_form():
    jacobian = compiled(jax.vmap(jax.jacobian(lambda x, alpha: entmax(x, None, alpha)), in_axes=(None, 0)))
    scores, alphas = SCORES[0], ALPHAS[:, 0]
    for matrix, weights, alpha in zip(jacobian(scores, alphas), reference(scores, alphas), alphas[:, 0], strict=True):
        slope = np.where(weights > 0, np.where(weights > 0, weights, 1) ** (2 - alpha), 0)
        expected = np.diag(slope) - np.outer(slope, slope) / slope.sum()
        np.testing.assert_allclose(matrix, expected, atol=1e-5 * max(1, slope.max()))
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-6 * max(1, slope.max()))
        np.testing.assert_allclose(matrix.sum(0), 0, atol=1e-6 * max(1, slope.max()))


def test_derivatives_of_second_order():
    curve = compiled(
        lambda x, alpha: jax.jvp(
            lambda x: jax.grad(lambda x: jnp.sum(entmax(x, None, alpha) * SENSES[0]))(x),
            (x,),
            (jnp.asarray(DIRECTION[0]),),
        )[1]
    )
    step, x, direction = 1e-4, SCORES[0].astype(np.float64), DIRECTION[0].astype(np.float64)
    alpha = np.float32(1.33)

    def slope_along(x):  # of sum(weights * SENSES), in each direction
        return [
            np.sum((reference(x + e, alpha) - reference(x - e, alpha)) * SENSES[0]) / 2e-4 for e in 1e-4 * np.eye(7)
        ]

    expected = np.subtract(slope_along(x + step * direction), slope_along(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(curve(SCORES[0], alpha), expected, atol=2e-3)


def test_alpha_one_is_softmax_and_the_way_there_is_smooth():
    alphas = 1 + np.array([0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3], np.float32)[:, None, None]
    weights, along, by_alpha, *_ = of_alphas()(SCORES, alphas)
    limit, limit_along = compiled(lambda x, t: jax.jvp(softmax, (x,), (t,)))(SCORES, DIRECTION)
    squares = np.log(limit) ** 2
    limit_by_alpha = -limit / 2 * (squares - (limit * squares).sum(-1, keepdims=True))
    for number, distance in enumerate(alphas[:, 0, 0] - 1):
        for got, expected in [(weights, limit), (along, limit_along), (by_alpha, limit_by_alpha)]:
            np.testing.assert_allclose(got[number], expected, atol=3e-6 + 3 * distance)
    np.testing.assert_array_equal(fixed(1.0)(SCORES)[0], limit)


def test_sparsemax_is_the_projection_onto_the_simplex():
    @compiled
    def theirs(scores):
        weights, pull = jax.vjp(jax.vmap(projections.projection_simplex), scores)
        return weights, pull(jnp.asarray(SENSES))[0]

    expected_weights, expected_gradient = theirs(SCORES)
    assert np.any(expected_weights == 0) and np.any((expected_weights > 0) & (expected_weights < 1))
    five = int(np.argmax(ALPHAS == 2.0))
    weights, *_, gradient, _ = of_alphas()(SCORES, ALPHAS)
    for got_weights, got_gradient in [fixed(2.0)(SCORES), (weights[five], gradient[five])]:
        np.testing.assert_allclose(got_weights, expected_weights, atol=1e-6)
        np.testing.assert_allclose(got_gradient, expected_gradient, atol=1e-5)


def test_a_number_and_an_array_for_alpha_are_the_same():
    weights, _, _, gradient, _ = of_alphas()(SCORES, ALPHAS)
    for number in (2, 3):
        got_weights, got_gradient = fixed(round(float(ALPHAS[number, 0, 0]), 2))(SCORES)
        np.testing.assert_allclose(got_weights, weights[number], atol=1e-6)
        np.testing.assert_allclose(got_gradient, gradient[number], atol=1e-5)


def worst_cases(num_keys):
    """Rows on which a threshold is hard to find: ties, near ties, many keys near the edge, supports of all sizes."""
    ranks = np.arange(1, num_keys + 1)
    rows = [
        np.zeros(num_keys),
        np.random.default_rng(1).normal(0, 1e-7, num_keys),
        np.random.default_rng(2).normal(0, 1, num_keys),
        -np.logspace(-7, 1, num_keys),
        np.r_[0, np.full(num_keys - 1, -1 + 1e-6)],
        np.r_[0, np.full(num_keys - 1, -0.5)],
        1 / ranks,
        -(2.0 ** -np.minimum(ranks, 60)),
        -(np.linspace(0, 1, num_keys) ** 0.1),
    ]
    return np.stack([scale * row for row in rows for scale in (1e-3, 1, 1e3)]).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.05, 1.5, 2.0])
@pytest.mark.parametrize("num_keys", [5, 2000])
def test_newton_takes_no_more_steps_than_proven(alpha, num_keys, monkeypatch):
    """The steps of the loop itself; it ends on its own, and one step more tells that there is nothing left to do."""
    counts = []

    def counted(cond, body, state):
        *rest, count = jax.lax.while_loop(cond, body, state)
        jax.debug.callback(lambda count: counts.append(int(count)), count)
        return *rest, count

    monkeypatch.setattr(loops, "while_loop", counted)
    jax.block_until_ready(jax.jit(lambda scores: entmax(scores, None, alpha))(worst_cases(num_keys)))
    jax.effects_barrier()
    (count,) = counts
    precision = 8 * np.finfo(np.float32).eps
    assert 1 < count <= (alpha - 1) * np.log2(num_keys) - np.log2(precision) / 2 + 1


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.05, 1.5, 2.0])
def test_a_hundred_thousand_keys(alpha):
    rows = worst_cases(100_000)
    weights = jax.device_get(jax.jit(lambda scores: entmax(scores, None, alpha))(rows))
    for got, row in zip(weights, rows, strict=True):
        expected = newton(row[None], alpha)
        assert np.abs(got - expected).sum() < 1e-5, np.abs(got - expected).sum()


def test_beyond_alpha_two_in_the_worst_case():
    """What rounding of the threshold leaves undetermined goes to the keys at the edge of the support."""
    rows = worst_cases(5000)
    weights = jax.device_get(jax.jit(lambda scores: entmax(scores, None, 4.0))(rows))
    errors = np.abs(weights - reference(rows, 4.0, rounds=60)).sum(-1)
    assert np.max(errors) < 2e-2 and np.quantile(errors, 0.8) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "num_keys"), [(64.0, 8192), (20.0, 100), (65.0, 4), (1000.0, 2)])
def test_an_alpha_for_which_the_least_threshold_is_below_the_smallest_number(alpha, num_keys):
    """The threshold of equal scores is n^(1 - alpha); they share the weight, and so do some that are the largest.

    Of keys with z = 0, -1/2 and less the second gets what the first, at d = 1/2, leaves.
    """
    two, apart = np.zeros((2, num_keys))
    two[2:] = -1e-3
    apart[1:] = np.linspace(-0.5, -1, num_keys - 1) / (alpha - 1)
    rows = np.stack([np.zeros(num_keys), two, apart]).astype(np.float32)
    expected = np.zeros_like(rows)
    first = 0.5 ** (1 / (alpha - 1))
    expected[0], expected[1, :2], expected[2, :2] = 1 / num_keys, 0.5, (first, 1 - first)
    sense = np.broadcast_to(np.arange(num_keys) == 0, rows.shape).astype(np.float32)

    @compiled
    def both(scores, alphas):
        several = [jax.vjp(lambda scores: entmax(scores, None, given), scores) for given in (alpha, alphas)]  # noqa: B023
        return [(weights, pull(jnp.asarray(sense))[0]) for weights, pull in several]

    for weights, gradient in both(rows, np.float32([alpha])):
        np.testing.assert_allclose(weights, expected, rtol=1e-4)
        assert np.all(np.isfinite(gradient)) and np.all(gradient[:2, 0] > 0) and np.all(gradient[:2, 1] < 0)


def test_alpha_below_one_or_infinite_is_refused():
    for alpha in (0.99, 0, float("nan"), float("inf")):
        with pytest.raises(
            ValueError, match=f"alpha of entmax is {alpha}; a number of at least 1 was expected"
        ) as error:
            entmax(jnp.asarray(SCORES), None, alpha)
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_values_and_gradients_are_those_of_the_entmax_package():
    torch = pytest.importorskip("torch", reason="torch is not installed: see requirements-oracles.txt")
    package = pytest.importorskip("entmax", reason="entmax is not installed: see requirements-oracles.txt")
    weights, _, _, gradient, alpha_gradient = of_alphas()(SCORES, ALPHAS)
    for number, alpha in enumerate(ALPHAS[SMOOTH, 0, 0]):
        alpha, row = torch.tensor(float(alpha), dtype=torch.float64), torch.from_numpy(SCORES.astype(np.float64))
        alpha.requires_grad_(), row.requires_grad_()
        expected = package.entmax_bisect(row, alpha=alpha, n_iter=100)
        expected.backward(torch.from_numpy(SENSES.astype(np.float64)))
        np.testing.assert_allclose(weights[number], expected.detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(gradient[number], row.grad.numpy(), atol=1e-5)
        if alpha > 1.01:  # where their closed form does not cancel
            np.testing.assert_allclose(alpha_gradient[number, 0, 0], alpha.grad.item(), rtol=1e-4)
    row = torch.from_numpy(SCORES.astype(np.float64)).requires_grad_()
    for theirs, alpha in [(package.sparsemax, 2.0), (package.entmax15, 1.5)]:
        row.grad = None
        expected = theirs(row, dim=-1)
        expected.backward(torch.from_numpy(SENSES.astype(np.float64)))
        got_weights, got_gradient = fixed(alpha)(SCORES)
        np.testing.assert_allclose(got_weights, expected.detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(got_gradient, row.grad.numpy(), atol=1e-6)


@pytest.mark.slow
def test_an_array_of_alphas_below_one_is_softmax_with_its_gradient():
    scores = jnp.asarray([0.3, -0.6, 1.1, 0.2])
    of = compiled(lambda alpha: jax.jacobian(lambda scores: entmax(scores, None, alpha))(scores))
    low = of(np.float32(0.5))
    np.testing.assert_allclose(low, compiled(jax.jacobian(jax.nn.softmax))(scores), atol=1e-5)
    np.testing.assert_allclose(low, of(np.float32(1.0)), atol=1e-6)
