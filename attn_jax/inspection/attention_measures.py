"""Measures of attention for each layer, head and hop of a model: means over the examples of a split.

    measure_attention(collector, [params of a seed, ...], split) -> [Row(place, axes, {"entropy": [...], ...})]

The weights come from the teacher-forced pass, see attn_jax.evaluation.collect; the measures are defined in
attn_jax.inspection.analysis. Rows leave out measures that a model or a split does not have.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attn_jax.data.batching import EncodedPairs, make_ragged
from attn_jax.data.pairs import Pairs
from attn_jax.evaluation.attended import PLACES
from attn_jax.evaluation.base import Split
from attn_jax.evaluation.collect import Collector, Map, StoryCollector, TextCollector
from attn_jax.inspection import analysis
from attn_jax.inspection.analysis import Alignment
from attn_jax.models.module import run_and_name
from attn_jax.tasks.stories.format import join_story, split_story
from attn_jax.token_ids import EOS
from attn_jax.types import Float, Params

NUMBERED_ROWS = {
    "memory": "hop",
    "pooling": "query",
    "places looked at": "glimpse",
}  # maps whose rows mean the same in all examples
READ_SOURCE = {name for name, place in PLACES.items() if place.columns != "target_in"} | set(NUMBERED_ROWS)
ROWS = {name: place.rows for name, place in PLACES.items()}
FOR_TARGET = ("target", "both")  # rows from which a target token is predicted
Links = frozenset[tuple[int, int]]
Key = tuple[str, tuple[tuple[str, int], ...]]  # name of a map, and numbers of layer, head or hop, from 1


class Gold(NamedTuple):
    """True alignments of a split; `convert` maps links between tokens to links between the aligned units."""

    alignments: Sequence[Alignment | None]  # None: unknown
    convert: Callable[[int, Links], Links] = lambda index, links: links
    only_known: bool = False  # ignore the links of target tokens without a true link


class Row(NamedTuple):
    """The measures of a layer, head or hop of a model."""

    place: str
    axes: dict[str, int]  # such as {"layer": 1, "head": 2}, from 1
    values: dict[str, list[float]]  # name -> value of each seed


def measure_attention(
    collector: Collector, params_of_seeds: Sequence[Params], split: Split, gold: Gold | None = None
) -> list[Row]:
    """Measures the attention of each seed on a split.

    - entropy (nats), keys (exp of the entropy), first: means over rows of weights; agreement: over heads of a layer.
    - evidence: share of the weights on the statements that support the answer, if known.
    - error: alignment error rate of the link of each target token to its key of largest weight.
    - attended, random: drop of log p(target | source) without the key whose weight, summed over all queries, is
      largest, and without a random key.

    Args:
        collector: collector of the model, such as `Setup.collector`.
        params_of_seeds: parameters of each seed.
        split: examples with targets.
        gold: true alignments; None: unknown.
    """
    found = [_of_seed(collector, params, split, seed, gold) for seed, params in enumerate(params_of_seeds)]
    return [
        Row(place, dict(axes), {name: [values[place, axes][name] for values in found] for name in first})
        for (place, axes), first in found[0].items()
    ]


def _of_seed(collector, params: Params, split: Split, seed: int, gold: Gold | None) -> dict[Key, dict[str, float]]:
    """Measures one seed; returns the values of each key."""
    per_example: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    totals: dict[Key, list[np.ndarray]] = defaultdict(list)  # weights of the keys, summed over the queries
    links: dict[Key, dict[int, Links]] = defaultdict(dict)  # links of each example that has the map
    for index, maps in enumerate(_maps(collector, params, split, seed)):
        for one in maps:
            axes, weights = unfolded(one)
            for name, values in _values(one, weights, axes, _evidence(split, index)).items():
                for place in np.ndindex(values.shape):
                    per_example[_key(one.name, axes, place)][name].append(float(values[place]))
            if ROWS.get(run_and_name(one.name)[1]) == "both" and collector.model.continues_source:
                one, weights = source_first(one, weights, len(collector.source_tokens(split.source[index])))
            for place in np.ndindex(weights.shape[:-2]):
                key = _key(one.name, axes, place)
                if run_and_name(one.name)[1] in READ_SOURCE:
                    totals[key].append(weights[place].sum(axis=0))
                if gold is not None and (own := to_source(one, weights[place])) is not None:
                    links[key][index] = gold.convert(index, analysis.links(own))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nanmean of nothing, if no example has a value
        result = {
            key: {name: float(np.nanmean(list_)) for name, list_ in values.items()}
            for key, values in per_example.items()
        }
    for key, found in links.items():
        result[key]["error"] = _error([found.get(index, frozenset()) for index in range(len(split))], gold)
    if type(collector) in UNITS:
        units, score = UNITS[type(collector)](collector, params, split)
        for key, rows in totals.items():
            if len(rows) == len(units):
                lost = analysis.erasure(score, units, [row[None] for row in rows], share=0.0)
                result[key] |= {"attended": lost.attended, "random": lost.random}
    return result


def _maps(collector, params: Params, split: Split, seed: int) -> Iterator[Sequence[Map]]:
    """Yields the maps of each example; text models are processed in batches, since their maps can be large."""
    if not isinstance(collector, TextCollector):
        yield from (example.maps for example in collector.collect(params, split, seed=seed, forced=True))
        return
    size = collector.predictor.options.batch_size
    for start in range(0, len(split), size):
        yield from collector.maps(params, split.select(range(start, min(start + size, len(split)))))


def unfolded(one: Map) -> tuple[tuple[str, ...], Float[np.ndarray, "... q k"]]:
    """Returns (names of the leading axes, weights) of a map; numbered rows such as hops become an axis."""
    if one.name not in NUMBERED_ROWS:
        return one.axes, np.asarray(one.weights, np.float64)
    return (*one.axes, NUMBERED_ROWS[one.name]), np.asarray(one.weights, np.float64)[..., None, :]


def source_first(one: Map, weights: Float[np.ndarray, "... q k"], n: int) -> tuple[Map, Float[np.ndarray, "... q k"]]:
    """Moves the columns of n source tokens, which follow eos and bos, to the front; returns the map and weights."""
    order = [*range(2, n + 2), 0, 1, *range(n + 2, len(one.columns))]
    return one._replace(columns=tuple(one.columns[i] for i in order)), weights[..., order]


def to_source(one: Map, weights: Float[np.ndarray, "q k"]) -> Float[np.ndarray, "t s"] | None:
    """Returns the weights of target tokens over source tokens, both without eos; None for another map."""
    _, name = run_and_name(one.name)
    rows = ROWS.get(name)
    if rows not in FOR_TARGET or name not in READ_SOURCE:
        return None
    if rows == "target":
        return weights[:-1, :-1]
    # Order: source, eos, optional tags and eos, bos, target. The row of a token predicts the next token.
    return weights[one.columns.index("<bos>") : -1, : one.columns.index("<eos>")]


def _values(
    one: Map, weights: Float[np.ndarray, "... q k"], axes: tuple[str, ...], evidence: Sequence[int]
) -> dict[str, np.ndarray]:
    """Computes the means over the rows: arrays over all axes, or without the last one for agreement of heads."""
    rows = {
        "entropy": analysis.entropy(weights),
        "keys": analysis.effective_support(weights),
        "first": analysis.first_key(weights),
    }
    if evidence and one.name in NUMBERED_ROWS:
        columns = [number - 1 for number in evidence if number <= weights.shape[-1]]
        total = np.abs(weights).sum(-1)
        rows["evidence"] = np.abs(weights[..., columns]).sum(-1) / np.where(total > 0, total, np.nan)
    if axes[-1:] == ("head",) and weights.shape[-3] > 1:
        rows["agreement"] = analysis.agreement(weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all rows of a head may be empty
        return {name: np.asarray(np.nanmean(values, axis=-1)) for name, values in rows.items()}


def _key(name: str, axes: tuple[str, ...], place: tuple[int, ...]) -> Key:
    return name, tuple((axis, number + 1) for axis, number in zip(axes, place, strict=False))


def _evidence(split: Split, index: int) -> Sequence[int]:
    evidence = split.evidence if isinstance(split, Pairs) else None
    return tuple(map(int, evidence[index])) if evidence else ()


def _error(found: Sequence[Links], gold: Gold) -> float:
    """Computes the alignment error rate of the sentences whose alignment is known."""
    pairs = [(links, true) for links, true in zip(found, gold.alignments, strict=True) if true is not None]
    if gold.only_known:
        pairs = [(_of_queries(links, {query for query, _ in true.possible}), true) for links, true in pairs]
    return analysis.alignment_error_rate([links for links, _ in pairs], [true for _, true in pairs])


def _of_queries(links: Links, queries: set[int]) -> Links:
    return frozenset(link for link in links if link[0] in queries)


def _words(collector: TextCollector, params: Params, pairs: Pairs) -> tuple[list, Callable]:
    """Returns (ids of each source without eos, function from changed sources to log p(target | source)).

    Tags that the model reads separately are no keys, and stay in every source.
    """
    translator, predictor = collector.translator, collector.predictor
    target = translator.encode(pairs).target
    encoded = [translator.source_vocabulary.encode(text) for text in pairs.source]
    ends = [ids.index(EOS) if translator.model.reads_tags else len(ids) for ids in encoded]
    units, others = zip(*((ids[:end], ids[end:]) for ids, end in zip(encoded, ends, strict=True)), strict=True)

    @lru_cache(maxsize=4)
    def score(sources: tuple) -> Float[np.ndarray, " n"]:
        source = make_ragged([[*ids, *rest, EOS] for ids, rest in zip(sources, others, strict=True)])
        return predictor.encoded_log_probs(params, EncodedPairs(source, target))

    return list(units), lambda sources: score(tuple(map(tuple, sources)))


def _statements(collector: StoryCollector, params: Params, pairs: Pairs) -> tuple[list, Callable]:
    """Returns (indices of the statements of each story, function from kept indices to log p(answer | statements))."""
    stories = [split_story(source) for source in pairs.source]

    @lru_cache(maxsize=4)
    def score(kept: tuple) -> Float[np.ndarray, " n"]:
        sources = [
            join_story([statements[i] for i in indices], question)
            for indices, (statements, question) in zip(kept, stories, strict=True)
        ]
        return collector.predictor.log_probs(params, Pairs(sources, pairs.target))

    units = [list(range(len(statements))) for statements, _ in stories]
    return units, lambda kept: score(tuple(map(tuple, kept)))


UNITS = {TextCollector: _words, StoryCollector: _statements}  # units that can be erased from a source
