"""Asking a trained model about stories: answers with the statements they were read from."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from attn_jax.errors import UserError
from attn_jax.evaluation import plots
from attn_jax.evaluation.text import Evaluator, chunks, save_weights
from attn_jax.tasks.babi.format import read_story, split_story
from attn_jax.tasks.batching import EncodedPairs, eval_batches, make_ragged
from attn_jax.tasks.task import Pairs
from attn_jax.tasks.vocabulary import PAD, PERIOD_ID
from attn_jax.types import Float, Params


class StoryEvaluator(Evaluator):
    """An Evaluator whose inputs are stories and whose outputs come with evidence."""

    def __init__(self, *args: Any, max_sentences: int = 0, **options: Any):
        super().__init__(*args, **options)
        self.max_sentences = max_sentences
        self._answer = jax.jit(self.model.answer)

    def encode(self, pairs: Pairs) -> EncodedPairs:
        """Both sides as ids. A source is as long as if its statements were not shorter than all of training.

        So that a network has a slot for each, see find_sentences in attn_jax/models/memory_networks/base.py.
        """
        encoded = super().encode(pairs)
        rows = np.repeat(np.arange(len(encoded)), encoded.source.lengths)
        ends = np.bincount(rows[encoded.source.tokens == PERIOD_ID], minlength=len(encoded))
        missing = ends * self.source_vocabulary.shortest - encoded.source.lengths
        if np.all(missing <= 0):
            return encoded
        start = encoded.source.offsets
        texts = [encoded.source.tokens[start[i] : start[i + 1]].tolist() for i in range(len(encoded))]
        padded = [[*text, *[PAD] * max(0, n)] for text, n in zip(texts, missing.tolist(), strict=True)]
        return EncodedPairs(make_ragged(padded), encoded.target, encoded.evidence)

    def hops(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "h n"]]:
        """For each source how much each hop read of each statement, 0 for those the memory has no slot for."""
        encoded, result = self.encode(pairs), [None] * len(pairs)
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            hops = np.asarray(self._answer(params, batch["source"]).hops)
            for row, index in enumerate(indices):
                count = len(split_story(pairs.source[index])[0])
                kept = min(count, hops.shape[-1])
                result[index] = np.pad(hops[row, :, :kept], ((0, 0), (count - kept, 0)))
        return result

    def predict(self, params: Params, lines: Iterable[str], at_once: int) -> Iterator[tuple[list[str], list[str]]]:
        """The answer to each question of a story, and what was read for it: see `evidence_line`.

        The lines are statements and questions as attn_jax.tasks.babi.format.read_story takes them.
        """
        for sources in chunks(read_story(lines, self.max_sentences), at_once):
            answered = self.translate(params, sources)
            hops = self.hops(params, Pairs(sources, [""] * len(sources)))
            printed = []
            for source, answers, weights in zip(sources, answered, hops, strict=True):
                evidence = evidence_line(weights, split_story(source)[0])
                for answer in answers:
                    score = f"{answer.score:.4f}\t" if self.options.with_scores else ""
                    printed.append(f"{score}{answer.text}\t{evidence}")
            yield sources, printed

    def sources(self, lines: Iterable[str]) -> list[str]:
        """Of each question of the stories in lines of input the source."""
        return list(read_story(lines, self.max_sentences))

    def parse(self, pairs: Pairs) -> Pairs:
        """Each source is a whole story, statements and one question in one line; each target is one answer.

        Raises:
            UserError: a line is something else.
        """
        sources = []
        for number, (source, answer) in enumerate(zip(pairs.source, pairs.target, strict=True), 1):
            try:
                (one,) = read_story([source], self.max_sentences)
            except ValueError as error:
                why = str(error).removeprefix("line 1: ") if isinstance(error, UserError) else "several questions"
                raise UserError(f"line {number}: {why}; expected a story in one line, with one question") from None
            if len(answer.split()) != 1:
                raise UserError(f"line {number}: the answer {answer!r}; expected one word, or several joined by commas")
            sources.append(one)
        return Pairs(sources, [answer.strip().lower() for answer in pairs.target])

    def draw(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """A picture for each story: the weight of each statement in each hop, and the true evidence where known.

        Beside it the same as numbers: a row of "weights" for each hop, a column for each statement of "source".
        """
        evidence = pairs.evidence or [()] * len(pairs)
        answers = [hypotheses[0].text for hypotheses in self.translate(params, pairs.source)]
        for source, target, answer, numbers, hops, path in zip(
            pairs.source, pairs.target, answers, evidence, self.hops(params, pairs), paths, strict=True
        ):
            statements, question = split_story(source)
            verdict = f"  ({target})" if target and target != answer else ""
            plots.story(hops, statements, f"{question}?  {answer}{verdict}", path, numbers)
            target_rows = [f"hop {number}" for number in range(1, len(hops) + 1)]
            asked = {"question": f"{question} ?", "answer": answer}
            save_weights(path, hops, **asked, source=statements, target=target_rows)


def evidence_line(hops: Float[np.ndarray, "h n"], statements: Sequence[str]) -> str:
    """What was read most in each hop: "statement (number, weight)", hops separated by " | "; nothing read is "-"."""
    parts = []
    for weights in hops:
        best = int(np.argmax(weights))
        shown = f"{statements[best]} ({best + 1}, {weights[best]:.2f})"
        parts.append(shown if weights[best] > 0 else "-")
    return " | ".join(parts)
