"""How much time do sparse normalizers take compared with softmax, forward and backward, on the CPU?

Scores are normally distributed, [--rows, n] in float32. All run in one process and take turns, A B C C B A, for
--seconds at a time. The table shows the median of the windows and, in brackets, its ratio to our softmax in the same
round. For comparison: the projection onto the simplex of optax, the softmax of torch, and the entmax package for
PyTorch. The script stops if the results differ.

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.normalizers

Answer: experiments/results/normalizers.md.
"""

import argparse
import functools
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable

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
from experiments.benchmarks.machine import circumstances

RESULT = pathlib.Path(__file__).resolve().parents[1] / "results" / "normalizers.md"
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


def measure(calls: dict[str, Callable], seconds: float, rounds: int) -> dict[str, tuple[float, float]]:
    """Returns the median milliseconds of each, and its median ratio to softmax in the same half of a round."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for order in (list(calls), list(calls)[::-1]):
            for name in order:
                count, start = 0, time.perf_counter()
                while count == 0 or time.perf_counter() - start < seconds:
                    calls[name]()
                    count += 1
                times[name].append((time.perf_counter() - start) / count * 1e3)
    ratios = {name: np.divide(windows, times["softmax"]) for name, windows in times.items()}
    return {name: (float(np.median(times[name])), float(np.median(ratios[name]))) for name in calls}


def cell(milliseconds: float, ratio: float) -> str:
    """Formats a time with three digits and its ratio with two."""
    return f"{milliseconds:{'.0f' if milliseconds >= 100 else '.3g'}} ({ratio:{'.0f' if ratio >= 10 else '.1f'}}x)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--num_keys", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--seconds", type=float, default=0.5, help="of a window")
    parser.add_argument("--rounds", type=int, default=3, help="each has two windows of every normalizer")
    parser.add_argument("--output", type=pathlib.Path, default=RESULT)
    args = parser.parse_args()
    load = os.getloadavg()
    torch.set_num_threads(os.cpu_count())
    columns, worst = [], 0.0
    for num_keys in args.num_keys:
        scores, senses = np.random.default_rng(0).normal(size=(2, args.rows, num_keys)).astype(np.float32)
        names = [name for name in (*OURS, *THEIRS) if name not in SLOW or num_keys < max(args.num_keys)]
        calls = {n: (call_of_ours if n in OURS else call_of_theirs)(n, scores, senses) for n in names}
        for call in calls.values():
            call()  # compiles
        worst = max(worst, check_parity(calls))
        columns.append(measure(calls, args.seconds, args.rounds))
        print(f"{num_keys} keys: done", file=sys.stderr)
    lines = [
        "| ms for forward and backward | " + " | ".join(f"[{args.rows}, {n}]" for n in args.num_keys) + " |",
        "|---" * (len(args.num_keys) + 1) + "|",
    ]
    for name in (*OURS, *THEIRS):
        cells = [cell(*column[name]) if name in column else "" for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    command = f"python -m experiments.benchmarks.normalizers {shlex.join(sys.argv[1:])}".strip()
    lines += ["", f"- `{command}`", "- in brackets: the median ratio to our softmax in the same half of a round"]
    if load[0] > os.cpu_count() / 2:
        lines += ["- other work ran beside it, which slows PyTorch's threads most: torch softmax shows by how much"]
    lines += [circumstances(("jax", "jaxlib", "optax", "torch", "entmax"), load)]
    lines += [f"- weights and gradients of ours and theirs differ by {worst:.0e} at most"]
    print("\n".join(lines))
    args.output.write_text("\n".join(["# What a normalizer costs", "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
