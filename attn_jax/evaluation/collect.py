"""Attention weights of examples, for every layer, head, hop and query of a model.

    setup.collector.collect(params, split) -> [Collected, ...]

A Collected is an example with the model's output, its loss and its maps; a Map is an array of weights [..., q, k] with
names for all axes and labels for rows and columns. Reports show them, analyses measure them. Each `DataKind` (kinds.py)
has its collector; a new map of a model needs one line in attn_jax.evaluation.attended.PLACES.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import UInt8

from attn_jax.data.batching import EncodedPairs, eval_batches
from attn_jax.data.pairs import Pairs
from attn_jax.evaluation.attended import PLACES, READS_SOURCE
from attn_jax.evaluation.base import Split
from attn_jax.evaluation.pictures import PicturePredictor
from attn_jax.evaluation.point_predictor import PointPredictor
from attn_jax.evaluation.stories import StoryPredictor
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.models.module import TO_SOURCE, run_and_name
from attn_jax.tasks.points.points import Points
from attn_jax.tasks.stories.format import split_story
from attn_jax.types import Float, Int, Params

NUM_SAMPLES = 5  # keys sampled for each query of hard attention
BOS_LABEL, EOS_LABEL = "<bos>", "<eos>"


class Map(NamedTuple):
    """Attention weights of one place of a model for one example; zero where a key is masked.

    `axes` names the leading axes, such as ("layer", "head"); () if there are none. Layers, heads and hops are numbered
    from 1 when shown. For hard attention, `samples` has keys sampled from the weights, independently for each query; -1
    where all weights of the query are zero.
    """

    name: str
    axes: tuple[str, ...]
    rows: tuple[str, ...]  # labels of the q queries
    columns: tuple[str, ...]  # labels of the k keys
    weights: Float[np.ndarray, "... q k"]
    samples: Int[np.ndarray, "n ... q"] | None = None


class Image(NamedTuple):
    """An attended image, and the numbers of rows and columns of its cells."""

    pixels: UInt8[np.ndarray, "h w c"]
    cells: tuple[int, int]


class Collected(NamedTuple):
    """An example, the model's output, and its attention maps."""

    source: str
    output: str
    reference: str  # "" if there is none
    loss: float  # loss of the reference, in `loss_unit` of the collector; nan without a reference
    maps: tuple[Map, ...]
    evidence: tuple[int, ...] = ()  # columns that support the reference, numbered from 1
    image: Image | None = None  # its cells are the first columns of the maps
    path: tuple[tuple[float, float, float, float], ...] = ()  # left, top, right, bottom of each glimpse, in pixels


@runtime_checkable
class Collector(Protocol):
    """Collects the attention weights of a kind of model.

    Attributes:
        loss_unit: the unit of `Collected.loss`.
        exact: whether outputs can equal references: True for texts and classes, False for real numbers.
    """

    loss_unit: str
    exact: bool

    def collect(self, params: Params, split: Split, *, seed: int = 0, forced: bool = False) -> list[Collected]:
        """Predicts every example of a split, and collects the attention weights of the prediction.

        Args:
            params: parameters of one seed.
            split: the examples; without references (""), the loss is nan.
            seed: index of the seed in the run, which selects its data if seeds have different data.
            forced: collect the weights of the pass teacher-forced with the reference, not with the model's output.
        """
        ...


