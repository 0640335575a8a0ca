"""Beam search with any step function; see decode.py for the step."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.decoding.decode import Growth, Hypotheses, Step, candidates, checked_limits, run
from attn_jax.token_ids import NEVER_GENERATED
from attn_jax.types import Array, Bool, Callable, Float, Int, PyTree

# (memory, state, token [b, k], parent [b, k], n) -> (state, log_probs [b, k, n], tokens [b, k, n])
BeamStep = Callable[[PyTree, PyTree, Array, Array, int], tuple[PyTree, Array, Array]]


def length_penalty_of(length: Int[Array, "..."], length_penalty: float | Float[Array, ""]) -> Float[Array, "..."]:
    """Returns the divisor of log_prob, ((5 + length) / 6) ** length_penalty (Wu 2016, "Google's NMT", section 7)."""
    return ((5.0 + length) / 6.0) ** length_penalty


def _take(tree: PyTree, index: Int[Array, "b n"]) -> PyTree:
    """Takes rows `index` of the second axis of each leaf [b, k, ...]."""
    return jax.tree.map(lambda x: jax.vmap(lambda rows, i: rows[i])(x, index), tree)


def _best(score: Float[Array, "b n"], tree: PyTree, k: int) -> PyTree:
    """Takes the k rows of the second axis with the best scores, best first; ties go to the first row."""
    return _take(tree, jax.lax.top_k(score, k)[1])


def _only(hypotheses: Hypotheses, where: Bool[Array, "b n"]) -> Hypotheses:
    """Sets log_prob and score of hypotheses to -inf, except `where` is True."""
    log_prob = jnp.where(where, hypotheses.log_prob, -jnp.inf)
    return hypotheses._replace(log_prob=log_prob, score=jnp.where(where, hypotheses.score, -jnp.inf))


def _join(first: Hypotheses, second: Hypotheses) -> Hypotheses:
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), first, second)


def reordering(step: Step) -> BeamStep:
    """Makes a step of all beams from a step of one: takes the states of the parents, then vmaps over the beams."""

    def step_beams(memory, state, token, parent, n):
        vmapped = jax.vmap(lambda memory, state, token: step(memory, state, token, n), (None, 1, 1), 1)
        return vmapped(memory, _take(state, parent), token)

    return step_beams


def _of_beams(grow: Callable[[PyTree, int], PyTree]) -> Callable[[PyTree, int], PyTree]:
    return lambda state, length: jax.vmap(lambda state: grow(state, length), 1, 1)(state)


def beam_search(
    step: Step | BeamStep,
    memory: PyTree,
    state: PyTree,
    *,
    beam_size: int,
    length_penalty: float | Float[Array, ""] = 0.0,
    max_length: int,
    limits: Int[Array | np.ndarray, "b"],
    bos: int,
    eos: int,
    pad: int,
    forbidden: Sequence[int] = NEVER_GENERATED,
    growth: Growth | None = None,
    follows: bool = False,
) -> Hypotheses:
    """Finds the `beam_size` best sentences, best first, by score = log_prob / ((5 + length) / 6) ** length_penalty.

    At each step the beam_size alive hypotheses are extended by every token. Extensions that end with eos and are among
    the best beam_size by log_prob (they have the same length) compete with the ended hypotheses; the best beam_size are
    kept. The best beam_size extensions without eos are alive at the next step. A sentence is done at its limit, or when
    no alive hypothesis, with the best penalty that it can still reach, could beat the worst of beam_size ended ones. So
    stopping early does not change the result; a larger length_penalty takes longer.

    Ended hypotheses come first. If there are fewer than beam_size, hypotheses cut off at the limit follow, best first,
    and if there are still too few, empty rows with log_prob and score -inf. A beam of 1 without a length penalty is
    greedy; a beam as wide as there are prefixes is an exhaustive search.

    `memory` is not copied for each beam: `step` is vmapped over a second axis of `state` and token only. If it
    `follows`, `step` is a BeamStep and `state` the state of all beams: it is told the parent of each hypothesis, and
    reorders its state by itself, or need not (see models/transformer/beams.py).

    Raises:
        ValueError: beam_size or max_length < 1, or `limits` are not [b].
    """
    if beam_size < 1:
        raise ValueError(f"beam_size is {beam_size}; expected at least 1")
    limits = checked_limits(limits, max_length)
    if not follows:
        step, state = reordering(step), jax.tree.map(lambda x: jnp.repeat(x[:, None], beam_size, axis=1), state)
        growth = growth and growth._replace(grow=_of_beams(growth.grow))
    num_best = 2 * beam_size + len(forbidden)  # the best 2k extensions of all beams are among the best 2k of each

    def advance(beams: Beams) -> Beams:
        state, log_probs, tokens_t = step(memory, beams.state, beams.token, beams.parent, num_best)
        log_probs = candidates(log_probs.astype(jnp.float32), tokens_t, forbidden)
        extensions = _extend(beams, log_probs, tokens_t, length_penalty)
        ended = _keep_ended(beams, extensions, eos)
        token, parent, alive = _keep_alive(beams, extensions, eos)
        beams = Beams(beams.t + 1, token, parent, state, alive, ended, beams.done)
        return beams._replace(done=_is_done(beams, limits, length_penalty))

    beams = run(advance, _start_beams(state, beam_size, max_length, limits, bos, pad), growth)
    return _ended_first(beams.ended, beams.alive, pad)


class Beams(NamedTuple):
    """The state of a beam search after t tokens."""

    t: Int[Array, ""]
    token: Int[Array, "b k"]  # last token of each alive hypothesis
    parent: Int[Array, "b k"]  # the hypothesis of the step before that it extends
    state: PyTree  # state of `step`, in the order of the step before
    alive: Hypotheses  # best first
    ended: Hypotheses  # best first; a score of -inf marks an empty place
    done: Bool[Array, "b"]


class Extensions(NamedTuple):
    """The best 2k extensions of the alive hypotheses by one token, best first."""

    hypotheses: Hypotheses
    parent: Int[Array, "b n"]  # place of the hypothesis that is extended
    token: Int[Array, "b n"]


def _start_beams(state: PyTree, k: int, max_length: int, limits: Int[Array, "b"], bos: int, pad: int) -> Beams:
    """Returns beams with one alive hypothesis, the empty one (k equal ones would stay equal), and none ended."""
    shape = (*limits.shape, k)
    impossible = _impossible(shape, max_length, pad)
    empty = impossible._replace(
        log_prob=impossible.log_prob.at[:, 0].set(0.0), score=impossible.score.at[:, 0].set(0.0)
    )
    own = jnp.broadcast_to(jnp.arange(k, dtype=jnp.int32), shape)
    return Beams(jnp.int32(0), jnp.full(shape, bos, jnp.int32), own, state, empty, impossible, limits == 0)


def _extend(
    beams: Beams,
    log_probs: Float[Array, "b k n"],
    tokens: Int[Array, "b k n"],
    length_penalty: float | Float[Array, ""],
) -> Extensions:
    """Finds the best 2k extensions. At most k end with eos, one per beam, so at least k do not."""
    b, k, n = log_probs.shape
    extended = beams.alive.log_prob[..., None] + log_probs
    log_prob, index = jax.lax.top_k(extended.reshape(b, k * n), 2 * k)
    parent = index // n
    token = jnp.take_along_axis(tokens.reshape(b, k * n), index, axis=1).astype(jnp.int32)
    length = jnp.full((b, 2 * k), beams.t + 1, jnp.int32)
    score = log_prob / length_penalty_of(length, length_penalty)
    sentences = _take(beams.alive.tokens, parent).at[:, :, beams.t].set(token)
    return Extensions(Hypotheses(sentences, log_prob, length, score), parent, token)


def _keep_ended(beams: Beams, extensions: Extensions, eos: int) -> Hypotheses:
    """Returns the best k ended hypotheses, including those of the best k extensions that end now."""
    k = beams.token.shape[1]
    accepted = _only(extensions.hypotheses, (extensions.token == eos) & ~beams.done[:, None])
    hypotheses = _join(beams.ended, jax.tree.map(lambda x: x[:, :k], accepted))
    return _best(hypotheses.score, hypotheses, k)


def _keep_alive(
    beams: Beams, extensions: Extensions, eos: int
) -> tuple[Int[Array, "b k"], Int[Array, "b k"], Hypotheses]:
    """Returns (token, parent, alive) of the best k extensions without eos."""
    going_on = _only(extensions.hypotheses, extensions.token != eos)
    best = _best(going_on.score, extensions._replace(hypotheses=going_on), beams.token.shape[1])
    # Finished rows do not change; their state is still updated, but not used.
    keep = jax.vmap(lambda done, *both: jax.tree.map(partial(jnp.where, done), *both))
    return best.token, best.parent, keep(beams.done, beams.alive, best.hypotheses)


def _is_done(beams: Beams, limits: Int[Array, "b"], length_penalty: float | Float[Array, ""]) -> Bool[Array, "b"]:
    """Tells which rows are at their limit, or have no alive hypothesis that could still enter the best k."""
    # The penalty is monotonic in the length, so the best reachable one is at the next step or at the limit.
    ahead = length_penalty_of(beams.t + 1, length_penalty), length_penalty_of(limits, length_penalty)
    best_ahead = beams.alive.log_prob[:, 0] / jnp.maximum(*ahead)
    return beams.done | (beams.t >= limits) | (beams.ended.score[:, -1] >= best_ahead)


def _impossible(shape: tuple[int, ...], max_length: int, pad: int) -> Hypotheses:
    """Returns empty hypotheses with a log_prob and score of -inf."""
    nothing = jnp.full(shape, -jnp.inf, jnp.float32)
    tokens = jnp.full((*shape, max_length), pad, jnp.int32)
    return Hypotheses(tokens, nothing, jnp.zeros(shape, jnp.int32), nothing)


def _ended_first(ended: Hypotheses, alive: Hypotheses, pad: int) -> Hypotheses:
    """Fills the empty places of the ended hypotheses, whose scores are sorted, with alive hypotheses."""
    num_ended = jnp.sum(ended.score > -jnp.inf, axis=1, keepdims=True)
    k = ended.score.shape[1]
    place = jnp.arange(k)
    decoded = _take(_join(ended, alive), jnp.where(place < num_ended, place, k + place - num_ended))
    exists = decoded.log_prob > -jnp.inf
    return decoded._replace(
        tokens=jnp.where(exists[..., None], decoded.tokens, pad), length=jnp.where(exists, decoded.length, 0)
    )
