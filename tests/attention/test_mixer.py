"""Mixers: a sequence may be cut anywhere, a ring of keys is a cache of all keys under a window, and beams are rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled, params_of
from jax.experimental import checkify

from attn_jax.attention import CAUSAL, MultiHead, build_attention, latest
from attn_jax.attention.recurrent.heads import RECURRENT, RecurrentHeads
from attn_jax.attention.signed import Subtract

BATCH, LENGTH, WIDTH, HEADS = 2, 9, 16, 4
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(BATCH, LENGTH, WIDTH)), jnp.float32)
REAL = jnp.arange(LENGTH) < jnp.array([[LENGTH], [6]])
HOLE = REAL & (jnp.arange(LENGTH) != jnp.array([[3], [1]]))  # a key in the midst is masked
POSITIONS = jnp.broadcast_to(jnp.arange(LENGTH), (BATCH, LENGTH))
MAPS = {
    "softmax": {},
    "rotary, by blocks": dict(rotary=True, block_size=2),
    "forgetting, sparsemax": dict(forget_heads=HEADS, normalize="sparsemax"),
    "selective, rotary, forgetting, iterated": dict(selective=True, rotary=True, forget_heads=HEADS, iterations=2),
    "stick-breaking": dict(normalize="stick_breaking"),
    "contextual positions": dict(normalize="contextual_softmax"),
    "difference, rotary": dict(difference=Subtract(), rotary=True),
}
CUT = [1, 6, 1, 1]  # six keys at once are more than a ring of four has


def heads(order, num_kv_heads=0, **options):
    attention = build_attention(**dict(score="scaled_dot") | options)
    return MultiHead(attention=attention, num_heads=HEADS, features=WIDTH, num_kv_heads=num_kv_heads, order=order)


def distance_bias(distance):
    return -0.1 * jnp.abs(distance)[:, None].astype(jnp.float32)


def whole(mixer, params, x, real=REAL, **options):
    return mixer.apply({"params": params}, x, key_mask=real, positions=POSITIONS, method="extend", **options)[1].context


def in_parts(mixer, params, x, cut, real=REAL, **options):
    cache, contexts, start = mixer.apply({"params": params}, BATCH, LENGTH, method="start"), [], 0
    for size in cut:
        here = slice(start, start + size)
        given = dict(key_mask=real[:, here], positions=POSITIONS[:, here], cache=cache, method="extend", **options)
        cache, attended = mixer.apply({"params": params}, x[:, here], **given)
        contexts.append(attended.context)
        start += size
    return jnp.concatenate(contexts, axis=1)


def random_params(mixer):
    return params_of(mixer, X, key_mask=REAL, positions=POSITIONS, method="extend")


def check_parts(mixer, real=REAL, cuts=(CUT,), **options):
    run = lambda p: [whole(mixer, p, X, real, **options), *(in_parts(mixer, p, X, c, real, **options) for c in cuts)]  # noqa: E731
    expected, *parts = compiled(run)(random_params(mixer))
    assert np.std(expected[real]) > 0.01
    for cut, found in zip(cuts, parts, strict=True):
        np.testing.assert_allclose(found[real], expected[real], atol=1e-5, err_msg=str(cut))


@pytest.mark.slow
@pytest.mark.parametrize("order", [CAUSAL, latest(4)], ids=["all keys", "ring"])
@pytest.mark.parametrize("name", MAPS)
def test_a_sequence_of_heads_may_be_cut_anywhere(name, order):
    check_parts(heads(order, **MAPS[name]), HOLE, [CUT, [LENGTH], [3, 1, 1, 4]] if name == "softmax" else [CUT])


@pytest.mark.slow
@pytest.mark.parametrize(("order", "block_size"), [(CAUSAL, 0), (latest(4), 2)], ids=["all keys", "ring, by blocks"])
def test_heads_that_share_keys_and_a_bias_by_distance(order, block_size):
    check_parts(heads(order, num_kv_heads=2, block_size=block_size), bias=distance_bias)
    check_parts(heads(order, num_kv_heads=2, selective=True, block_size=block_size), bias=distance_bias)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECURRENT)
def test_a_sequence_of_a_written_memory_may_be_cut_anywhere(name):
    check_parts(
        RecurrentHeads(kind=RECURRENT[name], num_heads=2, features=WIDTH, chunk_size=3, convolution=2, order=CAUSAL)
    )


@pytest.mark.parametrize("order", [CAUSAL, latest(4)], ids=["all keys", "ring"])
def test_a_cache_is_grown_and_its_rows_are_reordered_by_one_map(order):
    mixer = heads(order, rotary=True, selective=True)
    params = random_params(mixer)
    first, last = slice(0, 5), slice(5, LENGTH)

    def run(params):
        call = mixer.bind({"params": params})
        cache, _ = call.extend(X[:, first], key_mask=HOLE[:, first], positions=POSITIONS[:, first])
        cache = jax.tree.map(lambda leaf: leaf[::-1], call.grow(cache, LENGTH))
        _, attended = call.extend(X[::-1, last], key_mask=HOLE[::-1, last], positions=POSITIONS[:, last], cache=cache)
        return attended.context[::-1], whole(mixer, params, X, HOLE)[:, last]

    found, expected = compiled(run)(params)
    np.testing.assert_allclose(found[REAL[:, last]], expected[REAL[:, last]], atol=1e-5)


def test_a_ring_keeps_as_many_keys_as_are_attended_to():
    sizes = {}
    for order in (CAUSAL, latest(4)):
        mixer = heads(order)
        start = lambda params, mixer=mixer: mixer.apply({"params": params}, 3, 50, method="start")  # noqa: E731
        cache = compiled(lambda params, start=start: jax.tree.leaves(start(params)))(random_params(mixer))
        sizes[order.latest] = {leaf.shape[-2] for leaf in cache}
        assert all(leaf.shape[0] == 3 for leaf in cache)
    assert sizes == {0: {50}, 4: {4}}


def test_a_ring_that_is_grown_has_the_latest_keys_of_rows_of_any_length():
    mixer = heads(latest(4))

    def run(params):
        call = mixer.bind({"params": params})
        cache, _ = call.extend(X, key_mask=REAL, positions=POSITIONS)
        return call.grow(cache, LENGTH).positions

    assert compiled(run)(random_params(mixer))[:, 0, :, 0].tolist() == [[5, 6, 7, 8], [2, 3, 4, 5]]


def test_no_key_is_written_beyond_the_end_of_a_cache():
    mixer = heads(CAUSAL)

    def run(params):
        call = mixer.bind({"params": params})
        cache = call.start(BATCH, 3)
        for size in (1, 2):
            late = dict(key_mask=jnp.ones((BATCH, size), bool), positions=jnp.full((BATCH, size), 7))
            cache, _ = call.extend(X[:, :size], cache=cache, **late)
        return cache.positions

    assert np.all(compiled(run)(random_params(mixer)) == -1)


@pytest.mark.parametrize("size", [1, 2])
def test_a_key_beyond_the_end_of_a_cache_is_told_where_positions_are_known_or_checked(size):
    call = heads(CAUSAL).bind({"params": random_params(heads(CAUSAL))})
    cache, ones = call.start(BATCH, 3), jnp.ones((BATCH, size), int)
    extend = lambda at: call.extend(X[:, :size], cache=cache, key_mask=ones > 0, positions=at)[0].positions  # noqa: E731
    message = "position 3 is beyond a cache of 3 places"
    with pytest.raises(ValueError, match=message):
        extend(3 * ones)
    with jax.enable_checks(True):
        checked = checkify.checkify(jax.jit(extend))
        assert message in checked(3 * ones)[0].get()
        assert checked(2 * ones)[0].get() is None


@pytest.mark.slow
def test_derivatives_of_forgetting_with_sparsemax_in_a_ring_of_sixteen_keys():
    length = 20
    mixer = MultiHead(
        attention=build_attention(score="scaled_dot", normalize="sparsemax", forget_heads=2, dtype=jnp.float64),
        num_heads=2,
        features=4,
        order=latest(16),
        dtype=jnp.float64,
    )
    positions = jnp.arange(length)[None]
    x = RNG.normal(size=(1, length, 4))
    given = dict(key_mask=jnp.ones((1, length), bool), positions=positions)
    params = params_of(mixer, jnp.asarray(x, jnp.float32), method="extend", **given, scale=1.0)

    def total(x):
        call = mixer.bind({"params": params})
        cache, contexts = call.start(1, length), []
        for here in (slice(0, 17), slice(17, 18), slice(18, 20)):
            part = {name: value[:, here] for name, value in given.items()}
            cache, attended = call.extend(x[:, here], cache=cache, **part)
            contexts.append(attended.context)
        return jnp.sum(jnp.sin(jnp.concatenate(contexts, axis=1)))

    check_derivatives(total, x)
