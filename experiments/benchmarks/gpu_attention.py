"""Causal self-attention alone in gpu_speed.py, forward and backward, in bfloat16, for more and more positions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_jax.attention.entmax_kernel import entmax15_attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.masks import causal
from attn_jax.types import Array
from experiments.benchmarks.gpu_functions import (
    RULES,
    as_written,
    attend,
    random_arrays,
    recurrent_memory,
    with_gradients,
)
from experiments.benchmarks.gpu_run import Run, Sizes, call_times

DENSE_LENGTH = 8192  # beyond this the matrix of all weights is not made
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of PyTorch
KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
Times = dict[str, dict[str, float]]  # milliseconds of a call by program, see call_times


def our_programs(length: int, sizes: Sizes) -> dict[str, tuple[Callable, list[Array]]]:
    """Returns functions, and their cotangent and arrays, by name: ours, and the kernel of JAX."""
    batch, heads, width = sizes.attention
    arrays = [jnp.asarray(x, jnp.bfloat16) for x in random_arrays(batch, heads, length, width)]
    plain, kernel = arrays[:4], implementation_of(jnp.bfloat16, width, length)
    found = {f"ours, fused, {kernel}": (attend(mask=causal), plain)}
    if length <= DENSE_LENGTH:
        found["ours, as written"] = as_written(attend(mask=causal)), plain
    found[f"ours, blocks of {sizes.block} keys"] = attend(sizes.block, mask=causal), plain
    kernel_of_entmax = partial(entmax15_attention, scale=width**-0.5, causal=True)
    found["ours, entmax-1.5, one kernel"] = kernel_of_entmax, plain
    found |= {f"ours, {rule}, chunks of {sizes.chunk}": (recurrent_memory(rule, sizes.chunk), arrays) for rule in RULES}
    of_jax = partial(jax.nn.dot_product_attention, is_causal=True, implementation=kernel)
    turned = [jnp.swapaxes(x, 1, 2) for x in plain]  # [b, n, h, d]
    return found | {f"jax.nn.dot_product_attention, {kernel}": (of_jax, turned)}


def our_times(length: int, sizes: Sizes, seconds: float, run: Run) -> Times:
    """Measures the programs of JAX, in windows of so many seconds; all are compiled before the first is timed."""
    programs = {f"{name}, {length:,} positions": (name, *rest) for name, rest in our_programs(length, sizes).items()}
    for full, (_, function, arrays) in programs.items():
        run.compile(full, jax.jit(with_gradients(function)), *arrays)
    times = {}
    for full, compiled in run.compiled(programs).items():
        name, _, arrays = programs[full]
        found = run.attempt(full, call_times, partial(compiled, *arrays), jax.block_until_ready, seconds)
        times |= {} if found is None else {name: found}
    return times


def torch_times(length: int, sizes: Sizes, seconds: float, run: Run) -> Times:
    """Measures PyTorch's scaled_dot_product_attention by each of its kernels."""
    batch, heads, width = sizes.attention
    arrays = random_arrays(batch, heads, length, width)[:4]
    cotangent, *inputs = (torch.from_numpy(x).to(DEVICE, torch.bfloat16) for x in arrays)
    inputs = [x.requires_grad_() for x in inputs]

    def call() -> tuple[torch.Tensor, ...]:
        context = F.scaled_dot_product_attention(*inputs, is_causal=True)
        return torch.autograd.grad(context, inputs, cotangent)

    times = {}
    for kernel, backend in KERNELS.items():
        name = f"PyTorch, scaled_dot_product_attention, {kernel}"
        with sdpa_kernel(backend):
            found = run.attempt(f"{name}, {length:,} positions", call_times, call, wait_for_torch, seconds)
        times |= {} if found is None else {name: found}
    return times


def wait_for_torch(_: Any) -> None:
    """Waits until the GPU has finished."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(length: int, sizes: Sizes, seconds: float, run: Run) -> Times:
    """Measures all programs for this number of positions, in windows of so many seconds."""
    return torch_times(length, sizes, seconds, run) | our_times(length, sizes, seconds, run)
