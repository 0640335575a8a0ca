"""Schemes of positions against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention.rotary import rotate
from attn_jax.errors import UserError
from attn_jax.layers.positions import POSITIONS, Learned, Relative, sinusoids


def test_rotated_products_know_only_the_distance():
    rng = np.random.default_rng(0)
    query, key = (jnp.asarray(rng.normal(size=(1, 1, 6)), jnp.float32) for _ in range(2))

    def product(i, j):
        at = lambda x, n: rotate(x, jnp.full(1, n))  # noqa: E731
        return float(jnp.sum(at(query, i) * at(key, j)))

    assert product(7, 4) == pytest.approx(product(103, 100), abs=1e-4)
    assert product(0, 0) == pytest.approx(float(jnp.sum(query * key)), abs=1e-5)
    assert abs(product(7, 4) - product(7, 5)) > 1e-3


def test_sinusoids_as_written():
    features, position = 6, 5
    expected = [function(position / 10_000 ** (2 * i / features)) for i in range(3) for function in (np.sin, np.cos)]
    np.testing.assert_allclose(sinusoids(jnp.array([position]), features)[0], expected, rtol=1e-5)
    assert sinusoids(jnp.arange(3), 5).shape == (3, 5)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 16), (64, 1000)])
@pytest.mark.parametrize("causal", [True, False])
def test_relative_buckets_are_those_of_t5(causal, num_buckets, max_distance):
    """Raffel 2020 (arXiv 1910.10683), in the form of its published program."""
    distances = np.arange(-600, 601)
    side = num_buckets if causal else num_buckets // 2
    back = np.maximum(-distances, 0) if causal else np.abs(distances)
    exact = side // 2
    share = np.log(np.maximum(back, 1) / exact) / np.log(max_distance / exact)
    far = np.minimum(np.trunc(exact + share * (side - exact)).astype(int), side - 1)
    expected = np.where(back < exact, back, far) + np.where(distances > 0, 0 if causal else side, 0)
    module = Relative(num_heads=1, causal=causal, num_buckets=num_buckets, max_distance=max_distance)
    np.testing.assert_array_equal(module.buckets(jnp.asarray(distances)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_relative_bias_is_looked_up_by_how_far_the_key_stands_from_the_query(causal):
    module = Relative(num_heads=2, causal=causal, num_buckets=8, max_distance=16)
    table = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    positions = np.array([[0, 2, 5], [1, 4, 3]])
    distance = jnp.arange(6) - jnp.asarray(positions)[..., None]
    bias = module.apply({"params": {"bias": table}}, distance, method=lambda module, x: module.of_distance(x))
    buckets = {distance: int(module.buckets(jnp.array(distance))) for distance in range(-5, 6)}
    for b, h, q, k in np.ndindex(2, 2, 3, 6):
        assert bias[b, h, q, k] == table[buckets[k - positions[b, q]], h]
    assert len(np.unique(bias[0, 0, 2])) == (5 if causal else 3)  # keys at a distance of 0 to -5


def test_alibi_is_a_bias_of_distance_and_half_of_the_nape_heads_have_none():
    distance = jnp.arange(3) - jnp.arange(3)[:, None]
    alibi = POSITIONS["alibi"](num_heads=2).of_distance(distance)
    np.testing.assert_allclose(alibi[0], -(2.0**-4) * np.abs(np.subtract.outer(range(3), range(3))))
    nape = POSITIONS["nape"](num_heads=4).of_distance(distance)
    assert np.all(nape[:2] == 0)
    np.testing.assert_array_equal(nape[2:, 0, 2], [-2, -1])  # slopes 1 and 1/2


@pytest.mark.parametrize(
    ("num_heads", "slopes"),
    [
        (1, [2.0**-8]),
        (4, [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]),
        (3, [2.0**-4, 2.0**-8, 2.0**-2]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (12, [*(2.0**-i for i in range(1, 9)), *(2.0**-i for i in (0.5, 1.5, 2.5, 3.5))]),
    ],
)
def test_slopes_of_alibi_are_those_of_its_authors_for_any_number_of_heads(num_heads, slopes):
    """Heads that fill up a power of two have the first slopes between those of that power."""
    np.testing.assert_allclose(POSITIONS["alibi"](num_heads=num_heads).slopes(), slopes, rtol=1e-6)


def test_a_sequence_longer_than_the_learned_positions_is_a_value_error():
    """Also where the caller makes the exception, which then has the same message."""
    message = "a sequence of 4 tokens, but there are 3 learned positions"
    positions = Learned(max_length=3, features=2)
    for run in (
        lambda: positions.check(4),
        lambda: positions.init(jax.random.key(0), jnp.zeros((4, 2)), jnp.arange(4), method="embed"),
    ):
        with pytest.raises(ValueError, match=f"^{message}") as caught:
            run()
        assert not isinstance(caught.value, UserError)
    with pytest.raises(KeyError, match=f"{message}, at all"):
        Learned(max_length=3, features=2, error=lambda said: KeyError(f"{said}, at all")).check(4)
    positions.check(3)


def test_rotation_needs_an_even_width():
    with pytest.raises(ValueError, match=r"even width, got shape \(2, 4, 3\)") as caught:
        rotate(jnp.zeros((2, 4, 3)), jnp.arange(4))
    assert not isinstance(caught.value, UserError)


@pytest.mark.slow
@pytest.mark.parametrize("name", POSITIONS)
def test_what_a_scheme_says_of_itself_is_what_it_does(name):
    """A scheme that needs attention leaves the embeddings alone, and only such a one touches the scores."""
    scheme = POSITIONS[name](num_heads=2, features=4, max_length=6)
    embedded, positions = jnp.ones((6, 4)), jnp.arange(6)
    distance = jnp.arange(6) - jnp.arange(6)[:, None]
    both = lambda module: (  # noqa: E731
        module.embed(embedded, positions),
        module.of_distance(distance) if module.biased else None,
    )
    (moved, _), _ = scheme.init_with_output(jax.random.key(0), method=both)
    assert scheme.needs_attention == (scheme.biased or scheme.rotary or scheme.forgets)
    assert np.all(moved == embedded) == (scheme.needs_attention or name == "none")
    assert scheme.limited == (name == "learned")


@pytest.mark.parametrize("changes", [{"max_distance": 16}, {"num_buckets": 1}, {"num_buckets": 2, "causal": False}])
def test_relative_positions_need_buckets_for_far_keys(changes):
    fields = dict(num_heads=2, features=8, max_length=0, causal=True, error=ValueError)
    with pytest.raises(ValueError, match="num_buckets is"):
        Relative(**fields | changes)
