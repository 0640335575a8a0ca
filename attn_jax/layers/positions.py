"""Positional encodings, which tell attention the order of its keys.

A scheme acts in one of these places and has no effect in the others:

    embed(embedded [..., n, d], positions [..., n])    added to the embeddings
    of_distance(distance [..., q, k]) [..., h, q, k]   added to the scores; distance: key position - query position
    rotary                                             queries and keys are rotated, see attention/rotary.py
    forgets                                            heads forget, see attention/forgetting.py

Positions count from 0. One scheme serves all layers of a stack.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.masks import with_axes
from attn_jax.attention.rotary import angles
from attn_jax.parts import option
from attn_jax.types import Array, Float, Int


class NoPositions(nn.Module, kw_only=True):
    """No positions. A causal stack can still distinguish positions: the first token sees one key, the second two, ...

    Base of the other schemes. All have the same fields, so that they are constructed alike; each reads some of them.
    """

    num_heads: int = 1
    features: int = 0  # width of the embeddings
    max_length: int = 0
    causal: bool = False
    error: Callable[[str], Exception] = ValueError  # makes the exception for a sequence longer than max_length
    limited: ClassVar[bool] = False  # there are positions for max_length tokens only
    rotary: ClassVar[bool] = False  # queries and keys are rotated, which needs heads of even width
    forgets: ClassVar[bool] = False  # heads have forget gates
    decay_time: ClassVar[float] = 0.0  # positions after which a forget gate at its start has lowered a weight to 1 / e
    biased: ClassVar[bool] = False  # a bias is added to the scores, see `of_distance`
    needs_attention: ClassVar[bool] = False  # acts on scores, queries or keys, and so not without attention

    @property
    def num_scaled(self) -> int:
        """The number of heads, counted from the first, that a scalable normalizer may scale."""
        return self.num_heads

    def check(self, length: int) -> None:
        """Raises `error` if a scheme has fewer positions than `length`."""

    def embed(self, embedded: Float[Array, "... n d"], positions: Int[Array, "... n"]) -> Float[Array, "... n d"]:
        """Returns the embeddings with their positions added."""
        return embedded

    @nn.nowrap
    def of_distance(self, distance: Int[Array, "... q k"]) -> Float[Array, "... h q k"]:
        """Returns the bias of a `biased` scheme for keys at these distances, key position - query position."""
        raise NotImplementedError


def sinusoids(positions: Int[Array, "... n"], features: int) -> Float[Array, "... n d"]:
    """sin of each angle in the even columns, cos in the odd ones (Vaswani 2017, arXiv 1706.03762, section 3.5).

    The authors' code (tensor2tensor) has all sines before all cosines, and wavelengths up to exactly 2 pi BASE.
    """
    angle = angles(positions, features)
    both = jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
    return both.reshape(*both.shape[:-2], -1)[..., :features]


class Sinusoidal(NoPositions, kw_only=True):
    """embedded + sinusoids(position). Vaswani 2017 (arXiv 1706.03762), section 3.5."""

    def embed(self, embedded, positions):
        return embedded + sinusoids(positions, embedded.shape[-1]).astype(embedded.dtype)


class Learned(NoPositions, kw_only=True):
    """embedded + a learned vector for each of `max_length` positions. Gehring 2017 (arXiv 1705.03122), section 3.1.

    A vector is trained only if training sequences reach its position.

    Raises:
        ValueError: `embed` and `check` raise it for a sequence longer than max_length (or the exception of `error`).
    """

    max_length: int = option(512, "largest number of positions", at_least=1)
    limited: ClassVar[bool] = True

    def setup(self):
        shape = (self.max_length, self.features)
        self.table = self.param("embedding", nn.initializers.normal(0.02), shape, jnp.float32)

    def check(self, length):
        if length > self.max_length:
            raise self.error(f"a sequence of {length} tokens, but there are {self.max_length} learned positions")

    def embed(self, embedded, positions):
        self.check(embedded.shape[-2])
        return embedded + jnp.take(self.table, positions, axis=0, mode="clip").astype(embedded.dtype)


class Rotary(NoPositions, kw_only=True):
    """Queries and keys rotated by their positions: see attention/rotary.py."""

    rotary: ClassVar[bool] = True
    needs_attention: ClassVar[bool] = True


class Relative(NoPositions, kw_only=True):
    """A learned number for each head and bucket of distances, added to the scores. Raffel 2020 (arXiv 1910.10683).

    Half of the `num_buckets` hold one distance each; the others grow logarithmically up to `max_distance`, and all
    greater distances share the last. Unless `causal`, one half of all buckets is for keys after the query.

    Raises:
        ValueError: too few buckets, or a max_distance within the first half of the buckets.
    """

    num_buckets: int = option(32, "number of buckets of distances", at_least=2)
    max_distance: int = option(128, "distance from which all share the last bucket", at_least=2)
    biased: ClassVar[bool] = True
    needs_attention: ClassVar[bool] = True

    def __post_init__(self):
        exact = self.num_buckets // (2 if self.causal else 4)
        if exact < 1 or self.max_distance <= exact:
            least = 2 if self.causal else 4
            raise ValueError(
                f"num_buckets is {self.num_buckets} and max_distance {self.max_distance}; expected at least {least} "
                f"buckets, and a max_distance above the {exact} that have a bucket each"
            )
        super().__post_init__()

    def setup(self):
        init = nn.initializers.normal(0.02)
        self.table = self.param("bias", init, (self.num_buckets, self.num_heads), jnp.float32)

    @nn.nowrap
    def buckets(self, distance: Int[Array, "..."]) -> Int[Array, "..."]:
        """Returns the bucket of each distance, key position - query position."""
        number = self.num_buckets if self.causal else self.num_buckets // 2
        after = 0 if self.causal else jnp.where(distance > 0, number, 0)
        back = jnp.maximum(-distance, 0) if self.causal else jnp.abs(distance)
        exact = number // 2
        ratio = jnp.log(jnp.maximum(back, exact) / exact) / math.log(self.max_distance / exact)
        far = jnp.minimum(exact + (ratio * (number - exact)).astype(jnp.int32), number - 1)
        return after + jnp.where(back < exact, back, far)

    @nn.nowrap
    def of_distance(self, distance):
        return jnp.moveaxis(self.table[self.buckets(distance)], -1, -3)


class Alibi(NoPositions, kw_only=True):
    """-slope |query position - key position| added to the scores, with a fixed slope for each head.

    Press 2022 (arXiv 2108.12409), section 3: the slopes of h heads are 2^(-8 i / h), i = 1 .. h, if h is a power of
    two. Otherwise, as in the authors' code (github.com/ofirpress/attention_with_linear_biases), the first p heads, p
    the largest power of two below h, have the slopes of p heads; the others have 2^(-8 (i - 1/2) / p), i = 1 .. h - p.
    """

    biased: ClassVar[bool] = True
    needs_attention: ClassVar[bool] = True

    @nn.nowrap
    def slopes(self) -> Float[np.ndarray, "h"]:
        """Returns the slope of each head."""
        power = 1 << (self.num_heads.bit_length() - 1)
        between = np.arange(1, self.num_heads - power + 1) - 0.5
        exponents = np.concatenate([np.arange(1, power + 1), between]) / power
        return (2.0 ** (-8.0 * exponents)).astype(np.float32)

    @nn.nowrap
    def of_distance(self, distance):
        # In float32, as scores are: in bfloat16 a distance of 601 would be 600.
        distance = jnp.abs(distance).astype(jnp.float32)
        slopes = with_axes(jnp.asarray(self.slopes())[:, None, None], distance.ndim + 1)
        return -distance[..., None, :, :] * slopes


class HalfAlibi(Alibi, kw_only=True):
    """No positions in the first half of the heads, biases in the second: NAPE of Vasylenko 2025 (arXiv 2506.16640).

    The heads without positions can attend anywhere, the others prefer near keys: their slopes are 1, 1/2, 1/3, ...,
    steeper than ALiBi's, as in the authors' code (github.com/deep-spin/asentmax).
    """

    @property
    def num_scaled(self) -> int:
        return (self.num_heads + 1) // 2

    @nn.nowrap
    def slopes(self):
        near = np.arange(1, self.num_heads - self.num_scaled + 1, dtype=np.float32)
        return np.concatenate([np.zeros(self.num_scaled, np.float32), 1 / near])


class Forgetting(NoPositions, kw_only=True):
    """A forget gate per head, computed from the input: ALiBi with data-dependent slopes. Lin 2025 (arXiv 2503.02130).

    See attention/forgetting.py. Only for self-attention: a key of the source has no distance from a query.
    """

    decay_time: float = option(
        0.0, "positions after which gates at their start have lowered a weight to 1 / e; 0: gates of 1 / 2", at_least=0
    )
    forgets: ClassVar[bool] = True
    needs_attention: ClassVar[bool] = True


POSITIONS = {
    "none": NoPositions,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "relative": Relative,
    "alibi": Alibi,
    "nape": HalfAlibi,
    "forgetting": Forgetting,
}
