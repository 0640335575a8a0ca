"""Decoding with any step function: greedy, sampled and beam search.

    step(memory, state, token [b], k) -> (state, log_probs [b, k], tokens [b, k])

`memory` is the same at all steps (encoder states, projected keys), `state` changes; both are pytrees whose leaves have
a leading axis b, one row for each sentence, and no row depends on another. The tokens are the k most probable ones,
best first, or all if there are fewer; k = None asks for all, in the order of their numbers. log_probs are normalized,
so <= 0. All functions here are pure, batched and meant to be compiled by the caller's jit.

Each sentence has its own limit of target tokens, `limits` [b], so its result does not depend on the rest of the batch
or on padding. A sentence is done when it ends with eos or reaches its limit; the loop stops when all are done. Rows
that only fill up a batch should have the limit 0. pad and bos are never proposed, but the other probabilities are not
renormalized: log_prob is always the model's own (teacher-forced) log-probability of the tokens, eos included.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key

from attn_jax.errors import UserError
from attn_jax.types import Array, Bool, Callable, Float, Int, PyTree

Step = Callable[[PyTree, PyTree, Array, int | None], tuple[PyTree, Array, Array]]
NUM_FORBIDDEN = 2  # pad and bos


class Hypotheses(NamedTuple):
    """Decoded sentences, one per row; `beam_search` adds an axis of beams after b, best first."""

    tokens: Int[Array, "b ... t"]  # t = max_length; eos is included if the sentence ended, pad follows
    log_prob: Float[Array, "b ..."]  # sum of the log-probabilities of the tokens
    length: Int[Array, "b ..."]  # number of tokens, eos included
    score: Float[Array, "b ..."]  # log_prob / length_penalty; log_prob itself unless from `beam_search`


def _candidates(
    log_probs: Float[Array, "... n"], token: Int[Array, "... n"], pad: int, bos: int
) -> Float[Array, "... n"]:
    """Sets the log_probs of tokens that must not be generated, pad and bos, to -inf."""
    return jnp.where((token == pad) | (token == bos), -jnp.inf, log_probs)


def without(step: Step, token: int) -> Step:
    """Returns the step with a token that is never generated, such as unk; other probabilities are not renormalized."""

    def forbidding(memory: PyTree, state: PyTree, last: Array, k: int | None) -> tuple[PyTree, Array, Array]:
        state, log_probs, tokens = step(memory, state, last, None if k is None else k + 1)
        return state, jnp.where(tokens == token, -jnp.inf, log_probs), tokens

    return forbidding


def _limits(limits: Int[Array | np.ndarray, "b"], max_length: int) -> Int[Array, "b"]:
    """Returns the limits, at most max_length; raises a UserError if either cannot be used."""
    if max_length < 1:
        raise UserError(f"max_length is {max_length}; expected at least 1")
    limits = jnp.asarray(limits, jnp.int32)
    if limits.ndim != 1:
        raise UserError(f"limits have the shape {limits.shape}; expected [b], one for each sentence")
    return jnp.clip(limits, 0, max_length)


class Generated(NamedTuple):
    """The sentences so far, one per row, after t tokens."""

    t: Int[Array, ""]
    token: Int[Array, "b"]  # the last one
    state: PyTree  # of the step
    tokens: Int[Array, "b m"]
    log_prob: Float[Array, "b"]
    length: Int[Array, "b"]
    done: Bool[Array, "b"]


def _generate(step, memory, state, choose, *, k, max_length, limits, bos, eos, pad) -> Hypotheses:
    """Generates a sentence per row, token after token, by choose(t, candidates [b, n]) -> place of the token [b].

    The candidates are the k most probable tokens, and pad and bos among them.
    """
    limits = _limits(limits, max_length)

    def advance(now: Generated) -> Generated:
        state, log_probs, tokens_t = step(memory, now.state, now.token, k and k + NUM_FORBIDDEN)
        log_probs = log_probs.astype(jnp.float32)
        place = choose(now.t, _candidates(log_probs, tokens_t, pad, bos))[:, None]
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
    end = jax.lax.while_loop(_is_going_on, advance, start)
    return Hypotheses(end.tokens, end.log_prob, end.length, score=end.log_prob)


def _is_going_on(now) -> Bool[Array, ""]:
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
) -> Hypotheses:
    """Takes the most probable token at each step.

    Raises:
        UserError: max_length < 1, or `limits` are not [b].
    """

    def choose(t, candidates):
        return jnp.argmax(candidates, axis=-1).astype(jnp.int32)

    common = dict(max_length=max_length, limits=limits, bos=bos, eos=eos, pad=pad)
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
) -> Hypotheses:
    """Samples tokens from softmax(log_probs / temperature), cut to the `top_k` best, then to the nucleus of `top_p`.

    Args:
        rngs: one typed key for each sentence, so that its sample does not depend on the rest of the batch.
        temperature: above 1 flattens, below 1 sharpens the distribution; 0 is greedy.
        top_k: 0 keeps all tokens.
        top_p: keeps the smallest set of best tokens with at least this probability; 1 keeps all.

    The log_prob of the result is the model's, without temperature and cuts.
    Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1 (nucleus).

    Raises:
        UserError: temperature is negative or not finite, top_k < 0, top_p is not in (0, 1], max_length < 1, or
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
            better = jnp.cumsum(probs, axis=-1) - probs  # probability of all better ones
            logits = jnp.where(better < top_p, logits, -jnp.inf).at[:, 0].set(logits[:, 0])
        rank = jax.vmap(jax.random.categorical)(rngs_t, logits)
        return jnp.take_along_axis(places, rank[:, None], axis=1)[:, 0].astype(jnp.int32)

    common = dict(max_length=max_length, limits=limits, bos=bos, eos=eos, pad=pad)
    return _generate(step, memory, state, choose, k=top_k or None, **common)


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raises a UserError for options of `sample` that are out of range."""
    if not 0 <= temperature < math.inf or top_k < 0 or not 0 < top_p <= 1:
        raise UserError(
            "sampling: expected temperature >= 0, top_k >= 0 and 0 < top_p <= 1, "
            f"got temperature={temperature}, top_k={top_k}, top_p={top_p}"
        )


def length_penalty_of(length: Int[Array, "..."], length_penalty: float | Float[Array, ""]) -> Float[Array, "..."]:
    """Returns the divisor of log_prob, ((5 + length) / 6) ** length_penalty (Wu 2016, "Google's NMT", section 7)."""
    return ((5.0 + length) / 6.0) ** length_penalty


def _take(tree: PyTree, index: Int[Array, "b n"]) -> PyTree:
    """Takes rows `index` of the second axis of each leaf [b, k, ...]."""
    return jax.tree.map(lambda x: jax.vmap(lambda rows, i: rows[i])(x, index), tree)


def _best(score: Float[Array, "b n"], tree: PyTree, k: int) -> PyTree:
    """Takes the k rows of the second axis with the best scores, best first; of equal ones the first."""
    return _take(tree, jax.lax.top_k(score, k)[1])


def _only(hypotheses: Hypotheses, where: Bool[Array, "b n"]) -> Hypotheses:
    """Gives the hypotheses that are not `where` a log_prob and score of -inf."""
    log_prob = jnp.where(where, hypotheses.log_prob, -jnp.inf)
    return hypotheses._replace(log_prob=log_prob, score=jnp.where(where, hypotheses.score, -jnp.inf))


def _join(first: Hypotheses, second: Hypotheses) -> Hypotheses:
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), first, second)


def beam_search(
    step: Step,
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
) -> Hypotheses:
    """Finds the `beam_size` best sentences, best first, by score = log_prob / ((5 + length) / 6) ** length_penalty.

    At each step the beam_size alive hypotheses are extended by every token. Extensions that end with eos and are among
    the best beam_size by log_prob (they have the same length) compete with the hypotheses that ended before; the best
    beam_size of these are kept. The best beam_size extensions that do not end are alive at the next step. A sentence is
    done at its limit, or when no alive hypothesis, with the best penalty that it can still reach, could beat the worst
    of beam_size ended ones. So stopping early does not change the result; a larger length_penalty takes longer.

    Ended hypotheses come first. If there are fewer than beam_size, hypotheses cut off at the limit follow, best first,
    and if there are still too few, empty rows with log_prob and score -inf. A beam of 1 without a length penalty is
    greedy; a beam as wide as there are prefixes is an exhaustive search.

    `memory` is not copied for each beam: `step` is vmapped over a second axis of `state` and token only.

    Raises:
        UserError: beam_size or max_length < 1, or `limits` are not [b].
    """
    if beam_size < 1:
        raise UserError(f"beam_size is {beam_size}; expected at least 1")
    limits = _limits(limits, max_length)
    # The best 2k extensions of all beams are among the best 2k of each.
    step_best = lambda memory, state, token: step(memory, state, token, 2 * beam_size + NUM_FORBIDDEN)  # noqa: E731
    step_beams = jax.vmap(step_best, in_axes=(None, 1, 1), out_axes=1)

    def advance(beams: Beams) -> Beams:
        state, log_probs, tokens_t = step_beams(memory, beams.state, beams.token)
        log_probs = _candidates(log_probs.astype(jnp.float32), tokens_t, pad, bos)
        extensions = _extend(beams, log_probs, tokens_t, length_penalty)
        ended = _keep_ended(beams, extensions, eos)
        token, state, alive = _keep_alive(beams, extensions, eos, state)
        beams = beams._replace(t=beams.t + 1, token=token, state=state, alive=alive, ended=ended)
        return beams._replace(done=_is_done(beams, limits, length_penalty))

    beams = _start_beams(state, beam_size, max_length, limits, bos, pad)
    beams = jax.lax.while_loop(_is_going_on, advance, beams)
    return _ended_first(beams.ended, beams.alive, pad)


class Beams(NamedTuple):
    """The state of a beam search after t tokens."""

    t: Int[Array, ""]
    token: Int[Array, "b k"]  # the last one of each alive hypothesis
    state: PyTree  # of the step, with an axis of beams after b
    alive: Hypotheses  # best first
    ended: Hypotheses  # best first, those with a score of -inf stand for none
    done: Bool[Array, "b"]


class Extensions(NamedTuple):
    """The best 2k extensions of the alive hypotheses by one token, best first."""

    hypotheses: Hypotheses
    parent: Int[Array, "b n"]  # place of the hypothesis that is extended
    token: Int[Array, "b n"]


def _start_beams(state: PyTree, k: int, max_length: int, limits: Int[Array, "b"], bos: int, pad: int) -> Beams:
    """Returns beams with one alive hypothesis, the empty one, as k equal ones would stay equal; none has ended."""
    shape = (*limits.shape, k)
    impossible = _impossible(shape, max_length, pad)
    empty = impossible._replace(
        log_prob=impossible.log_prob.at[:, 0].set(0.0), score=impossible.score.at[:, 0].set(0.0)
    )
    state = jax.tree.map(lambda x: jnp.repeat(x[:, None], k, axis=1), state)
    return Beams(jnp.int32(0), jnp.full(shape, bos, jnp.int32), state, empty, impossible, limits == 0)


def _extend(
    beams: Beams,
    log_probs: Float[Array, "b k n"],
    tokens: Int[Array, "b k n"],
    length_penalty: float | Float[Array, ""],
) -> Extensions:
    """Finds the best 2k of all extensions; at most k of them end, one of each beam, so at least k do not."""
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
    """Returns the best k of those that ended before and of those among the best k extensions that end now."""
    k = beams.token.shape[1]
    accepted = _only(extensions.hypotheses, (extensions.token == eos) & ~beams.done[:, None])
    hypotheses = _join(beams.ended, jax.tree.map(lambda x: x[:, :k], accepted))
    return _best(hypotheses.score, hypotheses, k)


def _keep_alive(
    beams: Beams, extensions: Extensions, eos: int, state: PyTree
) -> tuple[Int[Array, "b k"], PyTree, Hypotheses]:
    """Returns (token, state, alive) of the best k extensions that do not end; `state` is that after the step."""
    going_on = _only(extensions.hypotheses, extensions.token != eos)
    best = _best(going_on.score, extensions._replace(hypotheses=going_on), beams.token.shape[1])
    # Finished rows do not change; their state is still updated, but not used.
    keep = jax.vmap(lambda done, *both: jax.tree.map(partial(jnp.where, done), *both))
    return best.token, _take(state, best.parent), keep(beams.done, beams.alive, best.hypotheses)


def _is_done(beams: Beams, limits: Int[Array, "b"], length_penalty: float | Float[Array, ""]) -> Bool[Array, "b"]:
    """Tells which rows are at their limit, or have no alive hypothesis that could still be among the best."""
    # The penalty is monotonic in the length, so the best one ahead is at the next step or at the limit.
    ahead = length_penalty_of(beams.t + 1, length_penalty), length_penalty_of(limits, length_penalty)
    best_ahead = beams.alive.log_prob[:, 0] / jnp.maximum(*ahead)
    return beams.done | (beams.t >= limits) | (beams.ended.score[:, -1] >= best_ahead)


def _impossible(shape: tuple[int, ...], max_length: int, pad: int) -> Hypotheses:
    """Returns empty hypotheses with a log_prob and score of -inf."""
    nothing = jnp.full(shape, -jnp.inf, jnp.float32)
    tokens = jnp.full((*shape, max_length), pad, jnp.int32)
    return Hypotheses(tokens, nothing, jnp.zeros(shape, jnp.int32), nothing)


def _ended_first(ended: Hypotheses, alive: Hypotheses, pad: int) -> Hypotheses:
    """Returns those that ended, whose scores are sorted, -inf for none, and in their free places those alive."""
    num_ended = jnp.sum(ended.score > -jnp.inf, axis=1, keepdims=True)
    k = ended.score.shape[1]
    place = jnp.arange(k)
    decoded = _take(_join(ended, alive), jnp.where(place < num_ended, place, k + place - num_ended))
    exists = decoded.log_prob > -jnp.inf
    return decoded._replace(
        tokens=jnp.where(exists[..., None], decoded.tokens, pad), length=jnp.where(exists, decoded.length, 0)
    )


class Method(NamedTuple):
    """A decoding method and the arguments that only it takes."""

    search: Callable  # (step, memory, state, **arguments) -> Hypotheses
    options: tuple[str, ...] = ()  # names of its options
    has_beams: bool = False  # its Hypotheses have an axis of beams, best first
    is_random: bool = False  # it takes `rngs`, one for each sentence


METHODS = {
    "greedy": Method(greedy),
    "beam": Method(beam_search, options=("beam_size", "length_penalty"), has_beams=True),
    "sample": Method(sample, options=("temperature", "top_k", "top_p"), is_random=True),
}


def replace_unk(
    tokens: Sequence[str], weights: Float[np.ndarray, "t s"], source_tokens: Sequence[str], unk: str
) -> list[str]:
    """Replaces each token `unk` by the source token with the largest weight (Jean et al. 2015; Luong et al. 2015).

    Args:
        tokens: target tokens, without bos and eos.
        weights: row t has the attention weights of token t; further rows (eos, padding) and columns (beyond the source
            tokens) are not used. A token whose weights are all 0 stays as it is.

    Raises:
        ValueError: there are fewer rows of weights than tokens.
    """
    weights = np.asarray(weights)[:, : len(source_tokens)]
    if len(weights) < len(tokens):
        raise ValueError(f"replace_unk: expected weights of {len(tokens)} tokens, got {len(weights)} rows")
    replaced = []
    for token, row in zip(tokens, weights, strict=False):
        attended = token == unk and row.max(initial=0.0) > 0
        replaced.append(source_tokens[int(row.argmax())] if attended else token)
    return replaced
