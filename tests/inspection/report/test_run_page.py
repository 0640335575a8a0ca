"""The numbers of a run's page are those of the model, rounded; the file stays small."""

import json

import numpy as np
import pytest
from report_digits import read_digits

from attn_jax.evaluation.collect import Collected, Map, sample_keys
from attn_jax.inspection import analysis
from attn_jax.inspection.report import run
from attn_jax.inspection.report.page import to_json


def distribution(*shape, seed=0, concentration=0.3):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], concentration), shape[:-1])


def tokens(count, prefix=""):
    return tuple(f"{prefix}{i}" for i in range(count))


def decoded(one):
    return np.array(read_digits(one["weights"]), float).reshape(one["shape"]) * one["unit"]


def example(weights, axes=(), rows=None, columns=None, **kinds):
    rows, columns = rows or tokens(weights.shape[-2], "q"), columns or tokens(weights.shape[-1], "k")
    return Collected("a b", "c", "d", 0.25, (Map("source", axes, rows, columns, weights, **kinds),))


@pytest.mark.parametrize("scale", [1.0, -0.004, 30.0])
def test_weights_are_rounded_to_a_thousandth_of_the_largest_power_of_ten(scale):
    weights = scale * distribution(2, 3, 4, 5)
    one = run.encode_map(Map("m", ("layer", "head"), tokens(4), tokens(5), weights), {})
    np.testing.assert_allclose(decoded(one), weights, atol=0.51 * one["unit"])
    assert one["unit"] <= 0.01 * np.abs(weights).max()
    entropies = analysis.entropy(weights).mean(-1).reshape(-1)
    np.testing.assert_allclose(one["entropy"], entropies, rtol=1e-3)
    np.testing.assert_allclose(one["support"], analysis.effective_support(weights).mean(-1).reshape(-1), rtol=1e-3)


def test_zeros_that_follow_each_other_are_written_together():
    for integers in ([0], [0, 0, 5, -1000, 0, 1000], [3] * 5, [0] * 3000 + [1], []):
        assert read_digits(run.digits_of(np.array(integers, int))) == integers
    assert len(run.digits_of(np.zeros((9, 100), int))) == 2


