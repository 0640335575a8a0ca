"""How much time do sparse normalizers take compared with softmax, forward and backward, on the CPU?

Scores are normally distributed, [--rows, n] in float32. All take turns in one process (turns.py). For comparison: the
projection onto the simplex of optax, the softmax of torch, and the entmax package for PyTorch. The script stops if the
results differ.

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.normalizers

Writes experiments/results/speed/normalizers.json.
"""

import argparse
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "attn_jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import entmax as package
import jax
import jax.numpy as jnp
import numpy as np
import torch
from optax import projections

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.constrained import constrained_sparsemax
from attn_jax.attention.normalizers.entmax import entmax, entmax15, sparsemax
from attn_jax.attention.normalizers.fusedmax import fusedmax
from attn_jax.cli.allocator import keep_memory
from experiments.benchmarks.turns import Program, summary, take_turns, write

ALPHA = 1.33
OURS = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    f"entmax, alpha = {ALPHA}": lambda scores: entmax(scores, None, ALPHA),
    "entmax, learned alpha": lambda scores, alpha: entmax(scores, None, alpha),
    "constrained_sparsemax, at most 0.2": lambda scores: constrained_sparsemax(scores, None, 0.2),
    "fusedmax": fusedmax,
    "optax projection_simplex": jax.vmap(projections.projection_simplex),
}
THEIRS = {
    "torch softmax": functools.partial(torch.softmax, dim=-1),
    "entmax package, sparsemax": functools.partial(package.sparsemax, dim=-1),
    "entmax package, entmax15": functools.partial(package.entmax15, dim=-1),
    f"entmax package, entmax_bisect, alpha = {ALPHA}": functools.partial(package.entmax_bisect, alpha=ALPHA),
    "entmax package, entmax_bisect, learned alpha": package.entmax_bisect,
}
SAME = {
    "softmax": "torch softmax",
    "sparsemax": "entmax package, sparsemax",
    "entmax15": "entmax package, entmax15",
    f"entmax, alpha = {ALPHA}": f"entmax package, entmax_bisect, alpha = {ALPHA}",
    "entmax, learned alpha": "entmax package, entmax_bisect, learned alpha",
    "optax projection_simplex": "entmax package, sparsemax",
}
SLOW = ("fusedmax",)  # its keys come one after the other: not at the largest size


def call_of_ours(name: str, scores: np.ndarray, senses: np.ndarray) -> Callable[[], tuple]:
    """Returns call() -> (weights, gradient of sum(weights * senses) in the scores[, in alpha])."""
    args = (jnp.asarray(scores), *([jnp.float32(ALPHA)] if "learned" in name else []))

    @jax.jit
    def both(senses, *args):
        weights, pull = jax.vjp(OURS[name], *args)
        return weights, *pull(senses)

    senses = jnp.asarray(senses)
    return lambda: jax.block_until_ready(both(senses, *args))


def call_of_theirs(name: str, scores: np.ndarray, senses: np.ndarray) -> Callable[[], tuple]:
    """Returns the same for PyTorch."""
    args = {"input" if name == "torch softmax" else "X": torch.from_numpy(scores).requires_grad_()}
    if "learned" in name:
        args["alpha"] = torch.tensor(ALPHA, requires_grad=True)
    senses = torch.from_numpy(senses)

    def call():
        for arg in args.values():
            arg.grad = None
        weights = THEIRS[name](**args)
        weights.backward(senses)
        return weights.detach(), *(arg.grad for arg in args.values())

    return call


def check_parity(calls: dict[str, Callable]) -> float:
    """Returns the largest difference between ours and theirs, in weights and in gradients of the scores."""
    worst = 0.0
    for ours, theirs in SAME.items():
        for got, expected in zip(calls[ours]()[:2], calls[theirs]()[:2], strict=True):
            worst = max(worst, float(np.max(np.abs(np.asarray(got) - expected.numpy()))))
    if worst > 1e-4:
        raise SystemExit(f"the two sides do not compute the same: they differ by {worst:.1e}")
    return worst


def forever(call: Callable[[], tuple]) -> Iterator[float]:
    """Yields 1 after each call."""
    while True:
        call()
        yield 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--num_keys", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--seconds", type=float, default=0.5, help="of a window")
    parser.add_argument("--rounds", type=int, default=3, help="each has two windows of every normalizer")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(os.cpu_count())
    groups, worst = [], 0.0
    for num_keys in args.num_keys:
        scores, senses = np.random.default_rng(0).normal(size=(2, args.rows, num_keys)).astype(np.float32)
        names = [name for name in (*OURS, *THEIRS) if name not in SLOW or num_keys < max(args.num_keys)]
        calls = {n: (call_of_ours if n in OURS else call_of_theirs)(n, scores, senses) for n in names}
        worst = max(worst, check_parity(calls))
        programs = [Program(name, forever(call)) for name, call in calls.items()]
        take_turns(programs, args.rounds, args.seconds)
        groups.append({"title": f"[{args.rows}, {num_keys}]", "rows": summary(programs, "softmax")})
        print(f"{num_keys} keys: done", file=sys.stderr)
    notes = [f"weights and gradients of ours and theirs differ by {worst:.0e} at most"]
    write("normalizers", {"unit": "calls", "groups": groups, "notes": notes}, ("optax", "torch", "entmax"), load)


if __name__ == "__main__":
    keep_memory()
    main()
