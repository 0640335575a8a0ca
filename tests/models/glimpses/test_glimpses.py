"""Glimpses: crops are the pixels that they cover, the exact gradient is the mean of the sampled ones, and no baseline
sees what is looked at after it."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill, params_of
from tiny_run import fitted

from attn_jax.attention.hard.baselines import LearnedBaseline
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.glimpses import PlaceGrid, corner, crop, looked_at
from attn_jax.models.glimpses.objective import PathObjective
from attn_jax.models.glimpses.policies import GaussianPlaces, GridPlaces
from attn_jax.runs.options import default_config, resolve
from attn_jax.types import Picture

SIZES = TextSizes(9, 8, image=(8, 12, 3))
SMALL = {
    "model.hidden_size": 6,
    "model.glimpse_features": 5,
    "model.num_glimpses": 2,
    "model.glimpse_size": 4,
    "model.num_scales": 2,
    "model.places": "grid",
    "model.grid": (2, 2),
    "model.objective.baseline.features": 4,
    "decode.max_length": 4,
}


def build(sizes=SIZES, **changes):
    changes = {f"model.{key.replace('__', '.')}": value for key, value in changes.items()}
    return resolve(fitted(default_config("scenes", "glimpses"), SMALL, changes)).build_model(sizes)


def batch_of(seed=0, count=2):
    rng = np.random.default_rng(seed)
    pixels = jnp.asarray(rng.integers(0, 256, (count, 8, 12, 3)), jnp.uint8)
    words = jnp.array([[4, 5, 3], [6, 3, 0]], jnp.int32)[:count]
    out = jnp.array([[4, 3], [6, 3]], jnp.int32)[:count]
    return {"source": Picture(pixels, words), "target_in": jnp.full((count, 2), 2, jnp.int32), "target_out": out}


BATCH = batch_of()


def params_for(model, seed=0, batch=BATCH):
    return fill(jax.eval_shape(model.init, jax.random.key(0), batch), seed, 0.7)


PARAMS = params_for(build())
WITHOUT_BASELINE = {name: value for name, value in PARAMS.items() if name != "baseline"}


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def apart(gradients):
    """(gradient of the model, gradient of the baseline), each as one vector."""
    return tuple(flat({k: v for k, v in gradients.items() if (k == "baseline") == own}) for own in (False, True))


# ---- crops


@pytest.mark.parametrize("place", [(0.0, 0.0), (-1.0, 1.0), (0.37, -0.81), (1.0, -1.0)])
def test_a_crop_has_the_pixels_around_its_place_and_is_black_outside(place):
    image = np.random.default_rng(0).integers(1, 256, (9, 7, 3)).astype(np.uint8)
    found = np.asarray(crop(jnp.asarray(image), jnp.array(place), 4, 2))
    wide = np.zeros((9 + 40, 7 + 40, 3))
    wide[20:29, 20:27] = image / 255
    for scale, got in enumerate(found):
        side = 4 * 2**scale
        top, left = (int(np.floor((p + 1) / 2 * n - side / 2 + 0.5)) + 20 for p, n in zip(place, (9, 7), strict=True))
        part = wide[top : top + side, left : left + side].reshape(4, 2**scale, 4, 2**scale, 3).mean((1, 3))
        np.testing.assert_allclose(got, part, atol=1e-6)


def test_looks_are_counted_where_the_pixels_of_the_crop_are():
    image, grid = (8, 12), PlaceGrid(2, 3)
    for place in np.random.default_rng(1).uniform(-1, 1, (6, 2)):
        top, left = np.asarray(corner(jnp.asarray(place), image, 4))
        inside = np.zeros(image)
        inside[max(0, top) : top + 4, max(0, left) : left + 4] = 1
        counted = inside.reshape(2, 4, 3, 4).sum((1, 3)) / inside.sum()
        np.testing.assert_allclose(looked_at(jnp.asarray(place), image, 4, grid), counted, atol=1e-6)
    centres = np.asarray(PlaceGrid(2, 3).centres())
    np.testing.assert_allclose(np.asarray(corner(jnp.asarray(centres), image, 4))[:, 0], [0, 0, 0, 4, 4, 4])
    np.testing.assert_allclose(np.asarray(corner(jnp.asarray(centres), image, 4))[:3, 1], [0, 4, 8])


# ---- gradients


@functools.cache
def exact(cost, entropy_bonus=0.0):
    """(loss, gradient) of the enumeration."""
    model = build(objective="enumeration", cost=cost, places="grid", places__entropy_bonus=entropy_bonus)
    return compiled(jax.value_and_grad(lambda p: model.loss_fn(p, BATCH, jax.random.key(0))[0]))(WITHOUT_BASELINE)


@functools.cache
def sampled_gradient(cost, baseline, num_samples, entropy_bonus=0.0):
    """params -> sum over all samples of their probability times the gradient of their surrogate."""
    objective = dict(objective__baseline=baseline, objective__num_samples=num_samples)
    model = build(cost=cost, **objective, places="grid", places__entropy_bonus=entropy_bonus)
    paths = list(itertools.product(range(4), repeat=2))
    samples = jnp.array(list(itertools.product(paths, repeat=num_samples)))  # [w, n, t]

    def mean_loss(params):
        def of_sample(module, choices):
            source = jax.tree.map(lambda x: jnp.repeat(x, num_samples, axis=0), BATCH["source"])
            path = module.follow(source, choices=jnp.tile(choices, (2, 1)))
            words = jnp.repeat(BATCH["target_out"][:, 0], num_samples)
            p = jnp.exp(jnp.sum(path.log_prob.reshape(2, -1), axis=-1))
            return jnp.sum(jax.lax.stop_gradient(p) * module.path_losses(path, words, num_samples)[0])

        one = lambda choices: model.module.apply({"params": params}, choices, method=of_sample)  # noqa: E731
        return jnp.sum(jax.vmap(one)(samples))

    return compiled(jax.grad(mean_loss))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cost", "baseline", "num_samples"),
    [("wrong", "none", 1), ("wrong", "learned", 1), ("wrong", "leave_one_out", 2), ("likelihood", "learned", 1)],
)
def test_the_mean_of_the_sampled_gradients_is_the_exact_one(cost, baseline, num_samples):
    bonus = 0.3 if baseline == "learned" else 0.0
    expected = flat(exact(cost, bonus)[1])
    sampled, own = apart(sampled_gradient(cost, baseline, num_samples, bonus)(PARAMS))
    assert np.linalg.norm(expected) > 0.1
    np.testing.assert_allclose(sampled, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    assert (np.abs(own).max(initial=0) > 0) == (baseline == "learned")


@pytest.mark.slow
def test_the_exact_gradient_of_the_likelihood_is_that_of_the_expected_loss():
    """By automatic differentiation of sum_x p(x) f(x), with the paths written out."""
    model = build(objective="enumeration", cost="likelihood")

    def expected(params):
        def total(module, choices):
            path = module.follow(BATCH["source"], choices=jnp.tile(choices, (2, 1)))
            nll, _ = module.output.nll_and_correct(path.after[:, -1], BATCH["target_out"][:, 0])
            return jnp.sum(jnp.exp(jnp.sum(path.log_prob, axis=1)) * nll)

        one = lambda choices: model.module.apply({"params": params}, choices, method=total)  # noqa: E731
        return jnp.sum(jax.vmap(one)(jnp.array(list(itertools.product(range(4), repeat=2)))))

    value, by_hand = compiled(jax.value_and_grad(expected))(WITHOUT_BASELINE)
    loss, gradient = exact("likelihood")
    np.testing.assert_allclose(loss, value, rtol=1e-5)
    np.testing.assert_allclose(flat(gradient), flat(by_hand), rtol=1e-4, atol=1e-6)


def test_a_place_is_weighted_by_the_cost_and_the_later_entropy_and_a_baseline_is_to_predict_both():
    objective, loss = PathObjective(entropy=0.1), jnp.full((1, 1), 7.0)
    cost, entropy = jnp.full((1, 1), 5.0), jnp.array([[[1.0, 2.0, 4.0]]])

    def weights(baseline):
        return jax.grad(lambda log_prob: objective(loss, cost, log_prob, entropy, baseline)[0])(jnp.zeros((1, 1, 3)))

    wanted = objective.targets(loss, cost, entropy)
    np.testing.assert_allclose(wanted, [[[4.4, 4.6, 5.0]]], rtol=1e-6)
    np.testing.assert_allclose(weights(None), wanted, rtol=1e-6)
    np.testing.assert_allclose(weights(wanted), jnp.zeros((1, 1, 3)), atol=1e-6)


def test_a_baseline_depends_on_earlier_places_and_not_on_its_own_or_later_ones():
    model = build(num_glimpses=3)
    params = params_for(model, 1)

    def values(module, choices):
        path = module.follow(BATCH["source"], choices=jnp.tile(choices, (2, 1)))
        return module.baseline.value(path.before)

    assert isinstance(model.module.baseline, LearnedBaseline)
    call = compiled(lambda choices: model.module.apply({"params": params}, choices, method=values))
    base = call(jnp.array([0, 1, 2]))
    for t in range(3):
        moved = call(jnp.array([0, 1, 2]).at[t].set(3))
        np.testing.assert_array_equal(moved[:, : t + 1], base[:, : t + 1])
        assert t == 2 or np.all(moved[:, t + 1 :] != base[:, t + 1 :])


@pytest.mark.slow
def test_the_gaussian_score_differentiates_expectations():
    """Gauss-Hermite: E[g(x) grad log p(x)] = grad E[g(x)] for polynomials g."""
    policy, hidden = GaussianPlaces(sigma=0.4), jnp.array([[0.3, -0.2]])
    params = {"params": params_of(policy, hidden)}
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    x, y = np.meshgrid(nodes, nodes, indexing="ij")
    points, mass = np.stack([x, y], -1).reshape(-1, 2), np.outer(weights, weights).reshape(-1) / (2 * np.pi)

    def mean(hidden):
        return jnp.tanh(hidden @ params["params"]["mean"]["kernel"] + params["params"]["mean"]["bias"])[0]

    def polynomial(p):
        return p[..., 0] ** 3 * p[..., 1] - 2 * p[..., 1] ** 2 + p[..., 0]

    def by_score(hidden):
        choices = jax.lax.stop_gradient(mean(hidden) + 0.4 * jnp.asarray(points))
        log_prob = policy.apply(params, jnp.broadcast_to(hidden, choices.shape), None, choices).log_prob
        return jnp.sum(mass * polynomial(choices) * log_prob)

    def directly(hidden):
        return jnp.sum(mass * polynomial(mean(hidden) + 0.4 * jnp.asarray(points)))

    @compiled
    def run(hidden):
        places = mean(hidden) + 0.4 * jnp.asarray(points)
        log_prob = policy.apply(params, jnp.repeat(hidden, 64, axis=0), None, places).log_prob
        return jax.grad(by_score)(hidden), jax.grad(directly)(hidden), log_prob

    got, wanted, log_prob = run(hidden)
    np.testing.assert_allclose(got, wanted, rtol=1e-3)
    density = np.exp(-0.5 * (points**2).sum(-1)) / (2 * np.pi * 0.16)
    np.testing.assert_allclose(np.exp(log_prob), density, rtol=1e-4)


# ---- samples of the policies

HIDDEN = np.array([[-0.9, 0.4, 0.3]], np.float32)


def samples_of(policy, count=20_000):
    """(parameters, a place of each of so many rngs)."""
    params = params_of(policy, HIDDEN)
    rngs = jax.random.split(jax.random.key(0), count)
    sample = compiled(jax.vmap(lambda rng: policy.apply({"params": params}, jnp.asarray(HIDDEN), rng).place[0]))
    return params, sample(rngs)


def test_cells_are_sampled_as_often_as_the_softmax_of_their_logits_says():
    params, places = samples_of(GridPlaces(grid=PlaceGrid(2, 3)))
    powers = np.exp(HIDDEN[0] @ params["logits"]["kernel"] + params["logits"]["bias"])
    centres = itertools.product([-1 / 2, 1 / 2], [-2 / 3, 0, 2 / 3])
    found = [np.mean(np.all(np.isclose(places, centre, atol=1e-6), axis=1)) for centre in centres]
    assert powers.max() > 2 * powers.min()
    np.testing.assert_allclose(found, powers / powers.sum(), atol=0.015)


def test_places_of_the_plane_are_sampled_around_their_mean_with_their_sigma():
    params, places = samples_of(GaussianPlaces(sigma=0.1))
    mean = np.tanh(HIDDEN[0] @ params["mean"]["kernel"] + params["mean"]["bias"])
    assert np.all(np.abs(mean) > 0.1) and np.all(np.abs(mean) < 0.6)  # four sigma from the edge
    np.testing.assert_allclose(places.mean(0), mean, atol=0.003)
    np.testing.assert_allclose(np.cov(places.T), 0.01 * np.eye(2), atol=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("places", ["grid", "gaussian"])
def test_the_glimpses_of_one_rng_are_sampled_apart(places):
    """By a policy that does not see the state, so that the rng alone tells one glimpse from another."""
    model, batch = build(places=places, num_glimpses=3), batch_of(count=1)
    params = params_for(model, batch=batch)
    params["policy"] = jax.tree.map(np.zeros_like, params["policy"])

    def path(rng):
        return model.module.apply({"params": params}, batch["source"], rng=rng, method="follow").places[0]

    found = compiled(jax.vmap(path))(jax.random.split(jax.random.key(0), 40))
    for first, second in itertools.combinations(range(3), 2):
        assert np.mean(np.any(found[:, first] != found[:, second], axis=-1)) > 0.5


# ---- the methods of a model


@pytest.mark.slow
@pytest.mark.parametrize("places", ["grid", "gaussian"])
def test_evaluation_follows_the_most_probable_path_and_counts_its_looks(places):
    model = build(places=places)
    params, alone = params_for(model, 2), jax.tree.map(lambda x: x[:1], BATCH)

    @compiled
    def run(params):
        memory, state = model.start(params, BATCH["source"])
        _, log_probs = model.step(params, memory, state, BATCH["target_in"][:, 0])
        looks, path = model.query_weights(params, BATCH["source"]), model.trajectory(params, BATCH["source"])
        scores = model.score(params, BATCH), model.score(params, alone)
        return looks, model.attention_weights(params, BATCH), log_probs, scores, path

    looks, weights, log_probs, (scores, score), (found, guesses) = run(params)
    assert looks.shape == (2, 2, 4 + 3) and not looks[..., 4:].any() and not weights[:, 1:].any()
    np.testing.assert_allclose(looks.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(weights[:, 0], looks.mean(1), rtol=1e-5)
    own = np.take_along_axis(log_probs, np.asarray(BATCH["target_out"][:, :1]), 1)[:, 0]
    np.testing.assert_allclose(own, scores, rtol=1e-5)
    assert found.shape == (2, 2, 2) and guesses.shape[:2] == (2, 2)
    np.testing.assert_allclose(guesses[:, -1], log_probs, rtol=1e-5)
    np.testing.assert_allclose(score, scores[:1], rtol=1e-5)


@pytest.mark.slow
def test_what_is_outside_of_all_crops_changes_nothing():
    model, source = build(num_scales=1, num_glimpses=1), BATCH["source"]
    params = params_for(model, 3)
    run = compiled(
        lambda source: (model.trajectory(params, source)[0], model.score(params, BATCH | {"source": source}))
    )
    places, scores = run(source)
    top, left = np.asarray(corner(jnp.asarray(places[0, 0]), (8, 12), 4))
    inside = np.zeros((8, 12, 1), bool)
    inside[max(0, top) : top + 4, max(0, left) : left + 4] = True
    pixels = np.asarray(source.pixels)
    outside, within = (source._replace(pixels=np.where(x, 255 - pixels, pixels)) for x in (~inside, inside))
    np.testing.assert_array_equal(run(outside)[1][0], scores[0])
    assert run(within)[1][0] != scores[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "enumeration", "places": "gaussian"}, "enumeration needs a number of places: model.places grid"),
        (
            {"objective": "enumeration", "grid": (6, 6), "num_glimpses": 4},
            "4 glimpses at 36 places have 1,679,616 path",
        ),
        ({"objective__baseline": "leave_one_out"}, "needs model.objective.num_samples of at least 2, got 1"),
        ({"grid": (3,)}, r"model.grid \(3,\): expected the numbers of rows and columns"),
        ({"glimpse_size": 9}, "model.glimpse_size 9 is larger than the image, 12 x 8 pixels; expected at most 8"),
        ({"places": "gaussian", "places__entropy_bonus": 0.1}, "entropy_bonus; it is an option of model.places grid"),
    ],
)
def test_what_does_not_fit_is_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        build(**changes)


def test_texts_have_no_glimpses():
    message = r"model.name glimpses reads pictures, and task.name dates has text; expected task.name .*scenes"
    with pytest.raises(UserError, match=message):
        default_config("dates", "glimpses")
