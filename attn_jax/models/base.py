"""The protocol of a model: pure functions of (params, batch), the only interface for code outside of models/.

A batch is a dict of `source` [b, s], `target_in` and `target_out` [b, t], int32 tokens; `target_in` is bos followed by
`target_out` without its last token. Positions that hold `pad` never change a result. A source may also be an image, a
Picture.

    init(rng, batch) -> params
    loss_fn(params, batch, rng, step) -> (summed loss [], metrics)        training
    eval_fn(params, batch) -> metrics                                     evaluation, without dropout
    score(params, batch) -> log p(target | source) [b]
    attention_weights(params, batch) -> weights [b, t, s]
    start(params, source [b, s], length) -> (memory, decode state)        decoding, of at most `length` tokens
    step(params, memory, decode state, token [b]) -> (decode state, log_probs [b, v])
    step_top_k(params, memory, decode state, token [b], k) -> (decode state, log_probs [b, k], tokens [b, k])
    grow(params, decode state, length) -> decode state with more room; start_beams, step_beams: see beam_search.py

`Model` makes these functions from a flax module, and only here does the rest of the package depend on flax: a port to
another module library replaces only attention/, layers/, outputs/ and models/.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from attn_jax.attention.information import entropy
from attn_jax.layers.rows import PERTURBATIONS, ROW_IDS, WHOLE, path_of_table
from attn_jax.models.metrics import Mean
from attn_jax.models.module import Beams, Maps, SequenceModule
from attn_jax.outputs.top_k import Extensions, top_k
from attn_jax.types import Array, Batch, Float, Int, Metrics, Params, Picture, PRNGKeyArray, PyTree, Source, wide


@dataclasses.dataclass(frozen=True)
class Model:
    """The functions of a sequence model, computed by a flax module.

    The module is a `SequenceModule`, which defines the methods; see module.py.
    """

    module: SequenceModule

    @property
    def one_token(self) -> bool:
        """Tells whether a target is one token and eos, such as a label."""
        return self.module.one_token

    @property
    def num_queries(self) -> int:
        """Number of queries of a classifier, each with its own weights; 1 for other models."""
        return self.module.num_queries

    @property
    def query_map(self) -> tuple[str, str]:
        """Names of the map of all queries, and of one query."""
        return self.module.query_map

    @property
    def reads_target(self) -> bool:
        """Tells whether weights on the source sum to less than one, since the model also attends to the target."""
        return self.module.reads_target

    @property
    def continues_source(self) -> bool:
        """Tells whether the source is the beginning of the target: the model reads eos, bos, source, target."""
        return self.module.continue_source

    @property
    def reads_tags(self) -> bool:
        """Tells whether the model splits a source "text eos tags" into text and tags; see models/tags.py."""
        return self.module.reads_tags

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Initial parameters, in float32; only the shapes of the batch are used."""
        rngs = {name: jax.random.fold_in(rng, i) for i, name in enumerate(("dropout", "sample"))}
        arguments = self._arguments(batch, jnp.zeros((), jnp.int32))
        return self.module.init({"params": rng, **rngs}, *arguments, method="losses")["params"]

    def loss_fn(
        self, params: Params, batch: Batch, rng: PRNGKeyArray, step: Int[Array, ""] | int = 0
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the training loss, summed over the real target tokens: with dropout, label smoothing and sampling.

        The metrics are `loss` and `nll` (negative log-likelihood), means over the real target tokens. `step` is the
        number of updates before this one, for losses that change during training.
        """
        return self._total(batch, self._losses({"params": params}, batch, rng, step))

    def _losses(self, variables: PyTree, batch: Batch, rng: PRNGKeyArray, step: Array | int, **options: Any):
        """Applies the module's `losses`."""
        rngs = {"dropout": rng, "sample": jax.random.fold_in(rng, 1)}
        arguments = self._arguments(batch, jnp.asarray(step))
        return self.module.apply(variables, *arguments, rngs=rngs, method="losses", **options)

    def _total(self, batch: Batch, losses: tuple[Array, Array]) -> tuple[Float[Array, ""], Metrics]:
        """Returns the loss, summed over the real target tokens, and the metrics of training."""
        loss, nll = losses
        real = self._real(batch)
        count = jnp.sum(real)
        return jnp.sum(loss * real), {
            "loss": Mean(jnp.sum(loss * real), count),
            "nll": Mean(jnp.sum(nll * real), count),
        }

    def eval_fn(self, params: Params, batch: Batch) -> Metrics:
        """Computes means over the real target tokens of the teacher-forced pass.

        `loss` is the negative log-likelihood, `accuracy` the share of target tokens that are most probable,
        `attention_entropy` the entropy of the attention weights in nats.
        """
        values, real = self._evaluated(params, batch)
        count = jnp.sum(real)
        return {name: Mean(jnp.sum(value * real), count) for name, value in values.items()}

    def eval_each(self, params: Params, batch: Batch) -> Metrics:
        """Computes the means of `eval_fn` separately for each pair: total and count are [b]."""
        values, real = self._evaluated(params, batch)
        count = jnp.sum(real.reshape(len(real), -1), axis=-1)
        totals = {name: jnp.sum((value * real).reshape(len(real), -1), axis=-1) for name, value in values.items()}
        return {name: Mean(total, count) for name, total in totals.items()}

    def _evaluated(self, params: Params, batch: Batch) -> tuple[dict[str, Array], Array]:
        """Returns the values that `eval_fn` averages, and a mask that is 1 for real positions, else 0; [b, ...]."""
        nll, correct, weights = self._apply(params, batch, "evaluate")
        uncertain = entropy(shares(wide(weights)))
        return {"loss": nll, "accuracy": correct, "attention_entropy": uncertain}, self._real(batch)

    def score(self, params: Params, batch: Batch) -> Float[Array, "b"]:
        """log p(target | source) of each pair, eos included."""
        nll, _, _ = self._apply(params, batch, "evaluate")
        return -jnp.sum(nll * self._real(batch), axis=-1)

    def attention_weights(self, params: Params, batch: Batch) -> Float[Array, "b t s"]:
        """Returns the attention weights of the teacher-forced pass."""
        return self._apply(params, batch, "evaluate")[2]

    def maps(self, params: Params, batch: Batch) -> Maps:
        """Returns the maps of the layers in the teacher-forced pass, by name: [b, layers, heads, q, k] or [b, q, k].

        It leaves out attention inside of a loop over time; `attention_weights` has it.
        """
        return self._apply(params, batch, "maps")

    def query_weights(self, params: Params, source: Source) -> Float[Array, "b r s"]:
        """Returns the weights of each query of a classifier, if the module has queries."""
        return self.module.apply({"params": params}, source, method="query_weights")

    def trajectory(self, params: Params, source: Picture) -> tuple[Float[Array, "b t 2"], Float[Array, "b t v"]]:
        """Returns (places of the glimpses, log p(word) after each), for a module of glimpses."""
        return self.module.apply({"params": params}, source, method="trajectory")

    def start(self, params: Params, source: Source, length: int = 100) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state): decoding never changes the memory, and each `step` replaces the state.

        Every leaf of both has the batch as its first axis, so a search may repeat, reorder and drop rows. The state has
        room for `length` steps; each step of a Transformer reads all of it, so `length` should not be larger than
        needed.
        """
        return self.module.apply({"params": params}, source, length, method="start")

    @property
    def grows(self) -> bool:
        """Tells whether room for steps costs time, so that a decode state should grow."""
        return self.module.grows

    @property
    def follows_beams(self) -> bool:
        """Tells whether there are `start_beams` and `step_beams`, for beams that a search need not reorder."""
        return self.module.follows_beams

    def start_beams(self, params: Params, source: Source, length: int, beams: int) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state of all beams), with room for `length` steps."""
        return self.module.apply({"params": params}, source, length, beams, method="start_beams")

    def step_beams(
        self, params: Params, memory: PyTree, state: PyTree, beams: Beams, n: int, forbidden: Sequence[int]
    ) -> tuple[PyTree, Extensions]:
        """Returns (decode state after the last token of each hypothesis, the n best extensions of all hypotheses).

        The state is in the order of the step before: hypothesis `beams.parent` becomes the hypothesis of each beam.
        """
        return self.module.apply({"params": params}, memory, state, beams, n, forbidden, method="step_beams")

    def grow(self, params: Params, state: PyTree, length: int) -> PyTree:
        """Returns the decode state, of `start` or `start_beams`, with room for `length` steps in all."""
        return self.module.apply({"params": params}, state, length, method="grow")

    def step(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"]
    ) -> tuple[PyTree, Float[Array, "b v"]]:
        """Returns (decode state after `token`, log p(next token | tokens so far)); the first token is bos."""
        return self.module.apply({"params": params}, memory, state, token, method="step")

    def step_top_k(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"], k: int | None
    ) -> tuple[PyTree, Float[Array, "b k"], Int[Array, "b k"]]:
        """Returns (decode state, log-probabilities, tokens) of the k most probable next tokens, best first.

        k = None: all tokens, in order of their ids. It computes only the needed part of the output layer.
        """
        if k is not None:
            state, best = self.module.apply({"params": params}, memory, state, token, k, method="step_top_k")
            return state, *best
        state, log_probs = self.step(params, memory, state, token)
        return state, *best_tokens(log_probs, k)

    def _arguments(self, batch: Batch, step: Int[Array, ""]) -> tuple[Array | Picture, ...]:
        """Returns the arguments of the module's `losses`."""
        arguments = batch["source"], batch["target_in"], batch["target_out"]
        return (*arguments, step) if self.module.takes_step else arguments

    def _apply(self, params: Params, batch: Batch, method: str):
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.apply({"params": params}, *args, method=method)

    def _real(self, batch: Batch) -> Float[Array, "..."]:
        """Returns 1 at positions to predict, 0 elsewhere; in the shape of the losses."""
        return jnp.asarray(self.module.real(jnp.asarray(batch["target_out"])), jnp.float32)


