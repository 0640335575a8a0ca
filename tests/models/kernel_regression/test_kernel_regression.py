"""Kernel regression against loops, refitting, finite differences, and what it is equal to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention import build_attention
from attn_jax.attention.normalizers import kernel_sum
from attn_jax.attention.scores.kernels import KERNELS
from attn_jax.models.kernel_regression.criteria import CRITERIA
from attn_jax.models.kernel_regression.local_polynomial import intercept, monomials, read, solve, streamed_moments
from attn_jax.models.kernel_regression.model import KernelRegression, Projection

RNG = np.random.default_rng(0)
N = 12
X = RNG.uniform(0, 5, (N, 2)).astype(np.float32)
Y = RNG.normal(size=(N, 1)).astype(np.float32)
QUERY = RNG.uniform(0, 5, (5, 2)).astype(np.float32)
INDEX = np.arange(N)
JX, JY = jnp.asarray(X), jnp.asarray(Y)
ALL = {"inputs": X, "targets": Y, "index": INDEX}
WIDTH = 1.3


def model(kernel="gaussian", width=WIDTH, **fields):
    return KernelRegression(
        attention=build_attention(score=KERNELS[kernel](initial=(width,), exact=True), normalize=kernel_sum), **fields
    )


def params_of(width=WIDTH):
    return {"score": {"log_precision": np.float32(-2 * np.log(width))}}


def predict(kernel, params, query, x=X, y=Y, exclude=None):
    """With the mixture's own weights."""

    def call(params, query, x, y, exclude):
        mixture = kernel.mixture_weights(params, x, y)
        return kernel.predict(params, query, x, y, mixture, exclude)[0]

    return compiled(call)(params, query, x, y, exclude)


def loops(query, x=X, y=Y, width=WIDTH):
    """Nadaraya-Watson as the chapter writes it."""
    rows = []
    for q in query.astype(np.float64):
        k = np.array([np.exp(-np.sum((q - key) ** 2) / (2 * width**2)) for key in x])
        rows.append((k[:, None] * y).sum(axis=0) / k.sum())
    return np.array(rows)


def test_is_the_formula_of_the_chapter_and_narrow_the_nearest_neighbour_and_wide_or_constant_the_mean():
    nearest = np.square(QUERY[:, None] - X).sum(-1).argmin(-1)
    run = lambda width: predict(model(), params_of(width), QUERY)  # noqa: E731
    np.testing.assert_allclose(run(WIDTH), loops(QUERY), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run(1e-3), Y[nearest], atol=1e-6)
    for found in (run(1e4), predict(model("constant"), {"score": {}}, QUERY)):
        np.testing.assert_allclose(found, np.full((5, 1), Y.mean()), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_the_leave_one_out_error_is_that_of_refitting_without_each_point(degree):
    kernel = model(degrees=(degree,))
    total, metrics = compiled(lambda batch: kernel.loss_fn(params_of(), batch))(ALL)
    refit = compiled(lambda query, x, y: kernel.predict(params_of(), query, x, y, jnp.ones(1))[0])
    squares = []
    for i in INDEX:
        others = INDEX != i
        squares.append((Y[i, 0] - refit(X[i : i + 1], X[others], Y[others])[0, 0]) ** 2)
    np.testing.assert_allclose(total, np.sum(squares), rtol=1e-3)
    assert metrics["loss"].count == N


@pytest.mark.parametrize("criterion", ["leave_one_out", "aicc", "training"])
def test_the_gradient_of_the_width_is_the_finite_difference(criterion):
    kernel = model(criterion=CRITERIA[criterion])

    @compiled
    def both(log_precision):
        loss = lambda p: kernel.loss_fn({"score": {"log_precision": p}}, ALL)[0]  # noqa: E731
        return jax.value_and_grad(loss)(log_precision)

    at, step = np.float32(-2 * np.log(0.7)), 2e-2
    difference = (both(at + step)[0] - both(at - step)[0]) / (2 * step)
    np.testing.assert_allclose(both(at)[1], difference, rtol=5e-3)
    assert abs(difference) > 0.05


def test_minibatches_of_queries_add_up_to_the_whole_error():
    kernel = model()
    loss = compiled(lambda index: kernel.loss_fn(params_of(), ALL | {"index": index})[0])
    np.testing.assert_allclose(loss(INDEX[:6]) + loss(INDEX[6:]), loss(INDEX), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "degree"), [("gaussian", 0), ("epanechnikov", 1), ("gaussian", 2)])
