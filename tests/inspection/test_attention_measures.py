"""Measures of a model are those of its collected weights, and of its losses without what was attended to."""

import jax
import numpy as np
import pytest
from arrays import fill
from tiny_run import tiny_config

from attn_jax.data.alignments import align_date
from attn_jax.evaluation.collect import Map
from attn_jax.inspection import analysis, attention_measures
from attn_jax.inspection.analysis import Alignment
from attn_jax.inspection.attention_measures import Gold, measure_attention, source_first, to_source
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import resolve
from attn_jax.tasks import Pairs
from attn_jax.tasks.stories.format import join_story, split_story
from configs import babi_memn2n, kernel_learned_width

PAIRS = Pairs(["July 4, 1999", "平成元年3月1日", "R8.11.21"], ["1999-07-04", "1989-03-01", "2026-11-21"])
SMALL = {
    "model__hidden_size": 8,
    "model__attention__score": "scaled_dot",
    "decode__max_length": 12,
    "decode__batch_size": 2,
}
HEADS = SMALL | {"model__num_heads": 2, "model__num_layers": 2}
HEADS_OF_BOTH = SMALL | {
    f"model__{side}__{key}": 2 for side in ("encoder", "decoder") for key in ("num_heads", "num_layers")
}


def setup_of(config, seeds=2, scale=0.7):
    """(task, setup, random parameters of each seed)."""
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    shapes = jax.eval_shape(setup.model.init, jax.random.key(0), setup.example)
    return task, setup, [fill(shapes, seed, scale) for seed in range(seeds)]


@pytest.fixture(scope="module")
def transformer():
    return setup_of(tiny_config(model__name="transformer", model__encoder="transformer", **HEADS_OF_BOTH))


@pytest.mark.slow
def test_rows_are_means_over_the_examples_of_each_layer_and_head(transformer):
    _, setup, params = transformer
    known = [Alignment(*align_date(*pair)) for pair in zip(PAIRS.source, PAIRS.target, strict=True)]
    rows = measure_attention(setup.collector, params, PAIRS, Gold(known))
    places = ("encoder self-attention", "decoder self-attention", "attention to the source")
    heads = [row for row in rows if "head" in row.axes]
    assert sorted((row.place, *row.axes.values()) for row in heads) == sorted(
        (place, layer, head) for place in places for layer in (1, 2) for head in (1, 2)
    )
    for seed, some in enumerate(params):
        maps = [{one.name: one for one in maps} for maps in setup.collector.maps(some, PAIRS)]
        for row in rows:
            index = tuple(number - 1 for number in row.axes.values())
            weights = [each[row.place].weights[index] for each in maps]
            if "head" not in row.axes:
                expected = {"agreement": np.mean([analysis.agreement(w).mean() for w in weights])}
            else:
                expected = {
                    "entropy": np.mean([analysis.entropy(w).mean() for w in weights]),
                    "first": np.mean([w[:, 0].mean() for w in weights]),
                }
            for name, value in expected.items():
                np.testing.assert_allclose(row.values[name][seed], value, rtol=1e-5)
            if "head" in row.axes:
                assert ("error" in row.values) == (row.place == "attention to the source")
                assert ("attended" in row.values) == (row.place != "decoder self-attention")
            if "error" in row.values:
                links = [analysis.links(w[:-1, :-1]) for w in weights]
                assert row.values["error"][seed] == analysis.alignment_error_rate(links, known)


@pytest.mark.slow
def test_erasure_removes_the_character_of_largest_weight(transformer):
    _, setup, params = transformer
    rows = measure_attention(setup.collector, params[:1], PAIRS)
    row = next(row for row in rows if row.place == "attention to the source" and row.axes == {"layer": 2, "head": 1})
    maps = [{one.name: one for one in each} for each in setup.collector.maps(params[0], PAIRS)]
    best = [int(np.argmax(each[row.place].weights[1, 0].sum(0)[:-1])) for each in maps]
    shorter = [text[:i] + text[i + 1 :] for text, i in zip(PAIRS.source, best, strict=True)]
    log_probs = setup.predictor.log_probs
    lost = log_probs(params[0], PAIRS) - log_probs(params[0], Pairs(shorter, PAIRS.target))
    np.testing.assert_allclose(row.values["attended"], [lost.mean()], rtol=1e-4)
    assert row.values["random"] != row.values["attended"]


@pytest.mark.slow
def test_tags_that_are_no_keys_are_not_erased():
    folder = {"task__name": "inflection", "task__tags": "apart"}
    config = tiny_config(**folder, model__tags="fed", task__buckets="automatic", decode__max_length=20)
    task, setup, params = setup_of(config, seeds=1)
    pairs = task.splits["valid"].select([0, 1, 2])
    collector = setup.collector
    units, score = attention_measures.UNITS[type(collector)](collector, params[0], pairs)
    vocabulary = setup.predictor.translator.source_vocabulary
    assert [len(ids) for ids in units] == [len(text.partition("\t")[0]) for text in pairs.source]
    whole = setup.predictor.log_probs(params[0], pairs)
    np.testing.assert_allclose(score(units), whole, rtol=1e-5)
    shorter = [text[1:] for text in pairs.source]
    expected = setup.predictor.log_probs(params[0], Pairs(shorter, pairs.target))
    np.testing.assert_allclose(score([ids[1:] for ids in units]), expected, rtol=1e-5)
    assert vocabulary.has_tags


