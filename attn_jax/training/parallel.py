"""The same pure step on one device, or on several as a mesh or by pmap, with replicated or divided state.

    parallel = choose("auto", devices).make(step_factory, devices, seeds=False)
    state = parallel.put_state(state)
    state, metrics = parallel.train_step(state, parallel.put_batch(batch))
    state = parallel.get_state(state)

A batch is split by rows, and the state is on every device; `fsdp` divides the state as well. `step_factory(axis_name)`
makes the step (see make_train_step). Under pmap the step sums over `axis_name` itself. On a mesh it sees the whole
batch and the compiler adds the sums, so its random numbers, too, are the same on any number of devices. With `seeds`
the state and the batch have a leading axis of seeds, over which the step is mapped within each device; metrics are
[num_seeds].
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attn_jax.errors import UserError, lookup
from attn_jax.training.checksums import is_divided
from attn_jax.types import Callable, PyTree

AXIS, SHARDS = "data", "shards"
AUTO = "auto"  # instead of a name in PARALLEL
StepFactory = Callable[
    [str | None], Callable[..., Any]
]  # name of the device axis -> (state, batch) -> (state, metrics)


class Parallel(NamedTuple):
    """A train step with functions that move arrays to its devices and back."""

    train_step: Callable[..., Any]  # (state, batch) -> (state, metrics), on the devices; the old state is donated
    put_state: Callable[[Any], Any]  # pytree (arrays anywhere, without a device axis) -> pytree on every device
    put_batch: Callable[
        [Any], Any
    ]  # the numpy batch of all devices (the same in every process) -> its rows on their devices
    get_state: Callable[
        [Any], Any
    ]  # state or metrics -> numpy copies (typed keys stay keys), whole and without a device axis
    copy_state: Callable[
        [Any], Any
    ]  # state -> copies to save: as `get_state`, but divided arrays stay on their devices
    placed: Callable[[Any], Any] = lambda shapes: (
        shapes
    )  # shapes of the state -> the same with the sharding of divided arrays


class Strategy(NamedTuple):
    """A parallel strategy, and the devices that it can use."""

    make: Callable[..., Parallel]  # (step_factory, devices, *, seeds) -> Parallel
    across_devices: bool = False  # whether it uses all devices, not only the first
    across_processes: bool = False  # whether it uses devices of other processes
    divides_state: bool = False  # whether a device holds only a part of the state; `make` takes `replicas`, see `fsdp`

    def reaches(self, num_devices: int, process_count: int) -> bool:
        """Tells whether the strategy can use these numbers of devices and processes."""
        return (self.across_devices or num_devices == 1) and (self.across_processes or process_count == 1)


def choose(name: str, devices: Sequence | None = None, process_count: int | None = None) -> Strategy:
    """Returns PARALLEL[name]; "auto" is single for one device, mesh for several.

    Raises:
        UserError: the name is unknown, or its strategy cannot use the other processes.
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


def single(step_factory: StepFactory, devices: Sequence | None = None, *, seeds: bool = False) -> Parallel:
    """The step under jit on the first device."""
    device = (jax.devices() if devices is None else devices)[0]
    step = jax.vmap(step_factory(None)) if seeds else step_factory(None)

    def put(tree: PyTree) -> PyTree:
        # A copy, since the step overwrites (donates) its state.
        return jax.tree.map(lambda x: on_keys(lambda data: jax.device_put(np.array(data), device), x), tree)

    copy = partial(to_host, has_device_axis=False)
    return Parallel(
        train_step=jax.jit(step, donate_argnums=0),
        put_state=put,
        put_batch=lambda batch: jax.device_put(batch, device),
        get_state=copy,
        copy_state=copy,
    )


def pmap(step_factory: StepFactory, devices: Sequence | None = None, *, seeds: bool = False) -> Parallel:
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

    copy = partial(to_host, has_device_axis=True)
    return Parallel(
        train_step=jax.pmap(step, axis_name=AXIS, devices=devices, donate_argnums=0),
        put_state=lambda tree: jax.tree.map(partial(on_keys, put), tree),
        put_batch=lambda batch: jax.tree.map(put_rows, batch),
        get_state=copy,
        copy_state=copy,
    )


def mesh(step_factory: StepFactory, devices: Sequence | None = None, *, seeds: bool = False) -> Parallel:
    """The step under jit over a mesh of all devices, including other processes: `fsdp` whose groups are one device."""
    devices = jax.devices() if devices is None else devices
    return fsdp(step_factory, devices, seeds=seeds, replicas=len(devices))


