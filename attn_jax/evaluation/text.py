"""Evaluation of text models: losses per token, and scores of translations such as BLEU."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from attn_jax.data.batching import EncodedPairs, eval_batches
from attn_jax.data.pairs import Pairs
from attn_jax.decoding.translate import Translator
from attn_jax.errors import lookup
from attn_jax.evaluation.base import PERCENT, Example, Metric, Results
from attn_jax.evaluation.metrics import (
    bleu_of,
    bleu_statistics,
    chrf_of,
    chrf_statistics,
    corpus_bleu,
    corpus_chrf,
    edit_distance,
    edit_distance_statistics,
    exact_match,
    exact_match_statistics,
    perplexity,
    summarize,
)
from attn_jax.models.metrics import Mean
from attn_jax.notices import notice
from attn_jax.types import Metrics, Params

NUM_EXAMPLES = 3  # shown with the results


def _token_metric(name: str, best: str | None, value: Callable[[Mean], float], **about: Any) -> Metric:
    """Returns a metric computed from a mean over tokens, `name`, of a model; its statistics are total and count."""
    return Metric(
        lambda metrics: value(metrics[name]),
        best,
        lambda metrics: np.stack([metrics[name].total, metrics[name].count], axis=-1),
        lambda total: float(value(Mean(*total))),
        **about,
    )


TEXT_METRICS = {  # compute(hypotheses, references, tokenize) -> (value, signature)
    "bleu": Metric(corpus_bleu, "max", bleu_statistics, bleu_of, within=PERCENT),
    "chrf": Metric(
        lambda hypotheses, references, tokenize: corpus_chrf(hypotheses, references),
        "max",
        lambda hypotheses, references, tokenize: chrf_statistics(hypotheses, references),
        chrf_of,
        within=PERCENT,
    ),
    "exact_match": Metric(
        lambda hypotheses, references, tokenize: (100 * exact_match(hypotheses, references), "percent"),
        "max",
        lambda hypotheses, references, tokenize: exact_match_statistics(hypotheses, references),
        lambda total: float(100 * total[0] / total[1]),
        " %",
        PERCENT,
    ),
    "edit_distance": Metric(
        lambda hypotheses, references, tokenize: (edit_distance(hypotheses, references), "characters"),
        "min",
        lambda hypotheses, references, tokenize: edit_distance_statistics(hypotheses, references),
        lambda total: float(total[0] / total[1]),
    ),
}
TOKEN_METRICS = {  # compute(means over all pairs) -> value
    "loss": _token_metric("loss", "min", lambda mean: mean.compute()),
    "perplexity": _token_metric("loss", "min", perplexity, within=(1.0, math.inf)),
    "accuracy": _token_metric("accuracy", "max", lambda mean: 100 * mean.compute(), unit=" %", within=PERCENT),
    "attention_entropy": _token_metric("attention_entropy", None, lambda mean: mean.compute()),
}


class TextEvaluator:
    """Measures a model of text, see attn_jax.evaluation.base.Evaluator.

    The loss is in nats per target token (eos included), accuracy and exact_match are in percent, BLEU and chrF from
    0 to 100, edit_distance in characters.

    Args:
        translator: the model, its vocabularies and the options of decoding.
        buckets: shapes of the batches, see attn_jax.data.batching.eval_batches.
        tokenize: the tokenizer of BLEU, see corpus_bleu.
    """

    of_texts: ClassVar[Mapping[str, Metric]] = TEXT_METRICS  # metrics of outputs; a subclass may have others
    of_tokens: ClassVar[Mapping[str, Metric]] = TOKEN_METRICS  # metrics of the model's means over tokens
    metrics: ClassVar[Mapping[str, Metric]] = TEXT_METRICS | TOKEN_METRICS
    unit: ClassVar = "sentences"
    loss_unit: ClassVar = "nats per token"

    def __init__(self, translator: Translator, *, buckets: Sequence = (), tokenize: str = "13a"):
        self.translator, self.buckets, self.tokenize = translator, buckets, tokenize
        self._each = jax.jit(translator.model.eval_each)

    def losses(self, params: Params, pairs: EncodedPairs) -> Metrics:
        """Computes the means over all pairs: {"loss": Mean, "accuracy": Mean, ...} per real target token."""
        return summed(self.losses_of_each(params, pairs))

    def losses_of_each(self, params: Params, pairs: EncodedPairs) -> Metrics:
        """Computes the model's eval_each for n pairs: total and count of each mean are [n], on the host."""
        found: dict[str, Mean] = {}
        for indices, batch in eval_batches(pairs, self.translator.options.batch_size, self.buckets):
            for name, mean in jax.device_get(self._each(params, batch)).items():
                own = found.setdefault(name, Mean(np.zeros(len(pairs)), np.zeros(len(pairs))))
                own.total[indices], own.count[indices] = mean.total[: len(indices)], mean.count[: len(indices)]
        return found

    def measure(
        self, params_of_seeds: Sequence[Params], split: Pairs, names: Sequence[str], each: bool = False
    ) -> Results:
        """Computes the loss and the metrics `names` of n pairs, for each seed; see Evaluator."""
        check_text_metrics(names, self.tokenize, self.of_texts | self.of_tokens)
        names = list(dict.fromkeys(["loss", *names]))
        token_names = [name for name in names if name in self.of_tokens]
        text_names = [name for name in names if name in self.of_texts]
        encoded = self.translator.encode(split)
        if each and text_names:  # only with `each`, not at every validation
            self._report_lengths(encoded)
        values: dict[str, list[float]] = {name: [] for name in [*token_names, *text_names]}
        statistics: dict[str, list[np.ndarray]] = {name: [] for name in values} if each else {}
        signatures, examples, outputs = {}, (), []
        for params in params_of_seeds:
            of_each = self.losses_of_each(params, encoded)
            metrics = summed(of_each)
            for name in token_names:
                values[name].append(float(self.of_tokens[name].compute(metrics)))
                if each:
                    statistics[name].append(self.of_tokens[name].statistics(of_each))
            if text_names:
                hypotheses = self.translator.outputs(params, split.source)
                rows = zip(split.source, hypotheses, split.target, strict=True)
                examples = examples or tuple(Example(*row) for row in itertools.islice(rows, NUM_EXAMPLES))
                for name in text_names:
                    value, signatures[name] = self.of_texts[name].compute(hypotheses, split.target, self.tokenize)
                    values[name].append(value)
                    if each:
                        statistics[name].append(self.of_texts[name].statistics(hypotheses, split.target, self.tokenize))
                outputs += [hypotheses] if each else []
        means = {name: summarize(list_) for name, list_ in values.items()}
        return Results(means, signatures, examples, statistics, tuple(outputs))

    def _report_lengths(self, pairs: EncodedPairs) -> None:
        """Gives a notice of references that are longer than the limit of their outputs."""
        long = pairs.target.lengths - 1 > self.translator.limits(pairs)  # an output at the limit may lack eos
        if long.any():
            notice(
                f"{'length':<14}{long.sum():,} of {len(pairs):,} references are longer than an output may be, see "
                f"decode.max_length {self.translator.options.max_length}; no output can equal them"
            )


def summed(of_each: Metrics) -> Metrics:
    """Returns the means over all pairs, from the total and count of each pair."""
    return {name: Mean(mean.total.sum(), mean.count.sum()) for name, mean in of_each.items()}


def check_text_metrics(names: Sequence[str], tokenize: str, known: Mapping[str, Metric] | None = None) -> None:
    """Raises a UserError for an unknown metric, or a tokenizer that BLEU cannot use."""
    for name in names:
        lookup(dict(TextEvaluator.metrics if known is None else known), name, "metric")
    if "bleu" in names:
        corpus_bleu(["text"], ["text"], tokenize)
