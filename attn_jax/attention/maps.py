"""Maps of attention, and their wrappers: map(call) -> weights [..., q, k].

    keys = map.prepare(new keys [..., k, dk])     the stored form of the keys, computed once per memory
    weights = map(call)                           W, which does not depend on values
    map.last(call)                                the innermost (map, call) whose weights are W

The stored form is a pytree of arrays [..., k, c]. A map of several steps, such as a Hopfield network, ends in one map
of scores with another query or bias. `last` returns this map, for computations that need scores (the fused kernel,
blocks of keys) or the place of the query.
"""

from collections.abc import Set
from numbers import Integral

import flax.linen as nn
import jax.numpy as jnp
from flax.errors import ScopeParamNotFoundError

from attn_jax.attention.hard.readings import weighted_sum
from attn_jax.attention.masks import same_axes
from attn_jax.attention.normalizers import linear
from attn_jax.attention.parts import (
    BY_BLOCKS,
    FUSIBLE,
    NOT_NEGATIVE,
    SUMS_TO_ONE,
    TAKES_INFINITE,
    Call,
    NewKeys,
    Part,
    Wrapper,
    check_kind,
    check_slot,
)
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score, ScoreError
from attn_jax.attention.signed import halves
from attn_jax.parts import option
from attn_jax.types import Array, Dtype, Float, PyTree, wide

Weights = Float[Array, "... q k"]
Keys = Float[Array, "... k dk"]


class Map(Part, kw_only=True):
    """W = normalize(score(query, keys) + bias).

    Attributes:
        score: the score of queries and keys.
        normalize: a normalizer, or its wrapper; see normalizing.py.

    Raises:
        ValueError: the score can be -inf, and the normalizer takes only finite scores.
    """

    score: Score
    normalize: Part

    def __post_init__(self):
        check_kind("score", self.score, Score, f"a Score, or a name: {', '.join(SCORES)}")
        if self.score.compact:
            check_slot(f"the {type(self.score).__name__} score", {TAKES_INFINITE}, self.normalize)
        super().__post_init__()

    @property
    def inside(self) -> tuple[Part, ...]:
        return (self.normalize,)

    @property
    def promises(self) -> Set[str]:
        broken = {
            BY_BLOCKS: not self.score.by_key,
            FUSIBLE: self.score.fused_scale(1) is None,
        }
        return self.normalize.promises - {promise for promise, holds in broken.items() if holds}

    def blame(self, promise: str) -> str:
        return f"the {type(self.score).__name__} score"

    @property
    def base(self) -> "Map":
        """The innermost map, of a score and a normalizer."""
        return self

    @property
    def num_pieces(self) -> int:
        """Number of equal pieces into which the columns of queries and keys are split, to be compared separately."""
        return 1

    def prepare(self, new: NewKeys) -> PyTree:
        """Computes the stored form of keys: the part of the score that needs no query."""
        return self.score.project_keys(new.keys)

    def read_by(self, call: Call) -> PyTree:
        """Returns the stored form of the keys after these queries have read them."""
        return call.keys

    def __call__(self, call: Call) -> Weights:
        """Computes the weights, in the type of queries and keys."""
        scores, dtype = self._biased(call)
        weights = self.normalize(scores, call.in_reach, call)
        return weights if self.normalize.widens else weights.astype(dtype)

    def linear(self, call: Call) -> Weights:
        """Computes the weights without a normalizer: the scores; 0 for keys out of reach."""
        scores, dtype = self._biased(call)
        return linear(scores, call.in_reach).astype(dtype)

    def _biased(self, call: Call) -> tuple[Float[Array, "... q k"], Dtype]:
        """Computes the scores plus bias, in float32 at least, and the type of the weights."""
        scores = self.scores(call)
        dtype = jnp.promote_types(call.query.dtype, call.keys.dtype) if self.score.widens else scores.dtype
        scores = wide(scores)
        if call.bias is not None:
            scores = jnp.add(*same_axes(scores, call.bias.astype(scores.dtype)))
        return scores, dtype

    def scores(self, call: Call) -> Float[Array, "... q k"]:
        """Computes the scores, without bias.

        Raises:
            ValueError: `init` with method="prepare" made only the parameters of the keys.
        """
        try:
            return self.score(call.query, call.keys)
        except ScopeParamNotFoundError as error:
            raise ValueError(
                f"the {type(self.score).__name__} score lacks parameters that belong to the query; initialize with "
                'init(rng, query, keys, values), not with method="prepare"'
            ) from error

    def last(self, call: Call) -> tuple[Part, Call]:
        """Returns the innermost map with one score per key, and its call."""
        return self, call

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        """Returns queries and keys as points in the same space."""
        return self.score.place_query(call.query), call.keys

    def after(self, context: Float[Array, "... q dv"]) -> Float[Array, "... q dv"]:
        """Returns the context of a head, before the heads are concatenated."""
        return context