class TextCollector:
    """Collects from sequence models and classifiers: encoder, decoder, and attention to the source.

    The loss is in nats per target token, eos included; of a classifier, in nats.
    """

    loss_unit = "nats per token"
    exact = True

    def __init__(self, predictor: TextPredictor):
        self.predictor, self.translator, self.model = predictor, predictor.translator, predictor.model
        self.one_token = self.model.one_token
        self._maps = jax.jit(self.model.maps)

    def collect(self, params: Params, split: Pairs, *, seed: int = 0, forced: bool = False) -> list[Collected]:
        """Predicts every pair, and collects the attention weights of the prediction; see Collector."""
        translated = self.translator.translated(params, split.source)
        read = split if forced else dataclasses.replace(translated, evidence=split.evidence)
        maps, losses = self.maps(params, read), self.losses(params, split)
        evidence = split.evidence or [()] * len(split)
        rows = zip(split.source, translated.target, split.target, losses, maps, evidence, strict=True)
        return [Collected(*row[:3], float(row[3]), tuple(row[4]), tuple(map(int, row[5]))) for row in rows]

    def losses(self, params: Params, pairs: Pairs) -> Float[np.ndarray, " n"]:
        """Computes the loss of each reference; nan without a reference."""
        lengths = np.ones(len(pairs)) if self.one_token else self.translator.encode(pairs).target.lengths
        known = np.array([bool(target.strip()) for target in pairs.target], bool)
        return np.where(known, -self.predictor.log_probs(params, pairs) / lengths, np.nan)

    def maps(self, params: Params, pairs: Pairs) -> list[list[Map]]:
        """Computes the maps of each pair in the teacher-forced pass."""
        encoded = self.translator.encode(pairs)
        ids = pairs.target_ids or [None] * len(pairs)
        labels = [self.labels_of(*one) for one in zip(pairs.source, pairs.target, ids, strict=True)]
        found = self._layers(params, encoded, labels)
        for index, maps in enumerate(self._summary(params, pairs, labels, found)):
            found[index] = [*maps, *found[index]]
        return found

    def source_tokens(self, source: str) -> Sequence[str]:
        """Returns the tokens of a source, without eos."""
        return self.translator.source_vocabulary.tokenize(source)

    def labels_of(self, source: str, target: str, ids: Sequence[int] | None = None) -> dict[str, tuple[str, ...]]:
        """Returns the labels of the positions of each sequence that attention may read; `ids` of a decoded target."""
        translator = self.translator
        source_tokens = (*self.source_tokens(source), EOS_LABEL)
        tokens = tuple(translator.target_tokens(target, ids))
        given = (BOS_LABEL, *tokens)
        both = (*source_tokens, *given)
        if self.model.continues_source:
            both = (EOS_LABEL, BOS_LABEL, *source_tokens[:-1], *tokens)
        return {"source": source_tokens, "target": (*tokens, EOS_LABEL), "target_in": given, "both": both}

    def has_labels(self, run: int) -> bool:
        """Tells whether the labels fit model number `run` of an ensemble, from 1; 0 is a single model."""
        return True

    def _layers(self, params: Params, encoded: EncodedPairs, labels: Sequence[dict]) -> list[list[Map]]:
        """Computes the maps of layers, [layer, head, q, k]."""
        result: list[list[Map]] = [[] for _ in labels]
        options = self.predictor.options
        for indices, batch in eval_batches(encoded, options.batch_size, self.predictor.buckets):
            found = jax.device_get(self._maps(params, batch))
            for name in sorted(found, key=_order):
                run, place = run_and_name(name)
                if not self.has_labels(run):
                    continue
                layers, (rows, columns) = found[name], PLACES[place]
                for row, index in enumerate(indices):
                    one = np.asarray(layers[row], np.float32)
                    one = one if one.ndim == 4 else one[None, None]
                    rows_of, columns_of = labels[index][rows], labels[index][columns]
                    weights = one[..., : len(rows_of), : len(columns_of)]
                    result[index].append(Map(name, ("layer", "head"), rows_of, columns_of, weights))
        return result

    def _summary(
        self, params: Params, pairs: Pairs, labels: Sequence[dict], found: Sequence[list[Map]]
    ) -> list[list[Map]]:
        """Computes the map of attention outside the layers: of a recurrent decoder, or of a classifier's queries."""
        if any(one.name in READS_SOURCE for maps in found for one in maps):
            return [[] for _ in labels]
        if self.one_token:
            arrays = self.predictor.query_weights(params, pairs)
            name, query = self.model.query_map
            rows = [_numbered(query, len(weights)) for weights in arrays]
            places = [(names, each["source"]) for names, each in zip(rows, labels, strict=True)]
        else:
            arrays = self.predictor.weights(params, pairs)
            places = [(each["target"], each["source"]) for each in labels]
            name = TO_SOURCE
        latent = self.model.module.is_latent
        return [
            [Map(name, (), *place, weights, sample_keys(weights) if latent else None)] if weights.any() else []
            for place, weights in zip(places, arrays, strict=True)
        ]


class StoryCollector(TextCollector):
    """Collects the weights of the statements in each hop of a memory network. The loss is in nats per answer."""

    loss_unit = "nats per answer"

    def __init__(self, predictor: StoryPredictor):
        super().__init__(predictor)
        self.one_token = True

    def maps(self, params: Params, pairs: Pairs) -> list[list[Map]]:
        """Computes the map of the hops of each story; targets are not used."""
        found = []
        for source, hops in zip(pairs.source, self.predictor.hops(params, pairs), strict=True):
            statements, _ = split_story(source)
            found.append([Map("memory", (), _numbered("hop", len(hops)), tuple(statements), hops)])
        return found


