"""Training and measurement of one cell."""

import base64
import math
import resource
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attn_jax.evaluation.provenance import provenance
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.model_size import num_parameters
from attn_jax.training.optimizers import adam, clip, cosine
from attn_jax.types import Float, Params
from experiments.matrix.columns import Column, Opened

RATES = (5e-4, 2e-3, 8e-3)
CHOOSING = 1000  # the seed that chooses the rate
WARMUP, CLIP = 100, 1.0
LOGGED = 50  # steps between two points of a curve
SHOWN = 64  # most tokens of the example whose weights are kept


def make_tx(num_steps: int) -> optax.GradientTransformation:
    """Makes Adam with warm-up and cosine decay, whose peak rate is a leaf of its state."""
    shape = cosine(1.0, min(WARMUP, num_steps // 10 + 1), num_steps)

    def of_rate(rate: Any) -> optax.GradientTransformation:
        schedule = optax.scale_by_learning_rate(lambda count: rate * shape(count))
        return optax.chain(clip(CLIP, False), adam(b1=0.9, b2=0.999, eps=1e-8), schedule)

    return optax.inject_hyperparams(of_rate)(rate=1.0)


def train(
    cell: Opened, seeds: Sequence[int], rates: Sequence[float], steps: int
) -> tuple[list[Params], Float[np.ndarray, "points members"]]:
    """Trains members side by side, each with its seed and its learning rate.

    Returns:
        (parameters of each member, losses of the training every LOGGED steps).
    """
    tx, batch_at = make_tx(steps), cell.batches(seeds)
    step = jax.jit(jax.vmap(make_train_step(cell.loss_fn, tx)), donate_argnums=0)

    def create(seed: int, rate: float) -> TrainState:
        init_rng, rng = jax.random.split(jax.random.key(seed))
        state = TrainState.create(cell.init(init_rng), tx, rng)
        hyperparams = state.opt_state.hyperparams | {"rate": jnp.asarray(rate, jnp.float32)}
        return state.replace(opt_state=state.opt_state._replace(hyperparams=hyperparams))

    states = [jax.jit(create)(seed, rate) for seed, rate in zip(seeds, rates, strict=True)]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    curve = []
    for number in range(steps):
        state, metrics = step(state, batch_at(number))
        if number % LOGGED == LOGGED - 1:
            curve.append(np.asarray(metrics["loss"].compute()))
    params = [jax.tree.map(lambda x, i=i: x[i], state.params) for i in range(len(seeds))]
    return params, np.array(curve).reshape(-1, len(seeds))


def measure(
    row: Mapping[str, Any],
    column: Column,
    *,
    data_dir: str = "",
    steps: int = 0,
    rates: Sequence[float] = RATES,
    **changes: Any,
) -> dict[str, Any]:
    """Chooses the learning rate, trains and measures a cell; returns the content of its file.

    With `steps` = 0 it trains as long as the column says.
    """
    steps = steps or column.steps
    begun, cell = time.monotonic(), column.open(row, data_dir, **changes)
    tried, _ = train(cell, (CHOOSING,) * len(rates), rates, steps)
    found = first(cell.score(tried, "valid"))
    # A member that has diverged is not chosen; the larger rate wins a tie.
    rate = max(zip(np.nan_to_num(found, nan=-np.inf), rates, strict=True))[1]
    params, curve = train(cell, column.seeds, (rate,) * len(column.seeds), steps)
    measured = {test: cell.score(params, test) for test in column.tests}
    others = {test: dict(list(found.items())[1:]) for test, found in measured.items()}
    beside = {test: {name: [number(x) for x in of] for name, of in found.items()} for test, found in others.items()}
    # A seed that has diverged has learned nothing.
    tests = {test: [x if math.isfinite(x) else 0.0 for x in first(found)] for test, found in measured.items()}
    return {
        "score": column.score_name,
        "changes": dict(row),
        "steps": steps,
        "rates": {str(rate): number(x) for rate, x in zip(rates, found, strict=True)},
        "rate": rate,
        "seeds": list(column.seeds),
        "tests": tests,
        "beside": beside,
        "losses": [[number(float(x)) for x in losses] for losses in curve.T],
        "weights": kept(cell.weights(params[0])),
        "num_parameters": num_parameters(params[0]),
        "minutes": round((time.monotonic() - begun) / 60, 2),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        **provenance(),
    }


def first(measures: Mapping[str, list[float]]) -> list[float]:
    """Returns the values of the first measure, the score."""
    return next(iter(measures.values()))


def number(x: float) -> float | None:
    """Returns a number as JSON can hold it: with four digits, and None for a member that has diverged."""
    return round(x, 4) if math.isfinite(x) else None


def kept(example: Mapping[str, Any]) -> dict[str, Any]:
    """Packs the weights of an example: one signed byte each, times `scale`, of the first SHOWN tokens.

    `tokens` are those of the keys, and of the queries unless these have their own.
    """
    maps = np.nan_to_num(np.asarray(example["maps"], np.float32)[:, :SHOWN, :SHOWN])
    scale = float(np.abs(maps).max()) or 1.0
    packed = np.round(127 * maps / scale).astype(np.int8)
    tokens = [str(token) for token in example["tokens"]][:SHOWN]
    queries = {"queries": [str(token) for token in example["queries"]][:SHOWN]} if "queries" in example else {}
    return queries | {
        "tokens": tokens,
        "shape": packed.shape[1:],
        "scale": round(scale / 127, 8),
        "layers": [base64.b64encode(layer.tobytes()).decode() for layer in packed],
    }
