"""Kernel regression: attention whose memory is the training set (Nadaraya 1964, Watson 1964).

    prediction(query) = sum_i weights_i(query) values_i,    weights_i = k(query, key_i) / sum_j k(query, key_j)

Keys are the inputs of the training points, values their targets (numbers, or one-hot rows of classes, whose prediction
are probabilities). Nothing needs training but the width of the kernel, and whatever else there is before it:

    leave-one-out   mean_i |y_i - prediction of y_i without i|^2, self-attention whose diagonal is masked
    aicc            log(mean_i |y_i - prediction_i|^2) + 1 + 2 (t + 1) / (n - t - 2), t = sum_i weights_i(key_i)
                    (Hurvich, Simonoff & Tsai 1998, equation 5): a straight fit is charged for the parameters it is
                    worth, which with few points varies less than leave-one-out
    training        mean_i |y_i - prediction_i|^2: has its minimum at width 0, where each point predicts itself

Several members (degrees of a local polynomial times widths) are mixed by weights of their own, softmax(-n criterion /
2), those of Akaike 1978: attention once more, to estimators. `widths` are factors on the one learned width.
"""

import dataclasses
import itertools
import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.models.kernel_regression.local_polynomial import effective_weights, read, streamed_moments
from attn_jax.models.metrics import Mean
from attn_jax.types import Array, Batch, Bool, Callable, Float, Int, Metrics, Params, PRNGKeyArray, PyTree

AT_ONCE = 256  # training points up to which all members are computed side by side
Scalar = Array | float


class Projection(nn.Module):
    """What queries and keys go through before they are compared: x W + a small network's f(x), with `features` columns.

    The linear part lets it begin as a rotation of the inputs; the last layer of the network begins at zero.
    """

    features: int
    hidden_size: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "... d"]) -> Float[Array, "... f"]:
        hidden = jnp.tanh(nn.Dense(self.hidden_size)(inputs))
        linear = nn.Dense(self.features, use_bias=False, kernel_init=nn.initializers.orthogonal())(inputs)
        return linear + nn.Dense(self.features, use_bias=False, kernel_init=nn.initializers.zeros)(hidden)


