"""Does our code compute the right thing on a GPU, and how fast is it there, compared with PyTorch on the same GPU?

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.gpu_speed

Three parts, the most important first. After `--limit` seconds no further row is begun, and notes say what was left out:

    checks      attention and memories that are written, with gradients, beside the same formula in float64 on the CPU
    training    a step of a Transformer beside torch.nn.Transformer, from the same parameters, on one batch
    attention   causal self-attention alone, forward and backward, for up to 16,384 positions

JAX and CUDA run behind the program that calls them, so a window ends with a wait for the device, and several steps are
dispatched without waiting in between. An error of one row is noted in its place. Programs are compiled in threads, and
none is timed meanwhile. Writes experiments/results/speed/gpu_speed.json after each part, with what is known so far.
`--small` tries all of it in tiny shapes, on a CPU too, and writes nothing.
"""

import argparse
import os
import pathlib
import sys
import warnings
from typing import Any

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "attn_jax"))
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.65")  # of the GPU's memory; PyTorch needs some of the rest

import jax

from experiments.benchmarks import gpu_attention, gpu_checks, gpu_training, page
from experiments.benchmarks.gpu_run import SMALL, Run, Sizes
from experiments.benchmarks.turns import write

PACKAGES = ("torch", "nvidia-cudnn-cu13")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    found: dict[str, Any] = {"unit": "target tokens", "sizes": sizes._asdict(), "device_kind": kind}
    found |= {"peak_flops": None, "checks": [], "groups": [], "attention": {}, "notes": run.notes}

    def save() -> None:
        if not args.small:
            write("gpu_speed", found, PACKAGES, load)

    with run.row("checks"):
        gpu_checks.start(sizes, run)
    with run.row("training"):
        gpu_training.start(sizes, run)  # compiled during the checks
    found["checks"] = run.attempt("checks", gpu_checks.finish, sizes, run) or []
    save()
    ready = run.attempt("training", gpu_training.prepare, sizes, run)
    found["peak_flops"] = None if ready is None else ready.peak_flops
    for dtype in () if ready is None else gpu_training.OURS:
        group = run.attempt(f"training, {dtype}", gpu_training.measure, dtype, ready, args.seconds, run)
        found["groups"] += [] if group is None else [group]
        save()
    for length in sizes.lengths:
        name = f"attention, {length:,} positions"
        times = run.attempt(name, gpu_attention.measure, length, sizes, args.seconds / 5, run)
        found["attention"] |= {} if times is None else {str(length): times}
        save()
    print(*page.gpu(found), sep="\n")


if __name__ == "__main__":
    main()
