"""Memory and time of attention block by block, for up to 65,536 keys, beside the recurrent formula.

    python -m experiments.benchmarks.blockwise_memory

Self-attention of one head of width 64, causal, in float32. Memory is what the compiled program needs besides arguments
and results, for the context and for the gradient of queries, keys and values; nothing is run for it. Times are medians
of calls in which the programs take turns, A B C C B A. `jax.nn.dot_product_attention` is softmax alone. Writes
experiments/results/speed/blockwise_memory.json.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.blockwise import blockwise_attention
from attn_jax.attention.masks import causal, causal_mask
from attn_jax.attention.normalizers import entmax15, softmax, sparsemax
from attn_jax.cli.allocator import keep_memory
from experiments.benchmarks.turns import write

LENGTHS = (1024, 4096, 16_384, 65_536)
TIMED = (1024, 4096, 8192)
NORMALIZERS = {"softmax": softmax, "entmax15": entmax15, "sparsemax": sparsemax}
WIDTH, BLOCK_SIZE = 64, 512


def scaled_dot(query: jax.Array, keys: jax.Array) -> jax.Array:
    """Computes query . key / sqrt(d)."""
    return query @ keys.mT / query.shape[-1] ** 0.5


def programs() -> dict[str, Callable]:
    """Returns functions (query, keys, values) -> context by name."""

    def by_blocks(normalize):
        return lambda *x: (
            blockwise_attention(scaled_dot, *x, mask=causal, normalize=normalize, block_size=BLOCK_SIZE).context
        )

    def written(normalize):
        return lambda q, k, v: normalize(scaled_dot(q, k), causal_mask(len(k))) @ v

    def fused(query, keys, values):
        return jax.nn.dot_product_attention(*(x[:, None] for x in (query, keys, values)), is_causal=True)[:, 0]

    found = {"softmax, jax.nn.dot_product_attention": fused}
    for name, normalize in NORMALIZERS.items():
        found |= {f"{name}, as written": written(normalize), f"{name}, by blocks": by_blocks(normalize)}
    return found


def gradient(attend: Callable) -> Callable:
    """Returns the function that computes the gradients of the sum of squares of the context."""
    return jax.grad(lambda *x: jnp.sum(jnp.square(attend(*x))), (0, 1, 2))


def memory(function: Callable, length: int) -> float:
    """Returns the megabytes that the compiled function needs besides arguments and results."""
    x = jax.ShapeDtypeStruct((length, WIDTH), jnp.float32)
    return jax.jit(function).lower(x, x, x).compile().memory_analysis().temp_size_in_bytes / 1e6


def times(functions: dict[str, Callable], length: int, rounds: int) -> dict[str, float]:
    """Returns the median milliseconds of each function."""
    rng = np.random.default_rng(0)
    arguments = [jnp.asarray(rng.normal(size=(length, WIDTH)), jnp.float32) for _ in range(3)]
    compiled = {name: jax.jit(function) for name, function in functions.items()}
    for function in compiled.values():
        jax.block_until_ready(function(*arguments))
    found: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in range(rounds):
        for name in (*compiled, *reversed(compiled)):
            begin = time.perf_counter()
            jax.block_until_ready(compiled[name](*arguments))
            found[name].append(1e3 * (time.perf_counter() - begin))
    return {name: float(np.median(values)) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    all_programs = programs()
    needed: dict[str, dict[int, Any]] = {
        name: {n: {"context": memory(f, n), "gradient": memory(gradient(f), n)} for n in LENGTHS}
        for name, f in all_programs.items()
    }
    taken: dict[str, dict[int, Any]] = {name: {} for name in all_programs}
    for n in TIMED:
        for kind, change in (("context", lambda f: f), ("gradient", gradient)):
            for name, ms in times({name: change(f) for name, f in all_programs.items()}, n, args.rounds).items():
                taken[name].setdefault(n, {})[kind] = ms
    measured = {"width": WIDTH, "block_size": BLOCK_SIZE, "megabytes": needed, "milliseconds": taken}
    write("blockwise_memory", measured, ("jaxlib",), load)


if __name__ == "__main__":
    keep_memory()
    main()