class PictureCollector(TextCollector):
    """Collects from models of images: attention to cells, called "row.column" from 1, and to the words of questions."""

    predictor: PicturePredictor

    def collect(self, params: Params, split: Pairs, *, seed: int = 0, forced: bool = False) -> list[Collected]:
        """Describes every image, and collects the weights and the image; see Collector."""
        found, predictor = super().collect(params, split, seed=seed, forced=forced), self.predictor
        names = [source.partition("\t")[0] for source in split.source]
        found = [
            one._replace(image=Image(predictor.gallery.pixels(name), predictor.cells))
            for one, name in zip(found, names, strict=True)
        ]
        if not predictor.has_paths:
            return found
        paths = predictor.paths(params, split.source)
        return [one._replace(path=tuple(stop.box for stop in stops)) for one, stops in zip(found, paths, strict=True)]

    def labels_of(self, source: str, target: str, ids: Sequence[int] | None = None) -> dict[str, tuple[str, ...]]:
        """Returns the labels of the positions of each sequence that attention may read; `ids` of a decoded target."""
        labels = super().labels_of(source, target, ids)
        rows, columns = self.predictor.cells
        cells = tuple(f"{row}.{column}" for row in range(1, rows + 1) for column in range(1, columns + 1))
        return labels | {"source": (*cells, *labels["source"]) if self.predictor.asks else cells}

    def has_labels(self, run: int) -> bool:
        """Tells whether model number `run` of an ensemble has the same grid of cells as the first model."""
        if not run:
            return True
        grid = self.model.members[run - 1].module.picture.grid
        return grid.cells(*self.predictor.image[:2]) == self.predictor.cells


class PointCollector:
    """Collects the weights of the training points in each prediction. The loss is the squared error, or -log p."""

    def __init__(self, predictor: PointPredictor):
        self.predictor, self.regressor, self.columns = predictor, predictor.regressor, predictor.columns
        self.points = predictor.training_points()
        self.exact = bool(self.columns.classes)
        self.loss_unit = "nats" if self.exact else "squared error"

    def collect(self, params: Params, split: Points, *, seed: int = 0, forced: bool = False) -> list[Collected]:
        """Predicts every point, and collects the attention weights of the prediction; see Collector."""
        sample = seed if len(split.inputs) > 1 else 0
        inputs, targets = split.inputs[sample], split.targets[sample]
        how = {"seed": seed, "left_out": split.left_out}
        predictions, _ = self.regressor.predict(params, inputs, **how)
        train = self.regressor.train
        order = np.lexsort(train.inputs[seed].T[::-1])
        trained = zip(train.inputs[seed][order], train.targets[seed][order], strict=True)
        inputs_text, target_text = self.points.inputs_text, self.points.target_text
        points = tuple(f"{inputs_text(x)} → {target_text(y)}" for x, y in trained)
        weights = self.regressor.weights(params, inputs, **how)[:, order]
        losses = _losses(predictions, targets, bool(self.columns.classes))
        return [
            Collected(
                inputs_text(x),
                target_text(y),
                target_text(t),
                float(loss),
                (Map("points", (), ("query",), points, w),),
            )
            for x, y, t, loss, w in zip(inputs, predictions, targets, losses, weights[:, None], strict=True)
        ]


def sample_keys(
    weights: Float[np.ndarray, "... q k"], num_samples: int = NUM_SAMPLES, seed: int = 0
) -> Int[np.ndarray, "n ... q"]:
    """Samples `num_samples` keys for each query with probabilities |w| / sum |w|; -1 where all weights are 0."""
    size = np.abs(np.asarray(weights, np.float64))
    ends = np.cumsum(size, axis=-1)
    total = ends[..., -1:]
    points = np.random.default_rng(seed).random((num_samples, *total.shape)) * total
    keys = np.sum(ends <= points, axis=-1)
    return np.where(total[..., 0] > 0, np.minimum(keys, weights.shape[-1] - 1), -1)


def _order(name: str) -> tuple[int, int]:
    """Returns the sort key of a map: number of the model in an ensemble, and position in PLACES."""
    run, place = run_and_name(name)
    return run, list(PLACES).index(place)


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name} {number}" for number in range(1, count + 1))


def _losses(predictions: np.ndarray, targets: np.ndarray, has_classes: bool) -> Float[np.ndarray, " n"]:
    if has_classes:
        return -np.log(np.maximum(np.sum(predictions * targets, axis=-1), 1e-12))
    return np.sum((predictions - targets) ** 2, axis=-1)