@dataclasses.dataclass(frozen=True)
class RowLoss:
    """The training loss of a model, with the rows of the tables that it reads; see training/row_updates.py."""

    model: Model

    def tables(self, params: Params, batch: Batch, rng: PRNGKeyArray) -> tuple[set[tuple[str, ...]], PyTree]:
        """Returns the paths of the tables that are read only by rows, and the shapes of all perturbations."""

        def found(params, batch, rng):
            return self.model._losses({"params": params}, batch, rng, 0, mutable=[ROW_IDS, PERTURBATIONS, WHOLE])[1]

        collections = jax.eval_shape(found, params, batch, rng)
        by_rows = flatten_dict(collections.get(ROW_IDS, {}))
        whole = flatten_dict(collections.get(WHOLE, {}))
        return {path_of_table(path) for path in by_rows} - set(whole), collections.get(PERTURBATIONS, {})

    def __call__(
        self, params: Params, perturbations: PyTree, batch: Batch, rng: PRNGKeyArray, step: Int[Array, ""] | int
    ) -> tuple[Float[Array, ""], tuple[Metrics, PyTree]]:
        """Returns (summed loss, (metrics, ids of the lookups)), with perturbations added to the rows."""
        variables = {"params": params, PERTURBATIONS: perturbations}
        losses, collections = self.model._losses(variables, batch, rng, step, mutable=[ROW_IDS])
        total, metrics = self.model._total(batch, losses)
        return total, (metrics, collections.get(ROW_IDS, {}))


