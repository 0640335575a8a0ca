"""Metrics: perplexity, scores of texts such as BLEU, and means over seeds."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from attn_jax.data.vocabulary import split_letters
from attn_jax.errors import UserError, nearest
from attn_jax.models.metrics import Mean, _module


def perplexity(loss: Mean):
    """exp(loss), with the mean negative log-likelihood per token in nats; one number for each seed."""
    mean = loss.compute()
    return _module(mean).exp(mean)


def summarize(values: Sequence[float]) -> dict[str, Any]:
    """Computes {"mean", "std", "seeds": the values} from the value of each seed.

    `std` is the sample standard deviation (divided by n - 1), and 0.0 for a single seed.
    """
    array = np.asarray(values, np.float64).reshape(-1)
    if array.size == 0:
        raise ValueError("summarize: expected the values of at least one seed, got none")
    std = float(array.std(ddof=1)) if array.size > 1 else 0.0
    return {"mean": float(array.mean()), "std": std, "seeds": array.tolist()}


def _check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"there are {len(hypotheses)} hypotheses but {len(references)} references; expected as many")
    if not references:
        raise ValueError("there are no sentences to score; expected at least one hypothesis and its reference")


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the fraction (0 to 1) of hypotheses that equal their references, apart from spaces at the ends."""
    _check_pairs(hypotheses, references)
    return float(np.mean([h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True)]))


def edit_distance(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the mean Levenshtein distance of the pairs; 0 if all hypotheses equal their references.

    The distance is the smallest number of code points to insert, delete or replace to turn one text into the other. It
    is not divided by a length, and spaces count like other code points. "<unk>", an unknown letter, counts as one.
    """
    _check_pairs(hypotheses, references)
    return float(np.mean([_levenshtein(h, r) for h, r in zip(hypotheses, references, strict=True)]))


def _levenshtein(hypothesis: str, reference: str) -> int:
    a, b = split_letters(hypothesis), split_letters(reference)
    row = list(range(len(b) + 1))  # row[j]: distance of b[:j] to the prefix of a read so far, which is empty
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def exact_match_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Returns (1 if the hypothesis equals its reference else 0, 1) of each pair: [n, 2]."""
    _check_pairs(hypotheses, references)
    return np.array([(h.strip() == r.strip(), 1) for h, r in zip(hypotheses, references, strict=True)], np.int64)


def edit_distance_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Returns (Levenshtein distance, 1) of each pair: [n, 2]."""
    _check_pairs(hypotheses, references)
    return np.array([(_levenshtein(h, r), 1) for h, r in zip(hypotheses, references, strict=True)], np.int64)


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> tuple[float, str]:
    """BLEU (0 to 100) of a corpus with one reference each, and its signature, the settings of the measurement.

    Args:
      hypotheses, references: detokenized text, one sentence each.
      tokenize: a tokenizer of sacreBLEU ("13a", "intl", "char", "zh", "ja-mecab", ...); "none" splits
        text that is tokenized already at spaces.

    Raises:
      ValueError: the numbers of sentences differ or are zero.
      UserError: the tokenizer is unknown or cannot be used here.

    Papineni et al. 2002, "BLEU"; Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    _check_pairs(hypotheses, references)
    metric = _bleu(tokenize)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return float(score), str(metric.get_signature())


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> np.ndarray:
    """Computes the counts of BLEU for each pair: both lengths, then matching and all n-grams for n = 1 to 4; [n, 10].

    Raises:
      ValueError: the numbers of sentences differ or are zero.
    """
    _check_pairs(hypotheses, references)
    return np.array(_bleu(tokenize)._extract_corpus_statistics(list(hypotheses), [list(references)]), np.int64)


def bleu_of(total: np.ndarray) -> float:
    """BLEU of a corpus, from the sum of `bleu_statistics` over its pairs."""
    return float(_bleu("none")._compute_score_from_stats(list(total)).score)


@functools.cache
def _bleu(tokenize: str):
    from sacrebleu.metrics import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(f"unknown BLEU tokenizer {tokenize!r}; {nearest(tokenize, BLEU.TOKENIZERS)}")
    try:
        # force only silences the warning about text that looks tokenized: the signature states the tokenization.
        return BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:  # a package is missing, or a model cannot be downloaded
        reason = " ".join(str(error).split())
        raise UserError(f"BLEU tokenizer {tokenize!r} cannot be used here: {reason}") from error


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """chrF2 (0 to 100) of a corpus with one reference each, and its signature.

    The F-score (beta = 2) of character 1- to 6-grams. It needs no tokenizer, so it suits text without spaces.
    Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation".
    """
    _check_pairs(hypotheses, references)
    metric = _chrf()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return float(score), str(metric.get_signature())


def chrf_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Counts the character n-grams of the hypothesis, the reference and both in each pair, for n = 1 to 6: [n, 18]."""
    _check_pairs(hypotheses, references)
    return np.array(_chrf()._extract_corpus_statistics(list(hypotheses), [list(references)]), np.int64)


def chrf_of(total: np.ndarray) -> float:
    """chrF2 of a corpus, from the sum of `chrf_statistics` over its pairs."""
    return float(_chrf()._compute_score_from_stats(list(total)).score)


@functools.cache
def _chrf():
    from sacrebleu.metrics import CHRF

    return CHRF()
