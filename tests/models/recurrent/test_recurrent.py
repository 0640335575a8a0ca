"""Identities of the recurrent language model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, EOS, PAD, TARGET_VOCAB, build, random_params, sentences

BATCH = sentences([(3, 4), (5, 2), (1, 5)], 5, 5)


def model(**options):
    built = build(name="recurrent_language_model", num_layers=2, **options)
    return built, random_params(built, jax.tree.map(jnp.asarray, BATCH))


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_step_by_step_is_teacher_forced_whatever_the_padding_and_sees_no_later_token(cell):
    built, params = model(cell=cell)
    later, source = BATCH["target_in"].copy(), np.where(BATCH["source"] == EOS, EOS, (BATCH["source"] > 0) * 7)
    later[0, 3] = 5 + (later[0, 3] == 5)
    batches = [BATCH, BATCH | {"target_in": later}, BATCH | {"source": source}]
    stack = jax.tree.map(lambda *x: np.stack([np.pad(each, ((0, 0), (0, 3))) for each in x]), *batches)

    @compiled
    def run(params, stack):
        memory, state = built.start(params, jnp.asarray(BATCH["source"]))
        best = [built.step_top_k(params, memory, state, stack["target_in"][0, :, 0], k)[1:] for k in (3, 99)]
        step = functools.partial(built.step, params, memory)
        _, log_probs = jax.lax.scan(step, state, jnp.asarray(BATCH["target_in"]).T)
        return log_probs, best, jax.vmap(lambda batch: built._apply(params, batch, "evaluate")[0])(stack)

    log_probs, best, (nll, changed, other) = run(params, stack)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    real = BATCH["target_out"] != PAD
    chosen = np.take_along_axis(log_probs.swapaxes(0, 1), BATCH["target_out"][..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen[real], -nll[:, :5][real], rtol=1e-4, atol=1e-5)
    for (values, tokens), k in zip(best, (3, TARGET_VOCAB), strict=True):
        expected = jax.lax.top_k(log_probs[0], k)
        np.testing.assert_array_equal(tokens, expected[1])
        np.testing.assert_allclose(values, expected[0], rtol=1e-6)
    np.testing.assert_array_equal(nll[0, :3], changed[0, :3])
    assert nll[0, 3] != changed[0, 3] and np.all(nll[:2, 0] != other[:2, 0])  # the source matters


@pytest.mark.slow
def test_it_continues_a_prompt_as_the_text_itself():
    """Decoding after a prompt of two words is the third step of the same text without a source."""
    built, params = model(continue_source=True, source_vocab=TARGET_VOCAB)
    text = [6, 9, 8]
    prompt, empty = jnp.asarray([[*text[:2], EOS, PAD]]), jnp.asarray([[EOS, PAD, PAD, PAD]])
    batch = {"source": prompt, "target_in": jnp.asarray([[BOS, text[2]]]), "target_out": jnp.asarray([[text[2], EOS]])}

    @compiled
    def run(params):
        def steps(source, tokens):
            memory, state = built.start(params, source)
            return jax.lax.scan(functools.partial(built.step, params, memory), state, jnp.asarray(tokens)[:, None])[1]

        return steps(prompt, [BOS, text[2]])[:, 0], steps(empty, [BOS, *text])[2:, 0], built.score(params, batch)

    found, expected, score = run(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(score, [expected[0, text[2]] + expected[1, EOS]], rtol=1e-5)