def shares(weights: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """Computes |w| / sum |w|, for the entropy of weights that do not sum to one; rows of zeros stay zero."""
    size = jnp.abs(weights)
    total = jnp.sum(size, axis=-1, keepdims=True)
    return size / jnp.where(total > 0, total, 1)


def best_tokens(log_probs: Float[Array, "b v"], k: int | None) -> tuple[Float[Array, "b k"], Int[Array, "b k"]]:
    """Returns (log-probabilities, tokens) of the k most probable tokens, best first; k = None: all, in order of ids."""
    size = log_probs.shape[-1]
    if k is None:
        return log_probs, jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), log_probs.shape)
    return top_k(log_probs, min(k, size))


def continued(source: Int[Array, "b s"], target_in: Int[Array, "b t"], *, pad: int) -> Int[Array, "b n"]:
    """Returns the indices into [source, target_in] of the tokens of a text that the source begins; n = s - 1 + t.

    The tokens are bos, the source without eos, the target; indices of padding follow.
    """
    (_, s), (_, t) = source.shape, target_in.shape
    num_tokens = jnp.sum(source != pad, axis=1, keepdims=True) - 1  # without eos
    place = jnp.arange(s - 1 + t)[None]
    after = jnp.minimum(s + place - num_tokens, s + t - 1)
    return jnp.where(place == 0, s, jnp.where(place <= num_tokens, place - 1, after))
