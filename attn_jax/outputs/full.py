"""The softmax over the whole vocabulary."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.types import Array, Dtype, Float, Int, PRNGKeyArray


class FullSoftmax(nn.Module, kw_only=True):
    """log_probs = log_softmax(W hidden + b).

    `tied`, W is the target embedding [v, e], e = d, and b the only parameter (Press & Wolf 2017, arXiv 1608.05859).
    Otherwise the embedding is not used and may have any width.
    """

    vocab_size: int
    tied: bool = False
    label_smoothing: float = 0.0
    dtype: Dtype = jnp.float32

    @nn.compact
    def logits(
        self, hidden: Float[Array, "... d"], embedding: Float[Array, "v e"] | None = None
    ) -> Float[Array, "... v"]:
        """W hidden + b in float32; the product is computed in `dtype`."""
        if not self.tied:
            return nn.Dense(self.vocab_size, dtype=self.dtype, name="dense")(hidden).astype(jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.vocab_size,))
        logits = jnp.einsum("...d,vd->...v", hidden.astype(self.dtype), embedding.astype(self.dtype))
        return logits.astype(jnp.float32) + bias

    def log_probs(
        self, hidden: Float[Array, "... d"], embedding: Float[Array, "v e"] | None = None
    ) -> Float[Array, "... v"]:
        """log p(word) of each word, for evaluation and decoding."""
        return jax.nn.log_softmax(self.logits(hidden, embedding))

    def top_k(
        self, hidden: Float[Array, "... d"], k: int, embedding: Float[Array, "v e"] | None = None
    ) -> tuple[Float[Array, "... k"], Int[Array, "... k"]]:
        """Returns (log-probabilities, words) of the k most probable words, most probable first."""
        values, words = jax.lax.top_k(self.log_probs(hidden, embedding), k)
        return values, words

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Float[Array, "v e"] | None = None,
        rng: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (training loss, negative log-likelihood) of each target.

        With label smoothing e the training loss is the cross entropy with (1 - e) onehot + e / v:
        (1 - e) nll + e mean_v(-log p_v) (Szegedy 2016, arXiv 1512.00567, section 7). `rng` is not used: nothing here
        is sampled.
        """
        logits = self.logits(hidden, embedding)
        log_normalizer = jax.nn.logsumexp(logits, axis=-1)
        target_logit = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        nll = log_normalizer - target_logit
        smooth = log_normalizer - jnp.mean(logits, axis=-1)
        loss = (1 - self.label_smoothing) * nll + self.label_smoothing * smooth
        return loss, nll
