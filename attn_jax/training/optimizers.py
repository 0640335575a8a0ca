"""Optimizers: clip the gradient, precondition it, multiply it by a scheduled learning rate.

    update = -rate(count) * scale * precondition(clip(gradient))

`count` is the number of updates so far (0 for the first one). `scale` is 1 except under the `plateau` schedule: there
it is part of opt_state, and the host halves it when the validation loss stops improving.
"""

import math
import re
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attn_jax.attention.hard.baselines import RUNNING
from attn_jax.errors import UserError, check_known
from attn_jax.types import Callable, PyTree

RUNNING_RATE = 0.05
LEAST_EPS = 1e-16  # of adam: with the largest b2, smaller gradients may leave v at 0 in float32
TINY = 1e-30  # added to a norm, to avoid division by 0
Schedule = Callable[[Any], Any]  # number of updates so far -> learning rate


class PlateauState(NamedTuple):
    """The factor of the learning rate: a number, or one per seed."""

    scale: PyTree


def make_optimizer(
    *,
    precondition: optax.GradientTransformation,
    rate: Schedule,
    clip_norm: Real = 0.0,
    clip_each: bool = False,
    on_plateau: bool = False,
    groups: Sequence[tuple[str, Real]] = (),
) -> optax.GradientTransformation:
    """Makes one gradient transformation.

    Args:
        precondition: transformation of the clipped gradient, such as `adam`.
        rate: schedule of the learning rate.
        clip_norm: scale the gradient down to at most this global norm (Pascanu et al. 2013, section 3.2); the gradient
            of a learned baseline of hard attention is clipped separately; 0: never.
        clip_each: clip the gradient of each parameter array by its own norm.
        on_plateau: whether the host may halve the rate, see `halve`.
        groups: (pattern of paths, factor of the learning rate), see `of_groups`.
    """
    factors = [of_groups(groups)] if groups else []
    tx = optax.chain(
        *([frozen(groups)] if any(not factor for _, factor in groups) else []),
        clip_apart(clip(clip_norm, clip_each)) if clip_norm > 0 else optax.identity(),
        precondition,
        optax.scale_by_learning_rate(rate),
        *factors,
        scale_by_plateau() if on_plateau else optax.identity(),
    )
    return keep_running(tx)


def check_group(group: Any) -> None:
    """Checks a group of parameters.

    Raises:
        UserError: the group is no pair of a regular expression and a factor of at least 0.
    """
    good = isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], str)
    good = good and isinstance(group[1], Real) and not isinstance(group[1], bool) and 0 <= group[1] < math.inf
    try:
        good = good and re.compile(group[0]) is not None
    except re.error as error:
        raise UserError(f"optimizer.groups {group[0]!r} is no regular expression: {error}") from None
    if not good:
        raise UserError(
            f"optimizer.groups has {group!r}; expected pairs of a pattern of paths and a factor of at least 0, such as "
            "(('encoder/.*', 0.1),)"
        )


