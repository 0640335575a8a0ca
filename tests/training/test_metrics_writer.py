"""What a run writes of its metrics survives a kill."""

import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.training.loggers import show_result
from attn_jax.training.metrics_writer import MetricsWriter


def write(workdir, steps, start=0):
    with MetricsWriter(workdir, start, ("tensorboard",)) as writer:
        for step in steps:
            writer.write(step, {"loss": np.float32(1 / step), "bleu": np.array([step, np.nan])})
            if step % 2 == 0:
                writer.write(step, {"valid/loss": jnp.float32(step)})


def test_a_resumed_run_writes_the_file_of_an_uninterrupted_one(tmp_path):
    write(tmp_path / "whole", range(1, 7))
    write(tmp_path / "resumed", range(1, 6))  # killed after step 5, half a line of step 6 written,
    with (tmp_path / "resumed" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    write(tmp_path / "resumed", range(5, 7), start=4)  # goes on from the checkpoint of step 4
    whole = (tmp_path / "whole" / "metrics.jsonl").read_text()
    assert (tmp_path / "resumed" / "metrics.jsonl").read_text() == whole
    records = [json.loads(line) for line in whole.splitlines()]
    assert [record["step"] for record in records] == [1, 2, 2, 3, 4, 4, 5, 6, 6]
    assert records[0] == {"step": 1, "loss": 1.0, "bleu": [1.0, None]}


def test_a_half_written_line_of_an_early_step_is_dropped(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 2.0}')
    write(tmp_path, [], start=7)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": 1.0}\n'


def test_a_new_run_keeps_nothing_and_a_line_is_in_the_file_before_the_writer_is_closed(tmp_path):
    write(tmp_path, [1, 2])
    writer = MetricsWriter(tmp_path)
    writer.write(3, {"loss": 0.5})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 3, "loss": 0.5}
    writer.close()


def test_without_tensorboard_there_is_one_notice(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    write(tmp_path, [1, 2])
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "tensorboard").exists()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_tensorboard_curves(tmp_path, capfd):
    pytest.importorskip("tensorboardX")
    write(tmp_path, [1, 2])
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    assert b"loss" in content and b"bleu/0" in content and b"bleu/1" not in content  # bleu/1 is nan
    assert not capfd.readouterr().err


def test_tensorboard_has_the_options_the_result_and_a_picture(tmp_path):
    pytest.importorskip("tensorboardX")
    (tmp_path / "000.png").write_bytes(b"\x89PNG the picture")
    show_result(
        ("tensorboard",),
        tmp_path,
        4,
        {"model.cell": "gru", "seeds": (0, 1)},
        {"test/bleu": 7.0},
        [tmp_path / "000.png"],
    )
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    assert all(part in content for part in (b"model.cell", b"gru", b"(0, 1)", b"test/bleu", b"\x89PNG the picture"))


def test_weights_and_biases_without_a_network(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with MetricsWriter(tmp_path, 0, ("wandb",), {"seed": 3}) as writer:
        writer.write(1, {"loss": 0.5})
    name = (tmp_path / "wandb.txt").read_text()
    show_result(("wandb",), tmp_path, 1, {"seed": 3}, {"test/bleu": 7.0}, [])
    assert (tmp_path / "wandb.txt").read_text() == name  # goes on in the same run
    assert len(list(tmp_path.glob(f"wandb/offline-run-*-{name}"))) >= 1
