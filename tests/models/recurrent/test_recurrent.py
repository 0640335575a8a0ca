"""Identities of the recurrent language model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, EOS, PAD, TARGET_VOCAB, build, random_params, sentences

BATCH = sentences([(3, 4), (5, 2), (1, 5)], 5, 5)


def model(**options):
    return build(name="recurrent_language_model", num_layers=2, **options)


def of(built):
    return random_params(built, jax.tree.map(jnp.asarray, BATCH))


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_step_by_step_is_teacher_forced(cell):
    built = model(cell=cell)
    params = of(built)
    state = built.start(params, jnp.asarray(BATCH["source"]))[1]
    step = jax.jit(lambda state, token: built.step(params, (), state, token))
    nll = compiled(lambda batch: built._apply(params, batch, "evaluate")[0])(BATCH)
    for t in range(5):
        state, log_probs = step(state, jnp.asarray(BATCH["target_in"][:, t]))
        np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
        real = BATCH["target_out"][:, t] != PAD
        chosen = np.take_along_axis(np.asarray(log_probs), BATCH["target_out"][:, t : t + 1], 1)[:, 0]
        np.testing.assert_allclose(chosen[real], -nll[real, t], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_best_tokens_of_a_step_are_those_of_all():
    built = model()
    params = of(built)
    memory, state = built.start(params, jnp.asarray(BATCH["source"]))
    token = jnp.asarray(BATCH["target_in"][:, 0])
    _, log_probs = built.step(params, memory, state, token)
    for k in (3, TARGET_VOCAB + 5):
        _, values, tokens = built.step_top_k(params, memory, state, token, k)
        expected = jax.lax.top_k(log_probs, min(k, TARGET_VOCAB))
        np.testing.assert_array_equal(tokens, expected[1])
        np.testing.assert_allclose(values, expected[0], rtol=1e-6)


@pytest.mark.slow
def test_padding_changes_nothing():
    built = model()
    params = of(built)
    wider = {name: np.pad(x, ((0, 0), (0, 3))) for name, x in BATCH.items()}
    short, long = (compiled(lambda batch: built.score(params, batch))(batch) for batch in (BATCH, wider))
    np.testing.assert_allclose(short, long, rtol=1e-5)


def test_no_state_knows_a_later_token():
    built = model()
    params = of(built)
    nll = compiled(lambda batch: built._apply(params, batch, "evaluate")[0])
    changed = BATCH | {"target_in": BATCH["target_in"].copy()}
    changed["target_in"][0, 3] = 5 + (BATCH["target_in"][0, 3] == 5)
    before, after = nll(BATCH)[0], nll(changed)[0]
    np.testing.assert_array_equal(before[:3], after[:3])
    assert before[3] != after[3]


def test_the_source_matters():
    built = model()
    params = of(built)
    changed = BATCH | {"source": np.where(BATCH["source"] == EOS, EOS, (BATCH["source"] > 0) * 7)}
    score = compiled(lambda batch: built.score(params, batch))
    assert np.all(score(BATCH)[:2] != score(changed)[:2])


@pytest.mark.slow
def test_it_continues_a_prompt_as_the_text_itself():
    """Decoding after a prompt of two words is the third step of the same text without a source."""
    built = model(continue_source=True, source_vocab=TARGET_VOCAB)
    params = of(built)
    text = [6, 9, 8]
    prompt, empty = (jnp.asarray([[*words, EOS, PAD]]) for words in (text[:2], []))
    empty = jnp.pad(empty, ((0, 0), (0, 2)))
    memory, state = built.start(params, prompt)
    state, log_probs = built.step(params, memory, state, jnp.asarray([BOS]))
    _, plain = built.start(params, empty)
    for token in (BOS, *text[:2]):
        plain, expected = built.step(params, (), plain, jnp.asarray([token]))
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5, atol=1e-6)
    _, after = built.step(params, (), state, jnp.asarray([text[2]]))
    _, last = built.step(params, (), plain, jnp.asarray([text[2]]))
    np.testing.assert_allclose(after, last, rtol=1e-5, atol=1e-6)
    batch = {"source": prompt, "target_in": jnp.asarray([[BOS, text[2]]]), "target_out": jnp.asarray([[text[2], EOS]])}
    np.testing.assert_allclose(built.score(params, batch), expected[:, text[2]] + last[:, EOS], rtol=1e-5)
