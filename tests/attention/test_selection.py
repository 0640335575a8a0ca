"""Attention to the keys of the largest scores is attention to a memory of these keys alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax import NORMALIZERS, MultiHead
from attn_jax.attention.build import build_attention
from attn_jax.attention.normalizers import hardmax, softmax
from attn_jax.attention.scores import Boxcar
from attn_jax.attention.selection import top_keys_mask

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(6, 7)).astype(np.float32)
MASK = RNG.random((6, 7)) < 0.7
MASK[5] = False


def test_the_mask_has_the_largest_of_the_unmasked_scores():
    scores = np.where(MASK, np.round(SCORES), np.nan).astype(np.float32)  # with ties
    for number in (1, 3, 7, 9):
        got = compiled(lambda scores, mask, number=number: top_keys_mask(scores, mask, number))(scores, MASK)
        for row, keep, chosen in zip(scores, MASK, got, strict=True):
            best = sorted(np.flatnonzero(keep), key=lambda i, row=row: (-row[i], i))[:number]
            assert sorted(best) == list(np.flatnonzero(chosen))


def test_one_key_is_hardmax_and_all_keys_are_no_selection():
    one, all_ = (compiled(lambda x, m, n=n: softmax(x, top_keys_mask(x, m, n)))(SCORES, MASK) for n in (1, 7))
    np.testing.assert_array_equal(one, compiled(hardmax)(SCORES, MASK))
    np.testing.assert_array_equal(all_, compiled(softmax)(SCORES, MASK))


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "stick_breaking", "scalable_softmax"])
def test_selecting_is_deleting_the_other_keys_for_any_normalizer(normalize):
    query, keys = (jnp.asarray(RNG.normal(size=(n, 4)), jnp.float32) for n in (1, 7))
    entry = NORMALIZERS[normalize]
    make = lambda top: build_attention(  # noqa: E731
        score="dot", normalize=entry() if isinstance(entry, type) else entry, top_keys=top
    )
    made = make(0).init(jax.random.key(0), query, keys)
    # A wrapper around the normalizer is one step of its path.
    inside = made.get("params", {}).get("map", {}).get("normalize", {})
    params = {0: made, 3: {"params": {"map": {"normalize": {"of": inside}}}} if inside else made}
    best = np.sort(np.argsort(np.asarray(keys @ query[0]))[-3:])
    read = lambda top: compiled(lambda p, keys: make(top).apply(p[top], query, keys).context)  # noqa: E731
    np.testing.assert_allclose(read(3)(params, keys), read(0)(params, keys[best]), rtol=1e-5, atol=1e-6)

    def gradient(top):
        return compiled(jax.grad(lambda k: jnp.sum(jnp.sin(make(top).apply(params[top], query, k).context))))

    got = gradient(3)(keys)
    np.testing.assert_allclose(got[best], gradient(0)(keys[best]), rtol=1e-4, atol=1e-6)
    assert np.all(got[np.setdiff1d(np.arange(7), best)] == 0)


@pytest.mark.parametrize("size", [2, 3, 7, 9])
def test_a_block_is_chosen_by_the_mean_of_its_unmasked_scores(size):
    scores = np.where(MASK, SCORES, np.nan).astype(np.float32)
    starts = range(0, 7, size)
    for number in (1, 2):
        got = compiled(lambda x, m, n=number: top_keys_mask(x, m, n, size))(scores, MASK)
        for row, keep, chosen in zip(scores, MASK, got, strict=True):
            there = [i for i in starts if keep[i : i + size].any()]
            best = sorted(there, key=lambda i, row=row: -np.nanmean(row[i : i + size]))[:number]
            expected = [any(i <= key < i + size for i in best) and keep[key] for key in range(7)]
            np.testing.assert_array_equal(chosen, expected)


def test_selecting_blocks_is_deleting_the_other_keys_with_gradients():
    query, keys = (jnp.asarray(RNG.normal(size=(n, 4)), jnp.float32) for n in (1, 7))
    make = lambda **options: build_attention(score="dot", **options)  # noqa: E731
    total = lambda k, **options: jnp.sum(jnp.sin(make(**options).apply({}, query, k).context))  # noqa: E731
    means = [float((keys[i : i + 3] @ query[0]).mean()) for i in (0, 3, 6)]
    start = 3 * int(np.argmax(means))
    chosen = slice(start, start + 3)
    value, gradient = compiled(jax.value_and_grad(lambda k: total(k, top_keys=1, keys_per_block=3)))(keys)
    alone, expected = compiled(jax.value_and_grad(total))(keys[chosen])
    np.testing.assert_allclose(value, alone, rtol=1e-5)
    np.testing.assert_allclose(gradient[chosen], expected, rtol=1e-4, atol=1e-6)
    assert np.all(np.delete(np.asarray(gradient), np.arange(7)[chosen], axis=0) == 0)


def test_derivatives_in_float64():
    keep = jnp.asarray(MASK)
    total = lambda x: jnp.sum(jnp.sin(4 * softmax(x, top_keys_mask(x, keep, 3))))  # noqa: E731
    check_derivatives(total, SCORES.astype(np.float64))


@pytest.mark.slow
def test_each_head_selects_its_own_keys_and_causal_masks_come_first():
    x = jnp.asarray(RNG.normal(size=(2, 6, 8)), jnp.float32)
    heads = MultiHead(
        attention=build_attention(score="scaled_dot", top_keys=2), num_heads=4, features=8, num_kv_heads=2
    )
    params = heads.init(jax.random.key(0), x, x)
    causal = np.tril(np.ones((6, 6), bool))
    weights = compiled(lambda p: heads.apply(p, x, x, mask=jnp.asarray(causal)).weights)(params)
    assert np.all(weights[..., ~causal] == 0)
    np.testing.assert_array_equal((weights > 0).sum(-1), np.broadcast_to(np.minimum(np.arange(6) + 1, 2), (2, 4, 6)))
    assert len(np.unique(weights > 0, axis=1)) > 1


@pytest.mark.slow
def test_a_key_out_of_reach_does_not_count_in_its_block():
    """Boxcar: only the third key is near the query; its block has a key that is not."""
    attention = build_attention(score=Boxcar(width=(1.0,)), normalize="kernel_sum", top_keys=1, keys_per_block=2)
    attended = attention.apply({}, jnp.zeros((1, 1)), jnp.array([[9.0], [9.0], [0.1], [9.0]]))
    assert attended.weights.tolist() == [[0.0, 0.0, 1.0, 0.0]]
