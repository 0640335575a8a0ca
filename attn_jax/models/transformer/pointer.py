"""A Transformer that copies tokens of the source, see outputs/pointer.py."""

from typing import ClassVar

import jax.numpy as jnp

from attn_jax.attention.hard.estimators import gradient_only
from attn_jax.models.transformer.encoder_decoder import DecodeState, Transformer
from attn_jax.outputs.base import nll_and_correct
from attn_jax.outputs.pointer import Pointer, coverage_loss
from attn_jax.outputs.top_k import top_k
from attn_jax.types import Array, Float, Int, PyTree, Source


class PointerTransformer(Transformer, kw_only=True):
    """A Transformer whose next token is generated, or copied from the source (See 2017, arXiv 1704.04368).

    The weights on the source are the mean over the heads of the last layer. The gate reads [state; embedded input],
    since the state contains the context. The memory of decoding is (memory of each layer, target id of each source
    token).
    """

    pointer: Pointer
    coverage_penalty: float = 0.0
    follows_beams: ClassVar[bool] = False  # a step needs the weights on the source, too

    def losses(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        log_probs, weights = self.predict(source, target_in, train=True)
        loss, nll = self.pointer.losses(log_probs, targets)
        if self.coverage_penalty:
            real = self.real(targets)[..., None]
            loss = loss + gradient_only(self.coverage_penalty * coverage_loss(jnp.where(real, weights, 0)))
        return loss, nll

    def evaluate(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        log_probs, weights = self.predict(source, target_in)
        return *nll_and_correct(log_probs, targets), weights

    def predict(
        self, source: Source, target_in: Int[Array, "b t"], *, train: bool = False
    ) -> tuple[Float[Array, "b t v"], Float[Array, "b t s"]]:
        """Returns (log p(word) of the teacher-forced pass, weights on the source)."""
        states, weights = self.unroll(source, target_in, train=train)
        return self._mixture(states, target_in, weights, self.pointer.copied(source)[:, None]), weights

    def start(self, source: Source, length: int) -> tuple[PyTree, DecodeState]:
        memory, state = super().start(source, length)
        return (memory, self.pointer.copied(source)), state

    def step(self, memory: PyTree, state: DecodeState, token: Int[Array, "b"]):
        read, copied = memory
        state, states, weights = self.advance_with_weights(read, state, token)
        return state, self._mixture(states, token, weights, copied)

    def step_top_k(self, memory: PyTree, state: DecodeState, token: Int[Array, "b"], k: int):
        state, log_probs = self.step(memory, state, token)
        return state, top_k(log_probs, min(k, self.target_vocab_size))

    def _mixture(
        self,
        states: Float[Array, "... d"],
        tokens: Int[Array, "..."],
        weights: Float[Array, "... s"],
        copied: Int[Array, "..."],
    ) -> Float[Array, "... v"]:
        inputs = jnp.concatenate([states, self.target_embedding(tokens)], axis=-1)
        return self.pointer(self.log_probs(states), inputs, weights, copied)
