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

from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.runs.options import change, resolve
from configs import base

TOGETHER = {
    "bounded, selected, iterated, gated lines": dict(
        score="qk_norm",
        normalize="learned_sink",
        wrappers=("softcap", "top_keys", "hopfield", "line", "gate"),
        **{
            "wrappers.parts.softcap.softcap": 5.0,
            "wrappers.parts.top_keys.count": 2,
            "wrappers.parts.top_keys.keys_per_block": 2,
            "wrappers.parts.hopfield.iterations": 2,
        },
    ),
    "a difference of broken sticks": dict(score="scaled_dot", normalize="stick_breaking", wrappers=("difference",)),
}


FIRST, SECOND = TOGETHER


def layers(**options):
    """Options of both sides of a Transformer."""
    return {f"{side}__{key}": value for side in ("encoder", "decoder") for key, value in options.items()}


HEADS = dict(hidden_size=8, num_heads=2)
TRANSFORMER = dict(encoder="transformer", hidden_size=8, **layers(num_heads=2))
SENTENCES = {
    "transformer": TRANSFORMER | layers(feed_forward_size=6, positions="forgetting"),
    "language_model": dict(feed_forward_size=6, **HEADS),
    "seq2seq": dict(decoder="bahdanau"),
    "classifier": dict(pooling="structured", pooling__num_queries=2),
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
@pytest.mark.parametrize(
    ("name", "together"),
    [*((name, FIRST) for name in SENTENCES | STORIES), ("transformer", SECOND), ("entnet", SECOND)],
)
def test_every_family_takes_them(name, together):
    """All of the many; of a difference, which has two scores for each key, a family of either kind."""
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
@pytest.mark.parametrize("normalize", ["linear", "unnormalized_sigmoid"])
def test_the_entropy_of_weights_that_are_no_distribution_is_that_of_their_shares(normalize):
    batch = sentences([(5, 4), (3, 2)], 6, 5)
    model = build(name="seq2seq", decoder="bahdanau", attention=dict(normalize=normalize))
    weights, entropy = measured(model, batch, lambda model, *args: model.attention_weights(*args))
    assert np.any(np.abs(weights.sum(-1) - 1)[:, :2] > 0.1)
    assert np.any(weights < 0) == (normalize == "linear")
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
    "contexts": dict(decoder="luong", decoder__input_feeding=False, objective="hard"),
    "trajectories": dict(decoder="bahdanau", objective="trajectory"),
}


@pytest.mark.parametrize(
    ("name", "baseline"), [("contexts", "learned"), ("contexts", "critic"), ("trajectories", "learned")]
)
def test_all_that_a_learned_baseline_adds_to_a_model_is_in_one_place(name, baseline):
    """Where an optimizer finds it, to clip it by itself."""
    batch = sentences([(5, 4), (3, 2)], 6, 5)
    options = dict(encoder="gru", encoder__bidirectional=False, decoder__cell="gru") | LATENT[name]

    def paths(baseline):
        model = build(**options, objective__reading__num_samples=2, objective__baseline=baseline)
        return set(flatten_dict(jax.eval_shape(model.init, jax.random.key(0), batch)))

    added = paths(baseline) - paths("none")
    assert added and all("baseline" in path for path in added)


def refused(name="seq2seq", **options):
    return lambda: build(name=name, **options)


REFUSED = {
    r"model\.attention\.wrappers gate acts on the mean context": refused(
        objective="hard", attention=dict(wrappers=("gate",))
    ),
    r"model\.objective needs weights that are never negative, unlike those of Fitted \(LocalLine\)": refused(
        objective="hard", attention=dict(wrappers=("line",))
    ),
    r"model\.objective needs weights that sum to one, unlike those of softpick": refused(
        objective="hard", attention=dict(normalize="softpick")
    ),
    r"model\.attention\.normalize monotonic makes the weights by itself; .*, got top_keys": refused(
        attention=dict(normalize="monotonic", wrappers=("top_keys",))
    ),
    r"selective selects by the first of several heads": refused(attention=dict(wrappers=("selective",))),
    r"model\.attention: read=top needs weights that are never negative": refused(
        objective="top", attention=dict(wrappers=("line",))
    ),
    r"model\.attention: block_size needs weights that can be .* unlike those of Difference": refused(
        attention=dict(wrappers=("difference",), block_size=2)
    ),
    r"model\.attention: block_size needs weights .* unlike those of stick_breaking": refused(
        attention=dict(normalize="stick_breaking", block_size=2)
    ),
    r"takes half of the columns of a query each; they are 7": refused(
        hidden_size=7, encoder__bidirectional=False, attention=dict(wrappers=("difference",))
    ),
    r"model\.episode gru reads the weights alone": lambda: story_model("dmn", attention=dict(wrappers=("gate",))),
    r"selective needs causal keys.*: choose it for the decoder alone, model\.decoder\.attention=map": refused(
        "transformer", attention=dict(wrappers=("selective",)), **TRANSFORMER
    ),
    r"model\.attention\.wrappers; it is an option of model\.attention map": refused(
        "language_model", attention__name="delta", attention=dict(wrappers=("selective",)), **HEADS
    ),
    r"model\.attention\.wrappers difference has two scores for each key; selective needs one": refused(
        "language_model", attention=dict(wrappers=("difference", "selective")), **HEADS
    ),
    r"model\.encoder conv has no attention that these model\.encoder\.positions could be part of": refused(
        encoder="conv", encoder__positions="forgetting"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_one_line(message):
    with pytest.raises(UserError, match=message) as error:
        REFUSED[message]()
    assert "\n" not in str(error.value)
