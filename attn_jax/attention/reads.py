"""Reads of attention, and wrappers of them: how weights and values become a context.

    rows, weights, log_prob = read.rows(weights, call, train)       the rows to read with, for each query one
    context = read.after(rows @ values, call)

A wrapper changes the rows, such as by dropout, or the context, such as by a gate.
"""

from collections.abc import Set
from typing import NamedTuple

import jax.numpy as jnp

from attn_jax.attention.dropout import drop
from attn_jax.attention.gates import ContextGate
from attn_jax.attention.hard.readings import Reading, expectation, log_of, top
from attn_jax.attention.parts import MEAN, NOT_NEGATIVE, SUMS_TO_ONE, Call, Part, Wrapper, check_kind
from attn_jax.types import Array, Float

MOST_PROBABLE = top()


class Rows(NamedTuple):
    """The rows that a context is read with, the weights to show, and the log-probability of what was sampled."""

    rows: Float[Array, "... q k"]
    weights: Float[Array, "... q k"]
    log_prob: Float[Array, "... q"]


class Read(Part, kw_only=True):
    """Reads with a reading of one row; see hard/readings.py.

    Without an rng, and not in training, a reading that samples takes the most probable key.
    """

    reading: Reading = expectation()

    def __post_init__(self):
        check_kind("read", self.reading, Reading, "a Reading, such as expectation(), or a name")
        super().__post_init__()

    @property
    def label(self) -> str:
        return f"read={self.reading.name}"

    @property
    def random(self) -> bool:
        return self.reading.random

    @property
    def promises(self) -> Set[str]:
        return frozenset({MEAN} if self.reading.is_soft else ())

    @property
    def needs(self) -> Set[str]:
        """Promises of the weights without which they cannot be read."""
        if self.reading.random:
            return frozenset({SUMS_TO_ONE, NOT_NEGATIVE})
        return frozenset(() if self.reading.is_soft else {NOT_NEGATIVE})

    def is_mean(self, train: bool) -> bool:
        """Tells whether the context is that of the weights themselves."""
        return self.reading.is_soft

    def rows(self, weights: Float[Array, "... q k"], call: Call, train: bool) -> Rows:
        """Chooses the rows.

        Raises:
            ValueError: training without the rng of a reading that samples; a reading of several rows.
        """
        if self.reading.is_soft:
            return Rows(weights, weights, certain(weights))
        if train and call.rng is None and self.reading.random:
            raise ValueError(
                f"read={self.reading.name} samples keys in training, and needs an rng: rng=jax.random.key(0)"
            )
        reading = MOST_PROBABLE if call.rng is None and self.reading.random else self.reading
        sample = reading(call.rng, log_of(weights))
        if sample.rows.shape[-2] != 1:
            raise ValueError(
                f"Attention reads one row of weights, but read={self.reading.name} samples {sample.rows.shape[-2]}; "
                "take read=expectation() here, sample rows of the weights it returns, evaluate the loss at each of "
                "them, and combine the losses with attn_jax.combine"
            )
        rows = sample.rows[..., 0, :]
        # Of a fixed choice, such as the largest weights, the weights are what was read.
        return Rows(rows, weights if self.reading.random else rows, sample.log_prob[..., 0])

    def after(self, context: Float[Array, "... q dv"], call: Call) -> Float[Array, "... q dv"]:
        """Returns the context of the rows as it is."""
        return context


class ReadWrapper(Wrapper, kw_only=True):
    """A wrapper of a read, which it is in all that it does not change."""

    @property
    def needs(self) -> Set[str]:
        """Promises of the weights without which they cannot be read."""
        return self.of.needs

    def is_mean(self, train: bool) -> bool:
        """Tells whether the context is that of the weights themselves."""
        return self.of.is_mean(train)

    def rows(self, weights: Float[Array, "... q k"], call: Call, train: bool) -> Rows:
        """Chooses the rows."""
        return self.of.rows(weights, call, train)

    def after(self, context: Float[Array, "... q dv"], call: Call) -> Float[Array, "... q dv"]:
        """Computes the context from that of the rows."""
        return self.of.after(context, call)


class Dropped(ReadWrapper, kw_only=True):
    """Drops entries of the rows in training, with the rng stream "dropout"; the weights shown are those before.

    Raises:
        ValueError: a rate below 0, or 1 and above.
    """

    rate: float
    breaks = frozenset({MEAN})

    def __post_init__(self):
        if not 0 <= self.rate < 1:
            raise ValueError(f"dropout is {self.rate}; expected at least 0 and less than 1")
        super().__post_init__()

    def is_mean(self, train: bool) -> bool:
        return not (train and self.rate) and self.of.is_mean(train)

    def rows(self, weights: Float[Array, "... q k"], call: Call, train: bool) -> Rows:
        found = self.of.rows(weights, call, train)
        return found._replace(rows=drop(self.make_rng("dropout"), self.rate, found.rows)) if train else found


class Gated(ReadWrapper, kw_only=True):
    """Multiplies the context by a sigmoid of the query; see gates.ContextGate (Qiu 2025)."""

    def setup(self):
        self.context_gate = ContextGate()

    def after(self, context: Float[Array, "... q dv"], call: Call) -> Float[Array, "... q dv"]:
        return self.context_gate(self.of.after(context, call), call.query)


def certain(weights: Float[Array, "... q k"]) -> Float[Array, "... q"]:
    """Returns the log-probability of what was read where nothing is sampled: 0."""
    return jnp.zeros(weights.shape[:-1], weights.dtype)
