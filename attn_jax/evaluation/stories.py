"""Prediction with memory networks: answers to questions about stories, with the attended statements."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from attn_jax.data.batching import eval_batches
from attn_jax.data.pairs import Pairs
from attn_jax.decoding.translate import Translator
from attn_jax.errors import UserError
from attn_jax.evaluation.files import chunks, save_weights
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.figures import plots
from attn_jax.notices import notice
from attn_jax.tasks.stories.format import read_story, split_story
from attn_jax.types import Float, Params


class StoryPredictor(TextPredictor):
    """Answers questions about stories and shows the evidence for each answer, see attn_jax.evaluation.base.Predictor.

    Args:
        translator: translator of a memory network, with `encode_stories`.
        buckets: shapes of the batches, see attn_jax.data.batching.eval_batches.
        max_sentences: number of last statements of a story to keep; 0: all.
        longest: number of statements of the longest training story.
    """

    unknown_target = "; they count as unk in perplexity, and as wrong in accuracy"

    def __init__(self, translator: Translator, *, buckets: Sequence = (), max_sentences: int = 0, longest: int = 0):
        super().__init__(translator, buckets=buckets)
        self.max_sentences, self.longest = max_sentences, longest
        self._answer = jax.jit(self.model.answer)

    def hops(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "h n"]]:
        """Computes the weights [h, n] of the n statements of each source in each of h hops.

        Statements without a slot in the memory have the weight 0.
        """
        encoded, result = self.translator.encode(pairs), [None] * len(pairs)
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            hops = np.asarray(self._answer(params, batch["source"]).hops)
            for row, index in enumerate(indices):
                count = len(split_story(pairs.source[index])[0])
                slots = min(count, hops.shape[-1])
                result[index] = np.pad(hops[row, :, :slots], ((0, 0), (count - slots, 0)))
        return result

    def report(self, sources: Sequence[str], targets: Sequence[str] = ()) -> None:
        """Gives notices of unknown tokens, see TextPredictor.report, and of stories that do not fit into the memory."""
        super().report(sources, targets)
        slots = self.model.module.memory_size
        if long := sum(len(split_story(source)[0]) > slots for source in sources):
            why = "the longest training story" if slots == self.longest else "model.memory_size"
            notice(
                f"{'memory':<14}{long:,} of {len(sources):,} stories have more statements than the {slots} memory "
                f"slots of this model ({why}); their first statements are not read"
            )

    def predict(self, params: Params, lines: Iterable[str], chunk: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yields (stories with one question each, lines "answer TAB evidence") for every `chunk` questions.

        Lines are statements and questions, see attn_jax.tasks.stories.format.read_story; evidence: see `evidence_line`.
        """
        count = 0
        for sources in chunks(read_story(lines, self.max_sentences), chunk):
            answered = self.n_best(params, sources, count)
            hops = self.hops(params, Pairs(sources, [""] * len(sources)))
            printed = []
            for source, answers, weights in zip(sources, answered, hops, strict=True):
                evidence = evidence_line(weights, split_story(source)[0])
                printed += [self.scored(answer, f"{answer.text}\t{evidence}") for answer in answers]
            yield sources, printed
            count += len(sources)

    def read_lines(self, lines: Iterable[str]) -> list[str]:
        """Reads a story for each question in the lines: the statements before it, and the question."""
        return list(read_story(lines, self.max_sentences))

    def read_pairs(self, pairs: Pairs) -> Pairs:
        """Reads pairs written by people: a source is a story with one question in one line, a target is one answer.

        Raises:
            UserError: a line is malformed.
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

    def plot(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """Plots the weight of each statement in each hop, and the true evidence if it is known.

        The JSON file has a row of "weights" for each hop, and a column for each statement of "source".
        """
        evidence = pairs.evidence or [()] * len(pairs)
        answers = self.translator.outputs(params, pairs.source)
        for source, target, answer, numbers, hops, path in zip(
            pairs.source, pairs.target, answers, evidence, self.hops(params, pairs), paths, strict=True
        ):
            statements, question = split_story(source)
            verdict = f"  ({target})" if target and target != answer else ""
            plots.plot_story(hops, statements, f"{question}?  {answer}{verdict}", path, numbers)
            target_rows = [f"hop {number}" for number in range(1, len(hops) + 1)]
            asked = {"question": f"{question} ?", "answer": answer}
            save_weights(path, hops, **asked, source=statements, target=target_rows)


def evidence_line(hops: Float[np.ndarray, "h n"], statements: Sequence[str]) -> str:
    """Writes the statement with the largest weight in each hop as "statement (number, weight)", separated by " | ".

    A hop without any weight is "-".
    """
    parts = []
    for weights in hops:
        best = int(np.argmax(weights))
        text = f"{statements[best]} ({best + 1}, {weights[best]:.2f})"
        parts.append(text if weights[best] > 0 else "-")
    return " | ".join(parts)
