"""Interfaces between the parts of attention, the properties that weights promise, and the check that parts fit.

    context = read(map(call), values)       map: Map(score, normalize), or a wrapper of a map
    weights = normalize(scores, call)       normalize: a normalizer, or a wrapper of one

A wrapper has the wrapped part in the field `of`, and changes one thing about it. Its promises follow from the promises
of the wrapped part. So two wrappers can be combined if the weights of the inner one have the properties that the outer
one needs; there is no other restriction. The order of wrapping is the order of the operations:
Difference(Hopfield(map)) iterates each of the two maps, Hopfield(Difference(map)) iterates with their difference.
"""

from collections.abc import Set
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.masks import same_axes
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray, PyTree

# Properties that weights may promise, worded as the end of a sentence "weights that ...".
SUMS_TO_ONE = "sum to one"  # for each query with a key in reach
NOT_NEGATIVE = "are never negative"
TAKES_INFINITE = "are defined where a score is -inf"
BY_BLOCKS = "can be computed block by block"
FUSIBLE = "are those of the fused kernel"
MEAN = "are read as they are"  # promised by a read: the context is the weighted mean of the values


class NewKeys(NamedTuple):
    """Keys that a map has not prepared yet, with their mask, inputs and positions."""

    keys: Float[Array, "... k dk"]
    key_mask: Bool[Array, "... k"]
    inputs: Float[Array, "... k d"] | None = None  # inputs of the keys of heads, without an axis of heads
    positions: Int[Array, "... k"] | None = None  # None: 0, 1, 2, ...


class Call(NamedTuple):
    """Arguments of a map: the queries, the stored form of the keys, and which keys each query may attend to."""

    query: Float[Array, "... q dq"]
    keys: PyTree  # result of Map.prepare
    key_mask: Bool[Array, "... k"]
    allowed: Bool[Array, "... #q k"]  # key_mask and mask combined, with as many axes as the scores
    mask: Any = None  # as passed: None, [..., q, k] or a function of indices, for methods that make no [q, k]
    bias: Float[Array, "... #q k"] | None = None  # added to the scores
    bias_at: Any = None  # the same bias, as a function of indices if available
    positions: Int[Array, "... q"] | None = None  # positions of the queries
    key_positions: Int[Array, "... k"] | None = None  # None: 0, 1, 2, ...
    head_axes: int = 0  # number of axes of heads, before the axis of queries
    previous: Float[Array, "... q k"] | None = None  # weights of the step before
    rng: PRNGKeyArray | None = None

    @property
    def in_reach(self) -> Bool[Array, "... #q k"]:
        """Mask of the keys that are allowed and have a bias above -inf."""
        if self.bias is None:
            return self.allowed
        return jnp.logical_and(*same_axes(self.allowed, self.bias > -jnp.inf))


def add_bias(call: Call, bias: Float[Array, "... #q k"], bias_at: Any = None) -> Call:
    """Returns the call with a bias added to its bias; `bias_at` is the same bias as a function of indices."""
    bias_at = bias if bias_at is None else bias_at
    if call.bias is None:
        return call._replace(bias=bias, bias_at=bias_at)
    before, both = call.bias_at, jnp.add(*same_axes(call.bias, bias))
    if not (callable(before) and callable(bias_at)):
        return call._replace(bias=both, bias_at=both)
    return call._replace(
        bias=both, bias_at=lambda query, key: jnp.add(*same_axes(before(query, key), bias_at(query, key)))
    )


class Part(nn.Module, kw_only=True):
    """Base class of the parts of attention."""

    random: ClassVar[bool] = False  # whether it uses the rng of a call
    reads_previous: ClassVar[bool] = False  # whether it needs the weights of the step before
    changes_keys: ClassVar[bool] = False  # whether a read changes the stored form of the keys; see Map.read_by
    counts_keys: ClassVar[bool] = False  # whether keys that a mask hides from a query have an influence on its weights

    @property
    def inside(self) -> tuple["Part", ...]:
        """Parts that this part contains."""
        return ()

    @property
    def promises(self) -> Set[str]:
        """Properties that all weights of this part have."""
        return frozenset()

    @property
    def label(self) -> str:
        """Name of this part, without the parts inside, for messages."""
        return type(self).__name__

    def blame(self, promise: str) -> str:
        """Names what breaks a promise that all parts inside keep, with the reason if the name does not tell it."""
        return self.label

    @property
    def needs_rng(self) -> bool:
        """Tells whether this part or a part inside uses the rng of a call."""
        return self.random or any(part.needs_rng for part in self.inside)

    @property
    def keeps_readers(self) -> bool:
        """Tells whether reading changes the stored form of the keys, in this part or a part inside."""
        return self.changes_keys or any(part.keeps_readers for part in self.inside)

    @property
    def needs_all_keys(self) -> bool:
        """Tells whether keys that a mask hides from a query have an influence, in this part or a part inside."""
        return self.counts_keys or any(part.needs_all_keys for part in self.inside)

    @property
    def per_head(self) -> bool:
        """Tells whether this part or a part inside may have parameters for each head."""
        return any(part.per_head for part in self.inside)

    @property
    def needs_previous(self) -> bool:
        """Tells whether this part or a part inside needs the weights of the step before."""
        return self.reads_previous or any(part.needs_previous for part in self.inside)


class Wrapper(Part, kw_only=True):
    """A part around another part; it keeps the promises of the wrapped part except those in `breaks`.

    Attributes:
        of: the part that is wrapped.
    """

    of: Part
    breaks: ClassVar[Set[str]] = frozenset()

    @property
    def inside(self) -> tuple[Part, ...]:
        return (self.of,)

    @property
    def promises(self) -> Set[str]:
        return self.of.promises - self.breaks


def describe(part: Part) -> str:
    """Names a part and the parts inside: "Difference(Map(softmax))"."""
    return part.label + (f"({', '.join(map(describe, part.inside))})" if part.inside else "")


def check_kind(name: str, value: Any, kind: type, expected: str) -> None:
    """Raises a TypeError if the value of a field is not an instance of this class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}; expected {expected}")


def check_slot(slot: str, needs: Set[str], filler: Part) -> None:
    """Checks that a part promises every property that a slot needs.

    Raises:
        ValueError: a promise is missing; the message names the innermost part that breaks it.
    """
    for promise in sorted(needs - filler.promises):
        cause = _cause(filler, promise)
        inside = "" if cause is filler else f" inside of {describe(filler)}"
        raise ValueError(f"{slot} needs weights that {promise}, unlike those of {cause.blame(promise)}{inside}")


def _cause(part: Part, promise: str) -> Part:
    """Finds the innermost part that breaks a promise which all parts inside of it keep."""
    return next((_cause(each, promise) for each in part.inside if promise not in each.promises), part)
