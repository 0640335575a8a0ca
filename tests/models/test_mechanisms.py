"""Mechanisms that are options of attention are options of every family that reads by it, with a gradient for all
parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from flax.traverse_util import flatten_dict
from tiny_seq2seq import build, random_params, sentences
from tiny_stories import VOCAB, random_batch

from attn_jax.cli.options import change, resolve
from attn_jax.errors import UserError
from attn_jax.tasks.sizes import TextSizes
from configs import base

TOGETHER = {
    "bounded, selected, iterated, gated lines": dict(
        score="qk_norm",
        softcap=5.0,
        normalize="learned_sink",
        top_keys=2,
        keys_per_block=2,
        iterations=2,
        gate=True,
        fit="line",
    ),
    "a difference of broken sticks": dict(score="scaled_dot", normalize="stick_breaking", difference=True),
}
HEADS = dict(hidden_size=8, num_heads=2)
SENTENCES = {
    "transformer": dict(encoder="transformer", feed_forward_size=6, positions="forgetting", **HEADS),
    "language_model": dict(feed_forward_size=6, **HEADS),
    "seq2seq": dict(decoder="bahdanau"),
    "classifier": dict(pooling="structured", num_queries=2),
}
STORIES = {
    "memn2n": dict(),
    "dmn": dict(episode="soft", attention=dict(score="general")),
    "entnet": dict(num_slots=3),
    "universal": dict(num_heads=2, feed_forward_size=6),
}


def story_model(name, attention=(), **options):
    config = base.get_config(task="babi", model=name)
    options = {"hidden_size": 8, **options} | {f"attention.{key}": value for key, value in dict(attention).items()}
    config = change(config, {f"model.{key}": value for key, value in options.items()})
    return resolve(config).build_model(TextSizes(VOCAB, VOCAB, longest_story=4, shortest_statement=4))


def model_and_batch(name, attention):
    if name in SENTENCES:
        batch = sentences([(5, 4), (3, 2)], 6, 5)
        batch = batch if name != "classifier" else batch | {k: batch[k][:, :2] for k in ("target_in", "target_out")}
        return build(name=name, attention=attention, **SENTENCES[name]), batch
    options = dict(STORIES[name])
    return story_model(name, attention | options.pop("attention", {}), **options), random_batch(0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("name", SENTENCES | STORIES)
def test_every_family_takes_them(name, together):
    model, batch = model_and_batch(name, TOGETHER[together])
    batch = jax.tree.map(jnp.asarray, batch)
    params = random_params(model, batch, seed=1)
    value, gradient = compiled(jax.value_and_grad(lambda p: model.loss_fn(p, batch, jax.random.key(0))[0]))(params)
    assert np.isfinite(value)
    for path, leaf in flatten_dict(gradient).items():
        assert np.all(np.isfinite(leaf)) and np.any(leaf), path


def measured(model, batch, weights):
    """(weights, entropies of the batch) of random parameters, large enough for weights of all signs and sizes."""

    def both(params, batch):
        return weights(model, params, batch), model.eval_each(params, batch)["attention_entropy"]

    batch = jax.tree.map(jnp.asarray, batch)
    return compiled(both)(random_params(model, batch, scale=1.5), batch)


def entropy_of_shares(weights):
    """The entropy of |w| / sum |w|; 0 for a row of zeros."""
    shares = np.abs(weights.astype(np.float64))
    shares /= np.maximum(shares.sum(-1, keepdims=True), 1e-30)
    found = -np.sum(shares * np.log(np.maximum(shares, 1e-30)), axis=-1)
    assert found.min() > -1e-9 and found.max() < np.log(weights.shape[-1]) + 1e-9
    return found


@pytest.mark.slow
@pytest.mark.parametrize("attention", [dict(normalize="linear"), dict(normalize="unnormalized_sigmoid")], ids=str)
def test_the_entropy_of_weights_that_are_no_distribution_is_that_of_their_shares(attention):
    batch = sentences([(5, 4), (3, 2)], 6, 5)
    model = build(name="seq2seq", decoder="bahdanau", attention=attention)
    weights, entropy = measured(model, batch, lambda model, *args: model.attention_weights(*args))
    assert np.any(np.abs(weights.sum(-1) - 1)[:, :2] > 0.1)
    assert np.any(weights < 0) == (attention["normalize"] == "linear")
    real = batch["target_out"] != 0
    np.testing.assert_allclose(entropy.total, np.sum(entropy_of_shares(weights) * real, axis=1), rtol=1e-4)


def test_the_entropy_of_gates_is_that_of_their_shares():
    model = story_model("dmn", attention=dict(normalize="logistic"))
    weights, entropy = measured(
        model, random_batch(0, 3), lambda model, params, batch: model.answer(params, batch["source"]).hops
    )
    assert np.any(weights.sum(-1) > 1.1)
    np.testing.assert_allclose(entropy.total, entropy_of_shares(weights).mean(-1), rtol=1e-4)


LATENT = {
    "contexts": dict(decoder="luong", input_feeding=False),
    "trajectories": dict(decoder="bahdanau", attention=dict(feed="read")),
}


@pytest.mark.parametrize(
    ("name", "baseline"), [("contexts", "learned"), ("contexts", "critic"), ("trajectories", "learned")]
)
def test_all_that_a_learned_baseline_adds_to_a_model_is_in_one_place(name, baseline):
    """Where an optimizer finds it, to clip it by itself."""
    batch = sentences([(5, 4), (3, 2)], 6, 5)
    options = dict(objective="hard", cell="gru", bidirectional=False) | LATENT[name]

    def paths(baseline):
        attention = dict(options.get("attention", {}), read="reinforce", num_samples=2, baseline=baseline)
        model = build(**options | {"attention": attention})
        return set(flatten_dict(jax.eval_shape(model.init, jax.random.key(0), batch)))

    added = paths(baseline) - paths("none")
    assert added and all("baseline" in path for path in added)


REFUSED = {
    r"model\.attention\.gate multiplies the mean context": lambda: build(
        objective="hard", attention=dict(gate=True, read="reinforce")
    ),
    r"weights that sum to one; those of model\.attention\.fit line": lambda: build(
        objective="hard", attention=dict(fit="line", read="reinforce")
    ),
    r"weights that sum to one; those of model\.attention\.normalize softpick": lambda: build(
        objective="hard", attention=dict(normalize="softpick", read="reinforce")
    ),
    r"model\.attention\.normalize monotonic makes the weights by itself": lambda: build(
        attention=dict(normalize="monotonic", top_keys=2)
    ),
    r"needs model\.attention\.top_keys 0, got 2": lambda: build(
        objective="marginal",
        input_feeding=False,
        attention=dict(transition="monotonic", read="enumeration", top_keys=2),
    ),
    r"model\.attention: read=top needs weights that are never negative": lambda: build(
        attention=dict(fit="line", read="top")
    ),
    r"model\.attention: block_size needs weights that can be .* unlike those of Difference": lambda: build(
        attention=dict(difference=True, block_size=2)
    ),
    r"model\.attention: block_size needs weights .* unlike those of stick_breaking": lambda: build(
        attention=dict(normalize="stick_breaking", block_size=2)
    ),
    r"takes half of the columns of a query each; they are 7": lambda: build(
        hidden_size=7, bidirectional=False, attention=dict(difference=True)
    ),
    r"model\.episode gru reads the weights alone": lambda: story_model("dmn", attention=dict(gate=True)),
    r"selective needs causal keys.*: model\.decoder_attention\.selective is of the decoder alone": lambda: build(
        name="transformer", encoder="transformer", attention=dict(selective=True), **HEADS
    ),
    r"model\.attention\.memory delta has no scores to select by": lambda: build(
        name="language_model", attention=dict(selective=True, memory="delta"), **HEADS
    ),
    r"model\.attention\.difference has two scores for each key; selective needs one": lambda: build(
        name="language_model", attention=dict(selective=True, difference=True), **HEADS
    ),
    r"model\.encoder conv has no attention that model\.positions forgetting": lambda: build(
        encoder="conv", positions="forgetting"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_one_line(message):
    with pytest.raises(UserError, match=message) as error:
        REFUSED[message]()
    assert "\n" not in str(error.value)
