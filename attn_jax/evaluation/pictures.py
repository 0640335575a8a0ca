"""Image models: captions and answers, the attention of each word, and pictures of it."""

import pathlib
from collections.abc import Iterable, Sequence
from typing import ClassVar

import jax
import numpy as np

from attn_jax.data.batching import EncodedPairs, eval_batches
from attn_jax.data.facts import Images
from attn_jax.data.files import text_checksum
from attn_jax.data.pairs import Pairs
from attn_jax.decoding.translate import Translator
from attn_jax.errors import UserError
from attn_jax.evaluation.base import PERCENT, Metric, Results
from attn_jax.evaluation.files import save_weights
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.text import TextEvaluator
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.figures.overlays import Look, plot_looks
from attn_jax.figures.places import Boxes, Edges, equal_parts, measure_places
from attn_jax.figures.trajectories import Stop, plot_trajectory, stops_of
from attn_jax.tasks.images.pictures import gallery_of
from attn_jax.tasks.task import Task
from attn_jax.token_ids import SPECIAL
from attn_jax.types import Float, Params

MEANINGS = {  # meanings of PLACE_METRICS, shown to users
    "touch": "percent of the weight on cells that touch the true box",
    "point": "percent of words whose cell of the largest weight touches it",
    "strict": "touch, with each cell counted by the share that the box covers",
    "uniform": "touch of equal weights",
    "cells": "number of equal weights with the same entropy",
}
PLACE_METRICS = {  # of words with a true box, in percent; see attn_jax.figures.places
    "touch": Metric(lambda found: 100 * found["touch"], "max", within=PERCENT),
    "point": Metric(lambda found: 100 * found["point"], "max", within=PERCENT),
    "strict": Metric(lambda found: 100 * found["strict"], "max", within=PERCENT),
    "uniform": Metric(lambda found: 100 * found["uniform"], None, within=PERCENT),
    "cells": Metric(lambda found: found["cells"], None),
}


