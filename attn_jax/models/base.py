"""What the rest of the project sees of a model: pure functions of (params, batch).

A batch has `source` [b, s], `target_in` and `target_out` [b, t]; positions that hold `pad` never change a result.
"""

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.hard.estimators import entropy
from attn_jax.models.metrics import Mean
from attn_jax.types import Array, Batch, Float, Int, Metrics, Params, PRNGKeyArray, PyTree


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as pure functions. `module` has loss, evaluate, real, start and step: see seq2seq.py."""

    module: nn.Module
    training: ClassVar[str] = "loss"  # the method that gives (what is minimized, negative log-likelihood)

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Fresh parameters, in float32."""
        rngs = {name: jax.random.fold_in(rng, i) for i, name in enumerate(("dropout", "sample"))}
        arguments = self._arguments(batch, jnp.zeros((), jnp.int32))
        return self.module.init({"params": rng, **rngs}, *arguments, method=self.training)["params"]

    def loss_fn(
        self, params: Params, batch: Batch, rng: PRNGKeyArray, step: Int[Array, ""] | int = 0
    ) -> tuple[Float[Array, ""], Metrics]:
        """Training: the summed loss of the real target tokens, with dropout, label smoothing and sampling.

        `step`, the number of updates made before, is for losses that change during the training.
        """
        rngs = {"dropout": rng, "sample": jax.random.fold_in(rng, 1)}
        arguments = self._arguments(batch, jnp.asarray(step))
        loss, nll = self.module.apply({"params": params}, *arguments, rngs=rngs, method=self.training)
        real = self._real(batch)
        count = jnp.sum(real)
        return jnp.sum(loss * real), {
            "loss": Mean(jnp.sum(loss * real), count),
            "nll": Mean(jnp.sum(nll * real), count),
        }

    def eval_fn(self, params: Params, batch: Batch) -> Metrics:
        """Of the real target tokens: nll, the share that the model would have chosen, the entropy of the weights."""
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
        """The attention weights of the teacher-forced pass."""
        return self._apply(params, batch, "evaluate")[2]

    def start(self, params: Params, source: Int[Array, "b s"]) -> tuple[PyTree, PyTree]:
        """What decode.py needs: the memory, which it never changes, and the state, which `step` does."""
        return self.module.apply({"params": params}, source, method="start")

    def step(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"]
    ) -> tuple[PyTree, Float[Array, "b v"]]:
        """log p(next token | tokens so far) and the state after `token`."""
        return self.module.apply({"params": params}, memory, state, token, method="step")

    def _arguments(self, batch: Batch, step: Int[Array, ""]) -> tuple[Array, ...]:
        """Those of the method of training."""
        return batch["source"], batch["target_in"], batch["target_out"]

    def _apply(self, params: Params, batch: Batch, method: str):
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.apply({"params": params}, *args, method=method)

    def _real(self, batch: Batch) -> Float[Array, "..."]:
        """One where there is something to predict, zero elsewhere; the shape is that of the losses."""
        return jnp.asarray(self.module.real(jnp.asarray(batch["target_out"])), jnp.float32)


def one_word(
    log_probs: Float[Array, "b v"], state: Int[Array, "b"], eos: int
) -> tuple[Int[Array, "b"], Float[Array, "b v"]]:
    """A decoding step of models whose target is one word with these log_probs: the word, then eos."""
    end = jnp.where(jnp.arange(log_probs.shape[-1]) == eos, 0.0, -jnp.inf)
    return state + 1, jnp.where((state == 0)[:, None], log_probs, end)