def test_rows_without_weights_are_left_out_of_the_means():
    weights = np.array([[[0.5, 0.5], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    one = run.encode_map(Map("m", ("head",), tokens(2), tokens(2), weights), {})
    assert one["entropy"] == [pytest.approx(np.log(2), rel=1e-3), None] and one["unit"] == 0.001


def test_a_weight_of_one_that_is_larger_by_rounding_costs_no_digit():
    weights = np.array([[1 + 2.0**-23, 0.004], [1.0, -0.004]])  # ten times a tenth in float32
    one = run.encode_map(Map("m", (), tokens(2), tokens(2), weights), {})
    assert one["unit"] == 0.001 and decoded(one).tolist() == [[1.0, 0.004], [1.0, -0.004]]


def test_of_many_training_points_those_with_the_largest_weights_are_kept_in_order():
    weights = distribution(1, 500, concentration=0.1)
    labels = {}
    one = run.encode_map(Map("points", (), ("query",), tokens(500), weights), labels)
    kept = sorted(np.argsort(-weights[0])[: run.MAX_COLUMNS])
    kept = [i for i in kept if weights[0, i] >= run.SMALLEST * weights.max()]
    assert list(labels)[one["columns"]] == tuple(str(i) for i in kept) and one["cut"] == 500 - len(kept)
    np.testing.assert_allclose(decoded(one)[0], weights[0, kept], atol=one["unit"])
    assert one["support"] == [pytest.approx(float(analysis.effective_support(weights)[0]), rel=1e-3)]


def test_labels_are_stored_once_and_seeds_stand_side_by_side():
    weights = distribution(2, 3)
    collected = [[example(weights), example(weights[::-1])] for _ in range(2)]
    page = run.examples_of(collected, ["4", "7"], "nats", True)
    assert page["labels"] == [["q0", "q1"], ["k0", "k1", "k2"]] and page["left_out"] == 0
    assert [len(item["of_seeds"]) for item in page["items"]] == [2, 2]
    one = page["items"][1]["of_seeds"][1]
    assert one["loss"] == 0.25 and one["output"] == "c"
    np.testing.assert_allclose(decoded(one["maps"][0]), weights[::-1], atol=1e-3)


def test_seeds_may_have_data_of_their_own():
    one = example(distribution(1, 3))
    collected = [[one], [one._replace(source="x 1", reference="2")]]
    (item,) = run.examples_of(collected, ["0", "1"], "squared error", False)["items"]
    assert (item["source"], item["reference"]) == ("a b", "d") and "source" not in item["of_seeds"][0]
    assert (item["of_seeds"][1]["source"], item["of_seeds"][1]["reference"]) == ("x 1", "2")


def test_samples_are_keys_of_each_query():
    weights = np.eye(3)[[2, 0]]
    page = run.examples_of([[example(weights, samples=sample_keys(weights, 4))]], ["0"], "nats", True)
    assert page["items"][0]["of_seeds"][0]["maps"][0]["samples"] == [[2, 0]] * 4


def test_a_loss_that_is_not_known_is_null():
    one = example(distribution(2, 3))._replace(loss=float("nan"), reference="")
    assert run.examples_of([[one]], ["0"], "nats", True)["items"][0]["of_seeds"][0]["loss"] is None


def test_examples_that_would_make_the_file_too_large_are_left_out(monkeypatch):
    collected = [[example(distribution(4, 20, 20, seed=i), ("head",)) for i in range(9)]]
    everything = run.examples_of(collected, ["0"], "nats", True)
    size = len(to_json(everything))
    monkeypatch.setattr(run, "MAX_BYTES", size // 2)
    some = run.examples_of(collected, ["0"], "nats", True)
    assert len(to_json(some)) < 0.6 * size
    assert 3 <= len(some["items"]) < 9 and some["left_out"] == 9 - len(some["items"])
    used = {index for item in some["items"] for map_ in item["of_seeds"][0]["maps"] for index in (map_["rows"],)}
    assert max(used) < len(some["labels"])


def test_two_hundred_sentences_of_a_small_transformer_stay_below_five_megabytes():
    """Two layers of four heads in three places, 20 tokens on both sides."""
    maps = [Map(name, ("layer", "head"), tokens(20), tokens(20), distribution(2, 4, 20, 20)) for name in "abc"]
    collected = [[Collected("s" * 40, "o" * 40, "r" * 40, 1.0, tuple(maps)) for _ in range(20)]]
    page = run.examples_of(collected, ["0"], "nats", True)
    assert page["left_out"] == 0 and 10 * len(to_json(page)) < min(run.MAX_BYTES, 5_000_000)


def test_curves_are_those_of_the_metrics_thinned(tmp_path):
    steps = range(1, 1001)
    lines = [{"step": n, "train/nll": [1 / n, 2 / n], **({"valid/loss": [1, 3]} if n == 500 else {})} for n in steps]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (panel,) = run.curves_of(tmp_path / "metrics.jsonl", "nats")
    training, validation = panel["lines"]
    assert len(training["steps"]) == run.MAX_POINTS and training["steps"][-1] == 1000
    assert training["values"][1][0] == pytest.approx(np.mean([2 / n for n in range(1, 5)]), rel=1e-3)
    assert validation["values"] == [[1], [3]] and validation["steps"] == [500]


def test_results_have_intervals_over_seeds():
    result = {"seeds": [0, 1, 2], "metrics": {"bleu": {"mean": 2.0, "std": 1.0, "seeds": [1.0, 2.0, 3.0]}}}
    (row,) = run.results_of(result | {"signatures": {"bleu": "13a"}})["rows"]
    assert (row["mean"], row["note"]) == (2, "13a")
    assert (row["low"], row["high"]) == (0, pytest.approx(2 + 2.484, abs=1e-3))  # BLEU is at least 0
    single = run.results_of({"seeds": [0], "metrics": {"bleu": {"mean": 2.0, "std": 0.0, "seeds": [2.0]}}})
    assert single["rows"][0]["low"] is None