def test_in_chunks_is_the_whole(kernel, degree):
    models = [model(kernel, degrees=(degree,), chunk=chunk) for chunk in (100, 5)]

    @compiled
    def run(params):
        slopes = [jax.grad(lambda p, m=m: m.loss_fn(p, ALL)[0])(params)["score"]["log_precision"] for m in models]
        return [m.predict(params, jnp.asarray(QUERY), JX, JY, jnp.ones(1))[0] for m in models], slopes

    (whole, chunked), (slope, other) = run(params_of(4.0))  # wide enough for a well-conditioned fit
    np.testing.assert_allclose(chunked, whole, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(other, slope, rtol=5e-3)


def test_far_away_a_narrow_kernel_in_chunks_does_not_underflow():
    far = np.float32([[100, 100]])
    nearest = np.square(far - X).sum(-1).argmin()
    np.testing.assert_allclose(predict(model(chunk=5), params_of(0.05), far), Y[[nearest]], atol=1e-6)


@pytest.mark.slow
def test_the_weights_of_every_degree_sum_to_one_and_reproduce_their_polynomials():
    x = np.linspace(0, 5, N, dtype=np.float32)[:, None]
    query = np.float32([[0.0], [1.7], [5.0]])
    kernels = [model(degrees=(degree,)) for degree in range(4)]
    run = compiled(
        lambda query: [kernel.weights(params_of(), query, jnp.asarray(x), jnp.ones(1)) for kernel in kernels]
    )
    for degree, weights in enumerate(run(query)):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        for power in range(degree + 1):
            np.testing.assert_allclose(weights @ x**power, query**power, rtol=2e-3, atol=2e-2)
    assert np.abs(weights.min()) > 0.01  # the last ones are negative somewhere: not attention weights any more


def test_where_no_point_is_in_reach_there_is_zero_and_it_is_told():
    kernel = model("boxcar", width=0.5)
    call = compiled(lambda q: kernel.predict(params_of(0.5), q, JX, JY, jnp.ones(1)))
    found, reach = call(np.concatenate([X[:1], np.float32([[50, 50]])]))
    np.testing.assert_array_equal(reach, [True, False])
    assert found[1, 0] == 0 and np.isfinite(found).all()
    chunked = model("boxcar", width=0.5, chunk=5, degrees=(1,))
    found, reach = compiled(lambda q: chunked.predict(params_of(0.5), q, JX, JY, jnp.ones(1)))(np.float32([[50, 50]]))
    assert not reach[0] and found[0, 0] == 0


def test_a_component_without_a_point_in_reach_has_no_part_in_a_mixture():
    kernel, far = (
        model("boxcar", width=0.5, widths=(1.0, 4.0)),
        np.max(X, axis=0, keepdims=True) + np.float32([[0.8, 0]]),
    )
    share = jnp.array([0.75, 0.25])
    (found, reach), weights = compiled(
        lambda q: (kernel.predict(params_of(0.5), q, JX, JY, share), kernel.weights(params_of(0.5), q, JX, share))
    )(far)
    alone, _ = compiled(lambda q: model("boxcar", width=2.0).predict(params_of(2.0), q, JX, JY, jnp.ones(1)))(far)
    assert reach[0] and alone[0, 0] != 0
    np.testing.assert_allclose(found, alone, rtol=1e-5)
    np.testing.assert_allclose(weights @ JY, found, rtol=1e-4)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gaussian", "boxcar"])
def test_the_sign_of_the_difference_of_parzen_windows_is_the_kernel_classifier(kernel):
    rng = np.random.default_rng(3)
    x, sign = rng.normal(size=(40, 2)).astype(np.float32), np.sign(rng.normal(size=(40, 1))).astype(np.float32)
    query = rng.normal(size=(100, 2)).astype(np.float32)
    m = model(kernel, width=0.9)
    call = compiled(lambda q, some: m.log_density(params_of(0.9), q, some))
    # p(x, y) = p(x | y) p(y); the number of points of a class cancels.
    joint = [np.exp(call(query, x[sign[:, 0] == s])) * np.mean(sign == s) for s in (1, -1)]
    found = predict(m, params_of(0.9), query, x, sign)[:, 0]
    sure = np.abs(joint[0] - joint[1]) > 1e-6
    assert sure.sum() > 80
    np.testing.assert_array_equal(np.sign(found[sure]), np.sign((joint[0] - joint[1])[sure]))


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar", "triangular", "epanechnikov"])
def test_a_density_is_its_sum_and_integrates_to_one(kernel):
    m = model(kernel, width=0.7)
    places = np.linspace(-4, 9, 2001, dtype=np.float32)[:, None]
    x = X[:, :1]
    density = np.exp(compiled(lambda q: m.log_density(params_of(0.7), q, jnp.asarray(x)))(places))
    np.testing.assert_allclose(density.sum() * (places[1, 0] - places[0, 0]), 1, rtol=5e-3)
    if kernel == "gaussian":
        u = (places - x.T) / 0.7
        expected = np.mean(np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi) / 0.7, axis=1)
        np.testing.assert_allclose(density, expected, rtol=1e-4, atol=1e-30)


