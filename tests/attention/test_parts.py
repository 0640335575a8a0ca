"""Parts that fill or wrap a slot: what they promise, what a slot refuses, and compositions that no option asks for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax.attention import CAUSAL, NORMALIZERS, READINGS, Attention, MultiHead, build_attention
from attn_jax.attention.forgetting import Forgetting
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.local import LocalM
from attn_jax.attention.maps import Difference, Fitted, Hopfield, Map
from attn_jax.attention.normalizing import Monotonic, Normalize, TopKeys, Windowed
from attn_jax.attention.parts import BY_BLOCKS, FUSIBLE, NOT_NEGATIVE, SUMS_TO_ONE, describe
from attn_jax.attention.reads import Dropped, Gated, Read
from attn_jax.attention.scores import Dot, Gaussian, Location, ScaledDot
from attn_jax.attention.signed import LocalLine, Parallax, Subtract

RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (jnp.asarray(RNG.normal(size=(2, n, 4)), jnp.float32) for n in (3, 6, 6))
POSITIONS = jnp.asarray([[0, 2, 5], [1, 3, 4]])


def normalize(name="softmax"):
    entry = NORMALIZERS[name]
    return Normalize(function=entry() if isinstance(entry, type) else entry)


def plain(name="softmax", score=None):
    return Map(score=score or ScaledDot(), normalize=normalize(name))


def run(part, params=None, **call):
    attention = Attention(map=part, read=Read())
    params = attention.init(jax.random.key(1), QUERY, KEYS, VALUES, **call) if params is None else params
    return attention.apply(params, QUERY, KEYS, VALUES, **call)


@pytest.mark.parametrize(("part", "promises"), [
    (lambda: plain(), {SUMS_TO_ONE, NOT_NEGATIVE, BY_BLOCKS, FUSIBLE}),
    (lambda: plain("linear"), {BY_BLOCKS}),
    (lambda: plain("fusedmax"), {SUMS_TO_ONE, NOT_NEGATIVE}),
    (lambda: plain("kernel_sum", Gaussian(width=(1.0,))), {SUMS_TO_ONE, NOT_NEGATIVE, BY_BLOCKS}),
    (lambda: plain(score=Location(max_length=6)), {SUMS_TO_ONE, NOT_NEGATIVE}),
    (lambda: Map(score=Dot(), normalize=TopKeys(of=normalize(), count=2)), {SUMS_TO_ONE, NOT_NEGATIVE}),
    (lambda: Map(score=Dot(), normalize=Windowed(of=normalize(), window=LocalM(size=1))), {NOT_NEGATIVE}),
    (lambda: Map(score=Dot(), normalize=Monotonic(selection=MonotonicSelection())), {NOT_NEGATIVE}),
    (lambda: Hopfield(of=plain(), iterations=2), {SUMS_TO_ONE, NOT_NEGATIVE, FUSIBLE}),
    (lambda: Difference(of=plain(), subtract=Subtract()), set()),
    (lambda: Fitted(of=plain(), fit=LocalLine()), {SUMS_TO_ONE}),
    (lambda: Forgetting(of=plain(), num_heads=2), {SUMS_TO_ONE, NOT_NEGATIVE, BY_BLOCKS, FUSIBLE}),
])  # fmt: skip
def test_promises_follow_from_what_is_wrapped(part, promises):
    assert part().promises & {SUMS_TO_ONE, NOT_NEGATIVE, BY_BLOCKS, FUSIBLE} == promises


@pytest.mark.parametrize(("make", "message"), [
    (
        lambda: Attention(map=Difference(of=plain(), subtract=Subtract()), read=Read(reading=READINGS["reinforce"])),
        "read=reinforce needs weights that are never negative, unlike those of Difference",
    ),
    (
        lambda: Attention(map=Hopfield(of=plain("rela"), iterations=2), read=Read(reading=READINGS["reinforce"])),
        r"needs weights that sum to one, unlike those of rela inside of Hopfield\(Map\(rela\)\)",
    ),
    (
        lambda: Attention(map=plain(), read=Gated(of=Dropped(of=Read(), rate=0.1)), block_size=2),
        r"block_size needs weights that are read as they are, unlike those of Dropped inside of Gated\(Dropped",
    ),
    (
        lambda: Fitted(of=Difference(of=plain(), subtract=Subtract()), fit=LocalLine()),
        "fit=LocalLine needs weights that are never negative, unlike those of Difference",
    ),
])  # fmt: skip
def test_a_slot_refuses_what_does_not_promise_enough_and_names_the_cause(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_part_is_described_from_the_outside_to_the_inside():
    part = Hopfield(of=Difference(of=plain("sparsemax"), subtract=Subtract()), iterations=2)
    assert describe(part) == "Hopfield(Difference(Map(sparsemax)))"


def test_forget_gates_need_the_inputs_of_heads():
    with pytest.raises(ValueError, match="forget gates are made of the inputs of heads"):
        build_attention(score="dot", forget_heads=2).init(jax.random.key(0), QUERY, KEYS)


def total(make, **call):
    def sums(params, query, keys, values):
        attended = Attention(map=make(), read=Read()).apply(params, query, keys, values, **call)
        return jnp.sum(jnp.sin(attended.context)) + jnp.sum(jnp.cos(attended.weights))

    return sums


COMPOSITIONS = {
    "the difference of two Hopfield networks": lambda: Difference(
        of=Hopfield(of=plain(), iterations=3), subtract=Subtract()
    ),
    "a Hopfield network of differences": lambda: Hopfield(of=Difference(of=plain(), subtract=Subtract()), iterations=2),
    "a slope on a difference": lambda: Fitted(of=Difference(of=plain(), subtract=Subtract()), fit=Parallax()),
    "largest scores of stick-breaking": lambda: Map(
        score=ScaledDot(), normalize=TopKeys(of=normalize("stick_breaking"), count=3)
    ),
    "largest scores in a window, of entmax": lambda: Map(
        score=ScaledDot(), normalize=TopKeys(of=Windowed(of=normalize("entmax15"), window=LocalM(size=2)), count=4)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_derivatives_of_compositions_in_float64(name):
    make, call = COMPOSITIONS[name], {"positions": POSITIONS}
    params = Attention(map=make(), read=Read()).init(jax.random.key(1), QUERY, KEYS, VALUES, **call)
    moved = jax.tree.map(lambda x: x + 0.3, params)  # the slope starts at 0
    arrays = [np.asarray(x, np.float64) for x in (QUERY, KEYS, VALUES)]
    check_derivatives(lambda *x: total(make, **call)(moved, *x), *arrays)


def test_the_difference_of_two_hopfield_networks_is_the_difference_of_their_weights():
    found = run(COMPOSITIONS["the difference of two Hopfield networks"]()).weights
    halves = [[x[..., :2], x[..., 2:]] for x in (QUERY, KEYS)]
    maps = [
        build_attention(score="scaled_dot", iterations=3).apply({}, query, keys).weights
        for query, keys in zip(*halves, strict=True)
    ]
    params = Attention(map=COMPOSITIONS["the difference of two Hopfield networks"](), read=Read()).init(
        jax.random.key(1), QUERY, KEYS, VALUES
    )["params"]["map"]["subtract"]
    scale = jnp.exp(params["query_1"] @ params["key_1"]) - jnp.exp(params["query_2"] @ params["key_2"]) + 0.8
    np.testing.assert_allclose(found, maps[0] - scale * maps[1], atol=1e-6)


def test_the_order_of_wrapping_is_the_order_of_the_operations():
    """A window around the selected key may be empty; a key selected in the window is always there."""
    inside = Map(score=Dot(), normalize=TopKeys(of=Windowed(of=normalize(), window=LocalM(size=1)), count=1))
    outside = Map(score=Dot(), normalize=Windowed(of=TopKeys(of=normalize(), count=1), window=LocalM(size=1)))
    first, second = (run(part, positions=POSITIONS).weights for part in (inside, outside))
    best = jnp.argmax(QUERY @ jnp.swapaxes(KEYS, 1, 2), axis=-1)
    near = jnp.abs(best - POSITIONS) <= 1
    np.testing.assert_array_equal(jnp.sum(first, axis=-1), near)
    np.testing.assert_array_equal(jnp.sum(second, axis=-1), 1)
    assert not jnp.all(near)


@pytest.mark.slow
@pytest.mark.parametrize("normalizer", ["sparsemax", "stick_breaking"])
def test_forgetting_heads_of_any_normalizer_go_step_by_step(normalizer):
    attention = build_attention(score="scaled_dot", normalize=normalizer, forget_heads=2)
    heads = MultiHead(attention=attention, num_heads=2, features=4, order=CAUSAL)
    mask, positions = jnp.ones(KEYS.shape[:2], bool), jnp.broadcast_to(jnp.arange(6), (2, 6))
    whole = dict(key_mask=mask, positions=positions, method="extend")
    params = heads.init(jax.random.key(0), KEYS, **whole)
    expected = heads.apply(params, KEYS, **whole)[1].context

    @compiled
    def steps(params):
        cache, contexts = heads.apply(params, 2, 6, method="start"), []
        for i in range(6):
            one = dict(key_mask=mask[:, :1], positions=positions[:, i : i + 1], cache=cache, method="extend")
            cache, attended = heads.apply(params, KEYS[:, i : i + 1], **one)
            contexts.append(attended.context)
        return jnp.concatenate(contexts, axis=1)

    np.testing.assert_allclose(steps(params), expected, atol=1e-5)
