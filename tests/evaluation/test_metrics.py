"""Means, text scores and the metrics file."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.evaluation import metrics
from attn_jax.evaluation.text import TEXT_METRICS
from attn_jax.runs.options import resolve
from attn_jax.runs.training import best_metric
from configs.base import get_config

SENTENCES = ["The cat sat on the mat .", "It's a small , quiet house .", "彼 は 学生 です 。"]


def test_merge_is_the_mean_of_the_concatenation():
    a, b = np.random.default_rng(0).normal(size=(2, 5)), np.arange(3.0)
    merged = metrics.Mean.of(a).merge(metrics.Mean.of(b))
    np.testing.assert_allclose(merged.compute(), np.concatenate([a.ravel(), b]).mean())
    np.testing.assert_allclose(metrics.Mean.empty().merge(merged).compute(), merged.compute())


def test_masked_values_do_not_count_even_if_they_are_not_finite():
    values, mask = jnp.array([1.0, jnp.nan, 3.0, jnp.inf]), jnp.array([True, False, True, False])
    mean = jax.jit(metrics.Mean.of)(values, mask)
    assert float(mean.compute()) == 2 and int(mean.count) == 2


def test_seed_axis():
    values = jnp.arange(6.0).reshape(2, 3)
    means = jax.vmap(metrics.Mean.of)(values)
    np.testing.assert_allclose(means.merge(means).compute(), values.mean(axis=1))
    np.testing.assert_allclose(metrics.perplexity(means), np.exp(values.mean(axis=1)), rtol=1e-6)


def test_nothing_counted_is_nan():
    assert math.isnan(metrics.Mean.empty().compute())
    mean = metrics.Mean(total=np.array([4.0, 0.0]), count=np.array([2.0, 0.0])).compute()
    assert mean[0] == 2 and np.isnan(mean[1])


def test_sums_on_the_host_are_in_double_precision():
    step = metrics.Mean(total=np.float32(1e-4), count=np.int32(1))
    mean = metrics.Mean(total=np.float32(1e4), count=np.int32(0))
    for _ in range(100):
        mean = mean.merge(step)
    np.testing.assert_allclose(mean.total, 1e4 + 1e-2, rtol=1e-9)


def test_exact_match():
    assert metrics.exact_match(["a b", "c ", "d"], ["a b", "c", "e"]) == pytest.approx(2 / 3)


def brute_force(a, b):
    """The Levenshtein distance by its recursion: all ways to insert, delete and replace."""
    if not a or not b:
        return len(a) + len(b)
    changed = brute_force(a[1:], b[1:]) + (a[0] != b[0])
    return min(brute_force(a[1:], b) + 1, brute_force(a, b[1:]) + 1, changed)


SHORT = ["".join(letters) for length in range(4) for letters in itertools.product("aü", repeat=length)]


def test_edit_distance_is_that_of_the_recursion():
    for a, b in itertools.product(SHORT, repeat=2):
        assert metrics.edit_distance([a], [b]) == brute_force(a, b)
    rng = np.random.default_rng(0)
    for a, b in [["".join(rng.choice(list("abö "), size=n)) for n in rng.integers(0, 7, size=2)] for _ in range(30)]:
        assert metrics.edit_distance([a], [b]) == brute_force(a, b)


def test_edit_distance_is_a_metric():
    distance = {(a, b): metrics.edit_distance([a], [b]) for a in SHORT for b in SHORT}
    for a, b in distance:
        assert distance[a, b] == distance[b, a] and (distance[a, b] == 0) == (a == b)
        assert all(distance[a, c] <= distance[a, b] + distance[b, c] for c in SHORT)


def test_edit_distance_is_a_mean_over_pairs_in_code_points():
    hypotheses, references = ["ging", "ge hen", "日本", "x"], ["gang", "gehen", "日", ""]
    assert metrics.edit_distance(hypotheses, references) == (1 + 1 + 1 + 1) / 4
    value, signature = TEXT_METRICS["edit_distance"].compute(hypotheses[:1] * 2, ["ging", "gong"], "13a")
    assert (value, signature) == (0.5, "characters")


def test_an_unknown_letter_is_one_edit():
    for a, b, distance in (("ab<unk>", "abx", 1), ("<unk><unk>a", "a", 2), ("<unk>", "<unk>", 0), ("<unk", "", 4)):
        assert metrics.edit_distance([a], [b]) == metrics.edit_distance_statistics([a], [b])[0, 0] == distance


def test_a_smaller_edit_distance_is_better():
    config = get_config()
    for name in (*TEXT_METRICS, "loss", "accuracy"):
        config.train.best_metric = name
        assert best_metric(resolve(config)) == (name, "min" if name in ("edit_distance", "loss") else "max")


@pytest.mark.parametrize("tokenize", ["13a", "none", "char"])
def test_a_corpus_equals_itself(tokenize):
    score, signature = metrics.corpus_bleu(SENTENCES, SENTENCES, tokenize)
    assert score == pytest.approx(100) and f"tok:{tokenize}" in signature


def test_the_tokenization_of_bleu_matters_and_is_stated():
    hypotheses = ["The cat sat on the mat .", "It's a small, quiet house ."]
    references = ["The cat sat on the mat.", "It's a small, quiet house."]
    score_13a, signature_13a = metrics.corpus_bleu(hypotheses, references, "13a")
    score_none, signature_none = metrics.corpus_bleu(hypotheses, references, "none")
    assert score_13a == pytest.approx(100) and score_none < 90
    assert signature_13a != signature_none


def test_chrf():
    score, signature = metrics.corpus_chrf(SENTENCES, SENTENCES)
    assert score == pytest.approx(100) and "nc:6" in signature
    assert metrics.corpus_chrf(SENTENCES[::-1], SENTENCES)[0] < 60


def test_no_warning_about_tokenized_text(capfd, caplog):
    metrics.corpus_bleu(["a b c d ."] * 200, ["a b c d ."] * 200, "none")
    assert not capfd.readouterr().err and not caplog.records


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.corpus_bleu(["a"], ["a"], "13b"), "unknown BLEU tokenizer '13b'; did you mean 13a?"),
        (lambda: metrics.corpus_bleu(["a"], ["a", "b"]), "there are 1 hypotheses but 2 references; expected as many"),
        (lambda: metrics.exact_match([], []), "there are no sentences to score"),
        (lambda: metrics.edit_distance(["a"], []), "there are 1 hypotheses but 0 references; expected as many"),
    ],
)
def test_wrong_input_is_one_clear_line(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_summarize():
    assert metrics.summarize([1.0, 2.0, 3.0]) == {"mean": 2.0, "std": 1.0, "seeds": [1.0, 2.0, 3.0]}
    assert metrics.summarize([4.5]) == {"mean": 4.5, "std": 0.0, "seeds": [4.5]}
    with pytest.raises(ValueError, match="at least one seed"):
        metrics.summarize([])
