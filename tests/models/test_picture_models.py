"""Every family that has an encoder reads images: cells are keys like any others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_run import fitted

from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.runs.options import change, default_config, resolve, schema_of
from attn_jax.types import Picture

SIZES = TextSizes(9, 8, image=(8, 12, 3))
SMALL = {
    "model.embedding_size": 6,
    "model.hidden_size": 8,
    "model.readout_size": 8,
    "model.decoder.readout_size": 8,
    "model.dropout": 0.0,
    "model.encoder.num_heads": 2,
    "model.encoder.feed_forward_size": 8,
    "model.decoder.num_heads": 2,
    "model.decoder.feed_forward_size": 8,
    "model.picture.grid.channels": (4,),
    "model.picture.grid.kernels": (3,),
    "model.picture.grid.strides": (4,),
    "model.picture.grid.patch_size": 4,
    "model.objective.baseline.features": 4,
    "decode.max_length": 6,
}


def build(family="seq2seq", sizes=SIZES, **changes):
    given = {"model__encoder": "none"} | changes
    return resolve(known(family, **given)).build_model(sizes)


def known(family, **changes):
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return fitted(default_config("scenes", family), SMALL, changes)


def batch_of(seed=0, asks=True):
    rng = np.random.default_rng(seed)
    pixels = jnp.asarray(rng.integers(0, 256, (3, 8, 12, 3)), jnp.uint8)
    words = jnp.array([[4, 5, 3], [6, 3, 0], [7, 8, 3]], jnp.int32)[:, : 3 if asks else 0]
    out = jnp.array([[4, 5, 3, 0], [6, 3, 0, 0], [7, 4, 5, 3]], jnp.int32)
    shifted = jnp.concatenate([jnp.full((3, 1), 2, jnp.int32), out[:, :-1]], axis=1)
    return {"source": Picture(pixels, words), "target_in": jnp.where(out > 0, shifted, 0), "target_out": out}


def params_of(model, batch):
    return fill(jax.eval_shape(model.init, jax.random.key(0), batch), 0, 0.5)


FAMILIES = {
    "seq2seq": {},
    "transformer": {"model__encoder": "transformer", "model__picture__grid": "patches"},
    "classifier": {"model__pooling": "structured"},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_attends_to_cells_and_words_and_not_to_padding(family):
    """And decodes step by step as in the pass that is given the targets, in a source with more padding."""
    model, batch = build(family, **FAMILIES[family]), batch_of()
    longer = batch["source"]._replace(words=jnp.pad(batch["source"].words, ((0, 0), (0, 2))))

    @compiled
    def run(params):
        memory, state = model.start(params, longer)
        _, log_probs = jax.lax.scan(functools.partial(model.step, params, memory), state, batch["target_in"].T)
        own = model.attention_weights(params, batch), model.loss_fn(params, batch, jax.random.key(1))[1]["nll"]
        return *own, log_probs

    weights, nll, log_probs = run(params_of(model, batch))
    assert weights.shape == (3, 4, 6 + 3)
    np.testing.assert_allclose(weights[1, :, 8], 0, atol=1e-7)
    np.testing.assert_allclose(weights[:, 0].sum(-1), 1, rtol=1e-5)
    targets = np.asarray(batch["target_out"])[:, : 1 if model.one_token else 4]
    own = np.take_along_axis(log_probs.swapaxes(0, 1)[:, : targets.shape[1]], targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(nll.total, -own[targets != 0].sum(), rtol=1e-5)


@pytest.mark.slow
def test_images_of_one_color_without_places_make_every_objective_equal():
    """With equal cells every context is the same, whatever is attended to and however it is trained."""
    sizes, batch = SIZES._replace(source_vocab_size=4), batch_of(asks=False)
    plain = jnp.broadcast_to(jnp.array([10, 99, 200], jnp.uint8), batch["source"].pixels.shape)
    batch["source"] = batch["source"]._replace(pixels=plain)
    options = {"model__picture__grid": "patches", "model__picture__places": "none"}
    read = {"model__objective__reading": "enumeration"}
    kinds = [{}, {"model__attention__normalize": "sparsemax"}]
    kinds += [{"model__objective": name} | read for name in ("marginal", "hard")]
    models = [build(sizes=sizes, **options, **changes) for changes in kinds]
    losses = compiled(lambda params: [m.loss_fn(params, batch, jax.random.key(0))[1]["nll"].total for m in models])
    first, *others = losses(params_of(models[0], batch))
    np.testing.assert_allclose(others, first, rtol=1e-5)


def test_the_picture_options_are_there_where_there_are_images():
    config = known("seq2seq", model__encoder="none")
    assert {"model.picture.grid.strides", "model.picture.places"} <= schema_of(config).keys()
    with pytest.raises(UserError, match=r"model\.picture\.grid\.patch_size; .* model\.picture\.grid patches"):
        change(config, {"model.picture.grid.patch_size": 4})
    texts = default_config("dates", "seq2seq")
    with pytest.raises(UserError, match=r"unknown config key model\.picture; it is for a task\.name with images"):
        change(texts, {"model.picture.grid": "patches"})


PATCHES_OF_5 = {"model__picture__grid": "patches", "model__picture__grid__patch_size": 5}
STRIDES = {"model__picture__grid__strides": (2, 2)}
MONOTONIC = {"model__attention__normalize": "monotonic"}
MARKOV = {"model__objective": "markov", "model__decoder__input_feeding": False}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("seq2seq", PATCHES_OF_5, "^model.picture.grid.patch_size: patches of 5 pixels do not divide an image of 12 x"),
        ("seq2seq", STRIDES, r"channels \(4,\), kernels \(3,\) and strides \(2, 2\): expected a number of at least 1"),
        ("seq2seq", {"model__picture__places": "sinusoidal"}, "sinusoidal needs vectors whose width 4 divides, got 6"),
        ("transformer", {"model__share_embeddings": True}, "needs texts on both sides, but the sources are images"),
        ("seq2seq", {"model__tags": "fed"}, "model.tags; it is for a task.name whose sources may have tags"),
        ("seq2seq", {"model__attention__wrappers": ("local_m",)}, "move along the words of a text; the source is an"),
        ("seq2seq", MONOTONIC, "move along the words of a text; the source is an image"),
        ("seq2seq", MARKOV, "move along the words of a text; the source is an image"),
    ],
)
def test_what_does_not_fit_is_one_line(family, changes, message):
    with pytest.raises(UserError, match=message):
        build(family, **changes)


@pytest.mark.slow
def test_annotations_that_no_encoder_changes_are_dropped_once():
    model = build(model__dropout=0.5, model__hidden_size=64, model__embedding_size=64)
    batch = batch_of(asks=False)
    params = params_of(model, batch)

    @compiled
    def states(rngs):
        apply = functools.partial(model.module.apply, {"params": params}, batch["source"], train=True, method="encode")
        return jax.vmap(lambda rng: apply(rngs={"dropout": rng}).states)(rngs)

    dropped = np.mean(states(jax.random.split(jax.random.key(1), 50)) == 0)
    assert abs(dropped - 0.5) < 0.02  # of 9,600 and more


def test_a_family_without_an_encoder_reads_no_images():
    for family, reads in (("language_model", "text"), ("recurrent_language_model", "text"), ("memn2n", "stories")):
        message = f"^model.name {family} reads {reads}, and task.name scenes has pictures; .* seq2seq or transformer"
        with pytest.raises(UserError, match=message):
            default_config("scenes", family)
