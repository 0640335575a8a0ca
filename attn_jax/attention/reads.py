"""Reads of attention, and their wrappers: how weights and values become a context.

    rows, weights, log_prob = read.rows(weights, call, train)       one row for each query
    context = read.after(rows @ values, call)

A wrapper changes the rows, for example by dropout, or the context, for example by a gate.
"""

from collections.abc import Set
from typing import NamedTuple

import jax.numpy as jnp

from attn_jax.attention.dropout import drop, dropout_rng
from attn_jax.attention.gates import ContextGate
from attn_jax.attention.hard.readings import Reading, expectation, log_of, top
from attn_jax.attention.parts import MEAN, NOT_NEGATIVE, SUMS_TO_ONE, Call, Part, Wrapper, check_kind
from attn_jax.types import Array, Float

MOST_PROBABLE = top()


class Rows(NamedTuple):
    """Rows that multiply the values, the weights to return, and the log-probability of the sample."""

    rows: Float[Array, "... q k"]
    weights: Float[Array, "... q k"]
    log_prob: Float[Array, "... q"]


class Read(Part, kw_only=True):
    """Reads with a reading of one row; see hard/readings.py.

    Without an rng, and outside of training, a sampling reading takes the most probable key.

    Attributes:
        reading: makes the rows that are read.
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
        """Promises of the weights that this read needs."""
        if self.reading.random:
            return frozenset({SUMS_TO_ONE, NOT_NEGATIVE})
        return frozenset(() if self.reading.is_soft else {NOT_NEGATIVE})

    def is_mean(self, train: bool) -> bool:
        """Tells whether the context is the mean of the values under the weights."""
        return self.reading.is_soft

    def rows(self, weights: Float[Array, "... q k"], call: Call, train: bool) -> Rows:
        """Computes the rows.

        Raises:
            ValueError: a sampling reading has no rng in training; the reading has several rows.
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
        # With a deterministic choice, such as the largest weights, the rows are returned as the weights.
        return Rows(rows, weights if self.reading.random else rows, sample.log_prob[..., 0])

    def after(self, context: Float[Array, "... q dv"], call: Call) -> Float[Array, "... q dv"]:
        """Returns the context of the rows unchanged."""
        return context


class ReadWrapper(Wrapper, kw_only=True):
    """A wrapper of a read; methods that it does not override call the read."""

    @property
    def needs(self) -> Set[str]:
        """Promises of the weights that this read needs."""
        return self.of.needs

    def is_mean(self, train: bool) -> bool:
        """Tells whether the context is the mean of the values under the weights."""
        return self.of.is_mean(train)

    def rows(self, weights: Float[Array, "... q k"], call: Call, train: bool) -> Rows:
        """Computes the rows."""
        return self.of.rows(weights, call, train)

    def after(self, context: Float[Array, "... q dv"], call: Call) -> Float[Array, "... q dv"]:
        """Computes the context from the context of the rows."""
        return self.of.after(context, call)


class Dropped(ReadWrapper, kw_only=True):
    """Applies dropout to the rows in training, with the rng stream "dropout"; the returned weights are without dropout.

    Attributes:
        rate: rate at which weights are dropped.

    Raises:
        ValueError: the rate is below 0, or at least 1.
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
        return found._replace(rows=drop(dropout_rng(self), self.rate, found.rows)) if train else found


class Gated(ReadWrapper, kw_only=True):
    """Multiplies the context by a sigmoid of the query; see gates.ContextGate (Qiu 2025)."""

    def setup(self):
        self.context_gate = ContextGate()

    def after(self, context: Float[Array, "... q dv"], call: Call) -> Float[Array, "... q dv"]:
        return self.context_gate(self.of.after(context, call), call.query)


def certain(weights: Float[Array, "... q k"]) -> Float[Array, "... q"]:
    """Returns the log-probability of a read without sampling: 0."""
    return jnp.zeros(weights.shape[:-1], weights.dtype)
