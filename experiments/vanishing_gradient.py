"""How fast does the gradient of a late loss decay with distance, in a plain RNN, an LSTM and a GRU?

TODO
"""

import functools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.models.rnn import CELLS, Recurrence  # noqa: E402

NUM_SYMBOLS = 8


class Setting(NamedTuple):
    """Sizes of the experiment."""

    hidden_size: int = 32
    length: int = 129  # T: distances 0..T-1 are measured
    num_seeds: int = 5
    num_steps: int = 600
    batch_size: int = 32
    learning_rate: float = 5e-3


class Variant(NamedTuple):
    """A cell with the initial parameters of the package, or with some of them replaced."""

    label: str
    cell: str
    replace: Callable = lambda rng, params: params


def gaussian(radius):
    def replace(rng, params):
        d = params["kernel"].shape[0]
        return params | {"kernel": radius / d**0.5 * jax.random.normal(rng, params["kernel"].shape)}

    return replace


def forget_bias(value):
    def replace(rng, params):
        d = params["kernel"].shape[0]
        dense = params["input"]
        return params | {"input": dense | {"bias": dense["bias"].at[d : 2 * d].set(value)}}

    return replace


VARIANTS = (
    Variant("rnn", "rnn"),
    Variant("rnn, gaussian U, radius 0.5", "rnn", gaussian(0.5)),
    Variant("rnn, gaussian U, radius 1", "rnn", gaussian(1.0)),
    Variant("rnn, gaussian U, radius 2", "rnn", gaussian(2.0)),
    Variant("rnn, gaussian U, radius 3", "rnn", gaussian(3.0)),
    Variant("lstm", "lstm"),
    Variant("lstm, forget bias 0", "lstm", forget_bias(0.0)),
    Variant("lstm, forget bias 5", "lstm", forget_bias(5.0)),
    Variant("gru", "gru"),
)


def sequences(rng, distance, length):
    """inputs [b, t, 9]"""
    tokens = jax.random.randint(rng, (distance.shape[0], length), 0, NUM_SYMBOLS)
    place = length - 1 - distance
    flag = jnp.arange(length) == place[:, None]
    inputs = jnp.concatenate([jax.nn.one_hot(tokens, NUM_SYMBOLS), flag[..., None]], axis=-1)
    return inputs, jnp.take_along_axis(tokens, place[:, None], axis=1)[:, 0]


def gradient_norms(recurrence, params, inputs, readout):
    apply = functools.partial(recurrence.apply, {"params": params})
    projected = jnp.swapaxes(apply(inputs, method="project"), 0, 1)
    first = apply(inputs.shape[0], method="initial_state")

    def late_loss(nudges):
        def step(state, inputs):
            projected, nudge = inputs
            return jax.tree.map(jnp.add, apply(state, projected, method="step"), nudge), None

        last, _ = jax.lax.scan(step, first, (projected, nudges))
        return jnp.sum(last[0] * readout)

    nudges = jax.tree.map(lambda x: jnp.zeros((len(projected), *x.shape)), first)
    gradients = jnp.concatenate(jax.grad(late_loss)(nudges), axis=-1)
    return jnp.mean(jnp.linalg.norm(gradients, axis=-1), axis=1)[::-1]


def initialize(variant, setting, rng):
    rec = Recurrence(CELLS[variant.cell], setting.hidden_size)
    a, b, c = jax.random.split(rng, 3)
    x = jnp.zeros((1, 1, NUM_SYMBOLS + 1))
    p = rec.init(a, x, jnp.ones((1, 1), bool))["params"]
    return {
        "cell": variant.replace(b, p),
        "readout": jax.random.normal(c, (setting.hidden_size, NUM_SYMBOLS)) / setting.hidden_size**0.5,
    }


def logits(variant, setting, params, inputs):
    rec = Recurrence(CELLS[variant.cell], setting.hidden_size)
    last, _ = rec.apply({"params": params["cell"]}, inputs, jnp.ones(inputs.shape[:2], bool))
    return last[0] @ params["readout"]


def train(variant, setting, params, rng):
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(setting.learning_rate))

    def loss_fn(params, rng):
        a, b = jax.random.split(rng)
        u = jax.random.uniform(a, (setting.batch_size,))
        distance = jnp.floor(jnp.exp(u * jnp.log(setting.length))).astype(int) - 1
        inputs, answer = sequences(b, distance, setting.length)
        return optax.softmax_cross_entropy_with_integer_labels(logits(variant, setting, params, inputs), answer).mean()

    def update(carry, i):
        params, opt_state = carry
        loss, g = jax.value_and_grad(loss_fn)(params, jax.random.fold_in(rng, i))
        u, opt_state = tx.update(g, opt_state, params)
        return (optax.apply_updates(params, u), opt_state), loss

    (params, _), losses = jax.lax.scan(update, (params, tx.init(params)), jnp.arange(setting.num_steps))
    return params, losses


def measure(variant, setting, params, rng):
    rec = Recurrence(CELLS[variant.cell], setting.hidden_size)
    a, b, c = jax.random.split(rng, 3)
    inputs, _ = sequences(a, jnp.full(64, setting.length - 1), setting.length)
    r = jax.random.normal(b, (64, setting.hidden_size))
    r /= jnp.linalg.norm(r, axis=-1, keepdims=True)
    norms = gradient_norms(rec, params["cell"], inputs, r)
    d = jnp.repeat(jnp.array([1, 10, 50, 100]), 64)
    inputs, ans = sequences(c, d, setting.length)
    acc = (logits(variant, setting, params, inputs).argmax(-1) == ans).reshape(4, 64).mean(1)
    return norms, acc


if __name__ == "__main__":
    s = Setting()
    rngs = jax.random.split(jax.random.key(0), s.num_seeds)
    for v in VARIANTS:
        t0 = time.time()
        p = jax.vmap(functools.partial(initialize, v, s))(rngs)
        m = jax.jit(jax.vmap(functools.partial(measure, v, s)))
        n, acc = m(p, rngs)
        n = np.array(n)
        print(
            v.label,
            "init",
            np.exp(np.log(n).mean(0))[[0, 1, 10, 50, 100, 128]],
            acc.mean(0),
            f"{time.time() - t0:.1f}s",
            flush=True,
        )
        if v.label in ("rnn", "lstm", "gru"):
            t0 = time.time()
            p, l = jax.jit(jax.vmap(functools.partial(train, v, s)))(p, rngs)
            l = np.array(l)
            print("  losses", l.reshape(5, 6, -1).mean(2).round(2).tolist(), f"{time.time() - t0:.1f}s")
            n, acc = m(p, rngs)
            n = np.array(n)
            print(
                v.label,
                "trained",
                np.exp(np.log(n).mean(0))[[0, 1, 10, 50, 100, 128]],
                acc,
                f"{time.time() - t0:.1f}s",
                flush=True,
            )
