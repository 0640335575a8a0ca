"""Each score against its formula, written with loops over single vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.attention.random_features import orthogonal_directions
from attn_jax.attention.scores import (
    SCORES,
    Additive,
    Concat,
    Dot,
    General,
    Location,
    Norm,
    QKNorm,
    RandomFeatures,
    ScaledDot,
    TanhKey,
)
from attn_jax.attention.scores.kernels import Boxcar, Constant, Epanechnikov, Gaussian, Triangular

WIDTH, KEY_WIDTH, FEATURES, QUERIES, KEYS = 4, 3, 5, 2, 6
DIRECTIONS = np.asarray(orthogonal_directions(jax.random.key(0), 8, WIDTH))


def log_kernel(kernel):
    """log k(u), u the distance in widths of 1.5, with loops and without the log of 0."""

    def score(p, q, k, j):
        value = kernel(np.linalg.norm(q - k) / 1.5)
        return np.log(value) if value > 0 else -np.inf

    return score


# name -> (module, width of the keys, score of one query q and one key k at position j, with parameters p)
FORMULAS = {
    "dot": (Dot(), WIDTH, lambda p, q, k, j: q @ k),
    "scaled_dot": (ScaledDot(), WIDTH, lambda p, q, k, j: q @ k / np.sqrt(WIDTH)),
    "general": (General(query_features=WIDTH), KEY_WIDTH, lambda p, q, k, j: q @ (k @ p["key"]["kernel"])),
    "additive": (
        Additive(features=FEATURES),
        KEY_WIDTH,
        lambda p, q, k, j: (
            np.tanh(q @ p["query"]["kernel"] + p["query"]["bias"] + k @ p["key"]["kernel"])
            @ p["vector"]["kernel"][:, 0]
        ),
    ),
    "concat": (
        Concat(features=FEATURES),
        KEY_WIDTH,
        lambda p, q, k, j: (
            np.tanh(np.concatenate([q, k]) @ np.concatenate([p["query"]["kernel"], p["key"]["kernel"]]))
            @ p["vector"]["kernel"][:, 0]
        ),
    ),
    "gaussian": (Gaussian(), WIDTH, lambda p, q, k, j: -np.sum((q - k) ** 2) * np.exp(p["log_precision"]) / 2),
    "boxcar": (Boxcar(width=(1.5,)), WIDTH, log_kernel(lambda u: float(u <= 1))),
    "triangular": (Triangular(width=(1.5,)), WIDTH, log_kernel(lambda u: max(0, 1 - u))),
    "epanechnikov": (Epanechnikov(width=(1.5,)), WIDTH, log_kernel(lambda u: max(0, 1 - u**2))),
    "constant": (Constant(), WIDTH, lambda p, q, k, j: 0.0),
    "tanh_key": (
        TanhKey(features=WIDTH),
        KEY_WIDTH,
        lambda p, q, k, j: q @ np.tanh(k @ p["key"]["kernel"] + p["key"]["bias"]),
    ),
    "qk_norm": (
        QKNorm(),
        WIDTH,
        lambda p, q, k, j: 2 * np.exp(p["log_scale"]) * q @ k / np.linalg.norm(q) / np.linalg.norm(k),
    ),
    "random_features": (
        RandomFeatures(num_features=8),
        WIDTH,
        lambda p, q, k, j: np.log(
            np.mean(np.exp(DIRECTIONS @ (q + k) / WIDTH**0.25 - (q @ q + k @ k) / (2 * WIDTH**0.5)))
        ),
    ),
    "norm": (Norm(), KEY_WIDTH, lambda p, q, k, j: np.linalg.norm(k)),
    "location": (Location(max_length=8), KEY_WIDTH, lambda p, q, k, j: q @ p["position"]["kernel"][:, j]),
}


def direct(module, query, keys):
    return module(query, module.project_keys(keys))


def case(name, query_axes=(), key_axes=()):
    module, key_width, formula = FORMULAS[name]
    rng = np.random.default_rng(1)
    query = rng.normal(size=(*query_axes, QUERIES, WIDTH)).astype(np.float32)
    keys = rng.normal(size=(*key_axes, KEYS, key_width)).astype(np.float32)
    return module, formula, params_of(module, query, keys, method=direct), query, keys


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_is_its_formula_and_leading_axes_broadcast(name):
    module, formula, params, query, keys = case(name, query_axes=(3, 1), key_axes=(2,))
    scores = compiled(lambda *args: module.apply({"params": params}, *args, method=direct))(query, keys)
    assert scores.shape == (3, 2, QUERIES, KEYS)
    for index in np.ndindex(scores.shape):
        head, batch, i, j = index
        expected = formula(params, query[head, 0, i], keys[batch, j], j)
        np.testing.assert_allclose(scores[index], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCORES)
def test_query_or_keys_may_lack_the_batch(name):
    module, _, params, query, keys = case(name)
    score = lambda *args: module.apply({"params": params}, *args, method=direct)  # noqa: E731
    for args in [(query, np.stack([keys] * 3)), (np.stack([query] * 3), keys)]:
        assert jax.eval_shape(score, *args).shape == (3, QUERIES, KEYS)


def test_location_reads_the_first_rows_so_that_padding_changes_nothing():
    module, _, params, query, keys = case("location")
    longer = np.concatenate([keys, keys[:2]])
    score = compiled(lambda *args: module.apply({"params": params}, *args, method=direct))
    np.testing.assert_array_equal(score(query, longer)[:, :KEYS], score(query, keys))


def test_location_with_too_long_a_memory_says_so():
    module, _, params, query, _ = case("location")
    with pytest.raises(ValueError, match=r"8 positions, but the memory has 9; .*max_length"):
        module.apply({"params": params}, jnp.asarray(query), jnp.zeros((9, KEY_WIDTH)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dot", "one width, got 7 and 4; the general score"),
        ("scaled_dot", "one width, got 7 and 4; the general score"),
        ("general", "query_features of the General score is 4, got 7"),
    ],
)
def test_other_widths_than_promised_say_so(name, message):
    module, _, params, _, keys = case(name)
    prepared = module.apply({"params": params}, jnp.asarray(keys), method="project_keys")
    with pytest.raises(ValueError, match=message):
        module.apply({"params": params}, jnp.zeros((QUERIES, 7)), prepared)
