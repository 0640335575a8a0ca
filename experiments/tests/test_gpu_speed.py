"""The benchmark for a GPU, in tiny shapes on a CPU: what it compares is the same, and an error ends one row alone."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention import core
from attn_jax.attention.masks import causal
from experiments.benchmarks import gpu_checks, page
from experiments.benchmarks.gpu_functions import as_written, attend
from experiments.benchmarks.gpu_run import SMALL, Run


def spread(low, median, high):
    return {"low": low, "median": median, "high": high}


@pytest.mark.slow
def test_all_checks_pass_and_are_on_the_page():
    run = Run(600)
    gpu_checks.start(SMALL, run)
    rows = gpu_checks.finish(SMALL, run)
    assert len(rows) == 14 and all(row["passed"] for row in rows) and not run.notes
    lines = page.gpu({"checks": rows, "groups": [], "attention": {}})
    assert len(lines) == 16 and sum(line.endswith("| yes |") for line in lines) == 14


def test_what_is_not_finite_or_too_far_never_passes():
    right = (np.ones(3), np.ones(3))
    for wrong in (np.nan, np.inf, 1.1):
        for found in ((jnp.full(3, wrong), jnp.ones(3)), (jnp.ones(3), jnp.full(3, wrong))):
            row = gpu_checks.compare(found, right, 1e-5)
            assert not row["passed"]
            assert (row["error"] is None or row["gradient_error"] is None) == (not np.isfinite(wrong))
    assert gpu_checks.compare((jnp.ones(3), jnp.ones(3)), right, 1e-5)["passed"]


def test_attention_as_written_has_no_fused_kernel(monkeypatch):
    arrays = [jnp.ones((1, 2, 16, 8))] * 3
    monkeypatch.setattr(core, "fused_attention", lambda *_, **__: pytest.fail("the kernel is called"))
    assert as_written(attend(mask=causal))(*arrays).shape == (1, 2, 16, 8)
    with pytest.raises(pytest.fail.Exception):
        attend(mask=causal)(*arrays)


def test_errors_and_what_is_late_are_notes():
    run = Run(600)
    assert run.attempt("a", int, "what\nwhere") is None and run.attempt("b", int, "3") == 3
    run.compile("c", jax.jit(lambda x: x.wrong), 1.0)
    run.compile("d", jax.jit(jnp.sin), 1.0)
    assert list(run.compiled(["c", "d"])) == ["d"]
    assert [note.split(":")[:2] for note in run.notes] == [["a", " ValueError"], ["c", " AttributeError"]]
    late = Run(0)
    assert late.attempt("e", int) is None and late.notes == ["e: left out, no time was left"]


@pytest.mark.slow
def test_both_sides_train_in_the_same_way(monkeypatch):
    pytest.importorskip("torch")
    from experiments.benchmarks import gpu_training as training

    monkeypatch.setattr(training, "OURS", {"float32": training.OURS["float32"]})  # the other type takes time to compile
    run = Run(600)
    training.start(SMALL, run)
    group = training.measure("float32", training.prepare(SMALL, run), 0.0, run)
    rows = {row["name"]: row for row in group["rows"]}
    assert set(rows) == {training.WRITTEN, training.BASELINE} and all(row["same_loss"] for row in rows.values())
    losses = [row["later_loss"] for row in rows.values()]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0] < rows[training.WRITTEN]["first_loss"]


def test_the_page_says_of_how_many_windows_a_number_is():
    def group(speed):
        row = {"name": "a", "per_second": speed, "ratio": spread(1.0, 1.0, 1.0), "per_cpu_second": speed, "step_ms": {}}
        return {"title": "float32", "rows": [row]}

    for speed, title, cells in (
        (spread(2.0, 2.0, 2.0), "one window of each program", "| a | 2 | 1.00 | 2 |"),
        (spread(1.0, 1.5, 2.0), "medians of two windows", "| a | 1.5 [1-2] | 1.00 [1.00-1.00] | 1.5 |"),
        (spread(1.0, 1.9, 2.0), "medians of three windows", "| a | 1.9 [1-2] | 1.00 [1.00-1.00] | 1.9 |"),
    ):
        lines = page.gpu({"unit": "tokens", "checks": [], "groups": [group(speed)], "attention": {}})
        assert lines[0] == f"Training in float32, {title}:" and lines[-1] == cells


def test_parts_that_were_left_out_have_no_table():
    assert page.gpu({"checks": [], "groups": [], "attention": {"64": {}}}) == []
    times = {"32": {"a": spread(0.5, 1.0, 2.0), "b": spread(3.0, 3.0, 3.0)}, "64": {"a": spread(4.0, 4.0, 4.0)}}
    lines = page.gpu({"checks": [], "groups": [], "attention": times | {"128": {}}})
    assert lines[2:] == ["| | 32 positions | 64 positions |", "|---|--:|--:|", "| a | 1 [0.5-2] | 4 |", "| b | 3 |  |"]


@pytest.mark.slow
def test_without_a_gpu_nothing_is_written(monkeypatch, capsys):
    pytest.importorskip("torch")
    from experiments.benchmarks import gpu_speed

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(sys, "argv", ["gpu_speed", "--part=checks"])
    monkeypatch.setattr(gpu_speed, "Run", lambda *_: pytest.fail("a run begins"))
    gpu_speed.main()
    output = capsys.readouterr()
    assert output.out == "" and output.err == "no GPU: nothing is measured, and no result is changed\n"
