"""Parts that fill or wrap a slot: what they promise, what a slot refuses, and compositions that no option asks for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives

from attn_jax.attention import NORMALIZERS, READINGS, Attention, build_attention
from attn_jax.attention.forgetting import Forgetting
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.local import LocalM, LocalP
from attn_jax.attention.maps import Difference, Fitted, Hopfield, Map
from attn_jax.attention.normalizers.parametric import Entmax
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


REFUSED = [
    *((dict(read="reinforce", normalize=name), f"read=reinforce needs weights that .*, unlike those of {name} ")
      for name in ("rela", "softmax_one", "softpick", "linear")),
    (dict(read="reinforce", window=LocalP(size=2, features=3)), "read=reinforce needs weights that sum to one"),
    (dict(read="reinforce", monotonic=MonotonicSelection()), "read=reinforce needs weights that sum to one"),
    (dict(read="reinforce", difference=Subtract()), "reinforce needs weights that are never negative, .*of Difference"),
    (dict(read="top", fit=LocalLine()), "read=top needs weights that are never negative, unlike those of Fitted"),
    (dict(fit=LocalLine(), normalize="linear"), "fit=LocalLine needs weights that are never negative, .*of linear"),
    (dict(fit=LocalLine(), difference=Subtract()), "LocalLine needs weights that are never negative, .*of Difference"),
    (dict(block_size=4, dropout=0.1), "block_size needs weights that are read as they are, unlike those of Dropped"),
    (dict(block_size=4, read="top"), "those of read=top"),
    (dict(block_size=4, window=LocalM(size=2)), "those of Windowed"),
    (dict(block_size=4, score=Location(max_length=9)), "the Location score"),
    (dict(block_size=4, normalize="fusedmax"), "can be computed block by block, unlike those of Fusedmax"),
    (dict(block_size=4, normalize=Entmax(alpha=2.5)), r"of Entmax\(alpha=2\.5\) \(.*alpha 1, or 1\.01 to 2"),
    (dict(block_size=4, fit=Parallax()), "block_size needs weights that can be computed block by block"),
    (dict(block_size=4, difference=Subtract()), "unlike those of Difference"),
    (dict(block_size=4, iterations=2), "block by block, unlike those of Hopfield"),
    (dict(block_size=4, top_keys=2), "block by block, unlike those of TopKeys"),
    (dict(block_size=-1), "block_size is -1"),
    (dict(iterations=0), "iterations is 0; expected at least 1"),
    (dict(top_keys=-1), "top_keys is -1; expected at least 1"),
    (dict(top_keys=2, keys_per_block=0), "keys_per_block is 0; expected at least 1"),
    (dict(keys_per_block=2), "keys_per_block=2 needs top_keys of at least 1"),
    (dict(top_keys=2, monotonic=MonotonicSelection()), "do not combine it with top_keys"),
    (dict(normalize=jax.nn.softmax), "expected a function of scores and mask, such as attn_jax.softmax"),
    (dict(normalize=jax.nn.relu), "expected a function of scores and mask"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_a_slot_refuses_what_does_not_promise_enough(options, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        build_attention(**dict(score="dot") | options)
    assert "\n" not in str(caught.value)


def test_the_cause_is_named_where_it_is_wrapped():
    with pytest.raises(ValueError, match=r"sum to one, unlike those of rela inside of Hopfield\(Map\(rela\)\)"):
        Attention(map=Hopfield(of=plain("rela"), iterations=2), read=Read(reading=READINGS["reinforce"]))
    with pytest.raises(ValueError, match=r"read as they are, unlike those of Dropped inside of Gated\(Dropped"):
        Attention(map=plain(), read=Gated(of=Dropped(of=Read(), rate=0.1)), block_size=2)


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
    "a slope on a difference": lambda: Fitted(of=Difference(of=plain(), subtract=Subtract()), fit=Parallax()),
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
