"""The training step and the training loop.

    rng of a step = fold_in(state.rng, state.step)          batch of a step = f(seed, step)

so a run that is killed and resumed from a checkpoint is bitwise equal to an uninterrupted run.
"""

import collections
import contextlib
import enum
import signal
import threading
from collections.abc import Collection, Iterator
from concurrent import futures
from functools import partial
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from attn_jax.errors import UserError
from attn_jax.models.metrics import Mean
from attn_jax.training.row_updates import merge_all, row_gradients, update_rows
from attn_jax.types import Array, Batch, Callable, Metrics, Params, PRNGKeyArray, PyTree

LossFn = Callable[..., tuple[Array, Metrics]]  # (params, batch, rng, step) -> (total, metrics)
TrainStep = Callable[[Any, Batch], tuple[Any, Metrics]]  # (state, batch) -> (state, metrics)
BatchAt = Callable[[int], Batch]  # step -> batch


class TrainState(flax.struct.PyTreeNode):
    """The training state, as it is saved. With several seeds, each leaf has a leading seed axis."""

    step: Any  # int32, the number of updates so far
    params: Any
    opt_state: Any
    rng: Any  # a typed key, the same during the whole training

    @classmethod
    def create(cls, params: Params, tx: optax.GradientTransformation, rng: PRNGKeyArray) -> "TrainState":
        """Creates the state before the first step. Under jax.vmap over (params, rng) it gets a leading seed axis."""
        return cls(step=jnp.zeros((), jnp.int32), params=params, opt_state=tx.init(params), rng=rng)


class Diverged(UserError):
    """The loss or the gradient became NaN or infinite at a step."""

    def __init__(self, message: str, step: int):
        super().__init__(message)
        self.step = step


def make_train_step(
    loss_fn: LossFn,
    tx: optax.GradientTransformation,
    *,
    axis_name: str | None = None,
    microbatches: int = 1,
    by_rows: bool = False,
) -> TrainStep:
    """Makes the pure step (state, batch) -> (state, metrics).

        gradient = sum of d total / d params  /  sum of metrics["loss"].count

    Both sums run over all microbatches and all devices of `axis_name`, so the result does not depend on how the rows
    are distributed. The step returns the metrics of the loss, summed in the same way, and "grad_norm", the global norm
    of the gradient before clipping.

    Args:
        loss_fn: (params, batch, rng, step) -> (total, metrics); total is a sum over the real target tokens of the
            rows, metrics["loss"].count is the number of these tokens, and step the number of updates so far.
        tx: the optimizer.
        axis_name: name of the device axis under pmap.
        microbatches: the number of equal parts of the rows, which are computed one after another.
        by_rows: loss_fn is a RowLoss, and the step updates only the rows of tables that it reads; see row_updates.py.

    Raises:
        ValueError: microbatches < 1; the step raises it if microbatches does not divide the rows.
    """
    if microbatches < 1:
        raise ValueError(f"microbatches is {microbatches}; expected at least 1")

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        rng = jax.random.fold_in(state.rng, state.step)
        if axis_name is not None:
            rng = jax.random.fold_in(rng, jax.lax.axis_index(axis_name))
        sums = partial(_sums, loss_fn, by_rows, state)
        (grads, metrics), lookups = _sum_microbatches(sums, batch, rng, microbatches)
        if axis_name is not None:
            grads, metrics = jax.lax.psum((grads, metrics), axis_name)
            lookups = jax.tree.map(lambda x: jax.lax.all_gather(x, axis_name, tiled=True), lookups)
        count = jnp.maximum(metrics["loss"].count, 1)
        mean = partial(jax.tree.map, lambda g: (g / count).astype(g.dtype))
        params, opt_state, norm = _update(tx, state, grads, lookups if by_rows else None, mean)
        metrics = {**metrics, "grad_norm": Mean(norm, jnp.ones((), norm.dtype))}
        return state.replace(step=state.step + 1, params=params, opt_state=opt_state), metrics

    return train_step


def _sums(loss_fn: LossFn, by_rows: bool, state: TrainState, batch: Batch, rng: PRNGKeyArray):
    """Returns ((gradients, metrics), lookups in tables); the caller sums the first and stacks the second."""
    if by_rows:
        grads, metrics, lookups = row_gradients(loss_fn, state.params, batch, rng, state.step)
        return (grads, metrics), lookups
    (_, metrics), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, batch, rng, state.step)
    return (grads, metrics), {}


def _sum_microbatches(sums: Callable[..., Any], batch: Batch, rng: PRNGKeyArray, microbatches: int):
    """Sums the results of `sums` over the parts of a batch, one after another; lookups get a leading axis of parts."""
    if microbatches == 1:
        summed, lookups = sums(batch, jax.random.fold_in(rng, 0))
        return summed, jax.tree.map(lambda x: x[None], lookups)
    parts = jax.tree.map(lambda x: split_rows(x, microbatches), batch)
    rngs = jax.vmap(jax.random.fold_in, (None, 0))(rng, jnp.arange(microbatches))
    first, _ = jax.eval_shape(sums, jax.tree.map(lambda x: x[0], parts), rngs[0])
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), first)

    def add(so_far, part):
        summed, lookups = sums(*part)
        return jax.tree.map(jnp.add, so_far, summed), lookups

    return jax.lax.scan(add, zeros, (parts, rngs))


