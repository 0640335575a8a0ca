"""Collected weights are those that the model computes with, with a label for each row and column."""

import json

import jax
import numpy as np
import pytest
from arrays import fill
from tiny_run import tiny_config

from attn_jax.data.facts import Kept
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.vocabulary import Words
from attn_jax.evaluation.collect import Collector, sample_keys
from attn_jax.evaluation.kinds import DataKind
from attn_jax.inspection.attention_measures import source_first, to_source
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import resolve
from attn_jax.tasks import Pairs
from attn_jax.token_ids import BOS, EOS, UNK
from configs import babi_memn2n, kernel_learned_width

PAIRS = Pairs(["July 4, 1999", "平成元年3月1日"], ["1999-07-04", "1989-03-01"])
SMALL = {"model__hidden_size": 8, "model__attention__score": "scaled_dot", "decode__max_length": 12}
HEADS = SMALL | {"model__num_heads": 2, "model__num_layers": 2}
HEADS_OF_BOTH = SMALL | {
    f"model__{side}__{key}": 2 for side in ("encoder", "decoder") for key in ("num_heads", "num_layers")
}


def collected_of(config, split, scale=0.7, **options):
    """(setup, parameters, what was collected) of a model with random parameters."""
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), setup.example), 0, scale)
    collector = setup.collector
    assert isinstance(collector, Collector)
    return setup, params, collector.collect(params, split or task.splits["test"], **options)


def check_rows(maps):
    """Rows are distributions, and have a label each."""
    for one in maps:
        assert one.weights.shape[-2:] == (len(one.rows), len(one.columns))
        assert one.weights.ndim == 2 + len(one.axes)
        np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-5)


@pytest.mark.slow
def test_a_transformer_has_a_map_of_each_place_with_layers_and_heads():
    config = tiny_config(model__name="transformer", model__encoder="transformer", **HEADS_OF_BOTH)
    setup, params, found = collected_of(config, PAIRS, forced=True)
    for example in found:
        maps = {one.name: one for one in example.maps}
        check_rows(example.maps)
        assert [one.weights.shape[:2] for one in example.maps] == [(2, 2)] * 3
        own, source = maps["decoder self-attention"], maps["attention to the source"]
        assert own.rows == own.columns == ("<bos>", *example.reference)
        assert source.columns == (*example.source, "<eos>") and source.rows == (*example.reference, "<eos>")
        assert not np.triu(own.weights[0, 0], 1).any()
        # What evaluation returns is the mean over the heads of the last layer.
        (mean,) = setup.predictor.weights(params, Pairs([example.source], [example.reference]))
        np.testing.assert_allclose(source.weights[-1].mean(0), mean, atol=1e-6)


@pytest.mark.slow
def test_a_language_model_attends_to_source_and_target_in_one_sequence():
    setup, params, found = collected_of(tiny_config(model__name="language_model", **HEADS), PAIRS, forced=True)
    for example in found:
        (own,) = example.maps
        check_rows(example.maps)
        n = len(example.source) + 1
        assert own.columns[n:] == ("<bos>", *example.reference)
        (mean,) = setup.predictor.weights(params, Pairs([example.source], [example.reference]))
        np.testing.assert_allclose(own.weights[-1].mean(0)[n:, :n], mean, atol=1e-6)