@dataclasses.dataclass(frozen=True)
class KernelRegression:
    """The model as pure functions of (params, ...).

    Queries [q, d], inputs (the keys) [n, d] and targets (the values) [n, v] are what a memory has to hold.
    """

    attention: Attention  # a kernel (or any other score), normalized by kernel_sum (or any other normalizer)
    projection: nn.Module | None = None
    degrees: tuple[int, ...] = (0,)  # of local polynomials
    widths: tuple[float, ...] = (1.0,)
    criterion: str = "leave_one_out"
    fixed: bool = False  # the width is not learned
    chunk: int = 1024  # keys read at a time, where there are more than that

    @property
    def members(self) -> list[tuple[int, float]]:
        """(degree, factor on the width) of each."""
        return list(itertools.product(self.degrees, self.widths))

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
        """The criterion of the points batch["index"] of all (batch["inputs"], batch["targets"]), times their number.

        Of several members it is -2 / n log sum_m exp(-n criterion_m / 2). Nothing here is random.
        """
        inputs, targets, index = (jnp.asarray(batch[name]) for name in ("inputs", "targets", "index"))
        count = jnp.float32(len(index))
        if self.fixed:
            params = params | {"score": jax.lax.stop_gradient(params["score"])}
        if len(self.members) == 1:
            value = CRITERIA[self.criterion](self, params, inputs, targets, index, *self.members[0])
        else:
            value = -2 / len(inputs) * jax.nn.logsumexp(self.log_evidence(params, inputs, targets))
        return value * count, {"loss": Mean(value * count, count)}

    def log_evidence(self, params: Params, inputs: Float[Array, "n d"], targets: Float[Array, "n v"]):
        """-n criterion / 2 of each member [m]; of leave-one-out and training, n log(the mean square)."""
        index = jnp.arange(len(inputs))

        def log_criterion(degree: int, factor: Array) -> Array:
            value = CRITERIA[self.criterion](self, params, inputs, targets, index, degree, factor)
            return value if self.criterion == "aicc" else jnp.log(value)

        return -0.5 * len(inputs) * self.each(log_criterion, len(inputs))

    def each(self, function: Callable, count: int) -> PyTree:
        """function(degree, factor on the width) of each member of a model of `count` training points."""
        widths = jnp.asarray(self.widths, jnp.float32)
        # One after the other where a member needs much memory.
        spread = jax.vmap if count <= AT_ONCE else lambda f: partial(jax.lax.map, f)
        found = [spread(partial(function, degree))(widths) for degree in self.degrees]
        return jax.tree.map(lambda *x: jnp.concatenate(x), *found)

    def member_weights(
        self, params: Params, inputs: Float[Array, "n d"], targets: Float[Array, "n v"]
    ) -> Float[Array, "m"]:
        """How much each member counts."""
        if len(self.members) == 1:
            return jnp.ones(1)
        return jax.nn.softmax(self.log_evidence(params, inputs, targets))

    def predict(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        targets: Float[Array, "n v"],
        members: Float[Array, "m"],
        exclude: Int[Array, "q"] | None = None,
    ) -> tuple[Float[Array, "q v"], Bool[Array, "q"]]:
        """(the predictions, whether there was any key in reach); zeros where there was none.

        `exclude` is a training point that a query does not see, itself for leave-one-out.
        """
        contexts, reach = self.each(
            lambda degree, factor: self.predict_member(params, query, inputs, targets, degree, factor, exclude),
            len(inputs),
        )
        return jnp.einsum("m,mqv->qv", members, contexts), jnp.all(reach, axis=0)

    def weights(
        self, params: Params, query: Float[Array, "q d"], inputs: Float[Array, "n d"], members: Float[Array, "m"]
    ) -> Float[Array, "q n"]:
        """What each training point counts in each prediction, which is weights @ targets."""
        member = lambda degree, factor: self.member_smoother(params, query, inputs, degree, factor)  # noqa: E731
        rows = self.each(member, len(inputs))
        return jnp.einsum("m,mqn->qn", members, rows)

    def member_smoother(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        degree: int,
        factor: Scalar,
        mask: Bool[Array, "q n"] | None = None,
    ) -> Float[Array, "q n"]:
        """The weights of one member."""
        query, keys = (self._project(params, x) / factor for x in (query, inputs))
        variables = {"params": {"score": params["score"]}}
        attend = lambda m, q, k: m(q, m.prepare(k), mask=mask).weights  # noqa: E731
        return effective_weights(self.attention.apply(variables, query, keys, method=attend), query, keys, degree)

    def predict_member(
        self,
        params: Params,
        query: Float[Array, "q d"],
        inputs: Float[Array, "n d"],
        targets: Float[Array, "n v"],
        degree: int = 0,
        factor: Scalar = 1.0,
        exclude: Int[Array, "q"] | None = None,
    ) -> tuple[Float[Array, "q v"], Bool[Array, "q"]]:
        """`predict` of one member: all keys at once, or in chunks where there are many."""
        if len(inputs) > self.chunk:
            moments = self._moments(params, query, inputs, targets, degree, factor, exclude)
            return read(moments), moments.top > -jnp.inf
        mask = None if exclude is None else jnp.arange(len(inputs)) != exclude[:, None]
        weights = self.member_smoother(params, query, inputs, degree, factor, mask)
        return weights @ targets, jnp.any(weights != 0, axis=-1)

    def log_density(self, params: Params, query: Float[Array, "q d"], inputs: Float[Array, "n d"]) -> Float[Array, "q"]:
        """log p(query), p = 1 / n sum_i k((query - key_i) / h) / integral: Parzen windows (Parzen 1962).

        Of the first member's width, in the units of the inputs; -inf where no training point is in reach.
        """
        _, factor = self.members[0]
        score, features = self.attention.score, query.shape[-1]
        moments = self._moments(params, query, inputs, jnp.zeros((len(inputs), 1)), 0, factor, None)
        log_width = (
            jnp.log(factor) + jnp.sum(jnp.broadcast_to(jnp.log(self.width(params, features)), features)) / features
        )
        total = moments.top + jnp.log(jnp.maximum(moments.design[:, 0, 0], 1.0))  # the largest term is 1
        return total - math.log(len(inputs)) - score.log_volume(features) - features * log_width

    def width(self, params: Params, features: int) -> Float[Array, "..."]:
        """The width of the kernel, in units of what it compares."""
        return self.attention.score.apply({"params": params["score"]}, features, method="precision") ** -0.5

    def _project(self, params: Params, inputs: Float[Array, "n d"]) -> Float[Array, "n f"]:
        return inputs if self.projection is None else self.projection.apply({"params": params["projection"]}, inputs)

    def _moments(self, params, query, inputs, targets, degree, factor, exclude):
        query, keys = (self._project(params, x) / factor for x in (query, inputs))
        score = lambda q, k: self.attention.score.apply({"params": params["score"]}, q, k)  # noqa: E731
        chunk = min(self.chunk, len(inputs))
        return streamed_moments(score, query, keys, targets, degree, chunk, exclude)


def leave_one_out(model: KernelRegression, params, inputs, targets, index, degree: int, factor: Scalar):
    """mean over `index` of |y_i - its prediction by all others|^2."""
    left, _ = model.predict_member(params, inputs[index], inputs, targets, degree, factor, exclude=index)
    return jnp.mean(jnp.sum(jnp.square(targets[index] - left), axis=-1))


def training_error(model: KernelRegression, params, inputs, targets, index, degree: int, factor: Scalar):
    """mean over `index` of |y_i - its prediction, itself included|^2."""
    fitted, _ = model.predict_member(params, inputs[index], inputs, targets, degree, factor)
    return jnp.mean(jnp.sum(jnp.square(targets[index] - fitted), axis=-1))


def aicc(model: KernelRegression, params, inputs, targets, index, degree: int, factor: Scalar):
    """The corrected information criterion of all points; inf where the fit is worth as many parameters as points."""
    smoother = model.member_smoother(params, inputs, inputs, degree, factor)
    error = jnp.mean(jnp.sum(jnp.square(targets - smoother @ targets), axis=-1))
    trace, n = jnp.trace(smoother), len(inputs)
    free = n - trace - 2
    possible = (free > 0) & (error > 0)
    charge = 1 + 2 * (trace + 1) / jnp.where(free > 0, free, 1.0)
    return jnp.where(possible, jnp.log(jnp.where(possible, error, 1.0)) + charge, jnp.inf)


CRITERIA: dict[str, Callable] = {"leave_one_out": leave_one_out, "aicc": aicc, "training": training_error}
