"""--mode=compare says what differs between two runs, and what cannot be compared in one line."""

import json
import math
import shutil

import numpy as np
import pytest
from absl import flags
from tiny_run import tiny_config

from attn_jax.cli import commands, main
from attn_jax.cli.command_line import parse
from attn_jax.cli.compare import compare_runs, comparison_lines
from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import find_metric
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.paired import sentences_of
from attn_jax.evaluation.statistics import almost_stochastic_order
from attn_jax.evaluation.text import TEXT_METRICS
from attn_jax.runs.options import resolve
from attn_jax.runs.sentences import read_sentences
from attn_jax.runs.workdir import load_config
from attn_jax.sweeps import sweep


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of two seeds; the second has another learning rate."""
    folder = tmp_path_factory.mktemp("compare")
    for name, rate in (("a", 0.01), ("b", 0.03)):
        metrics = ("perplexity", "accuracy", "edit_distance", "bleu")
        changes = {"seeds": (0, 1), "train__num_steps": 3, "optimizer__learning_rate": rate, "eval__metrics": metrics}
        config = tiny_config(**changes)
        commands.train(resolve(config), folder / name, commands.Files())
    return folder


def edited(runs, tmp_path, file, change):
    """A copy of the second run in which a JSON file is changed."""
    copy = tmp_path / "c"
    shutil.copytree(runs / "b", copy, ignore=shutil.ignore_patterns("checkpoints"))
    path = copy / file
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return copy


@pytest.mark.slow
def test_the_statistics_of_a_run_add_up_to_its_result(runs):
    result, found = json.loads((runs / "a" / "result.json").read_text()), read_sentences(runs / "a" / "sentences.json")
    assert found["statistics"].keys() == result["metrics"].keys() and len(found["outputs"]) == 2
    assert result["config"]["train"]["num_steps"] == 3
    for name, tables in found["statistics"].items():
        sums = [find_metric(name).score(np.sum(np.array(table, float), axis=0)) for table in tables]
        np.testing.assert_allclose(sums, result["metrics"][name]["seeds"], rtol=1e-5)


@pytest.mark.slow
def test_a_comparison_has_the_differences_of_seeds_and_of_sentences(runs, capsys):
    commands.compare(resolve(load_config(runs / "b")), runs / "b", commands.Files(baseline=str(runs / "a")))
    printed = capsys.readouterr().out.splitlines()
    found = json.loads((runs / "b" / "comparison.json").read_text())
    assert found["seeds"] == [0, 1] and found["without_sentences"] == [] and found["machine"]
    a, b = (json.loads((runs / name / "result.json").read_text())["metrics"] for name in "ab")
    for row in found["rows"]:
        expected = np.mean(np.subtract(b[row["metric"]]["seeds"], a[row["metric"]]["seeds"]))
        assert row["seeds"]["difference"] == pytest.approx(expected)
        assert row["sentences"]["difference"] == pytest.approx(expected, rel=1e-3, abs=1e-6)
        assert row["seeds"]["p_value"] >= 0.5 and not row["seeds"]["concludes"]
    assert printed[0].startswith("| metric | baseline | run | over seeds | p |") and printed[2].startswith("| loss |")
    # One row would need 6 seeds; Holm multiplies the p-values of five.
    assert len(found["rows"]) == 5
    assert any(
        "2 pairs" in line and "fewer than 8 seeds (6 for one of the 5 metrics alone) are too few" in line
        for line in printed
    )
    assert printed[-1].startswith("Over seeds asks whether the config differs")


def write_result(folder, metrics, **more):
    """result.json of a run with these values of its seeds."""
    folder.mkdir(exist_ok=True)
    seeds = list(range(len(next(iter(metrics.values())))))
    result = {"metrics": {name: summarize(values) for name, values in metrics.items()}, "seeds": seeds}
    (folder / "result.json").write_text(json.dumps(result | {"split": "test", "sentences": 5} | more))


def bleu_with(tokenizer):
    """The signature of BLEU, as sacrebleu writes it."""
    return f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:exp|version:2.5.1"


def write_results(folder, tokenizers, metrics=("bleu", "accuracy"), **method):
    """result.json of two runs, "a" and "b", of ten seeds; the second is better by far, and decodes with `method`."""
    rng = np.random.default_rng(0)
    for name, tokenizer, shift, options in zip("ab", tokenizers, (0.0, 2.0), ({}, method), strict=True):
        decode = {"method": {"name": "beam", "beam_size": 5} | options, "ensemble": {"name": "none"}}
        about = {"decode": decode, "signatures": {"bleu": bleu_with(tokenizer)} if tokenizer else {}}
        write_result(folder / name, {metric: list(rng.normal(30 + shift, 0.1, 10)) for metric in metrics}, **about)
    return folder / "b", folder / "a"


def test_a_clear_difference_over_ten_seeds_is_marked(tmp_path):
    b, a = write_results(tmp_path, ("13a", "13a"), metrics=("bleu",))
    found = compare_runs(b, a)
    (row,), lines = found["rows"], comparison_lines(found)
    assert row["order"] < 0.05 and row["seeds"]["concludes"] and row["sentences"] is None
    assert "] * | 0.002 |" in lines[2]
    assert any("--mode=eval of both writes them" in line for line in lines)
    assert compare_runs(a, b)["rows"][0]["order"] > 0.95


@pytest.mark.parametrize("tokenizers", [("13a", "char"), ("13a", None), (None, "13a")])
def test_a_metric_that_was_measured_in_another_way_is_left_out(tmp_path, capsys, tokenizers):
    (tmp_path / "bleu").mkdir()
    with pytest.raises(UserError, match=r"have no metric in common that was measured in the same way$"):
        compare_runs(*write_results(tmp_path / "bleu", tokenizers, metrics=("bleu",)))
    workdir, baseline = write_results(tmp_path, tokenizers)
    commands.compare(resolve(tiny_config()), workdir, commands.Files(baseline=str(baseline)))
    lines, found = capsys.readouterr().out.splitlines(), json.loads((workdir / "comparison.json").read_text())
    assert not [line for line in lines if line.startswith("| bleu |")]
    assert [line for line in lines if line.startswith("| accuracy |") and "] * |" in line]
    theirs, ours = (bleu_with(tokenizer) if tokenizer else "none" for tokenizer in tokenizers)
    assert f"bleu is left out: it was measured with {theirs} and with {ours}" in lines
    assert found["left_out"] == {"bleu": [bleu_with(each) if each else "" for each in tokenizers]}
    assert [row["metric"] for row in found["rows"]] == ["accuracy"]
    assert found["decode"] == {} and not [line for line in lines if line.startswith("decoding differs")]


def test_the_same_measurement_is_compared_and_other_decoding_is_told(tmp_path, capsys):
    workdir, baseline = write_results(tmp_path, ("13a", "13a"), beam_size=1, length_penalty=0.5)
    commands.compare(resolve(tiny_config()), workdir, commands.Files(baseline=str(baseline)))
    lines, found = capsys.readouterr().out.splitlines(), json.loads((workdir / "comparison.json").read_text())
    assert [line for line in lines if line.startswith("| bleu |") and "] * |" in line]
    differ = {"method.beam_size": [5, 1], "method.length_penalty": [None, 0.5]}
    assert found["left_out"] == {} and found["decode"] == differ
    assert [line for line in lines if line.startswith("decoding differs")] == [
        "decoding differs: decode.method.beam_size is 5 in the baseline, 1 in the run",
        "decoding differs: decode.method.length_penalty is None in the baseline, 0.5 in the run",
    ]


@pytest.mark.slow
def test_the_statistics_of_sentences_are_no_reason_to_compare_what_was_measured_in_another_way(runs, tmp_path):
    def with_characters(result):
        changed = result["signatures"]["bleu"].replace("|tok:13a|", "|tok:char|")
        assert changed != result["signatures"]["bleu"]
        return result | {"signatures": result["signatures"] | {"bleu": changed}}

    found = compare_runs(edited(runs, tmp_path, "result.json", with_characters), runs / "a")
    compared = [row["metric"] for row in found["rows"]]
    assert list(found["left_out"]) == ["bleu"] and "bleu" not in compared and len(compared) == 4
    assert all(row["sentences"] for row in found["rows"])


def test_each_kind_of_metric_has_an_order(tmp_path):
    metrics = {"mse": [1.0, 1.1, 1.2], "r2": [0.9, 0.8, 0.7], "touch": [80.0, 81.0, 82.0], "cells": [2.0, 2.1, 2.2]}
    for name, shift in (("a", 0.0), ("b", 1.0)):
        write_result(tmp_path / name, {metric: [value + shift for value in of] for metric, of in metrics.items()})
    order = {row["metric"]: row["order"] for row in compare_runs(tmp_path / "b", tmp_path / "a")["rows"]}
    assert order.pop("cells") is None  # neither direction is better
    assert order["mse"] > 0.5 and order["r2"] < 0.1 and order["touch"] < 0.5


def test_a_sweep_has_a_table_over_sentences(runs):
    jobs = [sweep.Job(name, "", {}) for name in "ab"]
    tables = sweep.table(runs, jobs)
    assert "| over sentences, to a | loss | perplexity | accuracy |" in tables and "no contradiction" in tables


def with_loss(found, value):
    """The content of sentences.json with another loss of each sentence."""
    rows = [[value, 1]] * len(found["outputs"][0])
    return found | {"statistics": found["statistics"] | {"loss": [rows, rows]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("result.json", lambda found: found | {"seeds": [5, 6]}, r"a has the seeds 0, 1, .* 5, 6; expected seeds in c"),
        ("result.json", lambda found: found | {"split": "valid"}, r"a was measured on 'test', .* on 'valid'; expected"),
        ("result.json", lambda found: found | {"sentences": 7}, r"a was measured on \d+ examples, .* on 7; expected"),
        ("result.json", lambda found: found | {"metrics": {}}, "have no metric in common"),
        ("result.json", lambda found: found | {"checksums": 1}, r"result\.json: expected the result of a run"),
        ("result.json", lambda found: found | {"config": {"train": 1}}, r"result\.json: expected the result of a run"),
        ("result.json", lambda found: found | {"checksums": {"examples": 1}}, "were measured on other sentences"),
        ("sentences.json", lambda found: found | {"checksum": 1}, r"sentences\.json is of another measurement"),
        ("sentences.json", lambda found: found | {"checksum": None}, r"sentences\.json: expected the statistics of"),
        ("sentences.json", lambda found: {"statistics": {}}, r"sentences\.json: expected the statistics of sentences"),
        ("sentences.json", lambda found: with_loss(found, "x"), r"sentences\.json: expected the statistics of"),
        ("sentences.json", lambda found: with_loss(found, math.nan), r"sentences\.json: expected the statistics of"),
        ("sentences.json", lambda found: with_loss(found, 10**400), r"sentences\.json: expected the statistics of"),
    ],
)
def test_what_cannot_be_compared_is_one_line(runs, tmp_path, file, change, message):
    copy = edited(runs, tmp_path, file, change)
    if file == "result.json":  # without the sentences, which say what was measured
        (copy / "sentences.json").unlink()
    with pytest.raises(UserError, match=message):
        compare_runs(copy, runs / "a")


@pytest.mark.slow
def test_the_same_sentences_in_files_of_other_names_are_compared(runs, tmp_path):
    copy = edited(runs, tmp_path, "result.json", lambda found: found | {"split": "copy.source, copy.target"})
    assert compare_runs(copy, runs / "a")["rows"] == compare_runs(runs / "b", runs / "a")["rows"]
    same = compare_runs(runs / "a", runs / "a")
    assert all(row["seeds"]["difference"] == row["sentences"]["difference"] == 0 for row in same["rows"])
    assert not [line for line in comparison_lines(same) if "] *" in line]


def test_a_file_cut_short_is_one_line(runs, tmp_path):
    for file in ("sentences.json", "result.json"):
        copy = edited(runs, tmp_path / file, file, lambda found: found)
        (copy / file).write_text((copy / file).read_text()[:90])
        with pytest.raises(UserError, match=f"cannot read {copy}/{file}: not valid JSON"):
            compare_runs(copy, runs / "a")


@pytest.fixture
def fresh_flags():
    """Flags as they are when a process begins."""
    yield
    for flag in (main.MODE, main.WORKDIR, main.BASELINE, main.MEASURED):
        flags.FLAGS[flag.name].unparse()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--mode=compare"], "--mode=compare needs --baseline=DIR"),
        (["--mode=eval", "--baseline=x"], "--mode=eval takes no --baseline; it is for --mode=compare"),
        (["--mode=compare", "--baseline=x", "--config.seed=1"], "--config.seed=1: --mode=compare reads results"),
        (["--mode=compare", "--baseline=x", "--measured=evil"], "unknown --measured=evil; did you mean eval"),
    ],
)
def test_options_of_a_comparison_are_checked(runs, fresh_flags, given, message):
    with pytest.raises(UserError) as error:
        parse(["launch.py", f"--workdir={runs / 'b'}", *given])
    assert message in str(error.value)


def test_a_run_that_was_not_measured_yet_is_told_how(runs, tmp_path):
    copy = edited(runs, tmp_path, "result.json", lambda found: found)
    for measured, name, mode in (("result", "result.json", "train"), ("eval", "eval.json", "eval")):
        (copy / name).unlink(missing_ok=True)
        with pytest.raises(UserError, match=rf"{copy} has no {name} yet; run --workdir={copy} --mode={mode} before"):
            compare_runs(copy, runs / "a", measured)


def test_the_means_are_over_the_seeds_of_the_difference(tmp_path):
    write_result(tmp_path / "ours", {"bleu": [11.0, 13.0]})
    write_result(tmp_path / "theirs", {"bleu": [10.0, 12.0, 50.0, 60.0]})
    (row,) = compare_runs(tmp_path / "ours", tmp_path / "theirs")["rows"]
    assert (row["value"], row["baseline"], row["seeds"]["difference"]) == (12.0, 11.0, 1.0)
    assert row["order"] == almost_stochastic_order([11.0, 13.0], [10.0, 12.0]) < 0.5


def test_an_ensemble_and_seeds_differ_by_what_their_two_columns_say(tmp_path):
    """All seeds of the other run count, in the column as in the difference, and not only those of the ensemble."""
    references, metric = list("abcdefghij"), TEXT_METRICS["exact_match"]
    outputs = {"together": [references[:7] + ["x"] * 3], "each": [references[:n] + ["x"] * (10 - n) for n in (2, 4, 9)]}
    for name, seeds in (("together", [0, 1]), ("each", [0, 1, 2])):
        values = [metric.compute(one, references, "13a")[0] for one in outputs[name]]
        decode = {"ensemble": {"name": "seeds" if name == "together" else "none"}}
        write_result(tmp_path / name, {"exact_match": values}, seeds=seeds, sentences=10, decode=decode)
        tables = {"exact_match": [metric.statistics(one, references, "13a") for one in outputs[name]]}
        each = sentences_of(seeds, tables, outputs[name], 1, ensemble=name == "together")
        (tmp_path / name / "sentences.json").write_text(json.dumps(each))
    for names, columns in ((("together", "each"), (70, 50)), (("each", "together"), (50, 70))):
        (row,) = (found := compare_runs(*(tmp_path / name for name in names)))["rows"]
        assert (row["value"], row["baseline"]) == pytest.approx(columns) and row["seeds"] is None
        assert row["sentences"]["difference"] == pytest.approx(row["value"] - row["baseline"])
        (line,) = (line for line in comparison_lines(found) if line.startswith("over seeds:"))
        assert line == "over seeds: nothing to compare, since an ensemble is of no single seed"
