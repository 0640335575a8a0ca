"""Beam search with any step function; see decode.py for the step."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.decoding.decode import Growth, Hypotheses, Step, checked_limits, run
from attn_jax.models.module import Beams
from attn_jax.outputs.top_k import Extensions, best_extensions
from attn_jax.token_ids import NEVER_GENERATED
from attn_jax.types import Array, Bool, Callable, Float, Int, PyTree

# (memory, state, beams, n, forbidden) -> (state, the n best extensions of the beams)
BeamStep = Callable[[PyTree, PyTree, Beams, int, Sequence[int]], tuple[PyTree, Extensions]]


class Following(NamedTuple):
    """A step of all beams at once: it gets the parent of each, and reorders its state by itself, or need not."""

    step: BeamStep


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

    def step_beams(memory, state, beams, n, forbidden):
        best = lambda memory, state, token: step(memory, state, token, n + len(forbidden))  # noqa: E731
        vmapped = jax.vmap(best, in_axes=(None, 1, 1), out_axes=1)
        state, log_probs, tokens = vmapped(memory, _take(state, beams.parent), beams.token)
        return state, best_extensions(log_probs.astype(jnp.float32), tokens, beams.log_prob, n, forbidden)

    return step_beams


def _of_beams(grow: Callable[[PyTree, int], PyTree]) -> Callable[[PyTree, int], PyTree]:
    return lambda state, length: jax.vmap(lambda state: grow(state, length), 1, 1)(state)


def beam_search(
    step: Step | Following,
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

    `memory` is not copied for each beam: `step` is vmapped over a second axis of `state` and token only. If it is
    Following, `state` is that of all beams (see models/transformer/beams.py). With a `growth`, the state begins with
    room for few steps, and grows.

    Raises:
        ValueError: beam_size or max_length < 1, or `limits` are not [b].
    """
    if beam_size < 1:
        raise ValueError(f"beam_size is {beam_size}; expected at least 1")
    limits = checked_limits(limits, max_length)
    if not isinstance(step, Following):
        step, state = Following(reordering(step)), jax.tree.map(lambda x: jnp.repeat(x[:, None], beam_size, 1), state)
        growth = growth and growth._replace(grow=_of_beams(growth.grow))

    def advance(now: Search) -> Search:
        beams = Beams(now.token, now.parent, now.alive.log_prob)
        # At most k of the best 2k end with eos, one of each beam, so at least k go on.
        state, best = step.step(memory, now.state, beams, 2 * beam_size, forbidden)
        extended = _extend(now, best, length_penalty)
        ended = _keep_ended(now, extended, best.word, eos)
        token, parent, alive = _keep_alive(now, extended, best, eos)
        now = Search(now.t + 1, token, parent, state, alive, ended, now.done)
        return now._replace(done=_is_done(now, limits, length_penalty))

    end = run(advance, _start(state, beam_size, max_length, limits, bos, pad), growth)
    return _ended_first(end.ended, end.alive, pad)


class Search(NamedTuple):
    """The state of a beam search after t tokens."""

    t: Int[Array, ""]
    token: Int[Array, "b k"]  # last token of each alive hypothesis
    parent: Int[Array, "b k"]  # the hypothesis of the step before that it extends
    state: PyTree  # state of `step`, in the order of the step before
    alive: Hypotheses  # best first
    ended: Hypotheses  # best first; a score of -inf marks an empty place
    done: Bool[Array, "b"]


def _start(state: PyTree, k: int, max_length: int, limits: Int[Array, "b"], bos: int, pad: int) -> Search:
    """Returns a search with one alive hypothesis, the empty one (k equal ones would stay equal), and none ended."""
    shape = (*limits.shape, k)
    impossible = _impossible(shape, max_length, pad)
    empty = impossible._replace(
        log_prob=impossible.log_prob.at[:, 0].set(0.0), score=impossible.score.at[:, 0].set(0.0)
    )
    own = jnp.broadcast_to(jnp.arange(k, dtype=jnp.int32), shape)
    return Search(jnp.int32(0), jnp.full(shape, bos, jnp.int32), own, state, empty, impossible, limits == 0)


def _extend(now: Search, best: Extensions, length_penalty: float | Float[Array, ""]) -> Hypotheses:
    """Makes hypotheses of extensions."""
    log_prob = jnp.take_along_axis(now.alive.log_prob, best.row, axis=1) + best.log_prob.astype(jnp.float32)
    length = jnp.full(log_prob.shape, now.t + 1, jnp.int32)
    score = log_prob / length_penalty_of(length, length_penalty)
    sentences = _take(now.alive.tokens, best.row).at[:, :, now.t].set(best.word.astype(jnp.int32))
    return Hypotheses(sentences, log_prob, length, score)


def _keep_ended(now: Search, extended: Hypotheses, word: Int[Array, "b n"], eos: int) -> Hypotheses:
    """Returns the best k ended hypotheses, including those of the best k extensions that end now."""
    k = now.token.shape[1]
    accepted = _only(extended, (word == eos) & ~now.done[:, None])
    hypotheses = _join(now.ended, jax.tree.map(lambda x: x[:, :k], accepted))
    return _best(hypotheses.score, hypotheses, k)


def _keep_alive(
    now: Search, extended: Hypotheses, best: Extensions, eos: int
) -> tuple[Int[Array, "b k"], Int[Array, "b k"], Hypotheses]:
    """Returns (token, parent, alive) of the best k extensions without eos."""
    going_on = _only(extended, best.word != eos)
    token, parent, alive = _best(going_on.score, (best.word, best.row, going_on), now.token.shape[1])
    # Finished rows do not change; their state is still updated, but not used.
    keep = jax.vmap(lambda done, *both: jax.tree.map(partial(jnp.where, done), *both))
    return token.astype(jnp.int32), parent, keep(now.done, now.alive, alive)


def _is_done(now: Search, limits: Int[Array, "b"], length_penalty: float | Float[Array, ""]) -> Bool[Array, "b"]:
    """Tells which rows are at their limit, or have no alive hypothesis that could still enter the best k."""
    # The penalty is monotonic in the length, so the best reachable one is at the next step or at the limit.
    ahead = length_penalty_of(now.t + 1, length_penalty), length_penalty_of(limits, length_penalty)
    best_ahead = now.alive.log_prob[:, 0] / jnp.maximum(*ahead)
    return now.done | (now.t >= limits) | (now.ended.score[:, -1] >= best_ahead)


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
