"""Scores within bounds: what they are at the start, for small scores and under a rotation, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax import blockwise_attention
from attn_jax.attention.build import build_attention
from attn_jax.attention.rotary import rotate
from attn_jax.attention.scores import Additive, Dot, Epanechnikov, Location, Norm, QKNorm, ScaledDot, Softcap, TanhKey
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.parts import recipe_of

RNG = np.random.default_rng(0)
QUERY, KEYS = RNG.normal(size=(3, 4)), RNG.normal(size=(5, 4))
QUERY32, KEYS32 = jnp.asarray(QUERY, jnp.float32), jnp.asarray(KEYS, jnp.float32)


def scores_of(score, query, keys, params=None):
    both = lambda score, query, keys: score(query, score.project_keys(keys))  # noqa: E731
    return score.apply({"params": params or {}}, query, keys, method=both)


def test_qk_norm_starts_as_the_scaled_dot_product_after_an_rms_norm():
    rms = lambda x: x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True))  # noqa: E731
    got = compiled(lambda q, k: scores_of(QKNorm(), q, k, {"log_scale": jnp.zeros(())}))(QUERY32, KEYS32)
    expected = scores_of(ScaledDot(), *(jnp.asarray(rms(x), jnp.float32) for x in (QUERY, KEYS)))
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert np.abs(got).max() <= 2
    params = QKNorm().init(jax.random.key(0), QUERY32, KEYS32)["params"]
    np.testing.assert_array_equal(params["log_scale"], 0)


@pytest.mark.slow
def test_qk_norm_does_not_depend_on_lengths_and_depends_on_rotations_by_the_distance_alone():
    call = compiled(lambda q, k: scores_of(QKNorm(), q, k, {"log_scale": jnp.ones(())}))
    np.testing.assert_allclose(call(3 * QUERY32, 0.1 * KEYS32), call(QUERY32, KEYS32), rtol=1e-5)
    turn = lambda x, start: rotate(x[None], jnp.arange(start, start + len(x)))[0]  # noqa: E731
    one, other = (call(turn(QUERY32, start), turn(KEYS32, start)) for start in (0, 7))
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.all(
        np.isfinite(jax.grad(lambda k: scores_of(QKNorm(), QUERY32, k, {"log_scale": 0.0}).sum())(0 * KEYS32))
    )


def test_the_fused_kernel_computes_the_same_as_the_formula():
    attention = build_attention(score="qk_norm")
    params = {"params": {"map": {"score": {"log_scale": jnp.float32(0.7)}}}}

    def both(params, query, keys):
        attended = attention.apply(params, query, keys)
        return attended.context, attended.weights @ keys

    assert attention.fusible
    fused, written = compiled(both)(params, QUERY32, KEYS32)
    np.testing.assert_allclose(fused, written, atol=1e-6)
    of = lambda i: compiled(jax.grad(lambda p: jnp.sum(jnp.sin(both(p, QUERY32, KEYS32)[i]))))(params)  # noqa: E731
    one, other = (of(i)["params"]["map"]["score"]["log_scale"] for i in (0, 1))
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_a_soft_cap_bounds_the_scores_and_changes_small_ones_little():
    capped = lambda cap, factor: scores_of(Softcap(score=ScaledDot(), softcap=cap), factor * QUERY32, KEYS32)  # noqa: E731
    plain = scores_of(ScaledDot(), QUERY32, KEYS32)
    np.testing.assert_allclose(capped(1.5, 1.0), 1.5 * np.tanh(plain / 1.5), rtol=1e-5)
    np.testing.assert_allclose(capped(1e3, 1.0), plain, rtol=1e-4)
    np.testing.assert_allclose(capped(2.0, 1e6), 2 * np.sign(plain))


@pytest.mark.slow
def test_derivatives_in_float64():
    score = Softcap(score=QKNorm(), softcap=1.3)
    total = lambda scale, query, keys: jnp.sum(  # noqa: E731
        jnp.sin(scores_of(score, query, keys, {"score": {"log_scale": scale}}))
    )
    check_derivatives(total, np.array(0.2), QUERY, KEYS)


@pytest.mark.slow
def test_a_cap_keeps_the_properties_and_parameters_of_its_score():
    capped = lambda score: Softcap(score=score, softcap=5.0)  # noqa: E731
    assert not capped(Location(max_length=3)).by_key and capped(TanhKey(features=3)).own_width
    assert capped(ScaledDot()).by_key and not build_attention(score=capped(ScaledDot())).fusible
    attention = lambda size: build_attention(score=capped(Additive(features=3)), normalize="entmax15", block_size=size)  # noqa: E731
    params = attention(0).init(jax.random.key(0), QUERY32, KEYS32)
    assert set(params["params"]["map"]["score"]["score"]) == {"query", "key", "vector"}
    one, two = (compiled(lambda p, n=n: attention(n).apply(p, QUERY32, KEYS32).context)(params) for n in (0, 2))
    np.testing.assert_allclose(one, two, atol=1e-5)
    assert blockwise_attention(lambda q, k: scores_of(capped(ScaledDot()), q, k), QUERY32, KEYS32, KEYS32)


def test_what_a_cap_cannot_be():
    with pytest.raises(ValueError, match=r"softcap is -1\.0; expected a number above 0"):
        Softcap(score=ScaledDot(), softcap=-1.0)
    with pytest.raises(ValueError, match="the score -inf of Epanechnikov"):
        Softcap(score=Epanechnikov(), softcap=5.0)


def test_one_option_caps_any_score():
    dot = recipe_of(Dot)
    built = AttentionOptions(score=dot, wrappers=(recipe_of(Softcap, softcap=5.0),)).build(4)
    assert built.score.softcap == 5.0 and built.score.score == Dot()
    assert AttentionOptions(score=dot).build(4).score == Dot()


@pytest.mark.slow
@pytest.mark.parametrize("score", [QKNorm(), Norm()])
def test_float16_keys_that_are_zero_or_long(score):
    """1e-12 is zero in float16, and the square of 320 infinite."""
    keys = jnp.array([[0.0, 0.0], [320.0, 0.0]], jnp.float16)
    query = jnp.array([[3.0, 4.0]], jnp.float16)
    params = score.init(jax.random.key(0), query, keys).get("params", {})
    found = scores_of(score, query, keys, params)
    real = jnp.array([0.0, 1.0])  # the key of zeros is padding
    total = lambda *args: real @ scores_of(score, *args, params)[0].astype(jnp.float32)  # noqa: E731
    slopes = jax.grad(total, argnums=(0, 1))(query, keys)
    assert np.isfinite(found).all() and all(np.isfinite(slope).all() for slope in slopes)
    wide = scores_of(score, *(x.astype(jnp.float32) for x in (query, keys)), params)
    np.testing.assert_allclose(found, wide, rtol=2e-3, atol=1e-6)


@pytest.mark.slow
def test_the_gradient_of_a_zero_vector_is_zero():
    """x / |x| has none at 0, and near 0 one of the size of 1 / |x|, which would drown that of every other query."""
    total = lambda q: jnp.sum(jnp.sin(scores_of(QKNorm(), q, KEYS32, {"log_scale": 0.0})))  # noqa: E731
    gradient = jax.grad(total)(QUERY32.at[0].set(0.0))
    assert not gradient[0].any() and 0 < jnp.abs(gradient[1]).max() < 100
