"""Token mixing in a layer of a sequence model: one protocol for attention to all keys and for memories of fixed size.

    cache = mixer.start(batch, length)                 an empty cache, with room for `length` positions
    cache, attended = mixer.extend(x, cache=cache)     the next positions, one or many; a full pass without a cache
    memory = mixer.prepare(source)                     another sequence, to be read in any order
    attended = mixer(query, memory)

A full pass equals a prefill followed by steps: `extend` may split a sequence anywhere. A cache is a pytree with the
batch on axis 0 of each leaf, so one tree.map reorders beams or removes finished rows.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.caches import EVERYWHERE, Order
from attn_jax.attention.dense import Dense
from attn_jax.attention.gates import ContextGate
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.memory import Attended
from attn_jax.types import Array, Bool, Dtype, Float, Int, PRNGKeyArray, PyTree

DistanceBias = Callable[[Int[Array, "... q k"]], Float[Array, "... h q k"]]  # (key position - query position) -> bias


class Mixer(nn.Module, kw_only=True):
    """[head_1; ...; head_h] W_o + b_o; a subclass computes the heads from queries, keys and values.

    With `gate`, the contexts become [head_1; ...; head_h] * sigmoid(W_g x + b_g), where x is the input of the queries
    (Qiu 2025, arXiv 2505.06708).

    Attributes:
        num_heads: number of heads.
        features: width of the queries, of the contexts, and of all heads concatenated.
        order: keys of the same sequence that a query may attend to.
        gate: multiply the contexts of all heads by a sigmoid of the input of the queries, see gates.py.
        dtype: type of the projections.
    """

    num_heads: int
    features: int
    order: Order = EVERYWHERE
    gate: bool = False
    dtype: Dtype = jnp.float32

    if TYPE_CHECKING:  # of flax it is also a tuple, with `mutable`, so that no attribute would be known

        def apply(self, *args: Any, **kwargs: Any) -> Any: ...

    @property
    def branches(self) -> bool:
        """Tells whether `extend` takes a `branch`, for the beams of a search; see attention/caches.py."""
        return False

    def setup(self):
        self.out = self._projection(self.features)
        if self.gate:
            self.context_gate = ContextGate(dtype=self.dtype)

    def start(self, batch_size: int, length: int) -> PyTree:
        """Makes the cache of an empty sequence, with room for `length` positions."""
        raise NotImplementedError

    def grow(self, cache: PyTree, length: int) -> PyTree:
        """Makes room in a cache for `length` positions in total, including the positions that it contains."""
        raise NotImplementedError

    @checked_masks
    def extend(
        self,
        x: Float[Array, "b n d"],
        *,
        key_mask: Bool[Array, "b n"],
        positions: Int[Array, "b n"],
        cache: PyTree = None,
        bias: DistanceBias | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> tuple[PyTree, Attended]:
        """Attends from x to x and to the cache: (the cache with x added, contexts and weights).

        Args:
            x: inputs.
            key_mask: [b, n], True for real inputs; False for padding, which is no key.
            positions: positions of x, increasing. The cache contains earlier positions, and has room for these.
            cache: result of `start` or of an earlier `extend`; None: x is the whole sequence so far.
            bias: added to the scores: a function of key position - query position.
            rng: for a reading that samples.
            train: whether to apply dropout to the weights, with the rng stream "dropout".
        """
        raise NotImplementedError

    @nn.nowrap
    def _projection(self, width: int) -> Dense:
        return Dense(features=width, kernel_init=nn.initializers.xavier_uniform(), dtype=self.dtype)

    def finish(self, contexts: Float[Array, "... f"], x: Float[Array, "... d"]) -> Float[Array, "... f"]:
        """Gates and projects contexts of all heads, [head_1; ...; head_h]; x is the input of the queries."""
        return self.out(self.context_gate(contexts, x) if self.gate else contexts)

    def _merged(self, contexts: Float[Array, "... h q w"], x: Float[Array, "... q d"]) -> Float[Array, "... q f"]:
        contexts = jnp.swapaxes(contexts, -3, -2)
        return self.finish(contexts.reshape(*contexts.shape[:-2], self.features), x)


def split(x: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n w"]:
    """Splits the columns into heads."""
    return jnp.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -3, -2)


def head_width(features: int, num_heads: int, num_kv_heads: int = 0) -> int:
    """Computes the width of a head.

    Raises:
        ValueError: num_heads does not divide features, or num_kv_heads does not divide num_heads.
    """
    if features < 1:
        raise ValueError(f"features is {features}; expected at least 1")
    if num_heads < 1 or features % num_heads:
        near = min((n for n in range(1, features + 1) if features % n == 0), key=lambda n: abs(n - num_heads))
        raise ValueError(f"num_heads {num_heads} does not divide the width {features}; the nearest that does is {near}")
    if num_kv_heads < 0 or (num_kv_heads and num_heads % num_kv_heads):
        near = min((n for n in range(1, num_heads + 1) if num_heads % n == 0), key=lambda n: abs(n - num_kv_heads))
        raise ValueError(f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}; the nearest is {near}")
    return features // num_heads