@pytest.mark.slow
def test_links_of_tokens_without_a_true_one_are_left_out_of_what_is_only_partly_known(transformer):
    _, setup, params = transformer
    where = {}
    rows = measure_attention(
        setup.collector, params[:1], PAIRS, Gold([None] * 3, lambda i, links: where.setdefault(i, links))
    )
    assert np.isnan(next(row for row in rows if "error" in row.values).values["error"][0])
    query, key = min(where[1])  # of the layer and head that come first
    known = [None, Alignment(frozenset({(query, key)}), frozenset({(query, key)})), None]

    def first(**options):
        rows = measure_attention(setup.collector, params[:1], PAIRS, Gold(known, **options))
        return next(row.values["error"][0] for row in rows if "error" in row.values)

    assert first(only_known=True) == 0 and first() > 0


@pytest.mark.slow
def test_hops_of_a_memory_network_and_its_evidence():
    config = babi_memn2n.get_config()
    config.task.num_examples = 40
    config.decode.max_length = 4
    task, setup, params = setup_of(config, seeds=1)
    split = task.splits["valid"].select(range(3))
    rows = measure_attention(setup.collector, params, split)
    assert [(row.place, row.axes) for row in rows] == [("memory", {"hop": i}) for i in range(1, len(rows) + 1)]
    hops = setup.predictor.hops(params[0], split)
    for index, row in enumerate(rows):
        shares = [
            each[index, [number - 1 for number in numbers]].sum() / each[index].sum()
            for each, numbers in zip(hops, split.evidence, strict=True)
        ]
        np.testing.assert_allclose(row.values["evidence"], [np.mean(shares)], rtol=1e-5)
    shorter = []
    for source, each in zip(split.source, hops, strict=True):
        statements, question = split_story(source)
        del statements[int(np.argmax(each[0]))]
        shorter.append(join_story(statements, question))
    log_probs = setup.predictor.log_probs
    lost = log_probs(params[0], split) - log_probs(params[0], Pairs(shorter, split.target))
    np.testing.assert_allclose(rows[0].values["attended"], [lost.mean()], rtol=1e-4)


def test_training_points_of_a_regression():
    task, setup, params = setup_of(kernel_learned_width.get_config(), seeds=1)
    (row,) = measure_attention(setup.collector, params, task.splits["test"])
    assert row.place == "points" and row.axes == {} and set(row.values) == {"entropy", "keys", "first"}


def test_a_token_that_follows_the_source_is_predicted_from_the_row_of_the_one_before_it():
    labels = ("a", "b", "<eos>", "<bos>", "x", "y")
    weights = np.arange(36.0).reshape(6, 6)
    found = to_source(Map("self-attention", (), labels, labels, weights), weights)
    np.testing.assert_array_equal(found, weights[3:5, :2])
    assert to_source(Map("memory", (), ("hop 1",), ("a",), weights[:1, :1]), weights[:1, :1]) is None


def test_a_source_that_follows_eos_and_bos_is_read_without_them():
    labels = ("<eos>", "<bos>", "a", "b", "x", "y")
    weights = np.arange(36.0).reshape(6, 6)
    moved, own = source_first(Map("self-attention", (), labels, labels, weights), weights, 2)
    np.testing.assert_array_equal(to_source(moved, own), weights[3:5, 2:4])  # of the rows that predict x and y


@pytest.mark.slow
def test_a_decoder_that_reads_tags_apart_predicts_each_letter_from_the_row_before_it():
    """The rows are of the lemma, the tags and the form; the columns that are kept are of the lemma alone."""
    folder = {"task__name": "inflection", "task__tags": "apart", "task__buckets": "automatic"}
    _, setup, params = setup_of(tiny_config(model__name="language_model", **folder, **HEADS), seeds=1)
    pairs = Pairs(["cat\tN;PL"], ["cats"])
    ((one,),) = setup.collector.maps(params[0], pairs)
    assert one.columns[:4] == ("c", "a", "t", "<eos>") and one.columns.count("<eos>") == 2
    size = len(one.columns)
    assert one.weights.shape[-2:] == (size, size)
    kept = to_source(one, np.arange(size * size, dtype=np.float32).reshape(size, size)).astype(int)
    assert [one.rows[row + 1] for row in kept[:, 0] // size] == list("cats")
    assert [one.columns[column] for column in kept[0] % size] == list("cat")
