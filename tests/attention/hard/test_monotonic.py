"""Structured alignments against brute force: every alignment, every way to stop, summed one by one."""

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.hard import monotonic
from attn_jax.attention.hard.monotonic import expected_weights, hard_weights, initial_weights, log_transition

T, S, W = 3, 4, 3  # a width of 3 clips distances both ways
RNG = np.random.default_rng(0)
MASK = np.array(
    [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], bool
)
REAL = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]], bool)
B = len(MASK)
NO_KEY = ~MASK.any(-1)
SCORES = RNG.normal(0, 1.5, (B, T, S)).astype(np.float32)
JUMPS = RNG.normal(0, 1.5, (B, T, W)).astype(np.float32)
NLL = RNG.exponential(2.0, (B, T, S)).astype(np.float32)

Fields = collections.namedtuple("Fields", "nll log_predictive log_posterior")  # of ForwardResult, as numpy arrays

KINDS = list(itertools.product([False, True], [False, True]))  # (monotonic, with jumps)


def transitions(kind, scores, jumps, mask):
    is_monotonic, has_jumps = kind
    first = jnp.arange(scores.shape[-2]) == 0
    return log_transition(scores, mask[..., None, :], is_monotonic, jumps if has_jumps else None, first)


def forward(kind, scores, jumps, nll, mask, real):
    aligned = monotonic.forward(transitions(kind, scores, jumps, mask), nll, real)
    return Fields(aligned.nll, aligned.log_predictive, aligned.log_posterior)


@functools.cache
def run_of(kind):
    """(scores, jumps, nll, mask, real) -> (fields of ForwardResult, gradients of its total nll), compiled once."""

    def run(scores, jumps, nll, mask, real):
        call = lambda scores, jumps, nll: forward(kind, scores, jumps, nll, mask, real)  # noqa: E731
        fields, pull = jax.vjp(call, scores, jumps, nll)
        zeros = jnp.zeros_like(fields.log_predictive)
        return fields, pull(Fields(jnp.ones_like(fields.nll), zeros, zeros))

    return compiled(run)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"monotonic={kind[0]},jumps={kind[1]}")
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def run(kind):
    return run_of(kind)


def step_probability(kind, before, now, scores, jumps, mask):
    """p(now | before) in plain Python; `before` is None at the first step."""
    is_monotonic, has_jumps = kind

    def weight(i):
        if not mask[i] or (is_monotonic and before is not None and i < before):
            return 0.0
        jump = 0.0
        if has_jumps and before is not None:
            reach = len(jumps) // 2
            jump = (
                jumps[min(i - before, len(jumps) - 1)]
                if is_monotonic
                else jumps[max(-reach, min(reach, i - before)) + reach]
            )
        return np.exp(scores[i] + jump)

    return weight(now) / sum(map(weight, range(len(scores)))) if weight(now) else 0.0


def enumerated(kind, scores, jumps, nll, mask):
    """One row: [(alignment, [probability of the first step and its token, of the first two, ...])] of them all."""
    scores, jumps, nll = (array.astype(np.float64) for array in (scores, jumps, nll))
    paths = []
    for alignment in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        before, prefixes = None, [1.0]
        for t, now in enumerate(alignment):
            p = step_probability(kind, before, now, scores[t], jumps[t], mask)
            prefixes.append(prefixes[-1] * p * np.exp(-nll[t, now]))
            before = now
        paths.append((alignment, prefixes))
    return paths


def marginal(paths, t, mass):
    """p(a_t) from the mass of each path."""
    totals = np.zeros(S)
    for (alignment, _), m in zip(paths, mass, strict=True):
        totals[alignment[t]] += m
    return totals / totals.sum()


