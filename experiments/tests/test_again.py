"""The quickest row of a table is measured again, alone, and a number that has become another one is an error."""

import itertools
import json
import sys
import time
import types

import jax
import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.evaluation.provenance import provenance
from experiments.benchmarks import again, page, step_profile, turns


def script(seconds):
    """A script of two programs, of which the first must not run."""

    def steps():
        while True:
            time.sleep(seconds)
            yield 1.0

    def never():
        raise AssertionError
        yield

    module = types.ModuleType("experiments.benchmarks.fake")

    def main():
        module.take_turns([turns.Program("slow", never()), turns.Program("quick", steps())], 3, 60.0)
        module.write("fake", {}, (), 0.0)

    module.main = main
    return module


@pytest.mark.parametrize(("seconds", "changed"), [(0.01, False), (0.04, True)])
def test_the_quickest_row_alone_is_measured_again(tmp_path, monkeypatch, capsys, seconds, changed):
    rows = [{"name": name, "step_ms": {"p50": ms}} for name, ms in (("slow", 900.0), ("quick", 11.0))]
    found = {"rows": rows, "machine": provenance()["machine"]}
    (tmp_path / "fake.json").write_text(json.dumps(found), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "experiments.benchmarks.fake", script(seconds))
    monkeypatch.setattr(turns, "RESULTS", tmp_path)
    monkeypatch.setattr(again, "SECONDS", 0.2)
    monkeypatch.setattr(again, "TURNS", ("fake",))
    monkeypatch.setattr(sys, "argv", ["again"])
    monkeypatch.setattr(again, "PARTS", {})
    if changed:
        with pytest.raises(UserError, match=r"beyond a factor of 1\.5: fake"):
            again.main([])
    else:
        again.main(["fake"])
    out = capsys.readouterr().out
    assert out.startswith("fake") and out.rstrip().endswith("quick") and ("CHANGED" in out) == changed


def test_a_row_that_no_program_has_is_one_line(tmp_path, monkeypatch):
    """As after a program was renamed: the script comes to its end."""
    rows = [{"name": "gone", "step_ms": {"p50": 1.0}}]
    (tmp_path / "fake.json").write_text(json.dumps({"rows": rows, "machine": ""}), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "experiments.benchmarks.fake", script(0.0))
    monkeypatch.setattr(turns, "RESULTS", tmp_path)
    monkeypatch.setattr(again, "TURNS", ("fake",))
    monkeypatch.setattr(sys, "argv", ["again"])
    with pytest.raises(UserError, match="no program is called 'gone'"):
        again.main(["fake"])


def test_each_table_of_a_cpu_is_measured_again_or_left_out_with_a_reason():
    tables = [name for name in page.SECTIONS if not name.startswith("gpu_")]
    assert sorted(tables) == sorted(itertools.chain(again.TURNS, again.PARTS, again.LEFT_OUT))
    with pytest.raises(UserError, match="did you mean normalizers"):
        again.main(["normalizer"])


def test_each_of_several_tables_has_a_process_of_its_own(monkeypatch):
    """The memory network's script binds its process to one core, on which no other table may be measured."""
    called = []

    def run(command):
        called.append(command[1:])
        return types.SimpleNamespace(returncode=int(command[-1] == "input_speed"))

    monkeypatch.setattr(again.subprocess, "run", run)
    with pytest.raises(UserError, match=r"changed or not measured.*: input_speed$"):
        again.main(["memn2n_speed", "input_speed"])
    assert called == [["-m", "experiments.benchmarks.again", name] for name in ("memn2n_speed", "input_speed")]


def test_a_profile_has_the_operations_and_the_memory_of_a_call():
    x = np.ones((64, 64), np.float32)
    compiled = jax.jit(lambda x: x @ x).lower(x).compile()
    found = step_profile.measure(compiled, lambda: compiled(x), steps=4)
    assert found["operations"] and found["memory"]["state and batch"] == x.nbytes
    assert sum(one["share"] for one in found["operations"]) == pytest.approx(1)
