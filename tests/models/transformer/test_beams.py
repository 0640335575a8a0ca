"""Beams that share one cache read what beams with caches of their own read, and a search that grows finds the same."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from test_transformer import DOT, LENGTHS, MODELS, SMALL_STACK, model_of
from tiny_seq2seq import EOS, PAD, TARGET_VOCAB, build, random_params, sentences

from attn_jax.attention import NORMALIZERS
from attn_jax.decoding import decode
from attn_jax.decoding.beam_search import beam_search
from attn_jax.decoding.decode import greedy
from attn_jax.decoding.translate import begin
from attn_jax.layers.positions import POSITIONS
from attn_jax.models.attention_options import WRAPPERS
from attn_jax.models.transformer.beams import BeamState

ROWS, BEAMS, STEPS, WIDTH = 2, 3, 5, 8
PARENTS = np.array([[[0, 1, 2], [0, 1, 2]], [[1, 1, 0], [2, 0, 2]], [[2, 0, 0], [1, 1, 1]], [[0, 2, 1], [2, 2, 0]]])
ENTRIES = {f"normalize {name}": {"normalize": name} for name in NORMALIZERS}
ENTRIES |= {f"wrapper {name}": {"wrappers": (name,)} for name in WRAPPERS}
ENTRIES |= {f"positions {name}": {"positions": name} for name in POSITIONS}
ENTRIES["shared keys"] = {"kv": 1}
ALONE = {"wrapper selective", "positions forgetting"}  # keys between a key and a query count


def heads_of(kv=0, positions="none", **attention):
    """The heads of a layer of a language model."""
    options = SMALL_STACK | dict(positions=positions, num_kv_heads=kv, attention=DOT | attention)
    return build(name="language_model", **options).module.stack.make_layer().make_attention()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_beams_of_one_cache_read_what_beams_with_their_own_read(name):
    """At every step, after hypotheses were replaced; the caches grow before the last step."""
    heads, biased = heads_of(**ENTRIES[name]), name.startswith("positions") and POSITIONS[name.split()[1]]().biased
    assert heads.branches == (name not in ALONE)
    if not heads.branches:
        return
    scheme = POSITIONS[name.split()[1]]() if biased else None
    x = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS - 1, ROWS, BEAMS, WIDTH)), jnp.float32)
    one = dict(key_mask=jnp.ones((ROWS, 1), bool), positions=jnp.zeros((ROWS, 1), int))
    params = jax.tree.map(jnp.asarray, params_of(heads, x[0, :, :1], **one, method="extend"))
    more = {}
    if scheme is not None:
        fixed = lambda distance: -jnp.abs(distance[..., None, :, :]) * jnp.array([0.1, 0.3])[:, None, None]  # noqa: E731
        more["bias"] = fixed
    call = functools.partial(heads.apply, {"params": params})

    @compiled
    def run(x):
        alone = jax.tree.map(lambda x: jnp.repeat(x[:, None], BEAMS, axis=1), call(ROWS, STEPS, method="start"))
        nothing = jnp.zeros(ROWS, jnp.int32)
        state = BeamState.of((call(ROWS, BEAMS * 2, method="start"),), nothing, nothing - 1, BEAMS, 2, first=0)
        found = []
        for step in range(STEPS - 1):
            if step == 2:
                state = state.grown((call(state.caches[0], state.places(STEPS), method="grow"),), STEPS)
            parent = jnp.asarray(PARENTS[step])
            alone = jax.tree.map(lambda x: jax.vmap(lambda rows, i: rows[i])(x, parent), alone)  # noqa: B023
            given = dict(key_mask=jnp.ones((ROWS, 1), bool), positions=jnp.full((ROWS, 1), step))

            def extend(cache, x, given=given):
                cache, attended = call(x[:, None], cache=cache, **given, **more, method="extend")
                return cache, attended.context[:, 0]

            alone, expected = jax.vmap(extend, 1, 1)(alone, x[step])
            state, branch = state.follow(parent)
            given = dict(key_mask=jnp.ones((ROWS, BEAMS), bool), positions=state.positions, cache=state.caches[0])
            cache, attended = call(x[step], **given, **more, branch=branch, method="extend")
            state = state.after_step((cache,))
            found.append((attended.context, expected))
        return found

    for got, expected in run(x):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def search(model, params, source, beams, *, growth):
    """The hypotheses of a search; without growth the way of every model: caches of their own, with room for all."""
    options = dict(max_length=7, limits=np.array([7, 5, 7, 0], np.int32)[: len(source)], bos=2, eos=EOS, pad=PAD)
    method = functools.partial(beam_search, beam_size=beams, length_penalty=0.6) if beams else greedy
    if growth:
        return method(**begin(model, params, source, 7, beams), **options)
    memory, state = model.start(params, source, 7)
    return method(functools.partial(model.step_top_k, params), memory, state, **options)


def same(model, params, source, beams):
    both = compiled(lambda params: [search(model, params, source, beams, growth=growth) for growth in (True, False)])
    got, expected = both(params)
    np.testing.assert_array_equal(got.tokens, expected.tokens)
    np.testing.assert_allclose(got.log_prob, expected.log_prob, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_search_that_grows_finds_what_one_with_all_room_finds(name, beams, monkeypatch):
    monkeypatch.setattr(decode, "FIRST_ROOM", 2)
    assert decode.rooms_of(7) == [2, 4, 7]
    model, params = model_of(name)
    same(model, params, jnp.asarray(sentences(LENGTHS, 8, 7)["source"]), beams)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [0, 3])
def test_beams_share_a_prompt(beams, monkeypatch):
    monkeypatch.setattr(decode, "FIRST_ROOM", 2)
    options = dict(continue_source=True, share_embeddings=False, source_vocab=TARGET_VOCAB, **SMALL_STACK)
    model = build(name="language_model", **options, attention=DOT)
    params = random_params(model, sentences(LENGTHS, 8, 7), scale=0.4)
    assert model.follows_beams
    same(model, params, jnp.array([[5, 7, EOS, PAD], [9, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]], jnp.int32), beams)


def test_rooms_double_and_end_at_the_largest_length():
    assert [decode.rooms_of(n) for n in (1, 16, 24, 34, 100)] == [[1], [16], [24], [16, 34], [16, 32, 64, 100]]
