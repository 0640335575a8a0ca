"""Time and memory of a training step of each output layer, for vocabularies of 10,000 to a million words.

    python -m experiments.benchmarks.output_speed

A step computes the loss of 1,024 hidden states of width 512, the gradients of hidden states and parameters, and
updates both with Adam. Sampled and hierarchical layers update the rows that they read alone; full, chunked and adaptive
layers update all. The rows "gradient" compute the loss and all gradients without updating: the chunked layer against
the full one. Targets follow Zipf's law, and 512 words are sampled for a batch. Each layer and size runs in a process of
its own. `temporary` is the memory of the compiled program besides its arguments and results (for torch it is
unknown), `peak` that of the process. torch has a full softmax, its AdaptiveLogSoftmaxWithLoss with the same cut points,
and importance sampling with nn.Embedding(sparse=True) and SparseAdam, which update rows as well.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax

from attn_jax.models.base import Model, RowLoss
from attn_jax.models.module import SequenceModule
from attn_jax.outputs import OUTPUTS, OutputSetting
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.outputs.clusters import cut_points
from attn_jax.outputs.frequencies import Frequencies, log_uniform
from attn_jax.training.loop import TrainState, make_train_step
from experiments.benchmarks.turns import write

SIZES = (10_000, 50_000, 200_000, 1_000_000)
NUM_SAMPLES, NUM_CLUSTERS = 512, 3
SETTINGS = ("positions", "features", "seconds")
BY_ROWS = ("sampled", "nce", "negative_sampling", "blackout", "hierarchical")
TORCH = ("torch full", "torch adaptive", "torch sampled")
GRADIENTS = ("full gradient", "chunked gradient")
METHODS = ("full", "chunked", "adaptive", *BY_ROWS, *TORCH, *GRADIENTS)
SIZES_OF = dict.fromkeys(GRADIENTS, (250_000,))
LARGEST = {"full": 200_000, "torch full": 200_000}  # words; more do not fit into 24 GB with Adam


class Head(SequenceModule, kw_only=True):
    """Hidden states, as parameters, and an output layer."""

    output: OutputLayer
    positions: int
    features: int

    @nn.compact
    def losses(self, source, target_in, targets):
        hidden = self.param("hidden", nn.initializers.normal(1.0), (self.positions, self.features))
        return self.output.loss(hidden, targets, rng=sampling_rng(self))

    def real(self, targets):
        return targets >= 0


def zipf_counts(size: int) -> np.ndarray:
    """Returns counts of words by Zipf's law."""
    return np.ceil(10 * size / np.arange(1, size + 1)).astype(np.int64)


def targets_of(size: int, positions: int) -> np.ndarray:
    """Samples targets by Zipf's law."""
    counts = zipf_counts(size)
    return np.random.default_rng(0).choice(size, positions, p=counts / counts.sum()).astype(np.int32)


