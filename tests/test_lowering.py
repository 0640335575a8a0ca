"""The training step and the decoding step of every family lower for GPUs and TPUs, which need no such device here."""

import pathlib

import jax
import jax.numpy as jnp
import optax
import pytest
from jax._src.cudnn import fused_attention_stablehlo
from test_configs import CONFIGS, ROOT, shrunk

from attn_jax.attention.fused import fused_attention
from attn_jax.attention.masks import causal
from attn_jax.models.families import FAMILIES
from attn_jax.runs.build import Setup, build_setup, build_task
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import resolve
from attn_jax.training.loop import TrainState, make_train_step

PLATFORMS = ("cuda", "tpu")


def small(name: str, folder: pathlib.Path):
    return shrunk(load_config_file(str(ROOT / "configs" / f"{name}.py")), folder)


def config_of_each_family() -> dict[str, str]:
    """Family -> the first config that has it."""
    families = {name: load_config_file(str(ROOT / "configs" / f"{name}.py")).model.name for name in CONFIGS}
    return {family: next(name for name in CONFIGS if families[name] == family) for family in set(families.values())}


EACH = config_of_each_family()


def test_every_family_is_tried():
    # A language model of the other kind is tried by tests of models; it shares its layers with the Transformer.
    assert set(FAMILIES) - set(EACH) <= {"language_model"}


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(EACH))
def test_steps_lower(family, tmp_path):
    config = small(EACH[family], tmp_path)
    task = build_task(resolve(config))
    setup: Setup = build_setup(resolve(config), task.kept)
    batches = task.batches(**setup.batch_options, seeds=(0,), row_multiple=1)
    batch, model, tx = batches.batch_at(0), setup.model, optax.adam(1e-3)
    create = lambda rng, example: TrainState.create(model.init(rng, example), tx, rng)  # noqa: E731
    state = jax.eval_shape(create, jax.random.key(0), setup.example)
    lower(make_train_step(model.loss_fn, tx), state, batch)
    if not hasattr(model, "start"):
        return
    decode = lambda params, source, token: model.step_top_k(params, *model.start(params, source), token, 3)  # noqa: E731
    lower(decode, state.params, batch["source"], jnp.zeros(len(batch["target_in"]), jnp.int32))


def lower(function, *arguments):
    """Lowers a function for each platform; the text has a module."""
    traced = jax.jit(function).trace(*arguments)
    for platform in PLATFORMS:
        assert "module @jit" in traced.lower(lowering_platforms=(platform,)).as_text()[:200]


def _has_cudnn(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda *_: 91100)
    monkeypatch.setattr(fused_attention_stablehlo, "check_compute_capability", lambda *_: None)


@pytest.mark.parametrize(("dtype", "width", "length", "expected"), [
    (jnp.bfloat16, 64, 8, True),
    (jnp.float32, 64, 8, False),
    (jnp.bfloat16, 64, 7, False),  # no gradient with a mask and odd lengths
    (jnp.bfloat16, 256, 8, False),
])  # fmt: skip
def test_half_precision_and_even_lengths_are_computed_by_cudnn(dtype, width, length, expected, monkeypatch):
    _has_cudnn(monkeypatch)
    x = jax.ShapeDtypeStruct((2, 4, length, width), dtype)
    mask = jax.ShapeDtypeStruct((2, 1, length, length), jnp.bool_)
    total = lambda q, k, v, m: jnp.sum(fused_attention(q, k, v, scale=0.125, mask=m).astype(jnp.float32))  # noqa: E731
    traced = jax.jit(jax.grad(total, (0, 1, 2))).trace(x, x, x, mask)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert ("@__cudnn$fmha" in text) == expected


def test_cudnn_needs_no_array_of_all_pairs_for_a_mask_of_keys(monkeypatch):
    _has_cudnn(monkeypatch)
    x = jax.ShapeDtypeStruct((2, 4, 96, 64), jnp.bfloat16)
    key_mask = jax.ShapeDtypeStruct((2, 1, 96), jnp.bool_)

    def text(order):
        read = lambda q, m: fused_attention(q, q, q, scale=0.125, key_mask=m, mask=order)  # noqa: E731
        total = lambda q, m: jnp.sum(read(q, m).astype(jnp.float32))  # noqa: E731
        return jax.jit(jax.grad(total)).trace(x, key_mask).lower(lowering_platforms=("cuda",)).as_text()

    for order in (None, causal):
        assert "@__cudnn$fmha" in text(order) and "96x96" not in text(order)
