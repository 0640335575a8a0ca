"""Ensembles of models of one kind, such as the seeds of a run."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from attn_jax.models.base import Model, best_tokens
from attn_jax.types import Array, Batch, Float, Int, Params, PyTree, Source


@dataclasses.dataclass(frozen=True)
class Ensemble(Model):
    """p(token | tokens so far) = mean_i p_i(token | tokens so far), of n sets of parameters of one model.

    The functions are those of a Model, for parameters with a leading axis of n. The mean of probabilities is again a
    distribution, and its log-likelihood is at least the mean of theirs (Jensen). Attention weights are means as well.
    """

    def start(self, params: Params, source: Source) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state), with the axis of n after the batch."""
        return jax.vmap(super().start, (0, None), 1)(params, source)

    def step(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"]
    ) -> tuple[PyTree, Float[Array, "b v"]]:
        """Returns (decode state after `token`, log of the mean probability of each next token)."""
        step = partial(Model.step, self)
        state, log_probs = jax.vmap(step, (0, 1, 1, None), (1, 0))(params, memory, state, token)
        return state, mean_log_prob(log_probs)

    def step_top_k(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"], k: int | None
    ) -> tuple[PyTree, Float[Array, "b k"], Int[Array, "b k"]]:
        """Returns (decode state, log-probabilities, tokens) of the k most probable next tokens, best first."""
        state, log_probs = self.step(params, memory, state, token)
        return state, *best_tokens(log_probs, k)

    def captured_weights(self, params: Params, batch: Batch) -> dict[str, Float[Array, "b ..."]]:
        """Returns the means of the attention weights of each module of attention."""
        weights = jax.vmap(super().captured_weights, (0, None))(params, batch)
        return jax.tree.map(partial(jnp.mean, axis=0), weights)

    def query_weights(self, params: Params, source: Source) -> Float[Array, "b r s"]:
        """Returns the mean of the weights of each query of a classifier."""
        return jnp.mean(jax.vmap(super().query_weights, (0, None))(params, source), axis=0)

    def trajectory(self, params: Params, source: Source) -> tuple[Array, Array]:
        """Returns the places of the glimpses of the first member, since there is no mean path, and its guesses."""
        return super().trajectory(jax.tree.map(lambda x: x[0], params), source)

    def _apply(self, params: Params, batch: Batch, method: str) -> tuple[Array, Array, Array]:
        """Evaluates (nll [b, t], correct [b, t], weights [b, t, s]), token by token for the second."""
        assert method == "evaluate", method
        nll, _, weights = jax.vmap(partial(super()._apply, method=method), (0, None))(params, batch)
        memory, state = self.start(params, jax.tree.map(jnp.asarray, batch["source"]))

        def advance(state, tokens):
            token, target = tokens
            state, log_probs = self.step(params, memory, state, token)
            own = jnp.take_along_axis(log_probs, target[:, None], axis=1)[:, 0]
            return state, own >= jnp.max(log_probs, axis=1)

        columns = jnp.asarray(batch["target_in"]).T, jnp.asarray(batch["target_out"]).T
        _, correct = jax.lax.scan(advance, state, columns)
        return -mean_log_prob(-nll), correct.T.astype(jnp.float32), jnp.mean(weights, axis=0)


def ensemble_of(model: Model) -> Model:
    """Returns the ensemble of a model; its functions take stacked parameters."""
    return getattr(model, "ensemble_class", Ensemble)(model.module)


def mean_log_prob(log_probs: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """Computes log mean_i exp(log_probs_i)."""
    return jax.nn.logsumexp(log_probs, axis=0) - jnp.log(len(log_probs))


def stacked(params_of_seeds: list[Params]) -> Params:
    """Joins sets of parameters along a new first axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *params_of_seeds)
