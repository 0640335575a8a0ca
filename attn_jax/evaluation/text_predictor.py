"""Prediction with text models: translations of lines, scores of pairs, pictures of attention weights."""

import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import jax
import numpy as np

from attn_jax.data.batching import EncodedPairs, check_labels, eval_batches
from attn_jax.data.buckets import make_buckets
from attn_jax.data.pairs import Pairs
from attn_jax.data.text import read_parallel
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.decoding.translate import Translation, Translator
from attn_jax.errors import UserError
from attn_jax.evaluation.files import chunks, float32_text, save_weights
from attn_jax.figures import plots
from attn_jax.notices import notice
from attn_jax.tasks.task import Task
from attn_jax.token_ids import UNK
from attn_jax.types import Float, Params

LONG = 1000  # source tokens of a line; a longer one gets a notice about the time and memory it takes


class TextPredictor:
    """Predicts with a model of text, see attn_jax.evaluation.base.Predictor.

    Args:
        translator: the model, its vocabularies and the options of decoding.
        buckets: shapes of the batches, see attn_jax.data.batching.eval_batches.
    """

    unknown_target: ClassVar[str] = "; they count as unk in perplexity and accuracy"

    def __init__(self, translator: Translator, *, buckets: Sequence = ()):
        self.translator, self.options, self.buckets = translator, translator.options, buckets
        self.model = translator.model
        self.title = ""  # of pictures
        if self.model.reads_target:
            self.title = "weight on what was given; the rest is on the target so far"
        self._long_reported = False
        self._score = jax.jit(self.model.score)
        self._query_weights = jax.jit(self.model.query_weights)

    def predict(self, params: Params, lines: Iterable[str], chunk: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yields (lines, their translations) for every `chunk` lines.

        Each line gets n_best translations. Missing ones, also of an empty line, are empty with score -inf.
        """
        count = 0
        for texts in chunks(self._checked(lines), chunk):
            self._report_long(texts, count)
            translations = self.n_best(params, texts, count)
            yield texts, [self.scored(one, one.text) for best in translations for one in best]
            count += len(texts)

    def n_best(self, params: Params, texts: Sequence[str], first: int) -> list[list[Translation]]:
        """Computes the n_best translations of each text; missing ones are empty, with score -inf.

        `first` is the number of earlier texts, on which the random numbers of samples depend.
        """
        nothing = Translation("", -math.inf, -math.inf)
        found = self.translator.translate(params, texts, first=first)
        return [[*best, *[nothing] * (self.options.n_best - len(best))] for best in found]

    def scored(self, translation: Translation, text: str) -> str:
        """Formats a line of output: the text; with decode.with_scores, score and tab before it."""
        return f"{float32_text(translation.score)}\t{text}" if self.options.with_scores else text

    def log_probs(self, params: Params, pairs: Pairs) -> Float[np.ndarray, " n"]:
        """Computes log p(target | source) of n pairs, in nats, eos included."""
        return self.encoded_log_probs(params, self.translator.encode(pairs))

    def encoded_log_probs(self, params: Params, encoded: EncodedPairs) -> Float[np.ndarray, " n"]:
        """Computes log p(target | source) of n pairs of ids, in nats."""
        scores = np.zeros(len(encoded))
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            scores[indices] = np.asarray(self._score(params, batch))[: len(indices)]
        return scores

    def weights(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "t s"]]:
        """Computes the attention weights [t, s] of each pair: target tokens by source tokens, eos last in both."""
        encoded = self.translator.encode(pairs)
        result: list = [None] * len(encoded)
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            weights = np.asarray(self.translator.attention_weights(params, batch))
            for row, index in enumerate(indices):
                t, s = encoded.target.lengths[index], encoded.source.lengths[index]
                result[index] = weights[row, :t, :s]
        return result

    def query_weights(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "q s"]]:
        """Computes a classifier's attention weights [q, s] on each source: queries by source tokens, eos last."""
        encoded = self.translator.encode(pairs)
        result: list = [None] * len(encoded)
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            weights = np.asarray(self._query_weights(params, batch["source"]))
            for row, index in enumerate(indices):
                result[index] = weights[row, :, : encoded.source.lengths[index]]
        return result

    def checksums(self, split: Pairs) -> dict[str, int]:
        """Returns the checksum of the texts; see attn_jax.evaluation.base.Predictor."""
        return {"examples": split.checksum}

    def read_lines(self, lines: Iterable[str]) -> list[str]:
        """Reads a source from each line that is not empty."""
        return [line for line in self._checked(lines) if line.strip()]

    def read_pairs(self, pairs: Pairs) -> Pairs:
        """Reads pairs written by people; texts are not changed."""
        list(self._checked(pairs.source))  # raises a UserError at the first wrong text
        return pairs

    def _checked(self, texts: Iterable[str]) -> Iterator[str]:
        """Yields the texts; raises a UserError at a source with tags that has more than one tab."""
        form = self.translator.source_vocabulary.form
        for number, text in enumerate(texts, 1):
            if form and text.count("\t") > 1:
                raise UserError(f"line {number}: {text.count(chr(9))} tabs in a source; expected {form}")
            yield text

    def read_files(self, source: str, target: str) -> Pairs:
        """Reads the pairs of two files, and gives a notice of tokens that the vocabulary lacks.

        Raises:
            UserError: a file is missing or cannot be read; the model is a classifier and a target is no label.
        """
        pairs = Pairs(*read_parallel(source, target))
        try:
            pairs = self.read_pairs(pairs)
        except UserError as error:
            raise UserError(f"{source} and {target}, {error}") from error
        return self.accept(pairs, target)

    def accept(self, pairs: Pairs, file: str) -> Pairs:
        """Returns the pairs of a file after a check of their labels and notices of unknown tokens.

        Raises:
            UserError: the model is a classifier and a target is no label.
        """
        if self.model.one_token:
            check_labels(self.translator.encode(pairs), pairs, file)
            encode = self.translator.target_vocabulary.encode
            unknown = {label for label in set(pairs.target) if UNK in encode(label)}  # right if unk is predicted
            for number, label in enumerate(pairs.target, 1):
                if label in unknown:
                    raise UserError(f"{file}, line {number}: the target {label!r} is no label of the training")
        self.report(pairs.source, pairs.target)
        return pairs

    def report(self, sources: Sequence[str], targets: Sequence[str] = ()) -> None:
        """Gives notices of tokens that the vocabulary lacks, which are read as unk, and of missing tags."""
        vocabulary = self.translator.source_vocabulary
        form = vocabulary.form
        if form and (bare := sum("\t" not in text for text in sources if text.strip())):
            notice(f"{'tags':<14}{bare:,} of {len(sources):,} sources have no tags; expected {form}")
        _report_unknown("source", vocabulary, sources)
        _report_unknown("target", self.translator.target_vocabulary, targets, self.unknown_target)

    def plot(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """Plots the attention weights of the translation of each source; the targets of the pairs are not used.

        The picture of a classifier with several queries has a row for each query.
        """
        translator, several = self.translator, self.model.num_queries > 1
        translated = translator.translated(params, pairs.source)
        found = self.query_weights(params, translated) if several else self.weights(params, translated)
        rows_of_pairs = zip(pairs.source, translated.target, translated.target_ids, found, paths, strict=True)
        for text, output, ids, weights, path in rows_of_pairs:
            source = [*translator.source_vocabulary.tokenize(text), "<eos>"]
            target = [*translator.target_tokens(output, ids), "<eos>"]
            rows = len(target) if weights[-1].any() else len(target) - 1  # a classifier has no weights for the eos
            title = self.title
            if several:
                target, rows, title = [f"query {i}" for i in range(1, len(weights) + 1)], len(weights), output
            plots.plot_weights(weights[:rows], source, target[:rows], path, title)
            save_weights(path, weights[:rows], source=source, target=target[:rows])

    def plot_overview(
        self, params: Params, task: Task, split: Pairs, workdir: pathlib.Path, count: int
    ) -> list[pathlib.Path]:
        """Plots the examples of the task and the first pairs of the split, `count` in total; returns the paths."""
        first = split.select(range(min(count, len(split))))
        examples = [] if split.evidence else [text for text in task.examples if text not in first.source]
        pairs = first
        if examples:
            pairs = Pairs([*examples, *first.source][:count], [*[""] * len(examples), *first.target][:count])
        paths = [workdir / "attention" / f"{i:03d}.png" for i in range(len(pairs))]
        self.plot(params, pairs, paths)
        return paths

    def _report_long(self, texts: Sequence[str], before: int) -> None:
        """Gives one notice of a line longer than LONG and than any bucket; `before` is the number of earlier lines."""
        if self._long_reported:
            return
        limit = max([LONG, *(source for source, _ in (make_buckets(self.buckets) if self.buckets else ()))])
        for number, text in enumerate(texts, before + 1):
            if (length := len(self.translator.source_vocabulary.encode(text))) > limit:
                self._long_reported = True
                notice(
                    f"{'long':<14}line {number} has {length:,} source tokens: compiling takes long, and memory grows "
                    "with the length, of self-attention with its square"
                )
                return


def _report_unknown(side: str, vocabulary: Vocabulary, texts: Sequence[str], effect: str = "") -> None:
    """Gives a notice of tokens of texts that the vocabulary lacks, and of their `effect`."""
    count, total, unknown = 0, 0, {}  # a dict, in the order of the texts
    for text in texts:
        ids = vocabulary.encode(text)
        found = [token for token, i in zip(vocabulary.tokenize(text), ids, strict=True) if i == UNK]
        count, total = count + len(found), total + len(ids)
        unknown |= dict.fromkeys(found)
    if unknown:
        some = " ".join(list(unknown)[:3]) + (" ..." if len(unknown) > 3 else "")
        notice(f"{'unknown':<14}{count:,} of {total:,} {side} tokens are not in the vocabulary{effect}: {some}")