@pytest.mark.slow
def test_a_mixture_is_the_sum_of_its_components_by_their_evidence():
    mixture = model(degrees=(0, 1), widths=(0.5, 1.0, 2.0), criterion=CRITERIA["aicc"])
    weights = compiled(lambda: mixture.mixture_weights(params_of(), JX, JY))()
    assert weights.shape == (6,) and np.isclose(weights.sum(), 1)
    found, evidence = 0, []
    for weight, (degree, factor) in zip(weights, mixture.components, strict=True):
        one = model(width=WIDTH * factor, degrees=(degree,), criterion=CRITERIA["aicc"])
        params = params_of(WIDTH * factor)
        found = found + weight * predict(one, params, QUERY)
        evidence.append(-0.5 * compiled(lambda p, m=one: m.loss_fn(p, ALL)[0])(params))
    np.testing.assert_allclose(predict(mixture, params_of(), QUERY), found, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(weights, np.exp(evidence) / np.sum(np.exp(evidence)), rtol=1e-2, atol=1e-4)


def test_aicc_is_its_formula_and_infinite_where_nothing_is_left_to_fit():
    kernel = model(criterion=CRITERIA["aicc"])
    smoother = np.exp(-np.square(X[:, None] - X).sum(-1) / (2 * WIDTH**2))
    smoother /= smoother.sum(-1, keepdims=True)
    t = np.trace(smoother)
    expected = np.log(np.mean((Y - smoother @ Y) ** 2)) + 1 + 2 * (t + 1) / (N - t - 2)
    loss = compiled(lambda p: kernel.loss_fn(p, ALL)[0])
    np.testing.assert_allclose(loss(params_of()) / N, expected, rtol=1e-4)
    assert np.isinf(loss(params_of(1e-3)))


@pytest.mark.slow
def test_a_fixed_width_gets_no_gradient_and_the_projection_does():
    kernel = model(fixed=True, projection=Projection(features=2, hidden_size=4))
    params = kernel.init(jax.random.key(0), ALL)
    gradient = compiled(jax.grad(lambda p: kernel.loss_fn(p, ALL)[0]))(params)
    assert gradient["score"]["log_precision"] == 0
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(gradient["projection"]["Dense_1"]))


def test_solve_and_intercept_against_numpy():
    matrix = RNG.normal(size=(7, 4, 4))
    matrix = (matrix @ matrix.transpose(0, 2, 1) + 0.1 * np.eye(4)).astype(np.float32)
    first = np.float32([1, 0, 0, 0])
    np.testing.assert_allclose(
        compiled(solve)(matrix, first), np.linalg.solve(matrix, first[:, None])[..., 0], rtol=2e-3
    )
    np.testing.assert_array_equal(compiled(intercept)(np.zeros((3, 3), np.float32)), 0)


def test_monomials():
    z = np.float32([[2, 3], [5, 7]])
    np.testing.assert_array_equal(monomials(jnp.asarray(z), 2), [[1, 2, 3, 4, 6, 9], [1, 5, 7, 25, 35, 49]])
    assert monomials(jnp.zeros((4, 3)), 3).shape == (4, 20)


def test_a_stream_holds_no_matrix_of_queries_and_keys():
    """Twice as many keys need little more memory: their own copies, not a row for each query."""
    m = model()
    score = lambda q, k: m.attention.score.apply({"params": params_of()["score"]}, q, k)  # noqa: E731

    def memory(n):
        query, x, y = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 2), (n, 2), (n, 1)))
        stream = jax.jit(lambda q, x, y: read(streamed_moments(score, q, x, y, 1, 500)))
        return stream.lower(query, x, y).compile().memory_analysis().temp_size_in_bytes

    assert memory(40_000) - memory(20_000) < 64 * 20_000 * 4 / 10


@pytest.mark.slow
@pytest.mark.parametrize("degree, kind", [(0, "lc"), (1, "ll")])
def test_statsmodels_predicts_the_same_and_has_the_same_leave_one_out_error(degree, kind):
    module = pytest.importorskip("statsmodels.nonparametric.kernel_regression")
    theirs = module.KernelReg(Y[:, 0], X, "cc", reg_type=kind, bw=[WIDTH, WIDTH])
    kernel = model(degrees=(degree,))
    np.testing.assert_allclose(predict(kernel, params_of(), QUERY)[:, 0], theirs.fit(QUERY)[0], rtol=5e-3, atol=1e-3)
    function = {"lc": theirs._est_loc_constant, "ll": theirs._est_loc_linear}[kind]
    loss = compiled(lambda batch: kernel.loss_fn(params_of(), batch)[0])(ALL)
    np.testing.assert_allclose(loss / N, theirs.cv_loo(np.array([WIDTH, WIDTH]), function), rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["leave_one_out", "aicc"])
def test_a_mixture_of_perfect_fits_is_finite_and_too_few_points_for_aicc_say_nothing(criterion):
    mixture = model(degrees=(0,), widths=(0.5, 2.0), criterion=CRITERIA[criterion])
    batch = ALL | {"targets": np.zeros_like(Y)}

    @compiled
    def run(params):
        of_two = mixture.mixture_weights(params, JX[:2], JY[:2])
        value = jax.value_and_grad(lambda p: mixture.loss_fn(p, batch)[0])(params)
        return mixture.mixture_weights(params, JX, jnp.zeros_like(JY)), of_two, value

    weights, of_two, (loss, slope) = run(params_of())
    assert np.isclose(weights.sum(), 1) and np.all(weights >= 0)
    assert np.isfinite(loss) and all(np.all(np.isfinite(x)) for x in jax.tree.leaves(slope))
    if criterion == "aicc":
        np.testing.assert_allclose(of_two, [0.5, 0.5])
