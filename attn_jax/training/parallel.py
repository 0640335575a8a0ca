"""The same pure step on one device, on several (pmap), or on a mesh across hosts.

    parallel = choose("auto", devices).make(step_factory, devices, seeds=False)
    state = parallel.put_state(state)
    state, metrics = parallel.train_step(state, parallel.put_batch(batch))
    state = parallel.get_state(state)

A batch is split by rows, and the state is on every device. `step_factory(axis_name)` makes the step (see
make_train_step). Under pmap the step sums over `axis_name` itself. On a mesh it sees the whole batch and the compiler
adds the sums, so its random numbers, too, are the same on any number of devices. With `seeds` the state and the batch
have a leading axis of seeds, over which the step is mapped within each device; metrics are [num_seeds].
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attn_jax.errors import UserError, lookup
from attn_jax.types import Callable, PyTree

AXIS = "data"
AUTO = "auto"  # in place of a name in PARALLEL


class Parallel(NamedTuple):
    """A train step with functions that move arrays to its devices and back."""

    train_step: Callable  # (state, batch) -> (state, metrics), on the devices; the old state is donated
    put_state: Callable  # pytree (arrays anywhere, without a device axis) -> pytree on every device
    put_batch: Callable  # the numpy batch of all devices (the same in every process) -> its rows on their devices
    get_state: Callable  # state or metrics -> numpy copies (typed keys stay keys), without a device axis


class Strategy(NamedTuple):
    """A way to use devices, and how far it reaches."""

    make: Callable  # (step_factory, devices, *, seeds) -> Parallel
    across_devices: bool = False  # whether it uses all devices, or the first one alone
    across_processes: bool = False  # whether it uses those of other processes as well

    def reaches(self, num_devices: int, process_count: int) -> bool:
        """Returns whether it works with these numbers of devices and processes."""
        return (self.across_devices or num_devices == 1) and (self.across_processes or process_count == 1)


def choose(name: str, devices: Sequence | None = None, process_count: int | None = None) -> Strategy:
    """Returns PARALLEL[name]; "auto" is single for one device, pmap for several, mesh across processes.

    Raises:
        UserError: the name is unknown, or its strategy does not reach the other processes.
    """
    devices = jax.devices() if devices is None else devices
    process_count = jax.process_count() if process_count is None else process_count
    strategy = lookup(PARALLEL | {AUTO: None}, name, "parallel")
    if strategy is None:
        return next(known for known in PARALLEL.values() if known.reaches(len(devices), process_count))
    if process_count > 1 and not strategy.across_processes:
        fitting = [repr(other) for other, known in PARALLEL.items() if known.across_processes] + [repr(AUTO)]
        raise UserError(
            f"parallel={name!r} works within one process, there are {process_count}; use {' or '.join(fitting)}"
        )
    return strategy


def single(step_factory: Callable, devices: Sequence | None = None, *, seeds: bool = False) -> Parallel:
    """The step under jit on the first device."""
    device = (jax.devices() if devices is None else devices)[0]
    step = jax.vmap(step_factory(None)) if seeds else step_factory(None)

    def put(tree: PyTree) -> PyTree:
        # A copy, since the step writes over the state it is given.
        return jax.tree.map(lambda x: on_keys(lambda data: jax.device_put(np.array(data), device), x), tree)

    return Parallel(
        train_step=jax.jit(step, donate_argnums=0),
        put_state=put,
        put_batch=lambda batch: jax.device_put(batch, device),
        get_state=partial(to_host, has_device_axis=False),
    )


def pmap(step_factory: Callable, devices: Sequence | None = None, *, seeds: bool = False) -> Parallel:
    """The step under jax.pmap over the D devices of this process: state [D, ...], rows [D, B / D, ...]."""
    devices = jax.devices() if devices is None else devices
    batch_axis = int(seeds)
    step = jax.vmap(step_factory(AXIS)) if seeds else step_factory(AXIS)
    # pmap compiles once, not twice, when its first state already has the sharding that its results have.
    sharding = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))

    def put(x):
        x = np.asarray(x)
        return jax.make_array_from_callback((len(devices), *x.shape), sharding, lambda index: x[None])

    def put_rows(x: np.ndarray):
        rows = x.shape[batch_axis]
        check_divides(rows, len(devices))
        shape = (*x.shape[:batch_axis], len(devices), rows // len(devices), *x.shape[batch_axis + 1 :])
        return jax.device_put(np.moveaxis(x.reshape(shape), batch_axis, 0), sharding)

    return Parallel(
        train_step=jax.pmap(step, axis_name=AXIS, devices=devices, donate_argnums=0),
        put_state=lambda tree: jax.tree.map(partial(on_keys, put), tree),
        put_batch=lambda batch: jax.tree.map(put_rows, batch),
        get_state=partial(to_host, has_device_axis=True),
    )


def mesh(step_factory: Callable, devices: Sequence | None = None, *, seeds: bool = False) -> Parallel:
    """The step under jit over a one-dimensional mesh of all devices, also of other processes (jax.distributed)."""
    devices = jax.devices() if devices is None else devices
    batch_axis = int(seeds)
    # Mesh(...), unlike jax.make_mesh, leaves the sharding within the step to the compiler.
    over = Mesh(np.array(devices), (AXIS,))
    everywhere = NamedSharding(over, PartitionSpec())
    by_rows = NamedSharding(over, PartitionSpec(*[None] * batch_axis, AXIS))
    step = jax.vmap(step_factory(None)) if seeds else step_factory(None)

    def put(x):
        x = np.array(x)
        return jax.make_array_from_callback(x.shape, everywhere, lambda index: x)

    def put_rows(x: np.ndarray):
        check_divides(x.shape[batch_axis], len(devices))
        return jax.make_array_from_callback(x.shape, by_rows, lambda index: x[index])

    return Parallel(
        train_step=jax.jit(
            step, donate_argnums=0, in_shardings=(everywhere, by_rows), out_shardings=(everywhere, everywhere)
        ),
        put_state=lambda tree: jax.tree.map(partial(on_keys, put), tree),
        put_batch=lambda batch: jax.tree.map(put_rows, batch),
        get_state=partial(to_host, has_device_axis=False),
    )


def check_divides(rows: int, devices: int) -> None:
    """Raises a UserError unless the devices can share the rows equally."""
    if rows % devices:
        raise UserError(
            f"a batch of {rows} rows cannot be split evenly over {devices} devices; "
            f"the next size that can is {rows + devices - rows % devices}"
        )


def is_key(x: Any) -> bool:
    """Returns whether x is an array of typed PRNG keys, or the shape of one."""
    return isinstance(x, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def on_keys(function: Callable, x: Any):
    """Computes function(x); for typed keys, it is applied to their bits."""
    if not is_key(x):
        return function(x)
    return jax.random.wrap_key_data(function(jax.random.key_data(x)), impl=jax.random.key_impl(x))


def to_host(tree: PyTree, has_device_axis: bool) -> PyTree:
    """Copies the arrays of the first device of this process to numpy (no views: the next step reuses the memory)."""

    def first(x):
        if not isinstance(x, jax.Array):
            return x
        return x.addressable_data(0)

    def copy(x, data):
        data = np.array(data)
        data = np.asarray(data[0]) if has_device_axis and isinstance(x, jax.Array) else data
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x)) if is_key(x) else data

    local = jax.tree.map(lambda x: first(jax.random.key_data(x) if is_key(x) else x), tree)
    return jax.tree.map(copy, tree, jax.device_get(local))


# From the one that reaches least to the one that reaches furthest.
PARALLEL = {
    "single": Strategy(single),
    "pmap": Strategy(pmap, across_devices=True),
    "mesh": Strategy(mesh, across_devices=True, across_processes=True),
}
