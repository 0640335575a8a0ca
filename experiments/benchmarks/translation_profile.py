"""Where does the time of a training step of the translation model go?

    python -m experiments.benchmarks.translation_profile

The model and the pairs of translation_speed.py, one batch of 32 pairs of the most frequent shape. Each part is compiled
by itself with the shapes that it has in the step, forward and backward, and takes turns with the whole step. Compiled
together the parts can share memory traffic, so their sum need not be the time of the step. Writes
experiments/results/speed/translation_profile.json.
"""

import argparse
import collections
import os
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from attn_jax.attention import build_attention
from attn_jax.attention.scores.products import Dot
from attn_jax.cli.allocator import keep_memory
from attn_jax.data.batching import Batches, EncodedPairs
from attn_jax.data.buckets import choose_buckets
from attn_jax.data.sizes import TextSizes
from attn_jax.layers.rnn import CELLS, RNN
from attn_jax.outputs.full import FullSoftmax
from attn_jax.runs.options import resolve
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.types import Batch
from experiments.benchmarks.machine import gflops
from experiments.benchmarks.translation_speed import SIZE, VOCAB_SIZES, get_config, num_tokens, synthetic_pairs
from experiments.benchmarks.turns import Program, summary, take_turns, write

WHOLE = "the whole step"


class Reader(nn.Module):
    """Attention and the readout tanh(W [context; h])."""

    @nn.compact
    def __call__(self, hidden, states, mask):
        context = build_attention(score=Dot())(hidden, states, key_mask=mask).context
        return jnp.tanh(nn.Dense(SIZE, use_bias=False)(jnp.concatenate([context, hidden], axis=-1)))


def gradients(function: Callable, *arguments: Any) -> tuple[Callable, tuple]:
    """Returns a compiled function of the gradients of sum(function(...)), and its arguments."""
    total = lambda *args: sum(jnp.sum(x) for x in jax.tree.leaves(function(*args)))  # noqa: E731
    floats = tuple(
        i for i, x in enumerate(arguments) if all(jnp.issubdtype(y.dtype, jnp.floating) for y in jax.tree.leaves(x))
    )
    return jax.jit(jax.grad(total, argnums=floats)), arguments


def of_module(module: nn.Module, *arguments: Any) -> tuple[Callable, tuple]:
    """Returns the gradients of a module with respect to its parameters and its inputs."""
    params = module.init(jax.random.key(0), *arguments)
    return gradients(lambda params, *args: module.apply(params, *args), params, *arguments)


def parts(source_length: int, target_length: int, batch_size: int) -> dict[str, tuple[Callable, tuple]]:
    """Returns a function and its arguments for each part of a step."""
    rng = jax.random.key(0)
    states = jax.random.normal(rng, (batch_size, source_length, SIZE))
    hidden = jax.random.normal(rng, (batch_size, target_length, SIZE))
    real, heard = jnp.ones(hidden.shape[:2], bool), jnp.ones(states.shape[:2], bool)
    targets = jax.random.randint(rng, hidden.shape[:2], 4, VOCAB_SIZES[1])
    sources = jax.random.randint(rng, states.shape[:2], 4, VOCAB_SIZES[0])
    tables = [jax.random.normal(rng, (size, SIZE)) for size in VOCAB_SIZES]
    output = FullSoftmax(vocab_size=VOCAB_SIZES[1])
    weights = output.init(rng, hidden, method="log_probs")

    def softmax(weights, hidden):
        return output.apply(weights, hidden, targets, method="loss")[0]

    def look_up(source_table, target_table):
        return source_table[sources] * states, target_table[targets] * hidden  # gradients that are not constant

    def drop(a, b, c, d):
        keep = lambda x, n: jnp.where(jax.random.bernoulli(jax.random.fold_in(rng, n), 0.8, x.shape), x / 0.8, 0)  # noqa: E731
        return [keep(x, n) ** 2 for n, x in enumerate((a, b, c, d))]

    recurrence = RNN(cell=CELLS["lstm"], features=SIZE)
    return {
        "encoder's LSTM": of_module(recurrence, states, heard),
        "decoder's LSTM": of_module(recurrence, hidden, real),
        "attention and readout": of_module(Reader(), hidden, states, heard),
        "logits and softmax": gradients(softmax, weights, hidden),
        "embeddings": gradients(look_up, *tables),
        "dropout": gradients(drop, states, states, hidden, hidden),
    }


