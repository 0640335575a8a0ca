"""How many sentence pairs per second does the input pipeline make, and how long does training wait for it?

    python -m experiments.benchmarks.input_speed

The pairs have the lengths of the translation benchmark, in its buckets. Made are whole batches, padded and shifted, in
the order of training. The share of waiting is that of the calls that make a batch, in the training of the translation
model with batches of 32, where one step is always in progress. Writes experiments/results/speed/input_speed.json.
"""

import argparse
import os
import time
from collections.abc import Iterator

import jax

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.batching import Batches, EncodedPairs
from attn_jax.data.buckets import choose_buckets
from attn_jax.data.sizes import TextSizes
from attn_jax.runs.options import resolve
from attn_jax.types import Batch
from experiments.benchmarks.translation_speed import (
    VOCAB_SIZES,
    get_config,
    one_per_shape,
    synthetic_pairs,
    train_ours,
)
from experiments.benchmarks.turns import Program, summary, take_turns, write

SIZES = (32, 128, 512)


def make_batches(batches: Batches) -> Iterator[float]:
    """Yields the number of pairs of each batch."""
    step = 0
    while True:
        yield len(batches.batch_at(step)["source"])
        step += 1


def share_of_waiting(batches: Batches, num_steps: int) -> float:
    """Returns the share of training's time that is spent in making batches."""
    waited = 0.0

    def batch_at(step: int) -> Batch:
        nonlocal waited
        begin = time.perf_counter()
        batch = batches.batch_at(step)
        waited += time.perf_counter() - begin
        return batch

    config = get_config("float32")
    model = resolve(config).build_model(TextSizes(*VOCAB_SIZES))
    every = one_per_shape([batches.batch_at(step) for step in range(batches.steps_per_epoch)])
    params = jax.jit(model.init)(jax.random.key(0), every[0])
    steps = train_ours(model, config, params, batch_at, every)
    next(steps)
    waited, begin = 0.0, time.perf_counter()
    for _ in range(num_steps):
        next(steps)
    return waited / (time.perf_counter() - begin)


def batches_of(pairs: EncodedPairs, size: int) -> Batches:
    return Batches(pairs, choose_buckets(pairs.source.lengths, pairs.target.lengths, num_target=9), size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=3, help="each has two windows of every batch size")
    parser.add_argument("--steps", type=int, default=100, help="of training")
    args = parser.parse_args()
    load, pairs = os.getloadavg()[0], synthetic_pairs(50_000)
    programs = [Program(f"batches of {size}", make_batches(batches_of(pairs, size))) for size in SIZES]
    take_turns(programs, args.rounds, args.seconds)
    share = share_of_waiting(batches_of(pairs, SIZES[0]), args.steps)
    notes = [f"training with batches of {SIZES[0]} waits for its batches {share:.2%} of its time"]
    measured = {"unit": "sentence pairs", "baseline": programs[0].name, "rows": summary(programs, programs[0].name)}
    write("input_speed", measured | {"share_of_waiting": share, "notes": notes}, ("numpy",), load)


if __name__ == "__main__":
    keep_memory()
    main()
