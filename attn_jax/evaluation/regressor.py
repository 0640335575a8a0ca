"""A kernel regression with its training points."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.errors import UserError
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.tasks.points.points import PointsTask
from attn_jax.types import Float, Params


class Regressor:
    """Predicts targets of points, in their original units, from the training points of a task.

    The model sees standardized points, see attn_jax.data.point_batches.StandardPoints. Inputs are not scaled if the
    kernel width is given, since the width is in units of the inputs.

    Args:
        model: functions of (params, query, memory).
        task: task with the training points of each seed.
        batch_size: number of points predicted at once.
    """

    def __init__(self, model: KernelRegression, task: PointsTask, *, batch_size: int = 256):
        self.model, self.columns, self.train = model, task.columns, task.splits["train"]
        self.batch_size = batch_size
        self.points = task.standardized(scale_inputs=not model.fixed)
        self._mixture = jax.jit(model.mixture_weights)
        self._predict = jax.jit(model.predict)
        self._weights = jax.jit(model.weights)
        self._density = jax.jit(model.log_density)

    def predict(
        self, params: Params, inputs: Float[np.ndarray, "n d"], *, seed: int = 0, left_out: bool = False
    ) -> tuple[Float[np.ndarray, "n v"], np.ndarray]:
        """Predicts n points.

        Args:
            params: parameters of one seed.
            inputs: points in the units of the task.
            seed: index of the seed whose training points are read.
            left_out: the inputs are the training points, in order, and each is predicted from all others.

        Returns:
            (predictions [n, v] in the units of the targets, or probabilities of v classes; booleans [n], True if a
            training point is within reach of the kernel).

        Raises:
            UserError: a prediction is not finite.
        """
        memory = self._memory_of(seed)
        mixture = self._mixture(params, **memory)
        results: list = []
        for rows, query, index in self._batched(inputs, seed, left_out):
            found, reach = jax.device_get(self._predict(params, query, **memory, mixture=mixture, exclude=index))
            results.append((found[:rows], reach[:rows]))
        found, reach = (np.concatenate(parts) for parts in zip(*results, strict=True))
        self._check_finite(found, inputs)
        found = self.points.target_center[seed] + self.points.target_scale[seed] * found.astype(np.float64)
        if self.columns.classes:  # probabilities of a local polynomial may leave [0, 1]
            found = np.clip(found, 0, 1)
            found /= np.maximum(found.sum(axis=-1, keepdims=True), 1e-12)
        return found, reach

    def weights(
        self, params: Params, inputs: Float[np.ndarray, "n d"], *, seed: int = 0, left_out: bool = False
    ) -> Float[np.ndarray, "n k"]:
        """Computes the attention weight of each of k training points in each of n predictions, see `predict`."""
        memory = self._memory_of(seed)
        mixture = self._mixture(params, **memory)
        weights = [
            np.asarray(self._weights(params, query, memory["inputs"], mixture, index))[:rows]
            for rows, query, index in self._batched(inputs, seed, left_out)
        ]
        return np.concatenate(weights)

    def log_density(self, params: Params, inputs: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Estimates log p(inputs) from the training points of the first seed by Parzen windows."""
        units = np.sum(np.log(self.points.scale[0]))
        memory = self._memory_of(0)["inputs"]
        density = [np.asarray(self._density(params, query, memory))[:n] for n, query, _ in self._batched(inputs, 0)]
        return np.concatenate(density) - units

    def _memory_of(self, seed: int) -> dict[str, Any]:
        return {name: jnp.asarray(x[seed]) for name, x in self.points.memory.items()}

    def _batched(
        self, inputs: Float[np.ndarray, "n d"], seed: int, left_out: bool = False
    ) -> Iterator[tuple[int, Any, Any]]:
        """Yields (number of real rows, standardized queries [batch_size, d], index of the point each leaves out)."""
        size = self.batch_size
        for start in range(0, len(inputs), size):
            some = (inputs[start : start + size] - self.points.center[seed]) / self.points.scale[seed]
            padded = np.pad(some, ((0, size - len(some)), (0, 0)), mode="edge")
            unseen = jnp.asarray(np.arange(size) + start, jnp.int32) if left_out else None
            yield len(some), jnp.asarray(padded, jnp.float32), unseen

    def _check_finite(self, predictions: Float[np.ndarray, "n v"], inputs: Float[np.ndarray, "n d"]) -> None:
        """Raises a UserError that names the first inputs whose prediction is not finite."""
        wrong = np.flatnonzero(~np.isfinite(predictions).all(axis=-1))
        if len(wrong):
            at = ", ".join(f"{n} {value}" for n, value in zip(self.columns.inputs, inputs[wrong[0]], strict=True))
            raise UserError(
                f"the prediction at {at} is not a finite number: it is too far from the training points for float32, "
                "or the training went wrong"
            )