def frequent_batch(pairs: EncodedPairs, batch_size: int) -> Batch:
    """Returns the first batch of the most frequent shape."""
    batches = Batches(pairs, choose_buckets(pairs.source.lengths, pairs.target.lengths, num_target=9), batch_size)
    every = [batches.batch_at(step) for step in range(batches.steps_per_epoch)]
    shapes = collections.Counter((batch["source"].shape, batch["target_out"].shape) for batch in every)
    ((source, target), _), *_ = shapes.most_common(1)
    return next(b for b in every if (b["source"].shape, b["target_out"].shape) == (source, target))


def repeat(function: Callable, arguments: tuple) -> Iterator[float]:
    """Yields 1 after each call."""
    while True:
        jax.block_until_ready(function(*arguments))
        yield 1.0


def update(step: Callable, state: Any, batch: Any) -> Iterator[float]:
    """Yields 1 after each call of a function that takes the place of its first argument."""
    while True:
        state = jax.block_until_ready(step(state, batch))
        yield 1.0


def multiply_adds(source_length: int, target_length: int, batch_size: int) -> float:
    """Returns the operations of all products of a step, forward and backward: two for a multiplication and addition."""
    recurrent = (source_length + target_length) * 8 * SIZE**2  # four gates, input and state
    readout = target_length * (2 * SIZE**2 + 2 * source_length * SIZE)
    return 3 * 2.0 * batch_size * (recurrent + readout + target_length * SIZE * VOCAB_SIZES[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window")
    parser.add_argument("--rounds", type=int, default=2, help="each has two windows of every part")
    parser.add_argument("--num_pairs", type=int, default=50_000, help="how many random pairs to make")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    batch, config = frequent_batch(synthetic_pairs(args.num_pairs), 32), get_config("float32")
    source, target = batch["source"].shape, batch["target_out"].shape
    model, tx = resolve(config).build_model(TextSizes(*VOCAB_SIZES)), resolve(config).optimizer.build(1)
    params, rng = jax.jit(model.init)(jax.random.key(0), batch), jax.random.key(1)
    state = lambda: TrainState.create(jax.tree.map(jnp.copy, params), tx, jax.random.key(2))  # noqa: E731
    grads = jax.tree.map(lambda x: 1e-3 * x, params)

    def adam(state, grads):
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        return state.replace(params=optax.apply_updates(state.params, updates), opt_state=opt_state)

    step = jax.jit(make_train_step(model.loss_fn, tx), donate_argnums=0)
    loss = jax.jit(lambda params: model.loss_fn(params, batch, rng)[0])
    both = jax.jit(jax.value_and_grad(lambda params: model.loss_fn(params, batch, rng)[0]))
    programs = [
        Program(WHOLE, update(lambda state, batch: step(state, batch)[0], state(), batch)),
        Program("loss and gradients", repeat(both, (params,))),
        Program("loss", repeat(loss, (params,))),
        Program("Adam", update(jax.jit(adam, donate_argnums=0), state(), grads)),
    ]
    small = parts(source[1], target[1], source[0])
    programs += [Program(name, repeat(*part)) for name, part in small.items()]
    take_turns(programs, args.rounds, args.seconds)
    peak = gflops()
    operations = multiply_adds(source[1], target[1], source[0])
    notes = [
        f"{source[0]} pairs of {source[1]} and {target[1]} positions, {num_tokens(batch)} real target tokens",
        f"all products of the step at the rate of one large product ({peak:.0f} GFLOP/s): "
        f"{1e3 * operations / peak / 1e9:.0f} ms",
    ]
    rows = summary(programs, WHOLE)
    write("translation_profile", {"unit": "calls", "whole": WHOLE, "rows": rows, "notes": notes}, (), load)


if __name__ == "__main__":
    keep_memory()
    main()
