"""What a config computes, as a function of a flat table of parameters that are named as they were at the tag."""

import hashlib
import math
import pathlib
import zlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax.core.scope import LazyRng
from flax.traverse_util import flatten_dict, unflatten_dict
from tables import new_path
from test_configs import ROOT, shrunk

from attn_jax.data.pairs import Pairs
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import resolve
from attn_jax.runs.tree import keys

STEPS, RATE, EXAMPLES = 20, 0.05, 4
SAME = {"decode.max_length": 12, "decode.method": "greedy", "decode.batch_size": 8}
Table = dict[str, Any]  # old path -> array
Shapes = dict[str, list]  # old path -> [shape, type]


def record(name: str, folder: pathlib.Path, old: Shapes | None, texts: pathlib.Path | None) -> dict[str, Any]:
    """Records parameters, programs, losses, outputs and maps of a config. Randomness does not depend on module paths.

    Args:
        name: of the config.
        folder: for its files.
        old: shape and type of each parameter at the tag, by its path there; None: this is the tag.
        texts: a folder for the lowered programs; None: they are not written.
    """
    with mock.patch.object(LazyRng, "as_jax_rng", lambda self: self.rng):
        return _record(name, folder, old, texts)


def _record(name: str, folder: pathlib.Path, old: Shapes | None, texts: pathlib.Path | None) -> dict[str, Any]:
    config = shrunk(load_config_file(str(ROOT / "configs" / f"{name}.py")), folder)
    no_dropout = {key: 0.0 for key in keys(config) if key.split(".")[-1].endswith("dropout")}
    config.update_from_flattened_dict(no_dropout | {key: x for key, x in SAME.items() if key in keys(config)})
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    model = setup.model
    batches = task.batches(**setup.batch_options, seeds=(0,), row_multiple=1)
    now = flatten_dict(jax.eval_shape(model.init, jax.random.key(0), setup.example), sep="/")
    now = {path: [list(x.shape), str(x.dtype)] for path, x in now.items()}
    old = now if old is None else old
    if {new_path(path): shape for path, shape in old.items()} != now:
        unknown = sorted({*map(new_path, old)} ^ {*now}) or "shapes or types"
        raise ValueError(f"the parameters are others than tables.py says: {unknown}")
    table = {path: values_of(path, *old[path]) for path in sorted(old)}
    step, decode = train_step(model), decode_step(model)
    found: dict[str, Any] = {"parameters": old}
    batch = batches.batch_at(0)
    programs = {"train": (step, (table, batch, jnp.zeros((), jnp.int32))), "decode": None}
    if hasattr(model, "start"):
        programs["decode"] = decode, (table, batch["source"], jnp.zeros(len(batch["target_in"]), jnp.int32))
    for kind, program in programs.items():
        text = "" if program is None else jax.jit(program[0]).lower(*program[1]).as_text()
        found[kind] = hashlib.sha256(text.encode()).hexdigest()[:16]
        if texts is not None:
            texts.mkdir(parents=True, exist_ok=True)
            (texts / f"{name}.{kind}.txt").write_text(text)
    losses, compiled = [], jax.jit(step)
    for number in range(STEPS):
        table, loss = compiled(table, batches.batch_at(number), jnp.asarray(number, jnp.int32))
        losses.append(float(loss))
    assert all(map(math.isfinite, losses)), losses
    return found | {"losses": losses} | maps_of(setup, task, nested(table))


def values_of(path: str, shape: list[int], dtype: str) -> np.ndarray:
    """Samples the parameter of an old path: scales near 1, all else near 0."""
    rng = np.random.default_rng(zlib.crc32(path.encode()))
    return (0.2 * rng.normal(size=shape) + path.endswith("scale")).astype(dtype)


def nested(table: Table) -> dict[str, Any]:
    """Returns the parameters as the model has them now."""
    return unflatten_dict({new_path(path): x for path, x in table.items()}, sep="/")


def train_step(model: Any) -> Callable:
    """Returns a step of gradient descent: (table, batch, number) -> (table, loss of a token)."""

    def step(table: Table, batch: Any, number: Any) -> tuple[Table, Any]:
        def mean(table: Table) -> Any:
            rng = jax.random.fold_in(jax.random.key(1), number)
            total, metrics = model.loss_fn(nested(table), batch, rng, number)
            return total / jnp.maximum(metrics["loss"].count, 1)

        loss, gradient = jax.value_and_grad(mean)(table)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in gradient.values()))
        rate = RATE / jnp.maximum(norm, 1.0)
        return {path: x - rate * gradient[path] for path, x in table.items()}, loss

    return step


def decode_step(model: Any) -> Callable:
    """Returns the first step of decoding: (table, source, token) -> what the model offers a search."""

    def decode(table: Table, source: Any, token: Any) -> Any:
        params = nested(table)
        return model.step_top_k(params, *model.start(params, source, 12), token, 3)[1:]

    return decode


def maps_of(setup: Any, task: Any, params: Any) -> dict[str, Any]:
    """Records the outputs of some examples, and the names, shapes and weights of their maps, as a report has them."""
    split = task.splits["valid"]
    if isinstance(split, Pairs):
        split = split.select(range(min(EXAMPLES, len(split))))
    examples = setup.collector.collect(params, split)[:EXAMPLES]
    weights = [float(np.sum(np.square(one.weights, dtype=np.float64))) for each in examples for one in each.maps]
    return {
        "outputs": [one.output for one in examples],
        "maps": [[each.name, list(each.axes), list(each.weights.shape)] for one in examples for each in one.maps],
        "weights": weights + [one.loss for one in examples if math.isfinite(one.loss)],
    }