@pytest.mark.slow
def test_a_language_model_that_goes_on_from_a_prompt_reads_it_after_bos():
    """The labels are in the order of reading; measures of words of the source find their columns."""
    letters = Words(["a", "b", "c"])
    config = tiny_config(model__name="language_model", model__continue_source=True, **HEADS)
    setup = build_setup(resolve(config), Kept(letters, letters))
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), setup.example), 0, 0.7)
    prompts = Pairs(["a b", ""], ["c a", "b"])
    found = setup.collector.collect(params, prompts, forced=True)
    means = setup.predictor.weights(params, prompts)
    for example, text, mean in zip(found, (("a", "b", "c", "a"), ("b",)), means, strict=True):
        (own,) = example.maps
        check_rows(example.maps)
        assert own.rows == own.columns == ("<eos>", "<bos>", *text)
        assert not np.triu(own.weights[0, 0], 1).any()
        n = len(example.source.split())
        first, weights = source_first(own, own.weights, n)
        assert first.columns == (*text[:n], "<eos>", "<bos>", *text[n:])
        np.testing.assert_allclose(weights[-1].mean(0)[n + 1 :, : n + 1], mean, atol=1e-6)
        np.testing.assert_allclose(to_source(first, weights[-1, 0]), weights[-1, 0, n + 1 : -1, :n])


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["soft", "hard"])
def test_a_recurrent_decoder_has_one_map_and_samples_where_the_key_is_latent(objective):
    changes = {"model__objective__reading": "enumeration"} if objective == "hard" else {}
    setup, params, found = collected_of(tiny_config(model__objective=objective, **changes), PAIRS)
    for example in found:
        (one,) = example.maps
        check_rows(example.maps)
        assert (one.name, one.axes) == ("attention to the source", ())
        assert (one.samples is None) == (objective == "soft")
        if one.samples is not None:
            assert one.samples.shape[1:] == (len(one.rows),) and one.samples.max() < len(one.columns)
    score = setup.predictor.log_probs(params, PAIRS)
    np.testing.assert_allclose([example.loss for example in found], -score / 11, rtol=1e-6)
    if objective == "soft":
        found = setup.collector.collect(params, Pairs(PAIRS.source, ["", PAIRS.target[1]]))
        assert np.isnan(found[0].loss) and np.isfinite(found[1].loss)  # without a reference there is none


@pytest.mark.slow
def test_a_classifier_has_a_row_for_each_query_of_its_pooling():
    changes = {"model__hidden_size": 8, "model__pooling": "structured", "task__num_examples": 60}
    config = tiny_config(task__name="language_id", model__name="classifier", **changes)
    setup, params, found = collected_of(config, Pairs(["A bird can dance", "Ein Vogel"], ["en", "de"]))
    weights = setup.predictor.query_weights(params, Pairs([one.source for one in found], ["en", "de"]))
    for example, rows in zip(found, weights, strict=True):
        (one,) = example.maps
        check_rows(example.maps)
        assert one.name == "pooling" and one.rows[:2] == ("query 1", "query 2")
        np.testing.assert_allclose(one.weights, rows, atol=1e-6)


@pytest.mark.slow
def test_a_story_has_a_row_for_each_hop_and_its_evidence():
    config = babi_memn2n.get_config()
    config.update_from_flattened_dict({"seeds": (0,), "task.num_examples": 30, "model.memory_size": 4})
    task = build_task(resolve(config))
    split = task.splits["test"].select(range(3))
    setup, params, found = collected_of(config, split)
    hops = setup.predictor.hops(params, split)
    for example, weights, evidence in zip(found, hops, split.evidence, strict=True):
        (one,) = example.maps
        assert example.evidence == tuple(evidence) and max(evidence) <= len(one.columns)
        assert one.rows == ("hop 1", "hop 2", "hop 3")
        np.testing.assert_array_equal(one.weights, weights)


@pytest.fixture(scope="module")
def pieces():
    """A vocabulary in which most texts have several segmentations."""
    text = ["banana", "bandana", "a banana band", "ban a band", "nab a bandana"] * 3
    return SentencePiece.train(text, vocab_size=18, model_type="bpe")


