"""A few of the cases, so that the script and what it asks for stay as they are: no training, nothing is compiled."""

import json
import sys

import pytest
import run
from case import REFUSED, RIGHT, SILENT, TRACEBACK, UNCLEAR, Case, Result, judge
from sandbox import Sandbox, write_data

# One of each kind that needs no trained run; kinds that differ in the table of their rows alone have one in common.
CHOSEN = ("command_line/an unknown key", "command_line/code as seeds", "command_line/source in training")
CHOSEN += ("config_files/exit", "config_files/sweep: no config", "options_misspelt/model.decoder.cell")
CHOSEN += ("options_wrong_type/task.buckets.shapes", "options_negative/model.dropout", "options_huge/decode.max_length")
CHOSEN += ("options_not_finite/train.goal=nan", "options_unknown/model.attention.wrappers.pattern")
CHOSEN += ("options_tuples/task.vocab_size=(8000,)", "options_combinations/made model=memn2n", "text_files/no UTF-8")
CHOSEN += ("tables/1e300", "labels/one text, each label once", "stories/two answers", "links/train new: lock")


@pytest.fixture(scope="module")
def cases():
    return {case.id: case for case in run.all_cases()}


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    folder = tmp_path_factory.mktemp("abuse")
    write_data(folder)
    box = Sandbox(folder)
    yield box
    box.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_a_case(cases, box, name):
    result = box.attempt(cases[name], "case")
    assert result["verdict"] == REFUSED, result["message"]


def test_every_case_is_sound(cases):
    assert len(cases) > 1000
    for case in cases.values():
        assert all(isinstance(argument, str) for argument in case.argv), case.id
        assert case.check or not case.either, case.id


def test_verdicts(tmp_path):
    case = Case("a", "b", [], words=("line 3|line 4",))
    accepted = Case("a", "b", [], check=lambda here, result: "" if result.out == "yes\n" else "no")
    told = "launch.py: x, line 4: wrong\n"
    for tried, result, harmed, verdict in (
        (case, Result(1, "", f"data   60\n{told}"), [], REFUSED),
        (case, Result(1, "", told.replace("4", "5")), [], UNCLEAR),
        (case, Result(1, "", told * 2), [], UNCLEAR),
        (case, Result(7, "", ""), [], UNCLEAR),
        (case, Result(1, "", f"\x1b[2J\n{told}"), [], UNCLEAR),
        (case, Result(1, "", told), ["mine/thesis.tex"], SILENT),
        (case, Result(0, "", ""), [], SILENT),
        (case, Result(1, "", "Traceback (most recent call last):\n  x\nKeyError: 'a'\n"), [], TRACEBACK),
        (case, Result(-11, "", ""), [], TRACEBACK),
        (case._replace(decoy="line 4"), Result(1, "", told), [], SILENT),
        (accepted, Result(0, "yes\n", ""), [], RIGHT),
        (accepted, Result(0, "no\n", ""), [], SILENT),
        (accepted, Result(1, "", told), [], "refused wrongly"),
        (accepted._replace(either=True), Result(1, "", told), [], REFUSED),
    ):
        assert judge(tried, tmp_path, result, harmed)[0] == verdict, result


@pytest.mark.slow
def test_the_script_prints_a_table_and_writes_results(box, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "Sandbox", lambda folder: box)
    monkeypatch.setattr(box, "train", lambda: None)
    monkeypatch.setattr(box, "close", lambda: None)
    out = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["run.py", "--only=command_line/(nothing|empty mode)$", f"--out={out}"])
    assert run.main() == 0
    assert "clean refusal" in capsys.readouterr().out
    results = json.loads(out.read_text())
    assert results["counts"] == {REFUSED: 2} and len(results["cases"]) == 2 and results["versions"]["jax"]