def brute_force(kind, row):
    """(nll, predictive, posterior, smoothed posterior) of a row's real steps, each [steps, s]."""
    real = REAL[row]
    scores, jumps, nll = (array[row][real] for array in (SCORES, JUMPS, NLL))
    paths = enumerated(kind, scores, jumps, nll, MASK[row])
    losses, predictive, posterior, smoothed = [], [], [], []
    for t in range(len(scores)):
        # A path cut after t stands for all that go on from there: count each once, by its first continuation.
        cut = list({alignment[: t + 1]: (alignment, prefixes) for alignment, prefixes in paths}.values())
        after = np.array([prefixes[t + 1] for _, prefixes in cut])
        unseen = np.array([prefixes[t + 1] * np.exp(float(nll[t, alignment[t]])) for alignment, prefixes in cut])
        before = sum({alignment[:t]: prefixes[t] for alignment, prefixes in paths}.values())
        losses.append(-np.log(after.sum() / before))
        predictive.append(marginal(cut, t, unseen))
        posterior.append(marginal(cut, t, after))
        smoothed.append(marginal(paths, t, [prefixes[-1] for _, prefixes in paths]))
    return tuple(map(np.array, (losses, predictive, posterior, smoothed)))


@pytest.mark.slow
def test_forward_sums_over_all_alignments(kind, run):
    aligned, (_, _, nll_gradient) = run(SCORES, JUMPS, NLL, MASK, REAL)
    assert aligned.nll.dtype == np.float32 and aligned.log_posterior.shape == (B, T, S)
    for row in np.flatnonzero(~NO_KEY):
        real = REAL[row]
        losses, predictive, posterior, smoothed = brute_force(kind, row)
        np.testing.assert_allclose(aligned.nll[row][real], losses, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.exp(aligned.log_predictive[row][real]), predictive, atol=1e-5)
        np.testing.assert_allclose(np.exp(aligned.log_posterior[row][real]), posterior, atol=1e-5)
        # d(-log p(y)) / d nll_t(i) is the probability that t was aligned to i, given all of y.
        np.testing.assert_allclose(nll_gradient[row][real], smoothed, atol=1e-5)


@pytest.mark.slow
def test_gradients_are_those_of_the_sum_over_alignments(kind, run):
    _, (scores_gradient, jumps_gradient, _) = run(SCORES, JUMPS, NLL, MASK, REAL)
    row, step = 2, 1e-4

    def total(scores, jumps):
        return -np.log(sum(prefixes[-1] for _, prefixes in enumerated(kind, scores, jumps, NLL[row], MASK[row])))

    scores, jumps = SCORES[row].astype(np.float64), JUMPS[row].astype(np.float64)
    rng = np.random.default_rng(1)
    for _ in range(3):
        a, b = rng.normal(size=scores.shape), rng.normal(size=jumps.shape)
        slope = (total(scores + step * a, jumps + step * b) - total(scores - step * a, jumps - step * b)) / (2 * step)
        got = (a * scores_gradient[row]).sum() + (b * jumps_gradient[row]).sum()
        np.testing.assert_allclose(got, slope, atol=1e-4)


@pytest.mark.slow
def test_padded_steps_and_rows_without_keys(run):
    aligned, gradients = run(SCORES, JUMPS, NLL, MASK, REAL)
    np.testing.assert_array_equal(aligned.nll[~REAL], 0)
    np.testing.assert_array_equal(aligned.nll[NO_KEY[:, None] & REAL], np.inf)  # no alignment explains the token
    np.testing.assert_array_equal(np.exp(aligned.log_posterior[NO_KEY]), 0)
    for log_weights in (aligned.log_predictive, aligned.log_posterior):
        assert np.all(np.exp(log_weights)[~np.broadcast_to(MASK[:, None], log_weights.shape)] == 0)
        np.testing.assert_allclose(np.exp(log_weights[~NO_KEY]).sum(-1), 1, rtol=1e-5)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))
        np.testing.assert_array_equal(gradient[NO_KEY], 0)
    np.testing.assert_array_equal(gradients[2][~REAL], 0)


