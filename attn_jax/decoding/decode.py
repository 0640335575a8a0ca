"""Greedy decoding and sampling with any step function, and the helpers that beam_search.py shares.

    step(memory, state, token [b], k) -> (state, log_probs [b, k], tokens [b, k])

`memory` is the same at all steps (encoder states, projected keys), `state` changes. Both are pytrees whose leaves have
a leading axis b, one row for each sentence; rows are independent. The tokens are the k most probable ones, best first,
or all if there are fewer; k = None returns all, in the order of their ids. log_probs are normalized, so <= 0. All
functions here are pure, batched and meant to be compiled by the caller's jit.

Each sentence has its own limit of target tokens, `limits` [b], so its result does not depend on the rest of the batch
or on padding. A sentence is done when it ends with eos or reaches its limit; the loop stops when all are done. Rows
that only fill up a batch should have the limit 0. Tokens that are `forbidden`, pad and bos by default, are never
generated, but the other probabilities are not renormalized: log_prob is always the model's own (teacher-forced)
log-probability of the tokens, eos included.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key

from attn_jax.token_ids import NEVER_GENERATED
from attn_jax.types import Array, Bool, Callable, Float, Int, PyTree

Step = Callable[[PyTree, PyTree, Array, int | None], tuple[PyTree, Array, Array]]
FIRST_ROOM = 16  # steps that a state has room for at first


class Growth(NamedTuple):
    """A state of `step` that grows: each step of a Transformer reads all places of its caches, also empty ones.

    Attributes:
        grow: (state, number of steps) -> the state with room for so many steps in all.
        rooms: numbers of steps that there is room for, one after the other; the first is that of the given state, the
            last is max_length.
    """

    grow: Callable[[PyTree, int], PyTree]
    rooms: Sequence[int]


def rooms_of(max_length: int) -> list[int]:
    """Returns rooms for Growth: about twice as many steps each time, up to `max_length`."""
    rooms = [FIRST_ROOM]
    while 3 * rooms[-1] < 2 * max_length:
        rooms.append(2 * rooms[-1])
    return [*rooms[:-1], max_length]


def run(advance: Callable[[Any], Any], now: Any, growth: Growth | None) -> Any:
    """Calls now = advance(now) until all rows are done, with a state that grows; under jit one loop for each room."""
    if growth is None:
        return jax.lax.while_loop(is_going_on, advance, now)
    for i, room in enumerate(growth.rooms):
        if i:
            now = now._replace(state=growth.grow(now.state, room))
        now = jax.lax.while_loop(lambda now, room=room: is_going_on(now) & (now.t < room), advance, now)
    return now


class Hypotheses(NamedTuple):
    """Decoded sentences, one per row; `beam_search` adds an axis of beams after b, best first."""

    tokens: Int[Array, "b ... t"]  # t = max_length; eos is included if the sentence ended, pad follows
    log_prob: Float[Array, "b ..."]  # sum of the log-probabilities of the tokens
    length: Int[Array, "b ..."]  # number of tokens, eos included
    score: Float[Array, "b ..."]  # log_prob / length_penalty; log_prob itself unless from `beam_search`


def candidates(
    log_probs: Float[Array, "... n"], token: Int[Array, "... n"], forbidden: Sequence[int]
) -> Float[Array, "... n"]:
    """Sets the log_probs of tokens that must not be generated to -inf."""
    return jnp.where(jnp.isin(token, jnp.array(forbidden, token.dtype)), -jnp.inf, log_probs)


def checked_limits(limits: Int[Array | np.ndarray, "b"], max_length: int) -> Int[Array, "b"]:
    """Returns the limits, cut to max_length; raises a ValueError if either is invalid."""
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; expected at least 1")
    limits = jnp.asarray(limits, jnp.int32)
    if limits.ndim != 1:
        raise ValueError(f"limits have the shape {limits.shape}; expected [b], one for each sentence")
    return jnp.clip(limits, 0, max_length)


class Generated(NamedTuple):
    """The sentences so far, one per row, after t tokens."""

    t: Int[Array, ""]
    token: Int[Array, "b"]  # last token
    state: PyTree  # state of `step`
    tokens: Int[Array, "b m"]
    log_prob: Float[Array, "b"]
    length: Int[Array, "b"]
    done: Bool[Array, "b"]


def _generate(step, memory, state, choose, *, k, max_length, limits, bos, eos, pad, forbidden, growth) -> Hypotheses:
    """Generates one sentence per row; choose(t, candidates [b, n]) returns the index [b] of the next token.

    The candidates are log_probs of the k most probable tokens, -inf for forbidden ones.
    """
    limits = checked_limits(limits, max_length)

    def advance(now: Generated) -> Generated:
        state, log_probs, tokens_t = step(memory, now.state, now.token, k and k + len(forbidden))
        log_probs = log_probs.astype(jnp.float32)
        place = choose(now.t, candidates(log_probs, tokens_t, forbidden))[:, None]
        token = jnp.where(now.done, pad, jnp.take_along_axis(tokens_t, place, axis=1)[:, 0])
        gain = jnp.take_along_axis(log_probs, place, axis=1)[:, 0]
        log_prob = now.log_prob + jnp.where(now.done, 0.0, gain)
        length = now.length + ~now.done
        done = now.done | (token == eos) | (length >= limits)
        return Generated(now.t + 1, token, state, now.tokens.at[:, now.t].set(token), log_prob, length, done)

    start = Generated(
        t=jnp.int32(0),
        token=jnp.full(limits.shape, bos, jnp.int32),
        state=state,
        tokens=jnp.full((*limits.shape, max_length), pad, jnp.int32),
        log_prob=jnp.zeros(limits.shape, jnp.float32),
        length=jnp.zeros(limits.shape, jnp.int32),
        done=limits == 0,
    )
    end = run(advance, start, growth)
    return Hypotheses(end.tokens, end.log_prob, end.length, score=end.log_prob)


def is_going_on(now: Any) -> Bool[Array, ""]:
    """Tells whether any row is not done (`now.done` [b]): the loop condition of every method."""
    return ~jnp.all(now.done)


def greedy(
    step: Step,
    memory: PyTree,
    state: PyTree,
    *,
    max_length: int,
    limits: Int[Array | np.ndarray, "b"],
    bos: int,
    eos: int,
    pad: int,
    forbidden: Sequence[int] = NEVER_GENERATED,
    growth: Growth | None = None,
) -> Hypotheses:
    """Takes the most probable token at each step.

    Raises:
        ValueError: max_length < 1, or `limits` are not [b].
    """

    def choose(t, candidates):
        return jnp.argmax(candidates, axis=-1).astype(jnp.int32)

    common = dict(max_length=max_length, limits=limits, bos=bos, eos=eos, pad=pad, forbidden=forbidden, growth=growth)
    return _generate(step, memory, state, choose, k=1, **common)


def sample(
    step: Step,
    memory: PyTree,
    state: PyTree,
    *,
    rngs: Key[Array, "b"],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_length: int,
    limits: Int[Array | np.ndarray, "b"],
    bos: int,
    eos: int,
    pad: int,
    forbidden: Sequence[int] = NEVER_GENERATED,
    growth: Growth | None = None,
) -> Hypotheses:
    """Samples tokens from softmax(log_probs / temperature), cut to the `top_k` best, then to the nucleus of `top_p`.

    Args:
        rngs: one typed key for each sentence, so that its sample is independent of the rest of the batch.
        temperature: above 1 flattens, below 1 sharpens the distribution; 0 is greedy.
        top_k: 0 keeps all tokens.
        top_p: keeps the smallest set of most probable tokens with at least this total probability; 1 keeps all.

    The log_prob of the result is the model's, without temperature and cuts.
    Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1 (nucleus).

    Raises:
        ValueError: temperature is negative or not finite, top_k < 0, top_p is not in (0, 1], max_length < 1, or
            `limits` are not [b].
    """
    check_sampling(temperature, top_k, top_p)
    if temperature < np.finfo(np.float32).tiny:
        temperature, top_k = 1.0, 1

    def choose(t, candidates):
        rngs_t = jax.vmap(jax.random.fold_in, in_axes=(0, None))(rngs, t)
        # The largest becomes 0, so that a low temperature cannot make all of them -inf.
        best = jnp.max(candidates, axis=-1, keepdims=True)
        logits = (candidates - jnp.where(jnp.isfinite(best), best, 0)) / temperature
        if top_k == 0 and top_p == 1:
            return jax.vmap(jax.random.categorical)(rngs_t, logits).astype(jnp.int32)
        size = logits.shape[-1]
        logits, places = jax.lax.top_k(logits, min(top_k or size, size))  # best first
        if top_p < 1:
            probs = jax.nn.softmax(logits)
            better = jnp.cumsum(probs, axis=-1) - probs  # total probability of all better tokens
            logits = jnp.where(better < top_p, logits, -jnp.inf).at[:, 0].set(logits[:, 0])
        rank = jax.vmap(jax.random.categorical)(rngs_t, logits)
        return jnp.take_along_axis(places, rank[:, None], axis=1)[:, 0].astype(jnp.int32)

    common = dict(max_length=max_length, limits=limits, bos=bos, eos=eos, pad=pad, forbidden=forbidden, growth=growth)
    return _generate(step, memory, state, choose, k=top_k or None, **common)


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raises a ValueError for options of `sample` that are out of range."""
    if not 0 <= temperature < math.inf or top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            "sampling: expected temperature >= 0, top_k >= 0 and 0 < top_p <= 1, "
            f"got temperature={temperature}, top_k={top_k}, top_p={top_p}"
        )