def check_groups(groups: Sequence[tuple[str, Real]], params: PyTree) -> None:
    """Checks that each pattern matches the path of a parameter.

    Raises:
        UserError: a pattern matches no path; the message names a few paths.
    """
    paths = [path_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for pattern, _ in groups:
        if not any(re.fullmatch(pattern, path) for path in paths):
            raise UserError(
                f"optimizer.groups {pattern!r} matches no parameter; paths are such as {', '.join(paths[:4])}"
            )


def path_of(path: Sequence[Any]) -> str:
    """Returns the path of a parameter: "encoder/forward_0/kernel"."""
    return "/".join(_key(part) for part in path)


def factor_of(groups: Sequence[tuple[str, Real]], path: Sequence[Any]) -> Real:
    """Returns the factor of the first group whose pattern matches the whole path; 1 if none does."""
    return next((factor for pattern, factor in groups if re.fullmatch(pattern, path_of(path))), 1)


def of_groups(groups: Sequence[tuple[str, Real]]) -> optax.GradientTransformation:
    """Multiplies each update by the factor of its group."""

    def update(updates, state, params=None):
        return jax.tree.map_with_path(lambda path, u: u * factor_of(groups, path), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def frozen(groups: Sequence[tuple[str, Real]]) -> optax.GradientTransformation:
    """Sets the gradients of groups with factor 0 to 0, so that they do not contribute to norms."""

    def update(updates, state, params=None):
        return (
            jax.tree.map_with_path(lambda path, u: u if factor_of(groups, path) else jnp.zeros_like(u), updates),
            state,
        )

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def clip(norm: Real, each: bool) -> optax.GradientTransformation:
    """Scales the gradient down to at most this norm: the global norm or, with `each`, the norm of each array."""
    if not each:
        return optax.clip_by_global_norm(norm)
    return optax.stateless_with_tree_map(lambda grad, _: grad * jnp.minimum(1.0, norm / (optax.tree.norm(grad) + TINY)))


def clip_apart(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies `tx`, which has no state, separately to parameters of a baseline (under "baseline") and to all others.

    The squared error of a learned baseline is no part of the model's loss, so it must not shrink the model's gradient.
    """

    def update(updates, state, params=None):
        of_baseline = jax.tree.map_with_path(lambda path, _: any(_key(part) == "baseline" for part in path), updates)
        if not any(jax.tree.leaves(of_baseline)):
            return tx.update(updates, state, params)
        parts = [
            jax.tree.map(lambda u, own, part=part: u if own == part else jnp.zeros_like(u), updates, of_baseline)
            for part in (False, True)
        ]
        return jax.tree.map(jnp.add, *(tx.update(part, state, params)[0] for part in parts)), state

    return optax.GradientTransformation(tx.init, update)


def _key(part) -> str:
    return getattr(part, "key", "")


def adam(*, b1: Real, b2: Real, eps: Real) -> optax.GradientTransformation:
    """m / (sqrt(v) + eps), both bias-corrected (Kingma & Ba 2015, algorithm 1)."""
    if eps < LEAST_EPS:
        raise UserError(
            f"optimizer.eps must be at least {LEAST_EPS}, got {eps}: with less, a gradient whose square is 0 in "
            "float32 makes a huge or undefined step"
        )
    return optax.scale_by_adam(b1=b1, b2=b2, eps=eps)


def adamw(*, weight_decay: Real, b1: Real, b2: Real, eps: Real) -> optax.GradientTransformation:
    """Adam plus weight_decay * parameter (Loshchilov & Hutter 2019, algorithm 2), for leaves of two or more axes."""
    decay = optax.add_decayed_weights(weight_decay, mask=lambda params: jax.tree.map(lambda x: x.ndim >= 2, params))
    return optax.chain(adam(b1=b1, b2=b2, eps=eps), decay)


def sgd(*, momentum: Real) -> optax.GradientTransformation:
    """The gradient, or with `momentum` the decayed sum of the gradients so far."""
    return optax.trace(decay=momentum) if momentum else optax.identity()


def warmup(count, warmup_steps: int):
    """min(1, (count + 1) / warmup_steps), which is above 0 for the first update; 1 without warm-up."""
    return jnp.minimum(1.0, (count + 1.0) / max(warmup_steps, 1))


def constant(learning_rate: Real, warmup_steps: int, num_steps: int) -> Schedule:
    """learning_rate, after a linear warm-up."""
    return lambda count: learning_rate * warmup(count, warmup_steps)


def inverse_sqrt(learning_rate: Real, warmup_steps: int, num_steps: int) -> Schedule:
    """learning_rate * min(t / w, sqrt(w / t)), t = count + 1, w = warmup_steps (Vaswani et al. 2017, section 5.3)."""
    start = max(warmup_steps, 1)
    return lambda count: (
        learning_rate * warmup(count, warmup_steps) * jnp.sqrt(start / jnp.maximum(count + 1.0, float(start)))
    )


def cosine(learning_rate: Real, warmup_steps: int, num_steps: int) -> Schedule:
    """learning_rate * (1 + cos(pi p)) / 2, p from 0 after the warm-up to 1 at num_steps (Loshchilov & Hutter 2017)."""
    length = max(num_steps - warmup_steps, 1)

    def rate(count):
        part = jnp.clip((count - float(warmup_steps)) / length, 0.0, 1.0)
        return learning_rate * warmup(count, warmup_steps) * 0.5 * (1.0 + jnp.cos(jnp.pi * part))

    return rate


def halving(schedule: Schedule, after: int, every: int) -> Schedule:
    """schedule / 2^floor((count - after) / every), from `after` on."""
    return lambda count: schedule(count) * 0.5 ** jnp.maximum((count - after) // every, 0)


def scale_by_plateau() -> optax.GradientTransformation:
    """Multiplies the updates by the `scale` in the state, which is initially 1 and changed only by `halve`."""

    def init(params):
        return PlateauState(scale=jnp.ones((), jnp.float32))

    def update(updates, state, params=None):
        return jax.tree.map(lambda u: u * state.scale.astype(u.dtype), updates), state

    return optax.GradientTransformation(init, update)


def keep_running(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies `tx` to all parameters except names in RUNNING, the running means of a baseline.

    A running mean moves by -RUNNING_RATE times its gradient, which is the running mean minus the mean of the batch.
    `tx` does not see the gradients of running means, so they do not affect clipping.
    """

    def is_running(path) -> bool:
        return bool(path) and _key(path[-1]) in RUNNING

    def update(updates, state, params=None):
        trained = jax.tree.map_with_path(lambda path, u: jnp.zeros_like(u) if is_running(path) else u, updates)
        trained, state = tx.update(trained, state, params)
        moved = jax.tree.map_with_path(
            lambda path, t, u: -RUNNING_RATE * u if is_running(path) else t, trained, updates
        )
        return moved, state

    return optax.GradientTransformation(tx.init, update)


def halve(opt_state: PyTree, where: bool | np.ndarray = True) -> PyTree:
    """Halves the `scale` in an opt_state on the host (Parallel.get_state); for several seeds only `where` True.

    An opt_state without a plateau is returned unchanged.
    """

    def change(node):
        if not isinstance(node, PlateauState):
            return node
        scale = np.asarray(node.scale)
        return PlateauState(np.where(where, scale * 0.5, scale).astype(scale.dtype))

    return jax.tree.map(change, opt_state, is_leaf=lambda node: isinstance(node, PlateauState))


def plateau_scale(opt_state: PyTree) -> np.ndarray:
    """Reads the `scale` in an opt_state, a number or one per seed; 1 for an opt_state without a plateau."""
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: isinstance(node, PlateauState))
    return next((np.asarray(node.scale) for node in nodes if isinstance(node, PlateauState)), np.ones((), np.float32))


class SinceBest:
    """Counts the evaluations since the best one, per seed: for the plateau schedule and for early stopping.

    In mode "min" smaller is better, in "max" larger; NaN is never better. `state` is its content as JSON.
    """

    def __init__(self, mode: str = "min"):
        check_known(mode, ("min", "max"), "mode")
        self.mode = mode
        self.best: np.ndarray | None = None
        self.count: np.ndarray | None = None

    def update(self, value) -> np.ndarray:
        """Adds an evaluation, a number or one per seed; returns the number of evaluations since the best one."""
        value = np.asarray(value, np.float64)
        if self.best is None:
            self.best, self.count = np.full_like(value, np.nan), np.zeros(value.shape, np.int64)
        better = value < self.best if self.mode == "min" else value > self.best
        better |= np.isnan(self.best) & ~np.isnan(value)
        self.best, self.count = np.where(better, value, self.best), np.where(better, 0, self.count + 1)
        return self.count

    def spent(self, patience: int) -> np.ndarray:
        """Returns, for each seed, whether another `patience` evaluations have passed without a better one."""
        return np.asarray((self.count > 0) & (self.count % patience == 0))

    @property
    def state(self) -> dict:
        if self.best is None:
            return {}
        return {"best": self.best.tolist(), "count": self.count.tolist()}

    @state.setter
    def state(self, state: dict) -> None:
        if state:
            self.best, self.count = np.asarray(state["best"], np.float64), np.asarray(state["count"], np.int64)
