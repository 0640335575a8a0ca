"""Runs of models of images are averaged whatever cells they see, and with glimpses in any order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_run import fitted

from attn_jax.data.sizes import TextSizes
from attn_jax.models.ensemble import MixedEnsemble, ensemble_of, stacked
from attn_jax.runs.options import default_config, resolve
from attn_jax.types import Picture

SIZES = TextSizes(9, 8, image=(16, 16, 3))
SMALL = {
    "model.embedding_size": 6,
    "model.hidden_size": 6,
    "model.readout_size": 6,
    "model.decoder.readout_size": 6,
    "model.dropout": 0.0,
    "model.encoder": "none",
    "model.picture.grid": "patches",
    "model.glimpse_features": 5,
    "model.num_glimpses": 2,
    "model.glimpse_size": 4,
    "model.num_scales": 1,
    "model.places": "grid",
    "model.grid": (4, 4),
    "model.objective.baseline": "none",
    "decode.max_length": 6,
}
COARSE, FINE = ({"model.picture.grid": "patches", "model.picture.grid.patch_size": size} for size in (4, 2))
MEMBERS = {
    "coarse": ("seq2seq", COARSE),
    "fine": ("seq2seq", FINE),
    "glimpses": ("glimpses", {}),
    "more glimpses": ("glimpses", {"model.num_glimpses": 3}),
    "coarse classifier": ("classifier", COARSE),
    "fine classifier": ("classifier", FINE),
}


PIXELS = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)), jnp.uint8)
BATCH = {  # images without questions, and a word of each, with its end
    "source": Picture(PIXELS, jnp.zeros((2, 0), jnp.int32)),
    "target_in": jnp.array([[2, 4], [2, 6]], jnp.int32),
    "target_out": jnp.array([[4, 3], [6, 3]], jnp.int32),
}


@functools.cache
def member(name):
    """(model, parameters)."""
    family, changes = MEMBERS[name]
    config = fitted(default_config("scenes", family), SMALL, changes)
    model = resolve(config).build_model(SIZES._replace(source_vocab_size=4))
    return model, fill(jax.eval_shape(model.init, jax.random.key(0), BATCH), list(MEMBERS).index(name), 0.7)


def mixed(*names):
    """(ensemble, parameters) of runs of one seed each, as `restore` makes it of decode.runs."""
    models, params = zip(*map(member, names), strict=True)
    return MixedEnsemble(models[0].module, tuple(map(ensemble_of, models))), tuple(stacked([own]) for own in params)


@pytest.mark.slow
def test_models_with_other_cells_are_evaluated_as_a_mixture_with_the_weights_of_the_first():
    ensemble, params = mixed("coarse", "fine")

    @compiled
    def run(params):
        found = [model._nll_and_weights(p, BATCH) for model, p in zip(ensemble.members, params, strict=True)]
        own = ensemble.eval_fn(params, BATCH), ensemble.attention_weights(params, BATCH), ensemble.score(params, BATCH)
        return found, own

    found, (metrics, mean_weights, scores) = run(params)
    own, weights = zip(*found, strict=True)
    assert [w.shape for w in weights] == [(2, 2, 16), (2, 2, 64)]
    expected = -np.log(np.mean(np.exp(-np.array(own, np.float64)), axis=0))
    np.testing.assert_allclose(metrics["loss"].compute(), expected.mean(), rtol=1e-5)
    assert abs(own[0].mean() - own[1].mean()) > 0.01
    np.testing.assert_allclose(mean_weights, weights[0], rtol=1e-5)
    np.testing.assert_allclose(scores, -expected.sum(axis=1), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("more glimpses", "glimpses"), ("coarse", "glimpses")], ids=" and ".join)
def test_the_path_of_an_ensemble_is_that_of_its_first_model_of_glimpses(names):
    ensemble, params = mixed(*names)
    model, own = member(next(name for name in names if "glimpses" in name))

    @compiled
    def run(params, own):
        def looks(model, params):
            return model.trajectory(params, BATCH["source"]), model.query_weights(params, BATCH["source"])

        return looks(ensemble, params), looks(model, own), ensemble.eval_fn(params, BATCH)["loss"]

    (path, looks), (expected, alone), loss = run(params, own)
    jax.tree.map(np.testing.assert_array_equal, path, expected)
    np.testing.assert_allclose(looks, alone, rtol=1e-5)
    assert looks.shape == (2, model.module.num_glimpses, 16) and np.isfinite(loss.compute())


@pytest.mark.slow
def test_queries_are_those_of_classifiers_that_see_the_cells_of_the_first():
    """Looks are no queries, and weights over other cells no columns."""
    ensemble, params = mixed("coarse classifier", "fine classifier", "glimpses", "coarse classifier")
    model, _ = member("coarse classifier")

    @compiled
    def run(params):
        own = jax.tree.map(lambda x: x[0], params[0])
        return ensemble.query_weights(params, BATCH["source"]), model.query_weights(own, BATCH["source"])

    found, alone = run(params)
    np.testing.assert_allclose(found, np.concatenate([alone, alone], axis=1), rtol=1e-5)
