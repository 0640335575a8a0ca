"""Kernel regression: attention whose memory is the training set (Nadaraya 1964, Watson 1964).

    prediction(query) = sum_i weights_i(query) values_i,    weights_i = k(query, key_i) / sum_j k(query, key_j)

Keys are the inputs of the training points, values their targets: numbers, or one-hot rows of classes, for which
predictions are probabilities. Only the width of the kernel is trained (and a projection of the inputs, if there is
one), by a criterion of criteria.py.

A mixture has one component for each pair of a polynomial degree and a factor on the learned width. Its weights are
softmax(-n criterion / 2) over the components (Akaike 1978): attention to estimators.
"""

import dataclasses
import itertools
import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.attention.masks import checked_masks
from attn_jax.models.kernel_regression.criteria import CRITERIA, SMALLEST_ERROR, Criterion
from attn_jax.models.kernel_regression.local_polynomial import effective_weights, read, streamed_moments
from attn_jax.models.metrics import Mean
from attn_jax.types import Array, Batch, Bool, Callable, Float, Int, Metrics, Params, PRNGKeyArray, PyTree

MAX_VMAP = 256  # largest number of training points for which the widths of a mixture are computed in parallel
Scalar = Array | float


class Projection(nn.Module, kw_only=True):
    """x W + V tanh(U x + a) + b: a learned projection of queries and keys to `features` columns.

    W starts orthogonal and V at zero, so it starts as a rotation of the inputs.
    """

    features: int
    hidden_size: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "... d"]) -> Float[Array, "... f"]:
        hidden = jnp.tanh(nn.Dense(self.hidden_size)(inputs))
        linear = nn.Dense(self.features, use_bias=False, kernel_init=nn.initializers.orthogonal())(inputs)
        return linear + nn.Dense(self.features, use_bias=False, kernel_init=nn.initializers.zeros)(hidden)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelRegression:
    """Kernel regression as pure functions of params, queries [q, d], keys [n, d] and values [n, v]."""

    attention: Attention  # usually a kernel and kernel_sum
    projection: nn.Module | None = None
    degrees: tuple[int, ...] = (0,)  # degrees of the local polynomials
    widths: tuple[float, ...] = (1.0,)  # factors on the learned width
    criterion: Criterion = CRITERIA["leave_one_out"]
    fixed: bool = False  # True: the width is not learned
    chunk: int = 1024  # number of keys read at a time, if there are more

    @property
    def components(self) -> list[tuple[int, float]]:
        """Components of the mixture, each a pair (degree, factor on the width)."""
        return list(itertools.product(self.degrees, self.widths))

    @property
    def all_points(self) -> bool:
        """True if the loss always uses all pairs of training points, as for a mixture or for aicc."""
        return len(self.components) > 1 or self.criterion.all_points

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Fresh parameters, in float32."""
        few = jnp.asarray(batch["inputs"], jnp.float32)[:1]
        params = {}
        if self.projection is not None:
            projected, variables = self.projection.init_with_output(rng, few)
            params, few = {"projection": variables["params"]}, projected
        score = self.attention.score
        variables = score.init(rng, few, few, method=lambda m, q, k: m(q, m.project_keys(k)))
        return params | {"score": variables.get("params", {})}

    def loss_fn(
        self, params: Params, batch: Batch, rng: PRNGKeyArray | None = None, step: Array | int = 0
    ) -> tuple[Float[Array, ""], Metrics]:
        """Returns the criterion at the training points batch["index"], times their number.

        For a mixture the criterion is -2 / n log sum_m exp(-n criterion_m / 2). `rng` and `step` are not used.
        """
        inputs, targets, index = (jnp.asarray(batch[name]) for name in ("inputs", "targets", "index"))
        count = jnp.float32(len(index))
        if self.fixed:
            params = params | {"score": jax.lax.stop_gradient(params["score"])}
        if len(self.components) == 1:
            value = self._criterion(params, inputs, targets, index, *self.components[0])
        else:
            value = -2 / len(inputs) * jax.nn.logsumexp(self.log_evidence(params, inputs, targets))
        return value * count, {"loss": Mean(value * count, count)}

    def log_evidence(self, params: Params, inputs: Float[Array, "n d"], targets: Float[Array, "n v"]):
        """Returns -n log(criterion) / 2 of each component [m]; without log if the criterion is a logarithm."""
        index = jnp.arange(len(inputs))

        def log_criterion(degree: int, factor: Array) -> Array:
            value = self._criterion(params, inputs, targets, index, degree, factor)
            return value if self.criterion.is_log else jnp.log(jnp.maximum(value, SMALLEST_ERROR))

        return -0.5 * len(inputs) * self.each(log_criterion, len(inputs))

    def each(self, function: Callable, count: int) -> PyTree:
        """Stacks function(degree, factor on the width) of all components, for `count` training points."""
        widths = jnp.asarray(self.widths, jnp.float32)
        # With many points a component needs much memory, so components are computed one after another.
        map_widths = jax.vmap if count <= MAX_VMAP else lambda f: partial(jax.lax.map, f)
        results = [map_widths(partial(function, degree))(widths) for degree in self.degrees]
        return jax.tree.map(lambda *x: jnp.concatenate(x), *results)

    def mixture_weights(
        self, params: Params, inputs: Float[Array, "n d"], targets: Float[Array, "n v"]
    ) -> Float[Array, "m"]:
        """Weights of the components, which sum to one."""
        if len(self.components) == 1:
            return jnp.ones(1, jnp.float32)
        evidence = self.log_evidence(params, inputs, targets)
        # For very few points the criterion may be infinite for every component; then the weights are equal.
        return jax.nn.softmax(jnp.where(jnp.max(evidence) > -jnp.inf, evidence, 0.0))

    def predict(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        targets: Float[Array, "n v"],
        mixture: Float[Array, "m"],
        exclude: Int[Array, "q"] | None = None,
    ) -> tuple[Float[Array, "q v"], Bool[Array, "q"]]:
        """Returns the predictions and whether any key is within reach of each query; predictions are zero if none is.

        Components without a key within reach are left out of a mixture, whose other weights are renormalized.

        Args:
            params: parameters from `init`.
            query: points to predict.
            inputs: keys, the inputs of the training points.
            targets: values, the targets of the training points.
            mixture: weights of the components.
            exclude: index of the training point that each query leaves out: itself, for leave-one-out.
        """
        contexts, reach = self.each(
            lambda degree, factor: self.predict_component(params, query, inputs, targets, degree, factor, exclude),
            len(inputs),
        )
        return jnp.einsum("mq,mqv->qv", shares_in_reach(mixture, reach), contexts), jnp.any(reach, axis=0)

    def weights(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        mixture: Float[Array, "m"],
        exclude: Int[Array, "q"] | None = None,
    ) -> Float[Array, "q n"]:
        """Weights of the training points in each prediction: prediction = weights @ targets; see `predict`."""
        mask = _others(len(inputs), exclude)
        smoother = lambda degree, factor: self.component_smoother(params, query, inputs, degree, factor, mask=mask)  # noqa: E731
        found = self.each(smoother, len(inputs))
        return jnp.einsum("mq,mqn->qn", shares_in_reach(mixture, jnp.any(found != 0, axis=-1)), found)

    @checked_masks
    def component_smoother(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        degree: int,
        factor: Scalar,
        *,
        mask: Bool[Array, "q n"] | None = None,
    ) -> Float[Array, "q n"]:
        """Returns `weights` of one component."""
        query, keys = (self._project(params, x) / factor for x in (query, inputs))
        variables = {"params": {"map": {"score": params["score"]}}}
        attend = lambda m, q, k: m(q, m.prepare(k), mask=mask).weights  # noqa: E731
        return effective_weights(self.attention.apply(variables, query, keys, method=attend), query, keys, degree)

    def predict_component(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        targets: Float[Array, "n v"],
        degree: int = 0,
        factor: Scalar = 1.0,
        exclude: Int[Array, "q"] | None = None,
    ) -> tuple[Float[Array, "q v"], Bool[Array, "q"]]:
        """Returns `predict` of one component, with all keys at once, or in chunks if there are more than `chunk`."""
        if len(inputs) > self.chunk:
            moments = self._moments(params, query, inputs, targets, degree, factor, exclude)
            return read(moments), moments.max_score > -jnp.inf
        weights = self.component_smoother(params, query, inputs, degree, factor, mask=_others(len(inputs), exclude))
        return weights @ targets, jnp.any(weights != 0, axis=-1)

    def log_density(self, params: Params, query: Float[Array, "q d"], inputs: Float[Array, "n d"]) -> Float[Array, "q"]:
        """log p(query), p = 1 / n sum_i k((query - key_i) / h) / (integral of k), Parzen windows (Parzen 1962).

        h is the width of the first component and the density is in units of the inputs; -inf if no training point is
        within reach. With a learned projection it is no density of the inputs.
        """
        _, factor = self.components[0]
        score, features = self.attention.score, query.shape[-1]
        moments = self._moments(params, query, inputs, jnp.zeros((len(inputs), 1), inputs.dtype), 0, factor, None)
        log_widths = jnp.broadcast_to(jnp.log(self.width(params, features)), features)
        log_width = jnp.log(factor) + jnp.sum(log_widths) / features
        # The sum of exp(score - max_score) is at least 1.
        log_sum = moments.max_score + jnp.log(jnp.maximum(moments.design[:, 0, 0], 1.0))
        return log_sum - math.log(len(inputs)) - score.log_volume(features) - features * log_width

    def width(self, params: Params, features: int) -> Float[Array, "..."]:
        """Width of the kernel, in units of queries and keys."""
        return self.attention.score.apply({"params": params["score"]}, features, method="precision") ** -0.5

    def _criterion(self, params, inputs, targets, index, degree: int, factor: Scalar) -> Array:
        """Returns the criterion of one component at the training points `index`."""

        def predict(index: Int[Array, "b"], exclude: Int[Array, "b"] | None = None) -> Float[Array, "b v"]:
            predictions, _ = self.predict_component(params, inputs[index], inputs, targets, degree, factor, exclude)
            return predictions

        smoother = lambda: self.component_smoother(params, inputs, inputs, degree, factor)  # noqa: E731
        return self.criterion.value(predict=predict, smoother=smoother, targets=targets, index=index)

    def _project(self, params: Params, inputs: Float[Array, "n d"]) -> Float[Array, "n f"]:
        return inputs if self.projection is None else self.projection.apply({"params": params["projection"]}, inputs)

    def _moments(self, params, query, inputs, targets, degree, factor, exclude):
        query, keys = (self._project(params, x) / factor for x in (query, inputs))
        score = lambda q, k: self.attention.score.apply({"params": params["score"]}, q, k)  # noqa: E731
        chunk = min(self.chunk, len(inputs))
        return streamed_moments(score, query, keys, targets, degree, chunk, exclude)


def _others(count: int, exclude: Int[Array, "q"] | None) -> Bool[Array, "q n"] | None:
    """Returns the mask that leaves out the key `exclude` of each query; None without `exclude`."""
    return None if exclude is None else jnp.arange(count)[None] != exclude[:, None]


def shares_in_reach(mixture: Float[Array, "m"], reach: Bool[Array, "m q"]) -> Float[Array, "m q"]:
    """Restricts the mixture weights to components with a key within reach of each query, and renormalizes them."""
    weights = mixture[:, None] * reach
    total = jnp.sum(weights, axis=0)
    return weights / jnp.where(total > 0, total, 1)
