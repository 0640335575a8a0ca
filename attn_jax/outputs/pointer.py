"""Pointer-generator: the next word is generated, or copied from the source (See 2017, arXiv 1704.04368).

    p(word) = g P_vocab(word) + (1 - g) sum_{i: copied_i = word} a_i        g = sigmoid(w . [context; state; input] + b)

with a the attention weights on the source (equations 8 and 9). A source word that the target vocabulary lacks is copied
as unk, while the paper extends the vocabulary; decode.unk=replace then takes the source word of largest weight.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.types import Array, Dtype, Float, Int, wide


class Pointer(nn.Module, kw_only=True):
    """Mixes copies of source tokens into the probabilities of the vocabulary, exactly and normalized.

    The weights have to be at least 0 and to sum to one. `copies` has the target id of each source id; (): source and
    target have the same ids, and source ids beyond the target vocabulary are unk.
    """

    vocab_size: int  # of the target
    copies: tuple[int, ...] = ()
    unk: int = 1
    label_smoothing: float = 0.0
    dtype: Dtype = jnp.float32

    def setup(self):
        self.gate = Dense(features=1, dtype=self.dtype)

    def copied(self, source: Int[Array, "b s"]) -> Int[Array, "b s"]:
        """Returns the target id of each source token."""
        if self.copies:
            return jnp.asarray(self.copies, jnp.int32)[source]
        return jnp.where(source < self.vocab_size, source, self.unk)

    def __call__(
        self,
        log_probs: Float[Array, "... v"],
        inputs: Float[Array, "... d"],
        weights: Float[Array, "... s"],
        copied: Int[Array, "... s"],
    ) -> Float[Array, "... v"]:
        """Computes log p(word) of each word.

        Args:
            log_probs: log P_vocab(word).
            inputs: inputs of the gate: [context; state; input].
            weights: attention weights on the source.
            copied: target id of each source token, see `copied`; leading axes broadcast.
        """
        return mix(log_probs, scatter(wide(weights), copied, self.vocab_size), wide(self.gate(inputs)))

    def losses(
        self, log_probs: Float[Array, "... v"], targets: Int[Array, "..."]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (training loss, negative log-likelihood) of each target, from the log-probabilities of `__call__`.

        With label smoothing e the training loss is (1 - e) nll + e mean_v(-log p_v), with the mixture p.
        """
        nll = -jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
        if not self.label_smoothing:
            return nll, nll
        return (1 - self.label_smoothing) * nll - self.label_smoothing * jnp.mean(log_probs, axis=-1), nll


def scatter(weights: Float[Array, "... s"], tokens: Int[Array, "... s"], size: int) -> Float[Array, "... v"]:
    """Computes sum_{i: tokens_i = v} weights_i for each v below `size`; leading axes broadcast."""

    def one(weights, tokens):
        return jnp.zeros(size, weights.dtype).at[tokens].add(weights)

    return jnp.vectorize(one, signature="(s),(s)->(v)")(weights, tokens)


def mix(
    log_probs: Float[Array, "... v"], copies: Float[Array, "... v"], gate: Float[Array, "... 1"]
) -> Float[Array, "... v"]:
    """Computes log(g P + (1 - g) copies) with g = sigmoid(gate), from the logarithm of P."""
    found = copies > 0
    log_copies = jnp.where(found, jnp.log(jnp.where(found, copies, 1)), -jnp.inf)  # a gradient of zero, not nan
    return jnp.logaddexp(jax.nn.log_sigmoid(gate) + log_probs, jax.nn.log_sigmoid(-gate) + log_copies)


def coverage_loss(weights: Float[Array, "b t s"]) -> Float[Array, "b t"]:
    """Computes sum_i min(a_ti, c_ti), c_ti the sum of the earlier weights of key i. See 2017, equation 12."""
    weights = wide(weights)  # a long sum in bfloat16 stops growing
    earlier = jnp.cumsum(weights, axis=1) - weights
    return jnp.sum(jnp.minimum(weights, earlier), axis=-1)
