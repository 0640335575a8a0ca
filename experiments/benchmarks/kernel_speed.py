"""Kernel regression against statsmodels, the same method in one run; then up to 100,000 training points.

    python -m experiments.benchmarks.kernel_speed

Both choose the width of a Gaussian Nadaraya-Watson regression by leave-one-out, for the curve 2 sin x + x + noise with
40 points, from the same start, 1.06 std n^(-1/5): statsmodels' KernelReg(reg_type="lc", bw="cv_ls") by Nelder-Mead,
this package by 25 steps of Newton's method in log h, compiled once. Compilation is timed separately. Memory is the peak
of the process. Writes experiments/results/speed/kernel_speed.json.
"""

import argparse
import os
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention import build_attention
from attn_jax.attention.normalizers import kernel_sum
from attn_jax.attention.scores.kernels import Gaussian
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.tasks.points.curves import curve, grid, true_curve
from experiments.benchmarks.turns import write

NUM_POINTS, NUM_STEPS = 40, 25
PLACES, TRUTH = grid()
KERNEL = KernelRegression(attention=build_attention(score=Gaussian(initial=(1.0,), exact=True), normalize=kernel_sum))


def best_width(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the width of least leave-one-out error near the start, in the units of x."""
    batch = {"inputs": x, "targets": y, "index": jnp.arange(len(x))}

    def loss(log_width):
        return KERNEL.loss_fn({"score": {"log_precision": -2 * log_width}}, batch)[0]

    slope, bend = jax.grad(loss), jax.grad(jax.grad(loss))

    def step(log_width, _):
        g, h = slope(log_width), bend(log_width)
        # Where the error bends the wrong way a step downhill; never further than a factor of 1.2.
        move = jnp.where(h > 0, -g / jnp.where(h > 0, h, 1.0), -jnp.sign(g))
        return log_width + jnp.clip(move, -0.2, 0.2), None

    start = jnp.log(1.06 * jnp.std(x) * len(x) ** -0.2)
    end, _ = jax.lax.scan(step, start, None, length=NUM_STEPS)
    return jnp.exp(end)


def ours(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns (predictions at the inputs of the chapter, width) of this package."""
    center = y.mean()
    width = best_width(x, y - center)
    params = {"score": {"log_precision": -2 * jnp.log(width)}}
    found, _ = KERNEL.predict(params, jnp.asarray(PLACES, jnp.float32), x, y - center, jnp.ones(1))
    return found[:, 0] + center, width


def theirs(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the same for statsmodels."""
    from statsmodels.nonparametric.kernel_regression import KernelReg

    fitted = KernelReg(y[:, 0], x, "c", reg_type="lc", bw="cv_ls")
    return fitted.fit(PLACES)[0], float(fitted.bw[0])


def compare(count: int) -> dict[str, Any]:
    """Returns {"fits": [{"name", "error", "ms"}], "compilation_s", "same_width"}, from `count` draws of the data."""
    data = [curve(NUM_POINTS, 1.0, np.random.default_rng(seed)) for seed in range(count)]
    begin = time.perf_counter()
    other = [theirs(x, y) for x, y in data]
    seconds = (time.perf_counter() - begin) / count
    single = [tuple(jnp.asarray(part, jnp.float32) for part in pair) for pair in data]
    call = jax.jit(ours)
    begin = time.perf_counter()
    jax.block_until_ready(call(*single[0]))
    compiling = time.perf_counter() - begin
    begin = time.perf_counter()
    own = [jax.device_get(call(x, y)) for x, y in single]
    one_by_one = (time.perf_counter() - begin) / count
    together = jax.jit(jax.vmap(ours))
    stacked = tuple(jnp.stack(parts) for parts in zip(*single, strict=True))
    jax.block_until_ready(together(*stacked))
    begin = time.perf_counter()
    jax.block_until_ready(together(*stacked))
    at_once = (time.perf_counter() - begin) / count

    def error(results):
        return float(np.mean([np.mean((np.asarray(found, np.float64) - TRUTH[:, 0]) ** 2) for found, _ in results]))

    same = np.mean([abs(np.log(a[1] / b[1])) < 0.01 for a, b in zip(own, other, strict=True)])
    fits = {
        "statsmodels KernelReg(lc, cv_ls)": (other, seconds),
        "ours, one after the other": (own, one_by_one),
        f"ours, {count} fits in one program": (own, at_once),
    }
    return {
        "fits": [{"name": name, "error": error(found), "ms": 1e3 * took} for name, (found, took) in fits.items()],
        "compilation_s": compiling,
        "same_width": float(same),  # within 1 %: share of the draws
    }


def scale(sizes: Sequence[int], num_queries: int) -> list[dict[str, float]]:
    """Returns times, peak memory and error for each number of training points."""
    rows = []
    for n in sizes:
        x, y = curve(n, 1.0, np.random.default_rng(0))
        x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
        params = {"score": {"log_precision": jnp.float32(-2 * np.log(0.9 * n**-0.2))}}
        query = jnp.linspace(0.5, 4.5, num_queries, dtype=jnp.float32)[:, None]
        some = query.reshape(-1, 250, 1)
        predict = jax.jit(lambda q, x, y, p: jax.lax.map(lambda s: KERNEL.predict(p, s, x, y, jnp.ones(1))[0], q))
        batch = {"inputs": x, "targets": y, "index": jnp.arange(0, n, max(1, n // 256))[:256]}
        step = jax.jit(jax.value_and_grad(lambda p, b: KERNEL.loss_fn(p, b)[0]))
        timed = []
        for call, args in ((predict, (some, x, y, params)), (step, (params, batch))):
            result = jax.block_until_ready(call(*args))
            begin = time.perf_counter()
            jax.block_until_ready(call(*args))
            timed.append(time.perf_counter() - begin)
            if call is predict:
                error = np.sqrt(np.mean((np.asarray(result).ravel() - true_curve(np.asarray(query)[:, 0])) ** 2))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        matrix = 4 * n * num_queries / 2**20
        rows.append(
            {
                "points": n,
                "predict_s": timed[0],
                "gradient_s": timed[1],
                "peak_mib": peak,
                "matrix_mib": matrix,
                "error": float(error),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    load, measured = os.getloadavg()[0], compare(options.draws)
    notes = [
        f"compilation {measured['compilation_s']:.1f} s, once; the widths agree within 1 % in "
        f"{measured['same_width']:.0%} of the draws"
    ]
    measured |= {"num_queries": options.queries, "sizes": scale(options.sizes, options.queries), "notes": notes}
    write("kernel_speed", measured, ("statsmodels", "numpy"), load)


if __name__ == "__main__":
    main()
