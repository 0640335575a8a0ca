"""The table of a running sweep says what the files of its folder say."""

import io
import json
import math

from attn_jax.sweeps.live import EVERY, TAIL, Live, State, newest, state_of, table_lines


def write(folder, name, *records, done=False):
    """A work directory with these lines of metrics.jsonl."""
    (folder / name).mkdir()
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if done:
        (folder / name / "result.json").write_text("{}")


def test_from_folders_to_lines(tmp_path):
    train, valid = {"step": 20, "train/loss": 1.5, "tokens": 9.0}, {"step": 20, "valid/loss": 1.25, "valid/bleu": 30.0}
    write(tmp_path, "x,seed=0", train, valid, {"step": 40, "train/loss": 0.5}, done=True)
    write(tmp_path, "x,seed=1", train | {"train/loss": [1.0, 2.0]})
    write(tmp_path, "x,seed=2")
    (tmp_path / "x,seed=3").mkdir()
    names = [f"x,seed={seed}" for seed in range(5)]
    states = [state_of(tmp_path, name, ["x,seed=1", "x,seed=2"], ["x,seed=3"]) for name in names]
    assert table_lines(states) == [
        "sweep         1 of 5 finished, 2 running, 1 failed",
        "x,seed=0          finished  step 40  loss 0.5    valid loss 1.25, bleu 30",
        "x,seed=1          running   step 20  loss 1.5",
        "x,seed=2          running",
        "x,seed=3          failed",
        "... 1 more",
    ]


def test_half_a_line_and_a_long_file_are_no_obstacle(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert newest(path) == (None, {})
    lines = [json.dumps({"step": step, "train/loss": step / 2}) for step in range(TAIL // 20)]
    path.write_text("\n".join(lines) + '\n{"step": 99')
    assert path.stat().st_size > TAIL
    step, values = newest(path)
    assert step == len(lines) - 1 and values == {"train/loss": step / 2}
    path.write_text('{"step": 3, "train/loss": null}\n[1]\n{"no": 1}\n{"step": Infinity}\n{"step": 5, "x": []}\n')
    step, values = newest(path)
    assert step == 3 and math.isnan(values["train/loss"])


def test_a_low_terminal_shows_what_is_running_and_a_narrow_one_the_end_of_names():
    states = [State(f"{'long' * 10},seed={i}", "finished", 1, 0.5) for i in range(8)]
    states[5] = states[5]._replace(status="running")
    lines = table_lines(states, width=60, height=4)
    assert len(lines) == 4 and lines[-1] == "... 6 more" and max(map(len, lines)) <= 60
    assert "seed=0 " in lines[1] and "seed=5 " in lines[2] and lines[1].startswith("…")
    assert table_lines([State("x", "waiting")]) == ["sweep         0 of 1 finished, 0 running", "... 1 more"]


def test_each_drawing_replaces_the_one_before(tmp_path):
    stream, now = io.StringIO(), [0.0]
    live = Live(tmp_path, ["a", "b"], stream, clock=lambda: now[0])
    live.update(["a"])
    first = stream.getvalue()
    assert first.count("\n") == 3 and "\x1b" not in first
    live.update(["a"])  # too early
    assert stream.getvalue() == first
    now[0] += EVERY
    live.update(["a", "b"])
    assert stream.getvalue().startswith(first + "\x1b[3F\x1b[J") and "2 running" in stream.getvalue()
    live.clear()
    live.clear()
    assert stream.getvalue().endswith("\x1b[3F\x1b[J")
    live.update([])
    assert stream.getvalue().endswith("... 2 more\n")