def fsdp(
    step_factory: StepFactory, devices: Sequence | None = None, *, seeds: bool = False, replicas: int = 1
) -> Parallel:
    """The step under jit, with parameters and optimizer state divided among devices (Rajbhandari et al. 2020, section
    5; Zhao et al. 2023): each array along its longest axis that they can share equally; others are replicated.

    A device computes its rows of the batch. The compiler gathers each parameter where it is used, and scatters the
    gradient, so that each device has the part that it updates.

    Args:
        step_factory, devices, seeds: see the top of this file.
        replicas: the number of groups of devices; the devices of a group share one state, and each group has one.

    Raises:
        UserError: `replicas` does not divide the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    parts = group_size(len(devices), replicas)
    # Mesh(...), unlike jax.make_mesh, leaves the sharding within the step to the compiler.
    over = Mesh(np.array(devices).reshape(replicas, parts), (AXIS, SHARDS))
    everywhere = NamedSharding(over, PartitionSpec())
    batch_axis = int(seeds)
    by_rows = NamedSharding(over, PartitionSpec(*[None] * batch_axis, (AXIS, SHARDS)))
    step = jax.vmap(step_factory(None)) if seeds else step_factory(None)

    def sharding_of(x):
        axis = None if is_key(x) else divided_axis(x.shape, parts, first=batch_axis)
        return everywhere if axis is None else NamedSharding(over, PartitionSpec(*[None] * axis, SHARDS))

    def put(x):
        sharding = sharding_of(x)

        def put_data(data):
            if isinstance(data, jax.Array) and data.sharding == sharding:
                return jnp.copy(data)  # since the step overwrites (donates) its state
            data = np.array(data)
            return jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])

        return on_keys(put_data, x)

    def put_rows(x: np.ndarray):
        check_divides(x.shape[batch_axis], len(devices))
        return jax.make_array_from_callback(x.shape, by_rows, lambda index: x[index])

    def copy_state(state: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jnp.copy(x) if is_divided(x) else to_host(x, has_device_axis=False), state)

    def placed(shapes: PyTree) -> PyTree:
        def place(x):
            sharding = sharding_of(x)
            return x if sharding is everywhere else jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

        return jax.tree.map(place, shapes)

    def jit(state: PyTree) -> Callable[..., Any]:
        own = jax.tree.map(sharding_of, state)
        return jax.jit(step, donate_argnums=0, in_shardings=(own, by_rows), out_shardings=(own, everywhere))

    return Parallel(
        train_step=JitOfState(jit),
        put_state=lambda tree: jax.tree.map(put, tree),
        put_batch=lambda batch: jax.tree.map(put_rows, batch),
        get_state=partial(to_host, has_device_axis=False),
        copy_state=copy_state,
        placed=placed,
    )


class JitOfState:
    """A function that is jitted at its first call, when the state is known; all calls have the same structure."""

    def __init__(self, jit: Callable[[PyTree], Any]):
        self._jit, self._made = jit, None

    def __call__(self, state: PyTree, *args):
        return self.of(state)(state, *args)

    def lower(self, state: PyTree, *args):
        """Lowers the function like jax.jit; the arguments may be shapes."""
        return self.of(state).lower(state, *args)

    def of(self, state: PyTree) -> Any:
        """Returns the jitted function for states of these shapes."""
        if self._made is None:
            self._made = self._jit(state)
        return self._made


def group_size(devices: int, replicas: int) -> int:
    """Returns the number of devices that share a state; raises a UserError if groups cannot have equal size."""
    if replicas < 1 or devices % replicas:
        fitting = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
        raise UserError(f"replicas={replicas} does not divide the {devices} devices; expected one of {fitting}")
    return devices // replicas


def divided_axis(shape: tuple[int, ...], parts: int, first: int = 0) -> int | None:
    """Returns the longest axis from `first` on that `parts` devices can share equally; the last one in a tie.

    None if there is no such axis, or only one device.
    """
    fitting = [axis for axis in range(first, len(shape)) if shape[axis] and shape[axis] % parts == 0]
    return max(fitting, key=lambda axis: (shape[axis], axis)) if fitting and parts > 1 else None


def part_size(x: Any, parts: int, first: int = 0) -> int:
    """Returns the number of elements of an array, or of a shape, that one of `parts` devices holds under `fsdp`."""
    divided = not is_key(x) and divided_axis(x.shape, parts, first) is not None
    return math.prod(x.shape) // (parts if divided else 1)


def check_divides(rows: int, devices: int) -> None:
    """Raises a UserError unless the devices can share the rows equally."""
    if rows % devices:
        raise UserError(
            f"a batch of {rows} rows cannot be split evenly over {devices} devices; "
            f"the next size that can is {rows + devices - rows % devices}"
        )


def is_key(x: Any) -> bool:
    """Tells whether x is an array of typed PRNG keys, or its shape."""
    return isinstance(x, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def on_keys(function: Callable[[Any], Any], x: Any):
    """Computes function(x); for typed keys, applies it to their bits."""
    if not is_key(x):
        return function(x)
    return jax.random.wrap_key_data(function(jax.random.key_data(x)), impl=jax.random.key_impl(x))


def to_host(tree: PyTree, has_device_axis: bool) -> PyTree:
    """Copies arrays to numpy (no views: the next step reuses the memory).

    A replicated array is copied from the first device of this process; a divided array from all its parts. If other
    processes hold some parts, all processes have to call this function.
    """

    def first(x):
        if not isinstance(x, jax.Array):
            return x
        if has_device_axis or x.is_fully_replicated:
            return x.addressable_data(0)
        if x.is_fully_addressable:
            return x
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(x, tiled=True)

    def copy(x, data):
        data = np.array(data)
        data = np.asarray(data[0]) if has_device_axis and isinstance(x, jax.Array) else data
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x)) if is_key(x) else data

    local = jax.tree.map(lambda x: first(jax.random.key_data(x) if is_key(x) else x), tree)
    return jax.tree.map(copy, tree, jax.device_get(local))


# "auto" is the first that can use all devices.
PARALLEL = {
    "single": Strategy(single),
    "mesh": Strategy(mesh, across_devices=True, across_processes=True),
    "pmap": Strategy(pmap, across_devices=True),
    "fsdp": Strategy(fsdp, across_devices=True, across_processes=True, divides_state=True),
}
