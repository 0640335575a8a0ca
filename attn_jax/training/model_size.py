"""The number of parameters and a lower bound of the memory of training, computed from shapes."""

import math
import os
from collections.abc import Collection
from typing import Any, NamedTuple

import flax
import jax

from attn_jax.errors import UserError
from attn_jax.types import Callable, PyTree

UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB", "EB")


class ModelSize(NamedTuple):
    """The size of a model in training."""

    parameters: int  # of one seed
    bytes: int  # of all seeds on one device: parameters, gradients, optimizer state and logits

    def __str__(self) -> str:
        return (
            f"{self.parameters:,} parameters; at least {text_of(self.bytes)} with gradients, optimizer state and logits"
        )


def measure(
    params: PyTree,
    opt_state: PyTree,
    *,
    num_seeds: int = 1,
    logits: int = 0,
    by_rows: Collection[tuple[str, ...]] = (),
    held: Callable[[Any], int] = lambda x: math.prod(x.shape),
) -> ModelSize:
    """Measures a training on one device.

    Args:
        params, opt_state: pytrees of arrays or shapes, with a seed axis for several seeds.
        num_seeds: the number of seeds.
        logits: the bytes of the logits of a batch. Other activations are not counted.
        by_rows: paths of tables for which a step computes the gradient of some rows only; it is not counted.
        held: array or shape -> the number of its elements on one device; by default all.
    """
    whole = [x for path, x in flax.traverse_util.flatten_dict(params).items() if path not in by_rows]  # gradients
    num_held = num_bytes(params, held) + num_bytes(whole, held) + num_bytes(opt_state, held)
    return ModelSize(num_parameters(params) // num_seeds, num_held + logits)


def num_parameters(params: PyTree) -> int:
    """Returns the number of elements of all arrays."""
    return sum(math.prod(x.shape) for x in jax.tree.leaves(params))


def num_bytes(tree: PyTree, held: Callable[[Any], int] = lambda x: math.prod(x.shape)) -> int:
    """Returns the bytes of all arrays; with `held`, of the elements that one device holds."""
    return sum(held(x) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def memory_of(device: Any) -> int | None:
    """Returns the memory of a device in bytes (for a CPU: of the machine); None if unknown."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None and device.platform == "cpu":
        try:
            limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):  # a system that does not know these names
            return None
    return limit


def check_memory(size: ModelSize, memory: int | None, copies: int = 1) -> None:
    """Raises a UserError if `copies` of a training of this size cannot fit into `memory`, which they share."""
    if memory is not None and size.bytes * copies > memory:
        times = f", on each of {copies} devices" if copies > 1 else ""
        raise UserError(
            f"the model does not fit into {text_of(memory)} of memory: {size}{times}; make model.hidden_size, "
            "model.feed_forward_size, model.num_layers, task.vocab_size, task.batch_size or the number of seeds smaller"
        )


def text_of(size: int) -> str:
    """Writes a number of bytes with two or three figures: 950 bytes, 1.2 MB, 41 GB."""
    power = 0
    while size >= 999.5 and power < len(UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:,.0f} {UNITS[power]}" if power == 0 or size >= 9.95 else f"{size:.1f} {UNITS[power]}"
