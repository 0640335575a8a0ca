"""Which operations take most of a step: of training an LSTM, of training a Transformer, of a search with beams?

    python -m experiments.benchmarks.step_profile

The LSTM of translation_speed.py and the Transformer of transformer_speed.py on one batch of the most frequent shape,
and the search of decoding_speed.py for 100 sentences with five beams, of which a step finds one word of all sentences.
The times come from a trace of jax.profiler: those of all threads are added, so that on two cores the operations of a
step can take twice the step. Writes experiments/results/speed/step_profile.json.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.sizes import TextSizes
from attn_jax.runs.options import resolve
from attn_jax.runs.profile import memory_of, operations
from attn_jax.training.loop import TrainState, make_train_step
from experiments.benchmarks import transformer_speed, translation_speed
from experiments.benchmarks.decoding_speed import BATCH, BEAMS, make_batches, make_search, without_eos
from experiments.benchmarks.translation_profile import frequent_batch
from experiments.benchmarks.translation_speed import VOCAB_SIZES, synthetic_pairs
from experiments.benchmarks.turns import write

TRACED, TIMED = 3, 11  # calls in the trace and before it


def measure(compiled: jax.stages.Compiled, call: Callable[[], Any], steps: int = 1) -> dict[str, Any]:
    """Measures a call of a compiled program that does a number of steps: milliseconds of one, memory, operations."""
    seconds = []
    for _ in range(TIMED + 1):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begun)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(TRACED):
                jax.block_until_ready(call())
        found = operations(pathlib.Path(folder), compiled.as_text(), TRACED * steps)
    return {
        "ms": 1e3 * statistics.median(seconds[1:]) / steps,
        "memory": memory_of(compiled),
        "operations": [one._asdict() for one in found],
    }


def training(config: ConfigDict, batch_size: int) -> dict[str, Any]:
    """Profiles a training step on a batch of the most frequent shape."""
    batch, options = frequent_batch(synthetic_pairs(20_000), batch_size), resolve(config)
    model, tx = options.build_model(TextSizes(*VOCAB_SIZES)), options.optimizer.build(1)
    state = TrainState.create(jax.jit(model.init)(jax.random.key(0), batch), tx, jax.random.key(1))
    compiled = jax.jit(make_train_step(model.loss_fn, tx), donate_argnums=0).lower(state, batch).compile()

    def call():
        nonlocal state
        state, metrics = compiled(state, batch)
        return metrics

    return {"shape": [*batch["source"].shape, batch["target_in"].shape[1]], **measure(compiled, call)}


def searching() -> dict[str, Any]:
    """Profiles a step of the search: as many steps as the longest of the sentences has words."""
    pairs = synthetic_pairs(500)
    source, limits = make_batches(pairs, BATCH)[2]
    steps = int(limits.max())
    limits = np.full_like(limits, steps)
    model = resolve(transformer_speed.get_config("float32", 0.0, 0.0)).build_model(TextSizes(*VOCAB_SIZES))
    example = {"source": source, "target_in": source, "target_out": source}
    params = without_eos(jax.jit(model.init)(jax.random.key(0), example))
    search = make_search(model, BEAMS, int(pairs.target.lengths.max()))
    compiled = search.lower(params, source, limits).compile()
    shape = [*source.shape, steps]
    return {"shape": shape, **measure(compiled, lambda: compiled(params, source, limits), steps)}


PROGRAMS = {
    "lstm": ("training the LSTM", lambda: training(translation_speed.get_config("float32"), 32)),
    "transformer": (
        "training the Transformer",
        lambda: training(transformer_speed.get_config("float32", 0.1, 0.1), 64),
    ),
    "beams": (f"the Transformer's search, {BATCH} sentences, {BEAMS} beams", searching),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="+", default=[*PROGRAMS], choices=PROGRAMS, help="to profile")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    groups = [{"title": PROGRAMS[name][0], **PROGRAMS[name][1]()} for name in args.programs]
    write("step_profile", {"groups": groups}, (), load)


if __name__ == "__main__":
    keep_memory()
    main()
