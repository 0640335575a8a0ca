"""Normalizers with options or parameters: linen modules, normalize(scores, mask, query=query) -> weights.

Learned normalizers have parameters per head: with `num_heads` > 1 the scores are [..., h, q, k] and the parameters
[h, 1, 1]; num_heads = 1 accepts scores of any shape. base.py has the contract of all normalizers. In this file only
ScalableEntmax needs `query`.

Scalable normalizers scale the first `num_scaled` heads; 0 means all. The other heads are meant to have a distance bias,
which already limits their range (Vasylenko 2025, as in the authors' code).
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.masks import check_mask, checked_masks, with_axes
from attn_jax.attention.normalizers.base import Mask, NormalizerModule, Query, Scores, Weights, softmax
from attn_jax.attention.normalizers.entmax import entmax
from attn_jax.attention.normalizers.entmax_form import entmax_form, has_entmax_form
from attn_jax.attention.normalizers.forms import Form
from attn_jax.attention.normalizers.fusedmax import fusedmax
from attn_jax.parts import option
from attn_jax.types import Array, Float, wide, widest


class Entmax(NormalizerModule, kw_only=True):
    """entmax with a fixed alpha. Peters, Niculae & Martins 2019 (arXiv 1905.05702)."""

    alpha: float = option(1.5, "exponent: 1 is softmax, 1.5 entmax15, 2 sparsemax", at_least=1)

    @checked_masks
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        return entmax(scores, mask, self.alpha)

    @property
    def label(self) -> str:
        """Name of the class, with alpha."""
        return f"Entmax(alpha={self.alpha})"

    @property
    def has_form(self) -> bool:
        """Tells whether weights can be computed block by block, which needs an alpha of at most 2."""
        return has_entmax_form(self.alpha)

    @nn.nowrap
    def form_of(self, scores: Scores | jax.ShapeDtypeStruct) -> Form:
        """Returns the form for blocks of keys; see forms.py."""
        return entmax_form(self.alpha)


class LearnedEntmax(NormalizerModule, kw_only=True):
    """entmax with alpha = 1 + sigmoid(a), a learned per head, starting at alpha = 1.5.

    Correia, Niculae & Martins 2019 (arXiv 1909.00015): each head learns a value between softmax and sparsemax.

    Attributes:
        num_heads: number of learned alphas.
    """

    num_heads: int = 1
    has_form: ClassVar[bool] = True

    @nn.compact
    def alphas(self, scores: Scores | jax.ShapeDtypeStruct) -> Float[Array, "..."]:
        """Returns alpha, broadcastable to the scores."""
        logit = self.param("alpha", nn.initializers.zeros, (self.num_heads, 1, 1), jnp.float32)
        return per_head(1 + nn.sigmoid(logit), scores).astype(widest(scores))

    @checked_masks
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        return entmax(scores, mask, self.alphas(scores))

    def form_of(self, scores: Scores | jax.ShapeDtypeStruct) -> Form:
        """Returns the form for blocks of keys; see forms.py."""
        return entmax_form(self.alphas(scores))


class Fusedmax(NormalizerModule, kw_only=True):
    """fusedmax with a fixed fusion penalty. Niculae & Blondel 2017 (arXiv 1705.07704)."""

    fusion: float = option(0.1, "weight of the penalty: 0 is sparsemax, more: longer runs of equal weights", at_least=0)

    @checked_masks
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        return fusedmax(scores, mask, self.fusion)


class ScalableSoftmax(NormalizerModule, kw_only=True):
    """softmax(s log(n) scores): s learned per head, n the number of unmasked keys in the row.

    Nakanishi 2025 (arXiv 2501.19399), SSMax: the largest weight does not vanish as n grows.

    Attributes:
        scale: initial s, by default the value in figure 1 of the paper.
        num_heads: number of learned s.
        num_scaled: number of scaled heads, from the first; 0: all.
    """

    scale: float = 0.43
    num_heads: int = 1
    num_scaled: int = 0

    @checked_masks
    @nn.compact
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        scale = self.param("scale", nn.initializers.constant(self.scale), (self.num_heads, 1, 1), jnp.float32)
        factor = _of_scaled(per_head(scale, scores) * _log_number(scores, mask), self.num_scaled, self.num_heads)
        return softmax(_kept(wide(scores), mask) * factor, mask).astype(scores.dtype)


class ScalableEntmax(NormalizerModule, kw_only=True):
    """entmax((delta + beta log(n)^gamma) scores), beta = softplus(w . query), gamma = gamma_range tanh(v . query).

    ASEntmax: Vasylenko, Pitorro, Martins & Treviso 2025 (arXiv 2506.16640), with the authors' defaults. w and v
    [h, 1, d] are learned, one per head, and n is the number of unmasked keys in the row. `query` is [..., h, q, d], or
    [..., q, d] for all heads. In the authors' code (github.com/deep-spin/asentmax) w and v multiply the state from
    which the queries of all heads are projected; here they multiply the query of each head.

    Attributes:
        delta: constant part of the scale.
        gamma_range: largest |gamma|.
        num_heads: number of learned w and v.
        num_scaled: number of scaled heads, from the first; 0: all.

    Raises:
        ValueError: called without a query.
    """

    alpha: float = option(1.5, "exponent: 1 is softmax, 1.5 entmax15, 2 sparsemax", at_least=1)
    delta: float = 1.0
    gamma_range: float = 2.0
    num_heads: int = 1
    num_scaled: int = 0

    @checked_masks
    @nn.compact
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        if query is None:
            raise ValueError("ScalableEntmax scales by the query, and was called without one")
        beta = nn.softplus(self._projected("beta", query, scores))
        gamma = self.gamma_range * nn.tanh(self._projected("gamma", query, scores))
        scale = _of_scaled(self.delta + beta * _log_number(scores, mask) ** gamma, self.num_scaled, self.num_heads)
        # entmax is shift invariant. After the shift the largest score is exactly 0, even if the compiler computes the
        # product twice with different rounding.
        keep = jnp.ones((1,) * scores.ndim, bool) if mask is None else mask
        largest = jnp.max(wide(scores), axis=-1, keepdims=True, where=keep, initial=-jnp.inf)
        largest = jax.lax.stop_gradient(jnp.where(largest > -jnp.inf, largest, 0.0))
        shifted = _kept(wide(scores) - largest, mask)
        return entmax(shifted * scale, mask, self.alpha).astype(scores.dtype)

    def _projected(self, name: str, query: Float[Array, "... q d"], scores: Scores) -> Float[Array, "... 1"]:
        """Projects each query to one number per head."""
        shape = (self.num_heads, 1, query.shape[-1])
        weights = self.param(name, nn.initializers.lecun_normal(in_axis=-1, out_axis=0), shape, jnp.float32)
        if query.ndim < scores.ndim:
            query = query[..., None, :, :]
        return jnp.sum(wide(query) * per_head(weights, scores), axis=-1, keepdims=True)


def _kept(scores: Scores, mask: Mask) -> Scores:
    """Sets masked scores to zero: infinite scores would make the gradient of a factor NaN."""
    return scores if mask is None else jnp.where(mask, scores, 0)


def per_head(parameter: Float[Array, "h n d"], scores: Scores | jax.ShapeDtypeStruct) -> Float[Array, "..."]:
    """Reshapes a per-head parameter to broadcast with the scores."""
    num_heads = parameter.shape[0]
    if num_heads == 1:
        return with_axes(parameter[0, 0], scores.ndim)
    if scores.ndim < 3 or scores.shape[-3] != num_heads:
        raise ValueError(f"scores [..., {num_heads}, q, k] were expected, one for each head, got {scores.shape}")
    return with_axes(parameter, scores.ndim)


def _of_scaled(factor: Float[Array, "... 1"], num_scaled: int, num_heads: int) -> Float[Array, "... 1"]:
    """Replaces the factor by 1, except in the first `num_scaled` heads."""
    if num_scaled in (0, num_heads):
        return factor
    return jnp.where(jnp.arange(factor.shape[-3])[:, None, None] < num_scaled, factor, 1)


def _log_number(scores: Scores, mask: Mask) -> Float[Array, "... 1"]:
    """Computes log(n), n the number of unmasked keys, at least 2.

    A single key has weight 1 with any scale, but log(1)^gamma may be infinite.
    """
    if mask is None:
        mask = jnp.ones((1,) * scores.ndim, bool)
    else:
        check_mask(mask, scores.shape, axes=1)
    number = jnp.sum(jnp.broadcast_to(mask, (*mask.shape[:-1], scores.shape[-1])), axis=-1, keepdims=True)
    return jnp.log(jnp.maximum(number, 2).astype(widest(scores)))
