"""What the rest of the project sees of a model: pure functions of (params, batch).

A batch has `source` [b, s], `target_in` and `target_out` [b, t]; positions that hold `pad` never change a result.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.estimators import entropy
from attn_jax.metrics import Mean
from attn_jax.types import Array, Batch, Float, Int, Metrics, Params, PRNGKeyArray, PyTree


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as pure functions. `module` has loss, evaluate, real, start and step: see seq2seq.py."""

    module: nn.Module

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Fresh parameters, in float32."""
        args = batch["source"], batch["target_in"], batch["target_out"]
        rngs = {name: jax.random.fold_in(rng, i) for i, name in enumerate(("dropout", "sample"))}
        return self.module.init({"params": rng, **rngs}, *args, method="loss")["params"]

    def loss_fn(
        self, params: Params, batch: Batch, rng: PRNGKeyArray, step: Int[Array, ""] | int = 0
    ) -> tuple[Float[Array, ""], Metrics]:
        """Training: the summed loss of the real target tokens, with dropout, label smoothing and sampling.

        `step`, the number of updates made before, is for losses that change during the training; these do not.
        """
        rngs = {"dropout": rng, "sample": jax.random.fold_in(rng, 1)}
        loss, nll = self._apply(params, batch, "loss", rngs=rngs)
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

    def _apply(self, params: Params, batch: Batch, method: str, rngs: dict | None = None):
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.apply({"params": params}, *args, rngs=rngs, method=method)

    def _real(self, batch: Batch) -> Float[Array, "b t"]:
        return jnp.asarray(self.module.real(jnp.asarray(batch["target_out"])), jnp.float32)


def num_parameters(params: Params) -> int:
    """How many numbers the parameters hold."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
