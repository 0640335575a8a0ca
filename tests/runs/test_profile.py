"""A profile measures a short training, leaves nothing behind, and names operations by the modules they belong to."""

import gzip
import json
import pathlib

import pytest
from tiny_run import tiny_config

from attn_jax.cli import commands
from attn_jax.runs import profile
from attn_jax.runs.inputs import Files
from attn_jax.runs.options import resolve


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("jit(step)/jvp(Model)/encoder/forward_0/while/body/dot_general", "encoder/forward_0: product"),
        (
            "jit(step)/transpose(jvp(Model))/decoder.run/layers_0/layers_0.read/dot_general",
            "decoder.run/layers/read: product (backward)",
        ),
        ("jit(step)/Model.losses/output.loss/output.logits/add", "losses/output.loss/logits: add"),
        ("jit(step)/copy.12", "outside of the model: copy"),
        ("jit(step)/add", "outside of the model: add"),
    ],
)
def test_an_operation_is_named_by_its_module(name, words):
    assert profile.in_words(name) == words


def test_times_of_equal_operations_are_added_and_loops_left_out(tmp_path):
    """A loop's own time contains the times of the operations in it."""
    at = lambda op, dur: {"ph": "X", "name": op, "dur": dur, "args": {"hlo_op": op}}  # noqa: E731
    events = [at("dot.1", 3000), at("dot.2", 1000), at("exp.3", 2000), at("while.4", 9000), {"ph": "M", "name": "x"}]
    with gzip.open(tmp_path / "a.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": events}, file)
    line = '%dot.{} = f32[] dot(), metadata={{op_name="jit(f)/a/dot_general"}}\n'
    text = line.format(1) + line.format(2)
    first, second = profile.operations(tmp_path, text, steps=2)
    assert first == profile.Operation("a: product", 2.0, 4 / 6)
    assert second == profile.Operation("outside of the model: exp", 1.0, 2 / 6)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_profile_of_a_config(tmp_path, monkeypatch, capsys, seeds):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profile, "SECONDS", 0.05)
    options = resolve(tiny_config(seeds=seeds, train__num_steps=500, train__eval_every=100))
    commands.profile(options, pathlib.Path("none"), Files())
    out = capsys.readouterr().out
    for name in ("whole", "compiling", "step", "batches", "waiting", "validation", "memory"):
        assert f"\n{name:<14}" in out, name
    assert "500 steps, validations: 5, about" in out and out.count(" %  ") == profile.SHOWN
    assert "unroll/" in out and "(backward)" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_keeps_its_profile(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(profile, "SECONDS", 0.05)
    commands.profile(resolve(tiny_config()), tmp_path, Files())
    assert (tmp_path / "profile.txt").read_text() in capsys.readouterr().out
