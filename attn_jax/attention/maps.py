"""Maps of attention, and wrappers of them: map(call) -> weights [..., q, k].

    keys = map.prepare(keys [..., k, dk])     what is kept of the keys: a pytree, computed once for each memory
    weights = map(call)                       W, which depends on no values
    map.last(call)                            the (map, call) of one score each that computes the same W

A map of several steps, such as that of a Hopfield network, comes to one map of scores with another query or bias:
`last` finds it, for what is computed from scores (the fused kernel, blocks of keys) or at the place of the query.
"""

from collections.abc import Set

import flax.linen as nn
import jax.numpy as jnp
from flax.errors import ScopeParamNotFoundError

from attn_jax.attention.hard.readings import weighted_sum
from attn_jax.attention.masks import same_axes
from attn_jax.attention.parts import (
    BY_BLOCKS,
    FUSIBLE,
    NOT_NEGATIVE,
    SUMS_TO_ONE,
    TAKES_INFINITE,
    Call,
    Part,
    Wrapper,
    check_slot,
)
from attn_jax.attention.scores.base import Score, ScoreError
from attn_jax.attention.signed import halves
from attn_jax.types import Array, Float, PyTree, wide

Weights = Float[Array, "... q k"]
Keys = Float[Array, "... k dk"]


class Map(Part, kw_only=True):
    """W = normalize(score(query, keys) + bias).

    Raises:
        ValueError: a score that is -inf out of its reach, with a normalizer that takes finite scores only.
    """

    score: Score
    normalize: Part  # a normalizer, or a wrapper of one; see normalizing.py

    def __post_init__(self):
        if self.score.compact:
            check_slot(f"the {type(self.score).__name__} score", {TAKES_INFINITE}, self.normalize)
        super().__post_init__()

    @property
    def inside(self) -> tuple[Part, ...]:
        return (self.normalize,)

    @property
    def promises(self) -> Set[str]:
        broken = {
            SUMS_TO_ONE: self.score.compact,  # a query out of reach of all keys
            BY_BLOCKS: not self.score.by_key,
            FUSIBLE: self.score.fused_scale(1) is None,
        }
        return self.normalize.promises - {promise for promise, holds in broken.items() if holds}

    def prepare(self, keys: Keys) -> PyTree:
        """Computes what is kept of keys: the part of the score that needs no query."""
        return self.score.project_keys(keys)

    def __call__(self, call: Call) -> Weights:
        """Computes the weights, in the type of queries and keys."""
        scores = self.scores(call)
        dtype = jnp.promote_types(call.query.dtype, call.keys.dtype) if self.score.widens else scores.dtype
        scores = wide(scores)
        if call.bias is not None:
            scores = jnp.add(*same_axes(scores, call.bias.astype(scores.dtype)))
        weights = self.normalize(scores, call.in_reach, call)
        return weights if self.normalize.widens else weights.astype(dtype)

    def scores(self, call: Call) -> Float[Array, "... q k"]:
        """Computes the scores, without bias.

        Raises:
            ValueError: `init` made the parameters of the keys alone.
        """
        try:
            return self.score(call.query, call.keys)
        except ScopeParamNotFoundError as error:
            raise ValueError(
                f"the {type(self.score).__name__} score lacks parameters that belong to the query; initialize with "
                'init(rng, query, keys, values), not with method="prepare"'
            ) from error

    def last(self, call: Call) -> tuple[Part, Call]:
        """Returns the map of one score each, and its call."""
        return self, call

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        """Returns queries and keys as points of one space."""
        return self.score.place_query(call.query), call.keys


class MapWrapper(Wrapper, kw_only=True):
    """A wrapper of a map, which it is in all that it does not change."""

    def prepare(self, keys: Keys) -> PyTree:
        """Computes what is kept of keys."""
        return self.of.prepare(keys)

    def last(self, call: Call) -> tuple[Part, Call]:
        """Returns the map of one score each, and its call."""
        return self, call

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        """Returns queries and keys as points of one space."""
        return self.of.places(call)


class Difference(MapWrapper, kw_only=True):
    """W - lambda W', two maps of half of the columns of queries and keys each; see signed.Difference (Ye 2024)."""

    subtract: nn.Module
    breaks = frozenset({SUMS_TO_ONE, NOT_NEGATIVE, BY_BLOCKS, FUSIBLE})

    def prepare(self, keys: Keys) -> PyTree:
        return tuple(self.of.prepare(half) for half in halves(keys))

    def __call__(self, call: Call) -> Weights:
        both = self._halves(call)
        return self.subtract(*(self.of(half) for half in both), features=call.query.shape[-1] // 2)

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        pairs = zip(*(self.of.places(half) for half in self._halves(call)), strict=True)
        query, keys = (jnp.concatenate(pair, axis=-1) for pair in pairs)
        return query, keys

    def _halves(self, call: Call) -> list[Call]:
        both = zip(halves(call.query), call.keys, strict=True)
        return [call._replace(query=query, keys=keys) for query, keys in both]


class Hopfield(MapWrapper, kw_only=True):
    """query <- W keys, `iterations` - 1 times before the last W: retrieval of a Hopfield network (Ramsauer 2020).

    Each iteration of softmax over the dot product lowers the energy |query|^2 / 2 - logsumexp(score) (equation 3 of
    arXiv 2008.02217), one of any entmax that of a Hopfield-Fenchel-Young network (Santos 2024, arXiv 2411.08590). Over
    a Gaussian kernel it is the mean shift.

    Raises:
        ValueError: less than one iteration; keys that cannot be queries, since they have another width.
    """

    iterations: int  # number of reads
    breaks = frozenset({BY_BLOCKS})  # each iteration but the last makes W

    def __post_init__(self):
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}; expected at least 1, which is the map itself")
        super().__post_init__()

    def __call__(self, call: Call) -> Weights:
        return self.of(self._retrieved(call))

    def last(self, call: Call) -> tuple[Part, Call]:
        return self.of.last(self._retrieved(call))

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        return self.of.places(self._retrieved(call))

    def _retrieved(self, call: Call) -> Call:
        """Returns the call with the query of the last iteration."""
        for _ in range(self.iterations - 1):
            _, keys = self.of.places(call)
            if keys.shape[-1] != call.query.shape[-1]:
                raise ScoreError(
                    f"iterations need keys that can be queries, of width {call.query.shape[-1]}; those of this score "
                    f"have {keys.shape[-1]} columns; scaled_dot, dot and general have such keys"
                )
            call = call._replace(query=weighted_sum(self.of(call), keys).astype(call.query.dtype))
        return call


class Fitted(MapWrapper, kw_only=True):
    """The weights of a line fitted to the values at the query, with a fit of signed.py; a mean is one without slope.

    Raises:
        ValueError: weights that may be negative, for a fit that needs others.
    """

    fit: nn.Module
    breaks = frozenset({NOT_NEGATIVE, BY_BLOCKS, FUSIBLE})

    def __post_init__(self):
        check_slot(f"fit={type(self.fit).__name__}", self.fit.needs, self.of)
        super().__post_init__()

    def __call__(self, call: Call) -> Weights:
        part, call = self.of.last(call)
        return self.fit(part(call), *part.places(call))