class PicturePredictor(TextPredictor):
    """Describes images, or answers questions about them; see attn_jax.evaluation.base.Predictor.

    A line of input is the name of an image, such as the path of a file or "test:17" of generated scenes. A model that
    answers questions needs TAB and a question after it.
    """

    def __init__(self, translator: Translator, *, images: Images, buckets: Sequence = ()):
        super().__init__(translator, buckets=buckets)
        self.asks = len(translator.source_vocabulary) > len(SPECIAL)
        self.gallery, self.image = gallery_of(images), images.shape
        self.cells = self.model.module.picture.grid.cells(*self.image[:2])
        self.edges = equal_parts(self.image[:2], self.cells)
        self.has_paths = self.model.module.has_path
        self._paths = jax.jit(self.model.trajectory)

    def check(self, texts: Iterable[str]) -> list[str]:
        """Checks that each text names an image, with a question if the model answers questions, and returns the texts.

        Raises:
            UserError: a text does not.
        """
        found = []
        for text in texts:
            name, tab, question = text.partition("\t")
            if self.asks and not question.strip():
                raise UserError(f"{name}: an image without a question; expected image TAB question")
            if tab and not self.asks:
                raise UserError(f"{name}: an image with a question, but the model describes images; expected no TAB")
            if text.strip():
                self.gallery.pixels(name)
            found.append(text)
        return found

    def checksums(self, split: Pairs) -> dict[str, int]:
        """Returns the checksums of the texts and of the pixels; see attn_jax.evaluation.base.Predictor."""
        names = [text.partition("\t")[0] for text in split.source]
        for name in set(names) - self.gallery.sums.keys():
            self.gallery.pixels(name)
        return super().checksums(split) | {"images": text_checksum([self.gallery.sums[name] for name in names])}

    def predict(self, params: Params, lines: Iterable[str], chunk: int):
        """Yields (images, captions or answers) for every `chunk` lines; see TextPredictor.predict."""
        checked = (self.check([line])[0] if line.strip() else line for line in lines)
        yield from super().predict(params, checked, chunk)

    def grids(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "t rows columns"]]:
        """Computes the weight of each cell for each token of the targets, eos last, in the teacher-forced pass."""
        count = self.cells[0] * self.cells[1]
        return [weights[:, :count].reshape(-1, *self.cells) for weights in self.weights(params, pairs)]

    def weights(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "t s"]]:
        """Computes the weights [t, s] of each pair: target tokens by cells, row by row, and words of the question."""
        return self._cut(params, self.translator.encode(pairs), per_query=False)

    def query_weights(self, params: Params, pairs: Pairs) -> list[Float[np.ndarray, "q s"]]:
        """Computes a classifier's weights [q, s]: queries by cells, row by row, and words of the question."""
        return self._cut(params, self.translator.encode(pairs), per_query=True)

    def paths(self, params: Params, sources: Sequence[str]) -> list[list[Stop]]:
        """Computes the glimpses of a model at each image, with the most probable word after each glimpse."""
        vocabulary = self.translator.target_vocabulary
        pairs = Pairs(list(sources), [""] * len(sources))
        result: list = [None] * len(pairs)
        for indices, batch in eval_batches(self.translator.encode(pairs), self.options.batch_size, self.buckets):
            places, log_probs = map(np.asarray, self._paths(params, batch["source"]))
            for row, index in enumerate(indices):
                words = np.argmax(log_probs[row], axis=-1)
                best = np.exp(np.max(log_probs[row], axis=-1))
                found = list(zip(vocabulary.tokens(words.tolist()), best.tolist(), strict=True))
                result[index] = stops_of(places[row], self.image[:2], self.model.module.picture.size, found)
        return result

    def _cut(self, params: Params, encoded: EncodedPairs, *, per_query: bool) -> list[np.ndarray]:
        result: list = [None] * len(encoded)
        questions = encoded.source.words.lengths
        for indices, batch in eval_batches(encoded, self.options.batch_size, self.buckets):
            if per_query:
                weights = np.asarray(self._query_weights(params, batch["source"]))
            else:
                weights = np.asarray(self.translator.attention_weights(params, batch))
            for row, index in enumerate(indices):
                rows = weights.shape[1] if per_query else encoded.target.lengths[index]
                result[index] = weights[row, :rows, : self.cells[0] * self.cells[1] + questions[index]]
        return result

    def read_lines(self, lines: Iterable[str]) -> list[str]:
        """Reads an image, with its question, from each line that is not empty."""
        return self.check(super().read_lines(lines))

    def read_pairs(self, pairs: Pairs) -> Pairs:
        """Reads pairs written by people: an image with its question, and a caption or an answer."""
        return Pairs(self.check(pairs.source), pairs.target)

    def plot(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """Draws each image with the weights of its cells, one panel for each word of the model's output.

        The true boxes of a word are drawn if the target has the same word at the same position. The JSON file beside
        each picture has the weights [t, rows, columns].
        """
        if self.has_paths:
            return self.plot_paths(params, pairs, paths)
        translator, several = self.translator, self.model.num_queries > 1
        read = translator.translated(params, pairs.source)
        count = self.cells[0] * self.cells[1]
        found = self.query_weights(params, read) if several else self.weights(params, read)
        rows_of_pairs = zip(pairs.source, read.target, read.target_ids, found, paths, strict=True)
        for index, (text, output, ids, weights, path) in enumerate(rows_of_pairs):
            name, _, question = text.partition("\t")
            words = [*translator.target_tokens(output, ids), "<eos>"]
            rows = len(words) if weights[-1].any() else len(words) - 1
            if several:
                words, rows = [f"query {i}" for i in range(1, len(weights) + 1)], len(weights)
            known = self.known_boxes(pairs, index, words) if pairs.boxes and not several else ()
            maps = weights[:rows, :count].reshape(-1, *self.cells)
            looks = [
                Look(word, cells, known[i] if i < len(known) else ())
                for i, (word, cells) in enumerate(zip(words, maps, strict=False))
            ]
            verdict = "" if pairs.target[index] in ("", output) else f"   (true: {pairs.target[index]})"
            title = f"{question}?  {output}{verdict}" if question else f"{name}:  {output}{verdict}"
            plot_looks(self.gallery.pixels(name), looks, self.edges, path, title)
            asked = {"question": question} if question else {}
            save_weights(path, maps, source=name, **asked, output=output, target=words[:rows])

    def known_boxes(self, pairs: Pairs, index: int, words: Sequence[str]) -> list[Boxes]:
        """Returns the true boxes of each output word that equals the target word at its position; else none."""
        target = self.translator.target_vocabulary.tokenize(pairs.target[index])
        triples = zip(words, target, pairs.boxes[index], strict=False)
        return [boxes if word == true else () for word, true, boxes in triples]

    def plot_paths(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """Draws the path of the glimpses on each image; the JSON file has the squares, guesses and weights."""
        weights = self.query_weights(params, pairs)
        for index, (text, stops, path) in enumerate(
            zip(pairs.source, self.paths(params, pairs.source), paths, strict=True)
        ):
            name, _, question = text.partition("\t")
            output, reference = stops[-1].guess, pairs.target[index]
            boxes = [box for own in (pairs.boxes[index] if pairs.boxes else ()) for box in own]
            verdict = "" if reference in ("", output) else f"   (true: {reference})"
            title = f"{question}?  {output}{verdict}" if question else f"{name}:  {output}{verdict}"
            plot_trajectory(self.gallery.pixels(name), stops, path, title, boxes)
            asked = {"question": question} if question else {}
            maps = weights[index][:, : self.cells[0] * self.cells[1]].reshape(-1, *self.cells)
            looked = {"squares": [list(stop.box) for stop in stops], "guesses": [stop.guess for stop in stops]}
            save_weights(path, maps, source=name, **asked, output=output, **looked)

    def plot_overview(
        self, params: Params, task: Task, split: Pairs, workdir: pathlib.Path, count: int
    ) -> list[pathlib.Path]:
        """Plots the first images of a split; returns the paths."""
        pairs = split.select(range(min(count, len(split))))
        paths = [workdir / "attention" / f"{i:03d}.png" for i in range(len(pairs))]
        self.plot(params, pairs, paths)
        return paths


class PictureEvaluator(TextEvaluator):
    """Measures an image model, see attn_jax.evaluation.base.Evaluator: metrics of texts, and of where it attends.

    touch, point, strict and uniform are means over all words with a true box. cells is exp of the mean entropy of the
    weights: the number of equal weights with this entropy. Weights on the words of a question do not count, and a word
    without weight on the image is left out. The weights are those of the teacher-forced pass.
    """

    metrics: ClassVar = TextEvaluator.metrics | PLACE_METRICS
    unit: ClassVar = "images"

    def __init__(self, predictor: PicturePredictor, *, buckets: Sequence = (), tokenize: str = "13a"):
        super().__init__(predictor.translator, buckets=buckets, tokenize=tokenize)
        self.predictor = predictor

    def measure(
        self, params_of_seeds: Sequence[Params], split: Pairs, names: Sequence[str], each: bool = False
    ) -> Results:
        """Computes the loss and the metrics `names` of n images, for each seed.

        Raises:
            UserError: a metric needs true boxes, and the images have none.
        """
        others = [name for name in names if name not in PLACE_METRICS]
        found = super().measure(params_of_seeds, split, others, each)
        wanted = [name for name in dict.fromkeys(names) if name in PLACE_METRICS]
        if not wanted:
            return found
        if split.boxes is None and (of_boxes := [name for name in wanted if name != "cells"]):
            raise UserError(f"metrics {', '.join(of_boxes)} need the true boxes of words, which these images lack")
        places = [self.places(params, split) for params in params_of_seeds]
        values = {name: summarize([PLACE_METRICS[name].compute(one) for one in places]) for name in wanted}
        meanings = {name: MEANINGS[name] for name in wanted}
        return found._replace(values=found.values | values, signatures=found.signatures | meanings)

    def places(self, params: Params, split: Pairs, edges: Edges | None = None) -> dict[str, float]:
        """Computes the means of the measures of attn_jax.figures.places, and the number of cells.

        Cells are equal parts of the image, or lie between `edges`. The means of a model without weights are nan.
        """
        found: dict[str, list[float]] = {"touch": [], "point": [], "strict": [], "uniform": []}
        entropies, every_map = [], self.predictor.grids(params, split)
        edges = self.predictor.edges if edges is None else edges
        for index, maps in enumerate(every_map if any(maps.any() for maps in every_map) else ()):
            for word, boxes in enumerate(split.boxes[index] if split.boxes else ()):
                if boxes and word < len(maps):
                    for name, value in measure_places(maps[word], boxes, edges).items():
                        found[name].append(value)
            rows = maps.reshape(len(maps), -1)[: max(1, len(maps) - 1)]
            rows = rows[rows.sum(-1) > 0]  # drop words whose whole weight is on the question
            share = rows / rows.sum(-1, keepdims=True)
            entropies += (-np.sum(share * np.log(np.maximum(share, 1e-30)), axis=-1)).tolist()
        means = {name: float(np.mean(values)) if values else float("nan") for name, values in found.items()}
        return means | {"cells": float(np.exp(np.mean(entropies))) if entropies else float("nan")}
