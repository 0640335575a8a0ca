"""Evaluation of models of text: losses per token, and scores of translations such as BLEU."""

import itertools
from collections.abc import Sequence
from typing import ClassVar

import jax

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.base import Example, Metric, Results
from attn_jax.evaluation.metrics import corpus_bleu, corpus_chrf, edit_distance, exact_match, perplexity, summarize
from attn_jax.evaluation.translate import Translator
from attn_jax.models.ensemble import Ensemble
from attn_jax.tasks.batching import EncodedPairs, eval_batches
from attn_jax.tasks.pairs import Pairs
from attn_jax.types import Metrics, Params

NUM_EXAMPLES = 3  # shown with the results
TEXT_METRICS = {  # compute(hypotheses, references, tokenize) -> (value, signature)
    "bleu": Metric(corpus_bleu, "max"),
    "chrf": Metric(lambda hypotheses, references, tokenize: corpus_chrf(hypotheses, references), "max"),
    "exact_match": Metric(
        lambda hypotheses, references, tokenize: (100 * exact_match(hypotheses, references), "percent"), "max"
    ),
    "edit_distance": Metric(
        lambda hypotheses, references, tokenize: (edit_distance(hypotheses, references), "characters"), "min"
    ),
}
TOKEN_METRICS = {  # compute(metrics of eval_fn) -> value
    "loss": Metric(lambda metrics: metrics["loss"].compute(), "min"),
    "perplexity": Metric(lambda metrics: perplexity(metrics["loss"]), "min"),
    "accuracy": Metric(lambda metrics: 100 * metrics["accuracy"].compute(), "max"),
    "attention_entropy": Metric(lambda metrics: metrics["attention_entropy"].compute(), None),
}


class TextEvaluator:
    """Measures a model of text, see attn_jax.evaluation.base.Evaluator.

    The loss is in nats per target token (eos included), accuracy and exact_match are in percent, BLEU and chrF from
    0 to 100, edit_distance in characters.

    Args:
        translator: the model, its vocabularies and the options of decoding.
        buckets: of the batches, see attn_jax.tasks.batching.eval_batches.
        tokenize: the tokenizer of BLEU, see corpus_bleu.
    """

    metrics: ClassVar = TEXT_METRICS | TOKEN_METRICS
    unit: ClassVar = "sentences"
    loss_unit: ClassVar = "nats per token"

    def __init__(self, translator: Translator, *, buckets: Sequence = (), tokenize: str = "13a"):
        self.translator, self.buckets, self.tokenize = translator, buckets, tokenize
        self._losses = jax.jit(translator.model.eval_fn)

    def losses(self, params: Params, pairs: EncodedPairs) -> Metrics:
        """Sums the model's eval_fn over all pairs: {"loss": Mean, "accuracy": Mean, ...} per real target token."""
        merged: Metrics = {}
        for _, batch in eval_batches(pairs, self.translator.options.batch_size, self.buckets):
            metrics = jax.device_get(self._losses(params, batch))
            merged = {k: merged[k].merge(m) if merged else m for k, m in metrics.items()}
        return merged

    def measure(self, params_of_seeds: Sequence[Params], split: Pairs, names: Sequence[str]) -> Results:
        """Computes the loss and the metrics `names` of n pairs, for each seed."""
        check_text_metrics(names, self.tokenize)
        names = list(dict.fromkeys(["loss", *names]))
        token_names = [name for name in names if name in TOKEN_METRICS]
        text_names = [name for name in names if name in TEXT_METRICS]
        encoded = self.translator.encode(split)
        if isinstance(self.translator.model, Ensemble):
            check_lengths(encoded, self.translator.options.max_length)
        values: dict[str, list[float]] = {name: [] for name in [*token_names, *text_names]}
        signatures, examples = {}, ()
        for params in params_of_seeds:
            metrics = self.losses(params, encoded)
            for name in token_names:
                values[name].append(float(TOKEN_METRICS[name].compute(metrics)))
            if text_names:
                hypotheses = [found[0].text for found in self.translator.translate(params, split.source)]
                rows = zip(split.source, hypotheses, split.target, strict=True)
                examples = examples or tuple(Example(*row) for row in itertools.islice(rows, NUM_EXAMPLES))
                for name in text_names:
                    value, signatures[name] = TEXT_METRICS[name].compute(hypotheses, split.target, self.tokenize)
                    values[name].append(value)
        return Results({name: summarize(list_) for name, list_ in values.items()}, signatures, examples)


def check_lengths(pairs: EncodedPairs, max_length: int) -> None:
    """Raises a UserError if a target is longer than the memory of a decoder that an ensemble steps through."""
    longest = int(pairs.target.lengths.max())
    if longest > max_length:
        raise UserError(
            f"decode.ensemble is evaluated token by token, and a target has {longest} tokens; set decode.max_length to "
            f"at least {longest}, it is {max_length}"
        )


def check_text_metrics(names: Sequence[str], tokenize: str) -> None:
    """Raises a UserError for an unknown metric, or a tokenizer that BLEU cannot use."""
    for name in names:
        lookup(TextEvaluator.metrics, name, "metric")
    if "bleu" in names:
        corpus_bleu(["text"], ["text"], tokenize)
