"""The objective of a model that copies tokens of the source, see outputs/pointer.py."""

import jax.numpy as jnp

from attn_jax.models.seq2seq.objectives import MixtureObjective, TokenLosses
from attn_jax.outputs.pointer import Pointer


class PointerObjective(MixtureObjective, kw_only=True):
    """-log p(y) for the mixture of the vocabulary and the attended source tokens (See 2017, arXiv 1704.04368).

    The gate reads [mean of the values; state of the decoder; its embedded input] (equation 8).
    """

    pointer: Pointer

    def copied(self, source):
        return self.pointer.copied(source)

    def losses(self, readout, memory, steps, *, targets, real):
        return TokenLosses(*self.pointer.losses(self.log_probs(readout, memory, steps), targets))

    def log_probs(self, readout, memory, steps):
        context = jnp.einsum("b...s,bsd->b...d", steps.weights, memory.values)
        inputs = jnp.concatenate([context, steps.hidden, steps.embedded], axis=-1)
        return self.pointer(readout.log_probs(steps.readout), inputs, steps.weights, steps.copied)
