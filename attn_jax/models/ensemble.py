"""Ensembles of models, such as the seeds of a run."""

import dataclasses
from functools import partial, singledispatch

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention import loops
from attn_jax.models.base import Model, best_tokens
from attn_jax.models.module import Maps, of_run
from attn_jax.types import Array, Batch, Float, Int, Params, PyTree, Source


@dataclasses.dataclass(frozen=True)
class Ensemble(Model):
    """p(token | tokens so far) = mean_i p_i(token | tokens so far), for n sets of parameters of one model.

    The functions are the same as in Model, with parameters that have a leading axis of n. The mean of probabilities is
    again a distribution, and its log-likelihood is at least the mean of the members' (Jensen). Attention weights are
    means as well.
    """

    @property
    def follows_beams(self) -> bool:
        """Tells whether a search need not reorder beams: it has to."""
        return False

    def grow(self, params: Params, state: PyTree, length: int) -> PyTree:
        return jax.vmap(partial(super().grow, length=length), (0, 1), 1)(params, state)

    def start(self, params: Params, source: Source, length: int = 100) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state), with the axis of n members after the batch."""
        return jax.vmap(partial(super().start, length=length), (0, None), 1)(params, source)

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

    def maps(self, params: Params, batch: Batch) -> Maps:
        """Returns the means of the maps of the members, by name."""
        maps = jax.vmap(partial(Model._apply, self, method="maps"), (0, None))(params, batch)
        return jax.tree.map(partial(jnp.mean, axis=0), maps)

    def query_weights(self, params: Params, source: Source) -> Float[Array, "b r s"]:
        """Returns the mean of the weights of each query of a classifier."""
        return jnp.mean(jax.vmap(super().query_weights, (0, None))(params, source), axis=0)

    def trajectory(self, params: Params, source: Source) -> tuple[Array, Array]:
        """Returns the places and guesses of the first member's glimpses, since paths have no mean."""
        return super().trajectory(jax.tree.map(lambda x: x[0], params), source)

    def _apply(self, params: Params, batch: Batch, method: str) -> tuple[Array, Array, Array]:
        """Evaluates (nll [b, t], correct [b, t], weights [b, t, s]); decodes token by token for `correct`."""
        assert method == "evaluate", method
        nll, weights = self._nll_and_weights(params, batch)
        length = batch["target_in"].shape[1]
        memory, state = self.start(params, jax.tree.map(jnp.asarray, batch["source"]), length)

        def advance(state, tokens):
            token, target = tokens
            state, log_probs = self.step(params, memory, state, token)
            return state, target == jnp.argmax(log_probs, axis=1)

        columns = jnp.asarray(batch["target_in"]).T, jnp.asarray(batch["target_out"]).T
        _, correct = loops.scan(advance, state, columns)
        return nll, correct.T.astype(jnp.float32), weights

    def _nll_and_weights(self, params: Params, batch: Batch) -> tuple[Float[Array, "b t"], Float[Array, "b t s"]]:
        """Returns (negative log-likelihood, mean of the attention weights) of the teacher-forced pass."""
        nll, _, weights = jax.vmap(partial(Model._apply, self, method="evaluate"), (0, None))(params, batch)
        return -mean_log_prob(-nll), jnp.mean(weights, axis=0)


