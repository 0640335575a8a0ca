"""Does our code compute the right thing on a GPU, and how fast is it there, compared with PyTorch on the same GPU?

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.gpu_speed --part=checks

The parts:

    checks      attention and linear attention, with gradients, beside the same formula in float64 on the CPU
    training    a step of a Transformer beside torch.nn.Transformer, and of an LSTM with attention beside torch.nn.LSTM,
                from the same parameters, on one batch
    attention   causal self-attention alone, forward and backward, for up to 16,384 positions

After `--limit` seconds no further row is begun, and notes say what was left out. JAX and CUDA run behind the program
that calls them, so a window ends with a wait for the device, and several steps are dispatched without waiting in
between. An error of one row is noted in its place. Programs are compiled in threads, and none is timed meanwhile.
Writes experiments/results/speed/gpu_PART.json after each row, with what is known so far. `--small` tries the part in
tiny shapes, on a CPU too, and writes nothing. experiments/gpu_queue.py runs all parts.
"""

import argparse
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "attn_jax"))
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.65")  # of the GPU's memory; PyTorch needs some of the rest

import jax

from experiments.benchmarks import gpu_attention, gpu_checks, gpu_lstm, gpu_training, page
from experiments.benchmarks.gpu_run import SMALL, Run, Sizes
from experiments.benchmarks.turns import write

PACKAGES = ("torch", "nvidia-cudnn-cu13")
Found = dict[str, Any]


def checks(found: Found, sizes: Sizes, run: Run, seconds: float) -> Iterator[None]:
    """Checks values and gradients; yields after each row."""
    gpu_checks.start(sizes, run)
    found["checks"] = gpu_checks.finish(sizes, run)
    yield


def training(found: Found, sizes: Sizes, run: Run, seconds: float) -> Iterator[None]:
    """Measures training; yields after each group of programs."""
    gpu_training.start(sizes, run)
    gpu_lstm.start(sizes, run)  # compiled while the Transformer is waited for
    ready, ready_lstm = gpu_training.prepare(sizes, run), gpu_lstm.prepare(sizes, run)
    found["peak_flops"] = ready.peak_flops
    groups = [(gpu_training.measure, ("bfloat16", ready))]
    groups += [(gpu_lstm.measure, (*group, ready_lstm)) for group in gpu_lstm.groups(sizes)]
    groups += [(gpu_training.measure, ("float32", ready))]
    for measure, group in groups:
        group = run.attempt(f"{measure.__module__}, {group[:-1]}", measure, *group, seconds, run)
        found["groups"] += [] if group is None else [group]
        yield


def attention(found: Found, sizes: Sizes, run: Run, seconds: float) -> Iterator[None]:
    """Measures attention alone; yields after each length."""
    for length in sizes.lengths:
        times = run.attempt(f"attention, {length:,} positions", gpu_attention.measure, length, sizes, seconds / 5, run)
        found["attention"] |= {} if times is None else {str(length): times}
        yield


PARTS: dict[str, Callable[[Found, Sizes, Run, float], Iterator[None]]]
PARTS = {"checks": checks, "training": training, "attention": attention}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), required=True, help="what is measured")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window of training; a fifth for attention")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which no further row is begun")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to try the script; writes nothing")
    args = parser.parse_args()
    if not args.small and jax.default_backend() != "gpu":
        print("no GPU: nothing is measured, and no result is changed", file=sys.stderr)
        return
    warnings.filterwarnings("ignore", message=".*nested_tensor")
    run, load, sizes = Run(args.limit), os.getloadavg()[0], SMALL if args.small else Sizes()
    kind = jax.devices()[0].device_kind
    run.note(f"JAX on {kind}, PyTorch on {gpu_attention.DEVICE}")
    found: Found = {"unit": "target tokens", "sizes": sizes._asdict(), "device_kind": kind}
    found |= {"checks": [], "groups": [], "attention": {}, "notes": run.notes}

    def save() -> None:
        if not args.small:
            write(f"gpu_{args.part}", found, PACKAGES, load, script="gpu_speed")

    with run.row(args.part):
        for _ in PARTS[args.part](found, sizes, run, args.seconds):
            save()
    save()  # with the note of an error
    print(*page.gpu(found), sep="\n")


if __name__ == "__main__":
    main()
