"""Losses on sampled words, proven by summing over all samples."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.outputs import SampledSoftmax
from attn_jax.outputs.criteria import (
    Scored,
    blackout,
    blackout_log_probs,
    importance_sampling,
    log1m_exp,
    negative_sampling,
    noise_contrastive,
)
from attn_jax.outputs.frequencies import Frequencies, alias_table, log_uniform, uniform, unigram
from attn_jax.outputs.proposals import Distribution, Fixed, Learned

VOCAB = 5
RNG = np.random.default_rng(1)
SCORES = RNG.normal(size=VOCAB).astype(np.float32)
Q = np.array([0.4, 0.25, 0.05, 0.2, 0.1])
TARGET = 1


def scored(scores, words, q=Q, target=TARGET):
    """The target against these words, for one position."""
    k, log_q = len(words), jnp.log(jnp.asarray(q, jnp.float32))
    words = jnp.asarray(words)
    return Scored(
        target=scores[None, target],
        words=scores[words][None],
        log_count_of_target=jnp.log(k) + log_q[target][None],
        log_count=jnp.log(k) + log_q[words],
        is_target=(words == target)[None],
    )


def expectation(function, k, q=Q):
    """Sum over all samples of k words of the probability of the sample times function(words)."""
    samples = np.array(list(itertools.product(range(VOCAB), repeat=k)))
    probs = np.prod(q[samples], axis=1)
    values = compiled(jax.vmap(function))(samples)
    return np.tensordot(probs, np.asarray(values, np.float64), 1)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_normalizer_is_unbiased_and_the_loss_too_small(k):
    loss = lambda words: importance_sampling(scored(jnp.asarray(SCORES), words))[0]  # noqa: E731
    normalizer = expectation(lambda words: jnp.exp(loss(words) + SCORES[TARGET]), k)
    np.testing.assert_allclose(normalizer, np.sum(np.exp(SCORES)), rtol=1e-5)
    full = np.log(np.sum(np.exp(SCORES))) - SCORES[TARGET]
    assert expectation(loss, k) < full


@pytest.mark.slow
def test_the_bias_of_the_gradient_falls_as_one_over_k():
    probs = np.exp(SCORES) / np.sum(np.exp(SCORES))
    exact = probs - np.eye(VOCAB)[TARGET]
    gradient = jax.grad(lambda scores, words: importance_sampling(scored(scores, words))[0])
    ks = np.array([1, 2, 3, 4, 5, 6])
    bias = [np.linalg.norm(expectation(lambda words: gradient(jnp.asarray(SCORES), words), k) - exact) for k in ks]
    exponent = np.polyfit(np.log(ks[2:]), np.log(bias[2:]), 1)[0]
    assert -1.25 < exponent < -0.75, (bias, exponent)


def test_sampling_every_word_once_is_the_full_softmax():
    loss = importance_sampling(scored(jnp.asarray(SCORES), np.arange(VOCAB), q=np.full(VOCAB, 1 / VOCAB)))
    np.testing.assert_allclose(loss[0], np.log(np.sum(np.exp(SCORES))) - SCORES[TARGET], rtol=1e-6)


def test_the_gradient_of_noise_contrastive_estimation_tends_to_that_of_the_likelihood():
    """For a normalized model; k words cost k times the expectation over one word."""
    log_probs = jnp.asarray(SCORES) - jax.nn.logsumexp(jnp.asarray(SCORES))
    exact = np.asarray(jnp.exp(log_probs)) - np.eye(VOCAB)[TARGET]
    errors = []
    for k in (1, 10, 100, 1000):

        def loss(scores, word, k=k):
            one = scored(scores, word[None])
            one = one._replace(
                log_count=one.log_count + jnp.log(k), log_count_of_target=one.log_count_of_target + jnp.log(k)
            )
            of_target = noise_contrastive(one._replace(words=jnp.full((1, 1), -jnp.inf)))
            return (of_target + k * (noise_contrastive(one) - of_target))[0]

        mean = expectation(lambda word, loss=loss: jax.grad(loss)(log_probs, word[0]), 1)
        errors.append(np.linalg.norm(mean - exact))
    assert errors[0] > 0.1 and errors[3] < 0.002
    np.testing.assert_allclose(errors[2] / errors[3], 10, rtol=0.2)


def test_noise_contrastive_estimation_is_negative_sampling_only_where_kq_is_one():
    words, equal = np.arange(VOCAB), np.full(VOCAB, 1 / VOCAB)
    same = scored(jnp.asarray(SCORES), words, q=equal)
    np.testing.assert_allclose(noise_contrastive(same), negative_sampling(same), rtol=1e-6)
    for other in (scored(jnp.asarray(SCORES), words), scored(jnp.asarray(SCORES), words[:3], q=equal)):
        assert abs(noise_contrastive(other) - negative_sampling(other))[0] > 0.01


def test_blackout_over_all_words_is_the_softmax():
    others = np.array([word for word in range(VOCAB) if word != TARGET])
    some = scored(jnp.asarray(SCORES), others, q=np.full(VOCAB, 1 / VOCAB))
    probs = np.exp(SCORES) / np.sum(np.exp(SCORES))
    np.testing.assert_allclose(np.exp(blackout_log_probs(some))[0], probs[[TARGET, *others]], rtol=1e-5)
    expected = -np.log(probs[TARGET]) - np.sum(np.log(1 - probs[others]))
    np.testing.assert_allclose(blackout(some)[0], expected, rtol=1e-5)


def test_blackout_weighs_words_by_one_over_q():
    words = np.array([0, 2])
    weights = np.exp(SCORES) / Q
    expected = weights[[TARGET, 0, 2]] / np.sum(weights[[TARGET, 0, 2]])
    np.testing.assert_allclose(np.exp(blackout_log_probs(scored(jnp.asarray(SCORES), words)))[0], expected, rtol=1e-5)


@pytest.mark.slow
def test_a_sampled_word_that_is_the_target_counts_for_nothing_in_blackout_and_importance_sampling():
    scores = jnp.asarray(SCORES)
    with_hit = scored(scores, np.array([0, TARGET, 2]))
    without = with_hit._replace(
        words=with_hit.words[:, [0, 2]],
        log_count=with_hit.log_count[np.array([0, 2])],
        is_target=with_hit.is_target[:, [0, 2]],
    )
    for loss in (importance_sampling, blackout):
        slope = lambda s, loss=loss: jax.grad(lambda s: loss(scored(s, np.array([TARGET, TARGET])))[0])(s)  # noqa: E731
        run = compiled(lambda s, one, other, loss=loss, slope=slope: (loss(one), loss(other), slope(s)))
        one, other, gradient = run(scores, with_hit, without)
        np.testing.assert_allclose(one, other, rtol=1e-6)
        assert np.all(np.isfinite(gradient))


def test_log1m_exp():
    x = np.array([-1e-6, -0.1, -0.6931472, -1, -50], np.float64)
    np.testing.assert_allclose(log1m_exp(jnp.asarray(x)), np.log1p(-np.exp(x)), rtol=1e-4)
    assert np.all(np.isfinite(jax.vmap(jax.grad(log1m_exp))(jnp.asarray(x))))


COUNTS = Frequencies(np.array([0, 8, 0, 3, 30, 1, 7, 7]))


def test_proposals_are_distributions():
    for probs in (uniform(COUNTS), log_uniform(COUNTS), unigram(COUNTS, power=0.75, reserved=4)):
        assert np.all(probs > 0)
        np.testing.assert_allclose(np.sum(probs), 1)
    ranks = np.argsort(-log_uniform(COUNTS))
    np.testing.assert_array_equal(ranks, COUNTS.order)
    np.testing.assert_allclose(unigram(COUNTS, smoothing=1.0), (COUNTS.counts + 1) / (COUNTS.counts.sum() + 8))
    flat = (COUNTS.counts + 1) ** 0.5
    np.testing.assert_allclose(unigram(COUNTS, power=0.5, smoothing=1.0), flat / flat.sum())


def test_within_a_class_words_have_the_proportions_of_all():
    distribution = Distribution(unigram(COUNTS, smoothing=1.0))
    classes = distribution.classes(3)
    assert np.max(classes.size) > 1
    for number in range(len(classes.size)):
        words = np.flatnonzero(classes.of_word == number)
        expected = distribution.probs[words] / distribution.probs[words].sum()
        np.testing.assert_allclose(np.exp(classes.log_within[words]), expected, rtol=1e-5)


def test_a_word_that_is_never_sampled_is_an_error():
    with pytest.raises(ValueError, match=r"2 of 8 words have the count 0 \(words 0, 2\)"):
        unigram(COUNTS)


def test_with_a_power_of_zero_words_that_never_occur_are_as_probable_as_others():
    np.testing.assert_allclose(unigram(COUNTS, power=0.0), uniform(COUNTS))


MANY = np.random.default_rng(0).dirichlet(np.full(30, 0.5))


@pytest.mark.parametrize("probs", [Q, MANY, np.full(7, 1 / 7), np.array([1.0]), np.array([1e-9, 1 - 1e-9])])
def test_an_alias_table_holds_the_distribution(probs):
    threshold, alias = alias_table(probs)
    held = np.zeros(len(probs))
    np.add.at(held, np.arange(len(probs)), threshold / len(probs))
    np.add.at(held, alias, (1 - threshold) / len(probs))
    np.testing.assert_allclose(held, probs, atol=1e-7)


@pytest.mark.slow
def test_samples_have_the_probabilities_that_are_returned_with_them():
    num = 40_000
    hidden, targets = jnp.asarray(RNG.normal(size=(6, 3)), jnp.float32), jnp.arange(6)
    fixed = Fixed(probs=Distribution(unigram(COUNTS, power=0.5, reserved=4)))
    learned = Learned(probs=Distribution(unigram(COUNTS, power=0.5, reserved=4)), num_classes=3)
    params = {"params": params_of(learned, jax.random.key(0), num_samples=4, hidden=hidden, targets=targets)}
    for call in (
        lambda rng: fixed.apply({}, rng, num, hidden, targets),
        lambda rng: learned.apply(params, rng, num, hidden, targets),
    ):
        proposed = compiled(call)(jax.random.key(1))
        share = np.bincount(proposed.words, minlength=8) / num
        probs = np.zeros(8)
        probs[proposed.words] = np.exp(proposed.log_q)
        np.testing.assert_allclose(np.sum(probs), 1, rtol=1e-4)
        np.testing.assert_allclose(share, probs, atol=4 * np.sqrt(0.25 / num))
        np.testing.assert_allclose(np.exp(proposed.log_q_of_targets), probs[:6], rtol=1e-4)


@pytest.mark.slow
def test_a_learned_proposal_trains_itself_and_leaves_the_model_alone():
    hidden, targets, params, learned = a_learned_proposal()
    loss = lambda params, hidden: jnp.sum(learned.apply(params, jax.random.key(0), 4, hidden, targets).loss)  # noqa: E731
    value, (of_params, of_hidden) = compiled(jax.value_and_grad(loss, (0, 1)))(params, hidden)
    assert value == 0 and np.all(of_hidden == 0)
    assert np.any(of_params["params"]["classes"]["kernel"] != 0)


@pytest.mark.slow
def test_padding_has_no_part_in_a_learned_proposal():
    hidden, targets, params, learned = a_learned_proposal()

    @compiled
    def run(hidden, targets):
        call = lambda hidden, targets: learned.apply(params, jax.random.key(1), 4, hidden, targets)  # noqa: E731
        padded = call(jnp.concatenate([hidden, 9 * hidden]), jnp.concatenate([targets, 0 * targets]))
        return padded.log_q_of_targets[:6], call(hidden, targets).log_q_of_targets, call(hidden, 0 * targets).log_q

    padded, plain, of_padding = run(hidden, targets)
    np.testing.assert_allclose(padded, plain, rtol=1e-5)
    assert np.isfinite(of_padding).all()


def a_learned_proposal():
    """(hidden, targets, parameters, module)."""
    hidden, targets = jnp.asarray(RNG.normal(size=(6, 3)), jnp.float32), jnp.array([4, 4, 1, 6, 7, 5])
    learned = Learned(probs=Distribution(unigram(COUNTS, reserved=4)), num_classes=3)
    params = params_of(learned, jax.random.key(0), num_samples=4, hidden=hidden, targets=targets)
    return hidden, targets, {"params": params}, learned


def layer(**options):
    return SampledSoftmax(
        vocab_size=8, proposal=Fixed(probs=Distribution(uniform(COUNTS))), num_samples=16, chunk_size=3, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
def test_the_exact_methods_agree(tied):
    hidden, embedding = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((2, 3, 4), (8, 4)))
    targets = jnp.asarray(RNG.integers(0, 8, (2, 3)))
    softmax = layer(tied=tied)
    params = {"params": params_of(softmax, hidden, targets, embedding, jax.random.key(1), method="loss")}

    @compiled
    def run(hidden, embedding):
        call = lambda method, *args: softmax.apply(params, hidden, *args, embedding, method=method)  # noqa: E731
        return call("log_probs"), call("top_k", 4), call("nll_and_correct", targets)

    log_probs, (values, words), (nll, correct) = run(hidden, embedding)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(words, np.argsort(-log_probs, axis=-1)[..., :4])
    np.testing.assert_allclose(values, -np.sort(-log_probs, axis=-1)[..., :4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nll, -np.take_along_axis(log_probs, targets[..., None], -1)[..., 0], rtol=1e-5)
    np.testing.assert_array_equal(correct, np.argmax(log_probs, -1) == targets)


@pytest.mark.slow
def test_the_loss_tends_to_the_full_one():
    hidden, targets = jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32), jnp.array([1, 5, 7])
    softmax = layer().clone(num_samples=20_000)
    params = params_of(softmax, hidden, targets, None, jax.random.key(1), method="loss")
    call = lambda params, *args, method: softmax.apply({"params": params}, hidden, targets, *args, method=method)  # noqa: E731
    (loss, nll), (exact, _) = compiled(
        lambda params: (call(params, None, jax.random.key(2), method="loss"), call(params, method="nll_and_correct"))
    )(params)
    np.testing.assert_allclose(loss, exact, atol=0.03)
    np.testing.assert_array_equal(loss, nll)


@pytest.mark.slow
def test_a_learned_normalizer_is_a_parameter_of_noise_contrastive_estimation():
    hidden, targets = jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32), jnp.array([1, 5, 7])
    softmax = layer(criterion=noise_contrastive, learned_normalizer=True)
    params = params_of(softmax, hidden, targets, None, jax.random.key(1), method="loss")

    @compiled
    def loss(log_z, bias):
        def total(log_z):
            changed = {"params": params | {"log_normalizer": log_z, "bias": bias}}
            return jnp.sum(softmax.apply(changed, hidden, targets, None, jax.random.key(2), method="loss")[0])

        return jax.value_and_grad(total)(log_z)

    zero = np.zeros((), np.float32)
    assert abs(loss(zero, params["bias"])[1]) > 0.1
    # A normalizer log Z is the same as biases that are lower by log Z, for the targets and for the noise.
    expected = loss(zero, params["bias"] - np.float32(0.7))[0]
    np.testing.assert_allclose(loss(np.float32(0.7), params["bias"])[0], expected, rtol=1e-5)


def test_without_an_rng_there_is_an_error():
    softmax = layer()
    with pytest.raises(ValueError, match="expected an rng"):
        softmax.init(jax.random.key(0), jnp.zeros((3, 4)), jnp.zeros(3, jnp.int32), method="loss")


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"use_bias": False}])
def test_what_a_sampled_softmax_does_not_have_is_refused(options):
    with pytest.raises(ValueError, match="has a bias and no label smoothing"):
        SampledSoftmax(vocab_size=9, proposal=Fixed(probs=Distribution(np.full(9, 1 / 9))), **options)