@dataclasses.dataclass(frozen=True)
class MixedEnsemble(Ensemble):
    """p(token | tokens so far) = sum_i n_i p_i(token | tokens so far) / sum_i n_i, for ensembles of different models.

    The models have the same vocabularies and n_i members each. The parameters are a tuple, with the stacked parameters
    of each model; memory and decode state are tuples too.
    """

    members: tuple[Model, ...] = ()

    @property
    def reads_tags(self) -> bool:
        """Tells whether any model splits a source "text eos tags" into text and tags, so that tags must be kept."""
        return any(member.reads_tags for member in self.members)

    def start(self, params: Params, source: Source, length: int = 100) -> tuple[PyTree, PyTree]:
        memories, states = zip(*(m.start(p, source, length) for m, p in self._pairs(params)), strict=True)
        return memories, states

    @property
    def grows(self) -> bool:
        """Tells whether room for steps costs time in any of the models."""
        return any(member.grows for member in self.members)

    def grow(self, params: Params, state: PyTree, length: int) -> PyTree:
        return tuple(m.grow(own, s, length) for (m, own), s in zip(self._pairs(params), state, strict=True))

    def step(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"]
    ) -> tuple[PyTree, Float[Array, "b v"]]:
        found = [
            member.step(own, m, s, token)
            for (member, own), m, s in zip(self._pairs(params), memory, state, strict=True)
        ]
        states, log_probs = zip(*found, strict=True)
        return states, mean_log_prob(jnp.stack(log_probs), shares_of(params))

    def maps(self, params: Params, batch: Batch) -> Maps:
        """Returns the maps of each model, by their names in `of_run`."""
        return {
            of_run(number, name): weights
            for number, (member, own) in enumerate(self._pairs(params), start=1)
            for name, weights in member.maps(own, batch).items()
        }

    def query_weights(self, params: Params, source: Source) -> Float[Array, "b r s"]:
        """Concatenates the weights of the queries of all classifiers, without glimpse models.

        If the first classifier is a glimpse model, returns only the weights of its glimpses. Models with another number
        of keys (other cells) than the first one are left out.
        """
        pairs = [pair for pair in self._pairs(params) if pair[0].one_token]
        of_glimpses = [member.module.has_path for member, _ in pairs]
        if of_glimpses[0]:
            return pairs[0][0].query_weights(pairs[0][1], source)
        rows = [m.query_weights(own, source) for (m, own), looks in zip(pairs, of_glimpses, strict=True) if not looks]
        return jnp.concatenate([row for row in rows if row.shape[-1] == rows[0].shape[-1]], axis=1)

    def trajectory(self, params: Params, source: Source) -> tuple[Array, Array]:
        """Returns the places and guesses of the glimpses of the first glimpse model."""
        member, own = next(pair for pair in self._pairs(params) if pair[0].module.has_path)
        return member.trajectory(own, source)

    def _nll_and_weights(self, params: Params, batch: Batch) -> tuple[Float[Array, "b t"], Float[Array, "b t s"]]:
        """Returns the negative log-likelihood of the mixture, and the mean of the attention weights.

        If the numbers of keys differ (image models with other cells), it returns the weights of the first model.
        """
        nll, weights = zip(*(m._nll_and_weights(own, batch) for m, own in self._pairs(params)), strict=True)
        shares = shares_of(params)
        same = all(w.shape == weights[0].shape for w in weights)
        mean = jnp.einsum("n,nbts->bts", shares, jnp.stack(weights)) if same else weights[0]
        return -mean_log_prob(-jnp.stack(nll), shares), mean

    def _pairs(self, params: Params) -> list[tuple[Model, Params]]:
        return list(zip(self.members, params, strict=True))


def shares_of(params: tuple[Params, ...]) -> Float[np.ndarray, "n"]:
    """Returns the share of each model in the total number of members, from their stacked parameters."""
    counts = np.array([len(jax.tree.leaves(own)[0]) for own in params], np.float32)
    return counts / counts.sum()


@singledispatch
def ensemble_of(model: Model) -> Model:
    """Returns the ensemble class for a model's class, applied to the model; it takes stacked parameters."""
    return Ensemble(model.module)


def mean_log_prob(
    log_probs: Float[Array, "n ..."], shares: Float[np.ndarray, "n"] | None = None
) -> Float[Array, "..."]:
    """Computes log sum_i shares_i exp(log_probs_i), with equal shares by default."""
    if shares is None:
        return jax.nn.logsumexp(log_probs, axis=0) - jnp.log(len(log_probs))
    return jax.nn.logsumexp(log_probs, axis=0, b=shares.reshape(-1, *[1] * (log_probs.ndim - 1)))


def stacked(params_of_seeds: list[Params]) -> Params:
    """Joins sets of parameters along a new first axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *params_of_seeds)
