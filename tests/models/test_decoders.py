"""Every decoder with the attention that it may have: steps, padding, batches and causality.

For each case two programs are compiled, one for a padded batch and one for a single sentence of its own
length, and all tests look at what these return.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_seq2seq import BOS, TARGET_VOCAB, build, random_params, sentences

CASES = {
    "sutskever": dict(decoder="none", cell="lstm", num_layers=2, bidirectional=False, bridge="copy"),
    "cho": dict(decoder="none", cell="gru", feed_summary=True),
    "bahdanau": dict(decoder="bahdanau", cell="gru", attention=dict(score="additive")),
    "bahdanau, 2 layers, sparse": dict(
        decoder="bahdanau", cell="lstm", num_layers=2, attention=dict(score="scaled_dot", normalize="sparsemax")
    ),
    "luong": dict(decoder="luong", cell="peephole_lstm", num_layers=2, attention=dict(score="general")),
    "luong without input feeding, local-p": dict(
        decoder="luong", cell="lstm", input_feeding=False, attention=dict(score="concat", window="local_p")
    ),
    "luong, local-m": dict(
        decoder="luong", cell="rnn", bridge="zeros", attention=dict(score="location", window="local_m")
    ),
}
LENGTHS = [(7, 6), (4, 3), (1, 5), (0, 0), (7, 1), (3, 6)]
BATCH, SOURCE, TARGET = len(LENGTHS), 7, 6
BATCH_OF_ALL = sentences(LENGTHS, SOURCE, TARGET)
ROW = 1  # the one that is looked at alone
ALONE = jax.tree.map(lambda x: x[ROW : ROW + 1], BATCH_OF_ALL)
ALONE = {name: x[:, : LENGTHS[ROW][0 if name == "source" else 1]] for name, x in ALONE.items()}
# The same sentence in each row, and in row t only the loss at target position t.
BY_POSITION = {name: np.repeat(x[:1], TARGET, 0) for name, x in BATCH_OF_ALL.items()}
BY_POSITION["target_out"] = BY_POSITION["target_out"] * np.eye(TARGET, dtype=np.int32)


@pytest.fixture(scope="module", params=CASES)
def name(request):
    return request.param


@functools.cache
def programs(name):
    """(params, compiled forward pass, compiled steps and gradient)."""
    model = build(**CASES[name])
    params = random_params(model, BATCH_OF_ALL)

    def forward(params, batch):
        return model.score(params, batch), model.align(params, batch)

    def steps_and_gradient(params, batch):
        memory, state = model.start(params, batch["source"])
        step = lambda state, token: model.step(params, memory, state, token)  # noqa: E731
        _, log_probs = jax.lax.scan(step, state, batch["target_in"].T)

        def score(table):
            return model.score({**params, "target_embedding": {"embedding": table}}, batch)

        gradient = jax.jacrev(score)(params["target_embedding"]["embedding"])
        return jnp.swapaxes(log_probs, 0, 1), gradient

    return params, jax.jit(forward), jax.jit(steps_and_gradient)


@functools.cache
def results(name):
    """Of the padded batch: log p of each sentence, weights, log-probabilities of each step, gradients [b, v, e]."""
    params, forward, steps_and_gradient = programs(name)
    return *forward(params, BATCH_OF_ALL), *steps_and_gradient(params, BATCH_OF_ALL)


def test_step_by_step_is_teacher_forced(name):
    scores, _, log_probs, _ = results(name)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-4)
    target = BATCH_OF_ALL["target_out"]
    picked = np.take_along_axis(np.asarray(log_probs), target[..., None], -1)[..., 0]
    np.testing.assert_allclose(scores, np.sum(picked * (target != 0), -1), rtol=1e-4, atol=1e-5)


def test_a_padded_batch_is_its_sentences_one_by_one(name):
    params, forward, _ = programs(name)
    (score,), (weights,) = forward(params, ALONE)
    scores, all_weights, *_ = results(name)
    np.testing.assert_allclose(scores[ROW], score, rtol=1e-4)
    target, source = weights.shape
    np.testing.assert_allclose(all_weights[ROW, :target, :source], weights, rtol=1e-4, atol=1e-6)
    assert np.all(all_weights[ROW, :, source:] == 0)


def test_a_row_of_padding_weighs_nothing_and_nothing_is_nan(name):
    scores, weights, _, gradient = results(name)
    padding = LENGTHS.index((0, 0))
    assert scores[padding] == 0 and np.all(weights[padding] == 0) and np.all(gradient[padding] == 0)
    for array in results(name):
        assert np.all(np.isfinite(array))


def test_no_target_is_seen_before_its_time(name):
    """By the gradient of the loss at position t with respect to the embedding of the token at position j."""
    params, _, steps_and_gradient = programs(name)
    _, gradient = steps_and_gradient(params, BY_POSITION)
    tokens = BATCH_OF_ALL["target_in"][0]
    assert tokens[0] == BOS and len(set(tokens)) == TARGET
    seen = np.any(gradient[:, tokens] != 0, axis=-1)  # [t, j]
    np.testing.assert_array_equal(seen, np.tri(TARGET, dtype=bool))
    unused = np.setdiff1d(np.arange(TARGET_VOCAB), tokens)
    assert np.all(gradient[:, unused] == 0)


def test_weights_are_distributions_over_the_source(name):
    _, weights, *_ = results(name)
    sums = np.asarray(weights.sum(-1))
    real = np.array([source > 0 for source, _ in LENGTHS])
    if CASES[name]["decoder"] == "none":
        np.testing.assert_array_equal(weights, 0)
    elif "window" in CASES[name]["attention"]:
        assert np.all(sums <= 1 + 1e-5) and np.all(sums[real, 0] > 0)
    else:
        np.testing.assert_allclose(sums, np.broadcast_to(real[:, None], sums.shape), rtol=1e-5)


def test_memory_and_state_have_the_batch_as_first_axis(name):
    """So that a search may reorder them without knowing what they are."""
    model = build(**CASES[name])
    params, source = programs(name)[0], BATCH_OF_ALL["source"]

    def leaves(params, source):
        return jax.tree.leaves(model.start(params, source))

    assert all(leaf.shape[0] == BATCH for leaf in jax.eval_shape(leaves, params, source))
