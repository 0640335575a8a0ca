"""The softmax over the whole vocabulary."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.dense import product
from attn_jax.layers.rows import whole
from attn_jax.outputs.base import Embedding, OutputLayer, OutputOptions, OutputSetting, smoothing_option
from attn_jax.outputs.top_k import Extensions, best_by_logit
from attn_jax.types import Array, Callable, Float, Int, PRNGKeyArray


class Linear(NamedTuple):
    """logits = hidden table + bias, with a table [v, d] (`axis` 0) or [d, v] (`axis` 1)."""

    table: Float[Array, "..."]
    bias: Float[Array, "v"] | None
    axis: int


class FullSoftmax(OutputLayer, kw_only=True):
    """log_probs = log_softmax(W hidden + b).

    `tied`, W is the target embedding [v, e], e = d, and b the only parameter (Press & Wolf 2017, arXiv 1608.05859).
    Otherwise the embedding is not used and may have any width.

    Attributes:
        label_smoothing: probability spread over all words.
        use_bias: whether there is a bias.
        kernel_init: initializer of the vectors.
        group: name over the parameters kernel and bias; "": none.
    """

    label_smoothing: float = 0.0
    use_bias: bool = True
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    group: str = "dense"

    @nn.compact
    def linear(self, features: int, embedding: Embedding = None) -> Linear:
        """Returns the parameters for hidden states with this number of features."""
        if self.tied:
            return Linear(jnp.asarray(whole(embedding)), declare_bias(self, self.vocab_size, self.use_bias), axis=0)
        sizes = {"features": self.vocab_size, "use_bias": self.use_bias, "kernel_init": self.kernel_init}
        if self.group:
            return Linear(*Affine(**sizes, name=self.group)(features), axis=1)
        return Linear(*declare(self, features, **sizes), axis=1)

    def logits(self, hidden: Float[Array, "... d"], embedding: Embedding = None) -> Float[Array, "... v"]:
        """Returns W hidden + b in float32 at least, of operands rounded to `dtype`."""
        table, bias, axis = self.linear(hidden.shape[-1], embedding)
        logits = product(hidden, table if axis else table.T, self.dtype)
        return logits if bias is None else logits + jnp.expand_dims(bias, range(logits.ndim - 1))

    def log_probs(self, hidden: Float[Array, "... d"], embedding: Embedding = None) -> Float[Array, "... v"]:
        """log p(word) of each word, for evaluation and decoding."""
        return jax.nn.log_softmax(self.logits(hidden, embedding))

    def extensions(self, hidden, before, n, forbidden=(), embedding=None) -> Extensions:
        return best_by_logit(self.logits(hidden, embedding), before, n, forbidden)

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Embedding = None,
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullOptions(OutputOptions):
    """Options of the full softmax."""

    label_smoothing: float = smoothing_option()

    def build(self, setting: OutputSetting) -> FullSoftmax:
        return FullSoftmax(label_smoothing=self.label_smoothing, **full_fields(setting))

    def stored_logits(self, vocab_size: int) -> int:
        return vocab_size


def full_fields(setting: OutputSetting) -> dict[str, Any]:
    """Returns the fields of FullSoftmax."""
    fields = setting._asdict()
    del fields["counts"]
    return fields


class Affine(nn.Module, kw_only=True):
    """The parameters of nn.Dense, without its product."""

    features: int
    use_bias: bool = True
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, width: int) -> tuple[Float[Array, "d v"], Float[Array, "v"] | None]:
        """Returns (kernel, bias or None) for inputs of this width."""
        return declare(self, width, features=self.features, use_bias=self.use_bias, kernel_init=self.kernel_init)


def declare(module: nn.Module, width: int, *, features: int, use_bias: bool, kernel_init: Callable[..., Array]):
    """Declares the parameters kernel [width, features] and bias [features] of a module."""
    kernel = jnp.asarray(module.param("kernel", kernel_init, (width, features), jnp.float32))
    return kernel, declare_bias(module, features, use_bias)


def declare_bias(module: nn.Module, features: int, use_bias: bool) -> Float[Array, "v"] | None:
    """Declares the parameter bias [features] of a module, if it has one."""
    return jnp.asarray(module.param("bias", nn.initializers.zeros, (features,), jnp.float32)) if use_bias else None