def _update(
    tx: optax.GradientTransformation,
    state: TrainState,
    grads: PyTree,
    lookups: dict | None,
    mean: Callable[[PyTree], PyTree],
):
    """Returns (parameters, optimizer state, norm of the mean gradient); with lookups, updates only those rows."""
    if lookups is None:
        grads, of_rows = mean(grads), []
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
    else:
        touched = merge_all(lookups, state.params, mean)
        grads = mean(grads)
        params, opt_state = update_rows(tx, state.params, state.opt_state, grads, touched)
        of_rows = [rows.gradient for rows in touched.values()]
    return params, opt_state, optax.tree.norm((grads, of_rows))


def split_rows(x, parts: int):
    """Splits [B, ...] into [parts, B / parts, ...], row i into part i modulo `parts`; rows stay on their device."""
    rows = x.shape[0]
    check_rows(rows, parts)
    return x.reshape(rows // parts, parts, *x.shape[1:]).swapaxes(0, 1)


def check_rows(rows: int, parts: int) -> None:
    """Raises a UserError if `parts` does not divide the rows of a batch on a device."""
    if rows % parts:
        below, above = rows - rows % parts, rows + parts - rows % parts
        raise UserError(
            f"train.microbatches={parts} does not divide the {rows} rows of a batch on a device; "
            f"rows that would do: {f'{below} or ' if below else ''}{above}"
        )


class Meter:
    """Metrics merged over steps.

    `state` is its content as JSON, so that a resumed run logs the same as an uninterrupted run.
    """

    def __init__(self):
        self.metrics: Metrics = {}

    def add(self, metrics: Metrics) -> None:
        """Merges the metrics of a step."""
        self.metrics = {k: self.metrics[k].merge(m) if k in self.metrics else m for k, m in metrics.items()}

    def take(self) -> Metrics:
        """Returns the metrics merged so far, and resets the meter."""
        taken, self.metrics = self.metrics, {}
        return taken

    @property
    def state(self) -> dict:
        return {k: [np.asarray(m.total).tolist(), np.asarray(m.count).tolist()] for k, m in self.metrics.items()}

    @state.setter
    def state(self, state: dict) -> None:
        self.metrics = {k: Mean(np.asarray(total), np.asarray(count)) for k, (total, count) in state.items()}


class CallbackResult(NamedTuple):
    """Request of a callback of `fit`; a callback without a request returns None."""

    state: Any = None  # state to continue with, on the device; None: unchanged
    stop: bool = False


class Reason(enum.StrEnum):
    """Why a training ended."""

    DONE = "done"  # all num_steps are done
    STOPPED = "stopped"  # by a callback
    INTERRUPTED = "interrupted"  # by should_stop
    FINISHED_BEFORE = "finished before"  # no step was left to do


class FitResult(NamedTuple):
    """The end of a training."""

    state: Any  # on the device
    step: int  # number of steps done
    reason: Reason
    signal: int = 0  # the signal that interrupted it, as should_stop returned it


def fit(
    parallel: Any,
    state: PyTree,
    batch_at: BatchAt,
    *,
    start: int,
    num_steps: int,
    every: list | tuple = (),
    on_step: Callable[[int, Metrics], None] | None = None,
    should_stop: Callable[[int], int] | None = None,
    skip: Collection[int] = (),
    max_in_flight: int = 2,
) -> FitResult:
    """Trains from step `start` to `num_steps`.

    Args:
        parallel: a Parallel.
        state: from parallel.put_state; it is donated, and must not be used afterwards.
        batch_at: step -> numpy batch of the step; the first step is 0.
        start: the number of steps done before.
        num_steps: the number of steps done at the end.
        every: pairs (n, callback). callback(step, state) is called after each n-th step and after step `num_steps`,
            with the number of steps done and the state after them; n = 0: only after step `num_steps`. It returns None
            or a CallbackResult. Callbacks of the same step all run, in the order of `every`; each gets the state
            requested by the previous one.
        on_step: called as (step, metrics) for each step, in order, as soon as its metrics are on the host: a little
            after the step, but before any callback of the same or a later step.
        should_stop: step -> the number of a signal, or 0; called after each step but the last, after its callbacks. A
            signal ends the training without further callbacks, so that callbacks run at the same steps as in an
            uninterrupted run; the caller saves the state. If a callback stops at the same step, the result reports the
            stop, not the signal.
        skip: steps whose batches are left out: they count as steps, have no metrics, and update nothing.
        max_in_flight: the largest number of steps that are dispatched and not finished. (Without a limit, a program on
            several CPU devices deadlocks.)

    Raises:
        Diverged: a loss or gradient is not finite; raised at most `max_in_flight` - 1 steps later, and always before a
            callback can save the state after it.
    """
    in_flight = InFlight(parallel, on_step, max(max_in_flight, 1))
    with ahead(batch_at, num_steps) as batch_at:
        for step in range(start + 1, num_steps + 1):
            if step in skip:
                state, metrics = state.replace(step=state.step + 1), {}
            else:
                state, metrics = parallel.train_step(state, parallel.put_batch(batch_at(step - 1)))
            in_flight.add(step, metrics)
            due = [callback for n, callback in every if step == num_steps or (n and step % n == 0)]
            if due:
                in_flight.drain()
            state, stopped = _run_callbacks(due, step, state)
            if step == num_steps:
                break
            number = 0 if should_stop is None else int(should_stop(step))
            if stopped or number:
                in_flight.drain()
                if stopped:
                    return FitResult(state, step, Reason.STOPPED)
                return FitResult(state, step, Reason.INTERRUPTED, number)
    in_flight.drain()
    return FitResult(state, max(start, num_steps), Reason.DONE)


@contextlib.contextmanager
def ahead(batch_at: BatchAt, num_steps: int, count: int = 2) -> Iterator[BatchAt]:
    """Context manager that makes the batches of the next steps in a thread, while a step is computed.

    Yields step -> batch of the step, for steps in increasing order below `num_steps`. At most `count` batches wait. An
    error of a batch is raised when its step is asked for.
    """
    made: dict[int, futures.Future] = {}
    pool = futures.ThreadPoolExecutor(1, thread_name_prefix="batches")

    def get(step: int) -> Any:
        for old in [number for number in made if number < step]:  # of steps that are left out
            del made[old]
        for number in range(step, min(step + count + 1, num_steps)):
            if number not in made:
                made[number] = pool.submit(batch_at, number)
        return made.pop(step).result()

    try:
        yield get
    finally:
        pool.shutdown(cancel_futures=True)


class InFlight:
    """Steps that are dispatched and whose metrics are not yet on the host, oldest first."""

    def __init__(self, parallel: Any, on_step: Callable[[int, Metrics], None] | None, at_most: int):
        self.parallel, self.on_step, self.at_most = parallel, on_step, at_most
        self.steps: collections.deque = collections.deque()

    def add(self, step: int, metrics: Metrics) -> None:
        """Adds a step, then waits until fewer than `at_most` are in flight, so that the next can be dispatched."""
        self.steps.append((step, metrics))
        self.drain(self.at_most - 1)

    def drain(self, left: int = 0) -> None:
        """Waits for the oldest steps until `left` remain; raises Diverged if a step is not finite."""
        while len(self.steps) > left:
            step, metrics = self.steps.popleft()
            if metrics:
                metrics = self.parallel.get_state(metrics)
                check_finite(step, metrics)
            if self.on_step is not None:
                self.on_step(step, metrics)


def _run_callbacks(callbacks: list[Callable[[int, Any], Any]], step: int, state: PyTree) -> tuple[PyTree, bool]:
    """Calls all callbacks; returns the state that they request, and whether one requests a stop."""
    stopped = False
    for callback in callbacks:
        result = callback(step, state) or CallbackResult()
        state = state if result.state is None else result.state
        stopped |= result.stop
    return state, stopped


def check_finite(step: int, metrics: Metrics) -> None:
    """Raises Diverged if the loss or the norm of the gradient (of any seed) is NaN or infinite."""
    for name in ("loss", "grad_norm"):
        if name not in metrics:
            continue
        value = np.asarray(metrics[name].total)
        bad = ~np.isfinite(value)
        if bad.any():
            which = "" if value.ndim == 0 else f" for seed number {', '.join(map(str, np.flatnonzero(bad)))}"
            kind = "NaN" if np.isnan(value).any() else "infinite"
            what = "loss" if name == "loss" else "gradient"
            raise Diverged(f"the {what} became {kind} at step {step}{which}; a smaller learning rate may help", step)


@contextlib.contextmanager
def stop_on_signals():
    """Context manager in which SIGTERM and Ctrl-C do not kill; yields should_stop(step) -> signal for `fit`.

    A second Ctrl-C raises KeyboardInterrupt. Several processes (jax.distributed) agree on the step to stop at through
    jax's preemption notice, so every process must call should_stop after every step. Outside the main thread Python
    cannot handle signals, and the context does nothing.
    """
    if jax.distributed.is_initialized():
        from jax.experimental import multihost_utils

        yield lambda step: int(signal.SIGTERM) if multihost_utils.reached_preemption_sync_point(step) else 0
        return
    if threading.current_thread() is not threading.main_thread():
        yield lambda step: 0
        return
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if number == signal.SIGINT and number in asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda step: asked[0] if asked else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