def timed(step: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """Runs a step for some seconds, at least three times after the first; returns milliseconds per step."""
    begin = time.perf_counter()
    step()
    first, times = time.perf_counter() - begin, []
    while len(times) < 3 or sum(times) < seconds:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return {
        "median_ms": float(np.median(times)) * 1e3,
        "fastest_ms": min(times) * 1e3,
        "steps": len(times),
        "first_s": first,
    }


def ours(method: str, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measures a layer of this package."""
    name = method.removesuffix(" gradient")
    options = OUTPUTS[name]
    changed = {"num_samples": NUM_SAMPLES} if hasattr(options, "num_samples") else {}
    output = options(**changed).build(OutputSetting(vocab_size=size, counts=zipf_counts(size)))
    model, tx = Model(Head(output=output, positions=args.positions, features=args.features)), optax.adam(1e-3)
    batch = {
        "source": np.zeros(1, np.int32),
        "target_in": np.zeros(1, np.int32),
        "target_out": targets_of(size, args.positions),
    }
    by_rows = method in BY_ROWS
    train_step = make_train_step(RowLoss(model) if by_rows else model.loss_fn, tx, by_rows=by_rows)
    init = jax.jit(lambda rng: TrainState.create(model.init(rng, batch), tx, rng))
    state = init(jax.random.key(0))
    if method in GRADIENTS:
        loss = lambda params: model.loss_fn(params, batch, jax.random.key(0))[0]  # noqa: E731
        compiled = jax.jit(jax.value_and_grad(loss)).lower(state.params).compile()
        step = lambda: jax.block_until_ready(compiled(state.params))  # noqa: E731
    else:
        compiled = jax.jit(train_step, donate_argnums=0).lower(state, batch).compile()

        def step():
            nonlocal state
            state, metrics = compiled(state, batch)
            jax.block_until_ready((state.step, metrics))

    found = timed(step, args.seconds)
    parameters = sum(x.size for x in jax.tree.leaves(state.params["output"]))
    return found | {"temporary_mb": compiled.memory_analysis().temp_size_in_bytes / 1e6, "parameters": parameters}


def theirs(method: str, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measures a layer of torch."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(os.cpu_count())
    hidden = torch.nn.Parameter(torch.randn(args.positions, args.features))
    targets = torch.tensor(targets_of(size, args.positions), dtype=torch.long)
    optimizers = [torch.optim.Adam([hidden])]
    if method == "torch full":
        head = torch.nn.Linear(args.features, size)
        loss = lambda: torch.nn.functional.cross_entropy(head(hidden), targets)  # noqa: E731
        optimizers.append(torch.optim.Adam(head.parameters()))
    elif method == "torch adaptive":
        cutoffs = list(cut_points(Frequencies(zipf_counts(size)), NUM_CLUSTERS))
        head = torch.nn.AdaptiveLogSoftmaxWithLoss(args.features, size, cutoffs)
        loss = lambda: head(hidden, targets).loss  # noqa: E731
        optimizers.append(torch.optim.Adam(head.parameters()))
    else:
        head = torch.nn.ModuleList([torch.nn.Embedding(size, width, sparse=True) for width in (args.features, 1)])
        optimizers.append(torch.optim.SparseAdam(list(head.parameters())))
        probs = torch.tensor(log_uniform(Frequencies(zipf_counts(size))))
        below, log_q = torch.cumsum(probs, 0), torch.log(probs).float()

        def loss():
            words = torch.searchsorted(below, torch.rand(NUM_SAMPLES, dtype=torch.double)).clamp_(max=size - 1)
            both = torch.cat([targets, words])
            vectors, biases = head[0](both), head[1](both)[:, 0]
            n = len(targets)
            target = (hidden * vectors[:n]).sum(1) + biases[:n]
            scores = hidden @ vectors[n:].T + biases[n:] - log_q[words] - np.log(NUM_SAMPLES)
            scores = scores.masked_fill(targets[:, None] == words, -torch.inf)
            return (torch.logsumexp(torch.cat([target[:, None], scores], 1), 1) - target).mean()

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss().backward()
        for optimizer in optimizers:
            optimizer.step()

    found = timed(step, args.seconds)
    return found | {"temporary_mb": None, "parameters": sum(x.numel() for x in head.parameters())}


def measure(method: str, size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measures one layer in this process."""
    found = (theirs if method in TORCH else ours)(method, size, args)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"method": method, "vocab_size": size} | found | {"peak_mb": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", help="numbers of words")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5.0, help="least time for each measurement")
    parser.add_argument("--one", action="store_true", help="measure one layer here and print JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.methods[0], args.sizes[0], args)))
        return
    load, rows = os.getloadavg()[0], []
    for method in args.methods:
        for size in args.sizes or SIZES_OF.get(method, SIZES):
            if size > LARGEST.get(method, size):
                continue
            command = [sys.executable, "-m", "experiments.benchmarks.output_speed", "--one"]
            command += ["--methods", method, "--sizes", str(size)]
            for name in SETTINGS:
                command += [f"--{name}", str(getattr(args, name))]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{method}, {size:,} words: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{method:<18} {size:>9,} {rows[-1]['median_ms']:>10.1f} ms", file=sys.stderr, flush=True)
    settings = {name: getattr(args, name) for name in SETTINGS}
    write("output_speed", {"settings": settings | {"num_samples": NUM_SAMPLES}, "rows": rows}, ("torch",), load)


if __name__ == "__main__":
    main()
