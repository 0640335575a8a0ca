"""Models that copy: steps are the whole pass, both ends of the gate, coverage by hand, decoding, errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, EOS, PAD, TARGET_VOCAB, build, random_params, sentences

from attn_jax.decoding.beam_search import beam_search
from attn_jax.errors import UserError
from attn_jax.outputs.pointer import coverage_loss, scatter

BATCH = sentences([(7, 3), (4, 6), (0, 0)], 8, 7)  # source, target; the last row is padding
REAL = BATCH["target_out"] != PAD
ON_DEVICE = jax.tree.map(jnp.asarray, BATCH)
COPY = dict(objective="copy")
COVERED = dict(COPY, decoder__extras=("coverage",), penalties=("coverage",), penalties__parts__coverage__weight=0.5)
GRU = dict(encoder="gru", encoder__bidirectional=False, decoder__cell="gru")
LUONG = dict(GRU, decoder="luong", decoder__input_feeding=False)
HEADS = {
    f"{side}__{key}": x for side in ("encoder", "decoder") for key, x in (("num_heads", 2), ("feed_forward_size", 12))
}
TRANSFORMER = dict(name="transformer", encoder="transformer", hidden_size=8, pointer="copy", **HEADS)
MODELS = {
    "luong, coverage": dict(LUONG, attention=dict(score="additive"), **COVERED),
    "bahdanau, coverage": dict(GRU, decoder="bahdanau", attention=dict(score="additive"), **COVERED),
    "transformer": dict(TRANSFORMER, attention=dict(score="scaled_dot")),
}
PLACE = {name: ("pointer",) if name == "transformer" else ("objective", "pointer") for name in MODELS}


def with_bias(name, params, bias):
    """The parameters with a gate that is sigmoid(bias) everywhere."""
    place = functools.reduce(lambda tree, key: tree[key], PLACE[name], params)
    gate = {"kernel": 0 * place["gate"]["kernel"], "bias": np.full(1, bias, np.float32)}
    changed = functools.reduce(lambda inner, key: {key: inner}, reversed(PLACE[name]), {"gate": gate})
    return merge(params, changed)


def merge(tree, changes):
    return tree | {key: merge(tree[key], x) if isinstance(x, dict) else x for key, x in changes.items()}


@functools.cache
def measured(name):
    model = build(**MODELS[name])
    params = random_params(model, BATCH)

    def whole(module, batch):
        if name == "transformer":
            log_probs, weights = module.predict(batch["source"], batch["target_in"])
            states, _ = module.unroll(batch["source"], batch["target_in"])
            return log_probs, weights, module.log_probs(states)
        memory, steps = module.unroll(batch["source"], batch["target_in"])
        log_probs = module.objective.log_probs(module.make_readout(), memory, steps)
        return log_probs, steps.weights, module.log_probs(steps.readout)

    @compiled
    def run(params):
        memory, state = model.start(params, ON_DEVICE["source"])
        step = functools.partial(model.step, params, memory)
        last, steps = jax.lax.scan(step, state, ON_DEVICE["target_in"].T)
        log_probs, weights, generated = model.module.apply({"params": params}, ON_DEVICE, method=whole)
        return {
            "whole": log_probs,
            "weights": weights,
            "generated": generated,
            "steps": jnp.swapaxes(steps, 0, 1),
            "top": model.step_top_k(params, memory, state, jnp.full(3, BOS), 4)[1:],
            "eval": model.eval_fn(params, ON_DEVICE),
            "loss": model.loss_fn(params, ON_DEVICE, jax.random.key(0))[0],
            "coverage": getattr(last[0], "coverage", None) if isinstance(last, tuple) else None,
        }

    return run(params), run(with_bias(name, params, 30.0)), run(with_bias(name, params, -30.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_steps_and_losses_are_those_of_the_mixture_whose_gate_chooses_between_words_and_keys(name):
    result, generating, copying = measured(name)
    np.testing.assert_allclose(result["steps"][REAL], result["whole"][REAL], atol=2e-5)
    np.testing.assert_allclose(np.exp(result["whole"][REAL]).sum(-1), 1, rtol=1e-5)
    best = np.sort(result["steps"][:2, 0])[:, ::-1][:, :4]
    np.testing.assert_allclose(result["top"][0][:2], best, atol=1e-5)
    nll = -np.take_along_axis(result["whole"], BATCH["target_out"][..., None], axis=-1)[..., 0][REAL].sum()
    np.testing.assert_allclose([result["eval"]["loss"].total, result["loss"]], nll, rtol=1e-5)
    # A gate of one is the ordinary output, one of zero the attention.
    np.testing.assert_allclose(generating["whole"][REAL], generating["generated"][REAL], atol=1e-5)
    copied = np.where(BATCH["source"] < TARGET_VOCAB, BATCH["source"], 1)
    expected = np.asarray(scatter(jnp.asarray(copying["weights"]), jnp.asarray(copied)[:, None], TARGET_VOCAB))
    np.testing.assert_allclose(np.exp(copying["whole"])[REAL], expected[REAL], atol=1e-5)
    assert expected[REAL].std() > 0.05


def test_coverage_is_the_sum_of_the_earlier_weights_and_changes_the_next():
    result, _, _ = measured("luong, coverage")
    np.testing.assert_allclose(result["coverage"], result["weights"].sum(1), rtol=1e-5)
    plain = build(**LUONG, attention=dict(score="additive"), **COPY)
    params = random_params(build(**MODELS["luong, coverage"]), BATCH)
    without = {**params, "decoder": {k: v for k, v in params["decoder"].items() if k != "cover"}}
    weights = np.asarray(jax.jit(plain.attention_weights)(without, ON_DEVICE))
    np.testing.assert_allclose(weights[:2, 0], result["weights"][:2, 0], atol=1e-5)  # nothing is covered yet
    assert np.abs(weights[REAL] - result["weights"][REAL]).max() > 0.01


def test_the_penalty_is_zero_for_keys_read_once_and_one_a_step_for_a_key_read_again():
    np.testing.assert_allclose(coverage_loss(jnp.eye(3, 4)[None]), 0)
    again = jnp.broadcast_to(jnp.eye(1, 4), (1, 3, 4))
    np.testing.assert_allclose(coverage_loss(again), [[0, 1, 1]])
    by_hand = np.minimum([0.3, 0.7], [0.5, 0.5]).sum()
    np.testing.assert_allclose(coverage_loss(jnp.array([[[0.5, 0.5], [0.3, 0.7]]])), [[0, by_hand]], rtol=1e-6)


def test_the_penalty_of_weights_in_bfloat16_adds_up_many_small_ones():
    """In bfloat16 a coverage of 2 would stop growing by 1 / 256."""
    half = jnp.full((1, 1000, 1), 1 / 256, jnp.bfloat16).at[0, -1].set(8)
    np.testing.assert_allclose(coverage_loss(half)[0, -1], 999 / 256, rtol=1e-6)


@pytest.mark.slow
def test_the_beam_finds_sentences_with_their_own_probabilities():
    model = build(**MODELS["bahdanau, coverage"])
    params = random_params(model, BATCH)
    source = ON_DEVICE["source"][:2]

    @jax.jit
    def search(params):
        memory, state = model.start(params, source)
        step = functools.partial(model.step_top_k, params)
        options = dict(max_length=5, limits=jnp.full(2, 5), bos=BOS, eos=EOS, pad=PAD)
        found = beam_search(step, memory, state, beam_size=3, length_penalty=0.0, **options)
        tokens = found.tokens[:, 0]
        target_in = jnp.concatenate([jnp.full((2, 1), BOS), tokens[:, :-1]], axis=1)
        batch = {"source": source, "target_in": target_in, "target_out": tokens}
        return found.log_prob[:, 0], model.score(params, batch)

    log_prob, score = search(params)
    np.testing.assert_allclose(log_prob, score, rtol=1e-5)


TRIANGLES = {"score": "triangular", "normalize": "kernel_sum", "score.width": (1.0,)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(decoder="none", **COPY), "model.objective; it is for a model.decoder that attends to the source"),
        (dict(attention=dict(normalize="rela"), **COPY), "copy needs weights that sum to one, unlike those of rela"),
        (dict(attention=dict(wrappers=("local_p",)), **COPY), r"copy needs .*, unlike those of Windowed \(LocalP\)"),
        (dict(attention=TRIANGLES, **COPY), "copy needs weights that sum to one; those of the score Triangular"),
        (dict(output="nce", **COPY), "expected model.output full, chunked"),
        (dict(decoder="none", decoder__extras=("coverage",)), "model.decoder.extras; it is an option of"),
        (
            dict(decoder__extras=("coverage",), attention=dict(normalize="monotonic")),
            "model.decoder.extras coverage needs scores that make the weights",
        ),
        (dict(decoder="none", penalties=("coverage",)), "model.penalties; it is for a model.decoder that attends"),
        (dict(TRANSFORMER, decoder__extras=("coverage",)), "unknown config key model.decoder.extras"),
        (dict(TRANSFORMER, pointer="none", pointer__coverage_penalty=1.0), "penalty; it is an option of model.pointer"),
        (
            dict(TRANSFORMER, decoder__source_attention="linear"),
            "copy needs weights of the source; expected model.decoder.source_attention map",
        ),
    ],
)
def test_what_the_formula_does_not_allow_is_one_line(options, message):
    with pytest.raises(UserError, match=message):
        build(**options)