class MapWrapper(Wrapper, kw_only=True):
    """A wrapper of a map; methods that it does not override call the map. Most wrappers change the call, in `enter`."""

    @property
    def base(self) -> Map:
        """The innermost map, of a score and a normalizer."""
        return self.of.base

    @property
    def num_pieces(self) -> int:
        """Number of equal pieces into which the columns of queries and keys are split, to be compared separately."""
        return self.of.num_pieces

    def prepare(self, new: NewKeys) -> PyTree:
        """Computes the stored form of keys."""
        return self.of.prepare(new)

    def read_by(self, call: Call) -> PyTree:
        """Returns the stored form of the keys after these queries have read them."""
        return self.of.read_by(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Returns the call for the map inside."""
        return call

    def __call__(self, call: Call) -> Weights:
        """Computes the weights."""
        return self.of(self.enter(call))

    def scores(self, call: Call) -> Float[Array, "... q k"]:
        """Computes the scores, without bias."""
        return self.of.scores(self.enter(call))

    def linear(self, call: Call) -> Weights:
        """Computes the weights without a normalizer."""
        return self.of.linear(self.enter(call))

    def last(self, call: Call) -> tuple[Part, Call]:
        """Returns the innermost map with one score per key, and its call."""
        return self.of.last(self.enter(call))

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        """Returns queries and keys as points in the same space."""
        return self.of.places(self.enter(call))

    def after(self, context: Float[Array, "... q dv"]) -> Float[Array, "... q dv"]:
        """Returns the context of a head, before the heads are concatenated."""
        return self.of.after(context)


class Difference(MapWrapper, kw_only=True):
    """W - lambda W', where each map uses half of the columns of queries and keys; see signed.Subtract (Ye 2024).

    The context of each head gets an RMS norm, times 1 - initial.

    Attributes:
        subtract: computes the weights of the difference.
    """

    subtract: nn.Module
    breaks = frozenset({SUMS_TO_ONE, NOT_NEGATIVE, BY_BLOCKS, FUSIBLE})

    def __post_init__(self):
        check_kind("difference", self.subtract, nn.Module, "a module such as Subtract(...), or None")
        super().__post_init__()

    def setup(self):
        self.norm = nn.RMSNorm(epsilon=1e-5)

    @property
    def num_pieces(self) -> int:
        return 2 * self.of.num_pieces

    def prepare(self, new: NewKeys) -> PyTree:
        return tuple(self.of.prepare(new._replace(keys=half)) for half in halves(new.keys))

    def read_by(self, call: Call) -> PyTree:
        return tuple(self.of.read_by(half) for half in self._halves(call))

    def __call__(self, call: Call) -> Weights:
        return self.subtract(*map(self.of, self._halves(call)), features=call.query.shape[-1] // 2)

    def linear(self, call: Call) -> Weights:
        return self.subtract(*map(self.of.linear, self._halves(call)), features=call.query.shape[-1] // 2)

    def scores(self, call: Call) -> Float[Array, "... q k"]:
        """Raises a ValueError: there are two scores for each key."""
        raise ValueError("the difference of two maps has two scores for each key; selective attention needs one")

    def last(self, call: Call) -> tuple[Part, Call]:
        return self, call

    def places(self, call: Call) -> tuple[Float[Array, "... q d"], Keys]:
        pairs = zip(*(self.of.places(half) for half in self._halves(call)), strict=True)
        query, keys = (jnp.concatenate(pair, axis=-1) for pair in pairs)
        return query, keys

    def after(self, context: Float[Array, "... q dv"]) -> Float[Array, "... q dv"]:
        """Computes (1 - initial) RMSNorm(context) for each head."""
        context = self.of.after(context)
        return (1 - self.subtract.initial) * self.norm(context).astype(context.dtype)

    def _halves(self, call: Call) -> list[Call]:
        both = zip(halves(call.query), call.keys, strict=True)
        return [call._replace(query=query, keys=keys) for query, keys in both]


class Hopfield(MapWrapper, kw_only=True):
    """query <- W keys, `iterations` - 1 times before the last W: retrieval of a Hopfield network (Ramsauer 2020).

    With softmax over the dot product, each iteration lowers the energy |query|^2 / 2 - logsumexp(score) (equation 3 of
    arXiv 2008.02217). With entmax of any alpha it lowers the energy of a Hopfield-Fenchel-Young network (Santos 2024,
    arXiv 2411.08590). With a Gaussian kernel it is the mean shift.

    Raises:
        ValueError: less than one iteration; keys of another width than queries, which cannot be the next query.
    """

    iterations: int = option(
        2, "number of reads; after each, the mean of the keys is the next query", at_least=1, at_most=100
    )
    breaks = frozenset({BY_BLOCKS})  # each iteration except the last needs W

    def __post_init__(self):
        check_kind("iterations", self.iterations, Integral, "a whole number")
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}; expected at least 1, which is the map itself")
        super().__post_init__()

    def scores(self, call: Call) -> Float[Array, "... q k"]:
        """Computes the scores of the first query."""
        return self.of.scores(call)

    def linear(self, call: Call) -> Weights:
        """Computes the weights of the first query, without a normalizer."""
        return self.of.linear(call)

    def enter(self, call: Call) -> Call:
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
    """Weights of a line fitted to the values at the query, with a fit from signed.py; without a slope it is a mean.

    Attributes:
        fit: fits a line to the values.

    Raises:
        ValueError: the weights may be negative, and the fit needs non-negative weights.
    """

    fit: nn.Module
    per_head = True
    breaks = frozenset({NOT_NEGATIVE, BY_BLOCKS, FUSIBLE})

    def __post_init__(self):
        check_kind("fit", self.fit, nn.Module, "a module such as LocalLine(...), or None")
        check_slot(f"fit={type(self.fit).__name__}", self.fit.needs, self.of)
        super().__post_init__()

    def blame(self, promise: str) -> str:
        return f"{self.label} ({type(self.fit).__name__})"

    def __call__(self, call: Call) -> Weights:
        part, call = self.of.last(call)
        return self.fit(part(call), *part.places(call))

    def last(self, call: Call) -> tuple[Part, Call]:
        return self, call
