"""Sentence encoders: a statement is the state at its end, directions mirror each other, question words stand first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_stories import ID, VOCAB, batch_of

from attn_jax.data.vocabulary import PERIOD_ID
from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.models.memory_networks.base import find_sentences
from attn_jax.models.memory_networks.sentence_encoders import FusionEncoder, MaskedBag, WordEncoder, question_words

D = 4
STATEMENTS = ("mary moved to the garden", "john went", "john is the kitchen", "mary went to kitchen")


def sources(*orders, question="where is mary"):
    rows = [(" . ".join([*(STATEMENTS[i] for i in order), question]) + " ?", "garden", []) for order in orders]
    return jnp.asarray(batch_of(rows, 28)["source"])


def shapes_of(encoder, source):
    layout = find_sentences(source, 1)
    return jax.eval_shape(lambda: encoder.init(jax.random.key(0), source, layout))["params"]


def read(encoder, memory_size):
    return compiled(lambda p, source: encoder.apply({"params": p}, source, find_sentences(source, memory_size)))


@pytest.mark.slow
def test_a_statement_is_the_state_of_one_gru_at_its_period_and_the_question_begins_from_zero():
    encoder = WordEncoder(vocab_size=VOCAB, features=D, embedding_size=3, question_size=2)
    source = sources((0, 1, 2))
    params = fill(shapes_of(encoder, source))
    facts, question = read(encoder, 2)(params, source)

    ids = np.asarray(source[0])
    end = np.flatnonzero(ids == PERIOD_ID)

    @compiled
    def states(params, tokens):
        words = params["words"]["embedding"][tokens][None]
        mask = jnp.ones((1, len(tokens)), bool)
        return Recurrence(cell=CELLS["gru"], features=D).apply({"params": params["recurrence"]}, words, mask)[1][0]

    story = states(params, ids[: end[-1] + 1])
    np.testing.assert_allclose(facts[0], story[end[1:]], atol=1e-6)  # the memory has two slots
    last_words = [ID["is"], ID["mary"]]  # question_size is 2
    np.testing.assert_allclose(question[0], states(params, jnp.array(last_words))[-1], atol=1e-6)


def test_a_story_read_backwards_is_the_other_direction():
    """Statements in reverse, with both directions exchanged, are the same vectors in reverse."""
    encoder = FusionEncoder(vocab_size=VOCAB, features=D)
    source, reverse = sources((0, 1, 2)), sources((2, 1, 0))
    params = fill(shapes_of(encoder, source))
    mirrored = params | {"forward": params["backward"], "backward": params["forward"]}
    run = read(encoder, 5)
    facts, question = run(params, source)
    other, same = run(mirrored, reverse)
    np.testing.assert_allclose(other[:, :3], facts[:, 2::-1], atol=1e-5)
    np.testing.assert_array_equal(same, question)
    assert np.abs(run(params, reverse)[0][:, :3] - facts[:, 2::-1]).max() > 1e-2


def test_a_sentence_is_the_masked_sum_of_its_words():
    encoder = MaskedBag(vocab_size=VOCAB, features=D, sentence_size=3)
    source = sources((0, 1), question="where is mary the john")
    params = fill(shapes_of(encoder, source))
    statements, question = read(encoder, 3)(params, source)
    table = params["words"]["embedding"]

    def by_hand(text, change):
        words = table[[ID[word] for word in text.split()]]
        factors = np.ones_like(words)
        factors[:3] += change[: len(words)]
        return (words * factors).sum(0)

    expected = [by_hand(text, params["statement_change"]) for text in STATEMENTS[:2]]
    np.testing.assert_allclose(statements[0], [*expected, np.zeros(D)], atol=1e-6)
    np.testing.assert_allclose(question[0], by_hand("where is mary the john", params["question_change"]), atol=1e-6)
    plain = read(encoder, 3)(
        jax.tree.map(lambda x: x, params) | {k: 0 * v for k, v in params.items() if "change" in k}, source
    )
    np.testing.assert_allclose(plain[0][0, 1], table[ID["john"]] + table[ID["went"]], atol=1e-6)


def test_the_words_of_a_question_stand_first_and_the_last_of_them_count():
    source = sources((0,), (0, 1, 2))

    @compiled
    def run(source):
        words = source[..., None].astype(jnp.float32)
        layout = find_sentences(source, 2)
        return [question_words(words, layout, size) for size in (2, 5)]

    (short, short_mask), (long, long_mask) = run(source)
    ids = [ID[word] for word in ("where", "is", "mary")]
    for row in range(2):
        assert short[row, :, 0].tolist() == ids[1:] and short_mask[row].all()
        assert long[row, :, 0].tolist() == [*ids, 0, 0] and long_mask[row].tolist() == [True] * 3 + [False] * 2
