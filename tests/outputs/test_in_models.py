"""Every output layer in every kind of model: latent contexts, classifiers, Transformers, memory networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, PAD, build, random_params, sentences

from attn_jax.data.sizes import TextSizes
from attn_jax.outputs import OUTPUTS
from attn_jax.parts import fields_of
from attn_jax.runs.options import change, resolve
from configs.base import get_config

BATCH = sentences([(3, 4), (5, 2), (1, 3)], 5, 4)


def as_arrays(batch):
    return jax.tree.map(jnp.asarray, batch)


MODELS = {
    "soft": dict(name="seq2seq"),
    "marginal": dict(name="seq2seq", objective="marginal", decoder__input_feeding=False),
    "hard": dict(name="seq2seq", objective="hard", decoder__input_feeding=False),
    "transformer": dict(name="transformer", hidden_size=8),
    "language model": dict(name="language_model", hidden_size=8),
}
STORIES = ("memn2n", "dmn", "dmn_plus", "entnet", "universal")
# One of each kind of loss; the others differ by a function that test_sampled.py covers.
LAYERS = ("chunked", "nce", "hierarchical", "adaptive")


def options_of(name):
    return {"output": name} | ({"output__num_samples": 4} if "num_samples" in fields_of(OUTPUTS[name]) else {})


def gradient_of(model, params, batch):
    return jax.grad(lambda params: model.loss_fn(params, as_arrays(batch), jax.random.key(0))[0])(params)


# Every model, and every layer: what a layer needs of a model is the same for all.
PAIRS = list(zip(MODELS, ("nce", *LAYERS), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layer"), PAIRS)
def test_a_model_trains_and_its_decoding_agrees_with_its_evaluation(name, layer):
    model = build(**MODELS[name], **options_of(layer))
    params = random_params(model, as_arrays(BATCH))
    one = BATCH | {"target_out": np.where(np.arange(4) == 0, BATCH["target_out"], PAD)}

    @compiled
    def run(params):
        memory, state = model.start(params, jnp.asarray(BATCH["source"]))
        token = jnp.full(len(BATCH["source"]), BOS)
        _, log_probs = model.step(params, memory, state, token)
        best = model.step_top_k(params, memory, state, token, 3)[1:]
        return gradient_of(model, params, BATCH), log_probs, best, model.score(params, as_arrays(one))

    gradient, log_probs, (values, words), score = run(params)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient["output"]))
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(values, -np.sort(-log_probs, axis=-1)[:, :3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(log_probs, words, 1), values, rtol=1e-4, atol=1e-5)
    chosen = np.take_along_axis(log_probs, BATCH["target_out"][:, :1], 1)[:, 0]
    np.testing.assert_allclose(score, chosen, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["nce", "adaptive"])
def test_a_classifier_has_other_layers(layer):
    model = build(name="classifier", **options_of(layer))
    batch = {name: x if name == "source" else x[:, :2] for name, x in BATCH.items()}
    params = random_params(model, as_arrays(batch))

    @compiled
    def run(params):
        log_probs = model.start(params, jnp.asarray(batch["source"]))[0]
        return gradient_of(model, params, batch), log_probs, model._apply(params, as_arrays(batch), "evaluate")[0]

    gradient, log_probs, nll = run(params)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-4)
    chosen = np.take_along_axis(log_probs, batch["target_out"][:, :1], 1)[:, 0]
    np.testing.assert_allclose(-nll[:, 0], chosen, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_a_memory_network_has_other_layers(name):
    source = jnp.asarray([[7, 8, 4, 9, 8, 4, 6, 7, 5, 3], [9, 6, 4, 8, 7, 4, 6, 9, 5, 3]])
    batch = {"source": source, "target_in": source[:, :2], "target_out": jnp.asarray([[8, 3], [7, 3]])}
    config = get_config(task="babi", model=name)
    config.model.hidden_size = 8
    for layer in {"memn2n": ("chunked", "sampled"), "dmn": ("nce", "hierarchical")}.get(name, LAYERS[-1:]):
        changes = {f"model.{key.replace('__', '.')}": value for key, value in options_of(layer).items()}
        sizes = TextSizes(10, 10, longest_story=2, shortest_statement=3, target_counts=np.arange(10))
        model = resolve(change(config, changes)).build_model(sizes)
        params = random_params(model, batch)
        run = compiled(lambda p, m=model: (gradient_of(m, p, batch), m.answer(p, source).log_probs))
        gradient, log_probs = run(params)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
        np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-4)