@pytest.mark.slow
def test_the_weights_shown_are_those_of_the_pieces_that_were_decoded(pieces, tmp_path):
    """The text of an output may be split otherwise when it is encoded again."""
    texts = ["banana", "a band", "nab a bandana"]
    setup = build_setup(resolve(tiny_config(decode__max_length=12, decode__unk="forbid")), Kept(pieces, pieces))
    predictor, translator = setup.predictor, setup.predictor.translator
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), setup.example), 1, 0.9)
    decoded = [found[0] for found in translator.translate(params, texts)]
    differ = [list(one.ids) != pieces.encode(one.text) for one in decoded]
    assert any(differ) and all(pieces.decode(one.ids) == one.text for one in decoded)
    split = Pairs(texts, [""] * len(texts))
    found = setup.collector.collect(params, split)
    paths = [tmp_path / f"{i}.png" for i in range(len(texts))]
    predictor.plot(params, split, paths)
    for text, one, example, path in zip(texts, decoded, found, paths, strict=True):
        (shown,) = example.maps
        source = [*pieces.encode(text), EOS]
        assert shown.rows == (*pieces.tokens(one.ids), "<eos>") and example.output == one.text
        batch = {"source": [source], "target_in": [[BOS, *one.ids]], "target_out": [[*one.ids, EOS]]}
        batch = {name: np.array(rows, np.int32) for name, rows in batch.items()}
        expected = np.asarray(translator.attention_weights(params, batch))[0]
        np.testing.assert_allclose(shown.weights, expected, atol=1e-5)
        written = json.loads(path.with_suffix(".json").read_text())
        assert written["target"] == list(shown.rows)
        np.testing.assert_allclose(written["weights"], expected, atol=1e-3)
    log_probs = predictor.log_probs(params, translator.translated(params, texts))
    np.testing.assert_allclose(log_probs, [one.log_prob for one in decoded], atol=1e-4)


def test_a_copied_word_is_shown_in_place_of_unk():
    words = Words(["a", "b"])
    translator = build_setup(resolve(tiny_config()), Kept(words, words)).predictor.translator
    assert translator.target_tokens("a zebra", [4, UNK]) == ["a", "zebra"]
    assert translator.target_tokens("b zebra") == ["b", "zebra"] and translator.target_tokens("b", [4, 5]) == ["a", "b"]


def test_the_weights_of_training_points_give_the_prediction():
    config = kernel_learned_width.get_config()
    changes = {"task.num_examples": 12, "seeds": (3, 4), "model.degrees": (0,), "model.num_widths": 1}
    config.update_from_flattened_dict(changes)
    _, _, found = collected_of(config, None, seed=1, scale=0.1)
    for example in found[:5]:
        (one,) = example.maps
        assert float(example.loss) == pytest.approx((float(example.output) - float(example.reference)) ** 2, abs=5e-3)
        targets = [float(label.rpartition("→")[2]) for label in one.columns]
        assert float(one.weights[0] @ np.array(targets)) == pytest.approx(float(example.output), rel=1e-2, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"degrees": (0,), "num_widths": 1}, {"degrees": (0, 1), "num_widths": 2}])
def test_a_training_point_that_is_left_out_has_no_weight_in_its_own_prediction(changes):
    """The losses shown are those that are measured."""
    config = kernel_learned_width.get_config()
    changes = {f"model.{key}": value for key, value in changes.items()} | {"task.num_examples": 12, "seeds": (3, 4)}
    config.update_from_flattened_dict(changes | {"decode.batch_size": 5})
    setup, task = build_setup(resolve(config), build_task(resolve(config))), build_task(resolve(config))
    params, split = setup.model.init(jax.random.key(0), setup.example), task.splits["valid"]
    found = setup.collector.collect(params, split, seed=1)
    measured = setup.evaluator.measure([params, params], split, ["loss"]).values["loss"]["seeds"]
    assert np.mean([example.loss for example in found]) == pytest.approx(measured[1], rel=1e-5)
    targets = np.array([float(label.rpartition("→")[2]) for label in found[0].maps[0].columns])
    order = np.argsort(np.argsort(split.inputs[1][:, 0]))
    for place, example in zip(order, found, strict=True):
        (weights,) = example.maps[0].weights
        assert weights[place] == 0 and np.count_nonzero(weights) == 11
        assert float(weights @ targets) == pytest.approx(float(example.output), rel=1e-2, abs=5e-3)


def test_keys_are_sampled_by_their_weights():
    weights = np.array([[0.5, 0.25, 0.25, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    keys = sample_keys(weights, num_samples=4000)
    shares = np.mean(keys[:, :1] == np.arange(4), axis=0)
    np.testing.assert_allclose(shares, weights[0], atol=0.03)
    assert (keys[:, 1] == 2).all() and (keys[:, 2] == -1).all() and (keys[:, 0] < 3).all()
    with pytest.raises(ValueError, match="no collector of attention weights for object"):
        DataKind().collector(object())