@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_masked_or_padded_changes_nothing(run, rubbish):
    """Scores and nll of masked keys, and the nll of padded steps."""
    expected = jax.tree.leaves(run(SCORES, JUMPS, NLL, MASK, REAL))
    kept = np.broadcast_to(MASK[:, None], SCORES.shape)
    scores, nll = np.where(kept, SCORES, rubbish), np.where(kept & REAL[..., None], NLL, rubbish)
    got = run(scores.astype(np.float32), JUMPS, nll.astype(np.float32), MASK, REAL)
    for one, other in zip(jax.tree.leaves(got), expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.any(np.isnan(one))


@pytest.mark.slow
def test_masking_a_key_is_deleting_it(kind, run):
    # With jumps only at the end: a key in the middle counts as a distance, masked or not.
    kept = np.array([1, 1, 1, 0] if kind[1] else [1, 0, 1, 1], bool)
    aligned, (_, _, gradient) = run(SCORES, JUMPS, NLL, np.broadcast_to(kept, MASK.shape), REAL)
    delete = compiled(functools.partial(forward, kind))
    deleted = delete(SCORES[..., kept], JUMPS, NLL[..., kept], np.ones((B, S - 1), bool), REAL)
    np.testing.assert_allclose(aligned.nll, deleted.nll, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(aligned.log_posterior[..., kept], deleted.log_posterior, rtol=1e-5, atol=1e-5)
    assert np.all(aligned.log_posterior[..., ~kept] == -np.inf) and np.all(gradient[..., ~kept] == 0)


@pytest.mark.parametrize("scale", [1e4, 1e30, None])
def test_extreme_scores_and_losses_stay_finite_and_impossible_tokens_have_no_gradient(run, scale):
    nll, scores = (NLL * np.float32(scale), SCORES * np.float32(scale)) if scale else (NLL.copy(), SCORES)
    if scale is None:
        nll[:, 1] = np.inf
    aligned, gradients = run(scores, JUMPS, nll, MASK, REAL)
    assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(aligned))
    assert np.all(np.isfinite(aligned.nll[~NO_KEY])) if scale else np.all(aligned.nll[:, 1][REAL[:, 1]] == np.inf)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_step_by_step_is_forward(kind, run):
    @compiled
    def one_step(log_posterior, scores, jumps, nll, mask, first):
        transition = log_transition(scores, mask, kind[0], jumps if kind[1] else None, first)
        log_predictive = monotonic.predict(log_posterior, transition)
        token_nll, log_posterior = monotonic.update(log_predictive, nll)
        return Fields(token_nll, log_predictive, log_posterior)

    aligned, _ = run(SCORES, JUMPS, NLL, MASK, np.ones_like(REAL))
    log_posterior = compiled(lambda mask: jnp.log(initial_weights(mask)))(MASK)
    for t in range(T):
        got = one_step(log_posterior, SCORES[:, t], JUMPS[:, t], NLL[:, t], MASK, np.full(B, t == 0))
        for one, other in zip(got, aligned, strict=True):
            np.testing.assert_allclose(one, other[:, t], rtol=1e-5, atol=1e-6)
        log_posterior = got.log_posterior


def test_update_of_all_words_at_once():
    """With an axis of candidates: normalized word probabilities, and what each word would tell of the alignment."""
    weights = np.array([0.5, 0.2, 0.3, 0.0], np.float32)
    words = np.random.default_rng(2).dirichlet(np.ones(5), size=S).T.astype(np.float32)  # [v, s]
    nll, log_posterior = compiled(lambda p, nll: monotonic.update(jnp.log(p)[None], nll))(weights, -np.log(words))
    np.testing.assert_allclose(np.exp(-nll), words @ weights, rtol=1e-5)
    np.testing.assert_allclose(np.exp(-nll).sum(), 1, rtol=1e-5)
    joint = words * weights
    np.testing.assert_allclose(np.exp(log_posterior), joint / joint.sum(1, keepdims=True), rtol=1e-5)


def test_transitions_are_distributions_which_never_go_left_if_monotonic(kind):
    logs = compiled(functools.partial(transitions, kind))(SCORES, JUMPS, MASK)
    assert logs.shape == (B, T, S if any(kind) else 1, S)
    reachable = np.broadcast_to(MASK[:, None, None], logs.shape)
    if kind[0]:
        later = np.triu(np.ones((S, S), bool)) | (np.arange(T) == 0)[:, None, None]
        reachable = reachable & later
    np.testing.assert_array_equal(np.exp(logs) > 0, reachable)
    np.testing.assert_allclose(np.exp(logs).sum(-1), reachable.any(-1), rtol=1e-5)


def test_without_first_every_step_moves_on_from_somewhere():
    logs, first_is_free = compiled(
        lambda scores, jumps, mask: (
            log_transition(scores, mask[:, None], True, jumps),
            transitions((True, True), scores, jumps, mask),
        )
    )(SCORES, JUMPS, MASK)
    np.testing.assert_array_equal(logs[:, 1:], first_is_free[:, 1:])
    np.testing.assert_array_equal(np.exp(logs[:, 0]) > 0, MASK[:, None] & np.triu(np.ones((S, S), bool)))


def test_an_even_number_of_jumps_has_no_middle():
    with pytest.raises(ValueError, match="odd width, got 2"):
        jax.eval_shape(log_transition, SCORES, np.ones((B, 1, S), bool), jumps=JUMPS[..., :2])


# Monotonic attention in expectation (Raffel 2017).

CHOICES = np.array([0.0, 1.0, 0.5, 0.1, 0.9], np.float32)
SELECT = RNG.choice(CHOICES, (B, T, S))
SELECT[0] = [[0.3, 0.6, 0.2, 0.7], [0.5, 0.4, 0.8, 0.1], [0.2, 0.9, 0.5, 0.6]]


@functools.cache
def chain_of(align):
    """(select [b, t, s], mask) -> (weights [b, t, s], gradient of a weighted sum of them)."""

    def chain(select, mask):
        weights, previous = [], initial_weights(mask)
        for t in range(T):
            previous = align(select[:, t], previous, mask)
            weights.append(previous)
        return jnp.stack(weights, axis=1)

    def both(select, mask):
        weights, pull = jax.vjp(lambda select: chain(select, mask), select)
        return weights, pull(jnp.asarray(SCORES[..., : select.shape[-1]]))[0]

    return compiled(both)


def walked(stops, mask):
    """The process itself: at which key it stops at each step, None from where it ran past the end."""
    position, path = 0, []
    for row in stops:
        while position < len(row) and not (mask[position] and row[position]):
            position += 1
        path.append(position if position < len(row) else None)
    return path


def test_expected_weights_sums_over_all_ways_to_stop():
    weights, _ = chain_of(expected_weights)(SELECT, MASK)
    for row in range(B):
        expected = np.zeros((T, S))
        for stops in itertools.product([0, 1], repeat=T * S):
            stops = np.reshape(stops, (T, S))
            probability = np.prod(np.where(stops, SELECT[row], 1 - SELECT[row].astype(np.float64)))
            if probability:
                for t, position in enumerate(walked(stops, MASK[row])):
                    if position is not None:
                        expected[t, position] += probability
        np.testing.assert_allclose(weights[row], expected, atol=1e-6)


def test_hard_weights_walks_to_the_first_key_that_is_selected():
    weights, gradient = chain_of(hard_weights)(SELECT, MASK)
    for row in range(B):
        for t, position in enumerate(walked(SELECT[row] >= 0.5, MASK[row])):
            np.testing.assert_array_equal(weights[row, t], 0 if position is None else np.eye(S)[position])
    assert np.any(weights.sum(-1) == 0) and np.any(weights[..., 1:] == 1)
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -3e38])
def test_the_select_of_a_masked_key_changes_nothing(rubbish):
    select = np.where(MASK[:, None], SELECT, np.float32(rubbish))
    for align in (expected_weights, hard_weights):
        expected = chain_of(align)(SELECT, MASK)
        for one, other in zip(chain_of(align)(select, MASK), expected, strict=True):
            np.testing.assert_array_equal(one, other)
            assert np.all(np.isfinite(one)) and np.all(one[~np.broadcast_to(MASK[:, None], one.shape)] == 0)


def test_expected_weights_gradient_by_finite_differences():
    call, step = chain_of(expected_weights), 1e-2
    _, gradient = call(SELECT, MASK)
    # Linear in each select of the last step, and a polynomial of low degree in the others.
    for place in [(0, 0, 1), (0, 1, 2), (0, 2, 0), (0, 2, 3), (1, 0, 0), (2, 1, 2)]:
        shift = np.zeros_like(SELECT)
        shift[place] = step
        change = (call(SELECT + shift, MASK)[0] - call(SELECT - shift, MASK)[0]).astype(np.float64)
        np.testing.assert_allclose(gradient[place], (change * SCORES).sum() / (2 * step), atol=1e-4)
