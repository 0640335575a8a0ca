"""The protocol of a model: pure functions of (params, batch), with which all code outside of models/ works.

A batch is a dict of `source` [b, s], `target_in` and `target_out` [b, t], int32 tokens; `target_in` is `target_out`
moved on by one, after bos. Positions that hold `pad` never change a result.

    init(rng, batch) -> params
    loss_fn(params, batch, rng, step) -> (summed loss [], metrics)        training
    eval_fn(params, batch) -> metrics                                     evaluation, without dropout
    score(params, batch) -> log p(target | source) [b]
    attention_weights(params, batch) -> weights [b, t, s]
    start(params, source [b, s]) -> (memory, decode state)                decoding
    step(params, memory, decode state, token [b]) -> (decode state, log_probs [b, v])

`Model` makes these functions of a flax module and is the only place where the rest of the package meets flax: a port to
another library of modules replaces attention/, layers/, outputs/ and models/, and nothing else.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.hard.estimators import entropy
from attn_jax.models.metrics import Mean
from attn_jax.types import Array, Batch, Float, Int, Metrics, Params, PRNGKeyArray, PyTree


@dataclasses.dataclass(frozen=True)
class Model:
    """The functions of a sequence model, computed by a flax module.

    The module has these methods:

        losses(source, target_in, target_out) -> (what is minimized, negative log-likelihood), each [b, t]
        evaluate(source, target_in, target_out) -> (negative log-likelihood, correct, weights [b, t, s])
        real(target_out) -> bool [b, t], True where there is something to predict
        start(source) and step(memory, state, token) as above, without the params

    It may have two class variables: `one_token`, a target is one token and eos; `reads_target`, the weights on the
    source sum to less than one, because the model attends to the target as well. With `one_token` it may also have
    query_weights(source) -> [b, r, s], the weights of each of r queries.
    """

    module: nn.Module

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Initial parameters, in float32; the batch is used for its shapes alone."""
        rngs = {name: jax.random.fold_in(rng, i) for i, name in enumerate(("dropout", "sample"))}
        arguments = self._arguments(batch, jnp.zeros((), jnp.int32))
        return self.module.init({"params": rng, **rngs}, *arguments, method="losses")["params"]

    def loss_fn(
        self, params: Params, batch: Batch, rng: PRNGKeyArray, step: Int[Array, ""] | int = 0
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the training loss, summed over the real target tokens: with dropout, label smoothing and sampling.

        The metrics are `loss` and `nll` (negative log-likelihood), means over the real target tokens. `step` is the
        number of updates before this one, for losses that change in the course of training.
        """
        rngs = {"dropout": rng, "sample": jax.random.fold_in(rng, 1)}
        arguments = self._arguments(batch, jnp.asarray(step))
        loss, nll = self.module.apply({"params": params}, *arguments, rngs=rngs, method="losses")
        real = self._real(batch)
        count = jnp.sum(real)
        return jnp.sum(loss * real), {
            "loss": Mean(jnp.sum(loss * real), count),
            "nll": Mean(jnp.sum(nll * real), count),
        }

    def eval_fn(self, params: Params, batch: Batch) -> Metrics:
        """Computes means over the real target tokens of the teacher-forced pass.

        `loss` is the negative log-likelihood, `accuracy` the share of tokens that are the model's first choice,
        `attention_entropy` the entropy of the attention weights in nats.
        """
        nll, correct, weights = self._apply(params, batch, "evaluate")
        real = self._real(batch)
        count = jnp.sum(real)
        values = {"loss": nll, "accuracy": correct, "attention_entropy": entropy(weights)}
        return {name: Mean(jnp.sum(value * real), count) for name, value in values.items()}

    def score(self, params: Params, batch: Batch) -> Float[Array, "b"]:
        """log p(target | source) of each pair, eos included."""
        nll, _, _ = self._apply(params, batch, "evaluate")
        return -jnp.sum(nll * self._real(batch), axis=-1)

    def attention_weights(self, params: Params, batch: Batch) -> Float[Array, "b t s"]:
        """Returns the attention weights of the teacher-forced pass."""
        return self._apply(params, batch, "evaluate")[2]

    def start(self, params: Params, source: Int[Array, "b s"]) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state): what decoding reads and never changes, and what each `step` replaces.

        Every leaf of both has the batch as its first axis, so a search may repeat, reorder and drop rows.
        """
        return self.module.apply({"params": params}, source, method="start")

    def step(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"]
    ) -> tuple[PyTree, Float[Array, "b v"]]:
        """Returns (decode state after `token`, log p(next token | tokens so far)); the first token is bos."""
        return self.module.apply({"params": params}, memory, state, token, method="step")

    def _arguments(self, batch: Batch, step: Int[Array, ""]) -> tuple[Array, ...]:
        """Returns the arguments of the module's `losses`."""
        return batch["source"], batch["target_in"], batch["target_out"]

    def _apply(self, params: Params, batch: Batch, method: str):
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.apply({"params": params}, *args, method=method)

    def _real(self, batch: Batch) -> Float[Array, "..."]:
        """Returns 1 where there is something to predict, 0 elsewhere; in the shape of the losses."""
        return jnp.asarray(self.module.real(jnp.asarray(batch["target_out"])), jnp.float32)


def one_word(
    log_probs: Float[Array, "b v"], state: Int[Array, "b"], eos: int
) -> tuple[Int[Array, "b"], Float[Array, "b v"]]:
    """One step of decoding for a model whose target is a single word: the word, then eos.

    `state` counts the steps taken; `log_probs` are those of the word.
    """
    end = jnp.where(jnp.arange(log_probs.shape[-1]) == eos, 0.0, -jnp.inf)
    return state + 1, jnp.where((state == 0)[:, None], log_probs, end)
