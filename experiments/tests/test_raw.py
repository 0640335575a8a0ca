"""Raw numbers come back as they were written, with their circumstances; a file that is none of ours is one line."""

import json
import re
import shlex

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.evaluation.statistics import t_interval
from experiments import kernels, raw


def written(path):
    results = {"seeds": np.array([[1.5, 2.0]]), "count": np.int64(3), "name": "a", "none": None, "pair": (True, 1)}
    return raw.write(path, results, command="python x.py", begun=raw.Begun.now())


def test_numbers_come_back_with_their_circumstances(tmp_path):
    record = written(tmp_path / "new" / "x.json")
    assert raw.read(tmp_path / "new" / "x.json") == record
    expected = {"seeds": [[1.5, 2.0]], "count": 3, "name": "a", "none": None, "pair": [True, 1]}
    assert record["results"] == expected
    assert record["seconds"] >= 0 and {"commit", "machine", "date", "versions"} <= record.keys()
    about = raw.circumstances(record | {"commit": "0123456789+changes"})
    assert "`python x.py`" in about and "commit 0123456 with changes" in about and record["machine"] in about


def test_a_file_from_before_there_were_layouts_is_read_too(tmp_path):
    record = written(tmp_path / "x.json")
    assert raw.read_any(tmp_path / "x.json") == record
    known = {key: record[key] for key in ("versions", "commit", "device", "machine", "date")}
    (tmp_path / "old.json").write_text(json.dumps({"rows": [1], "runs": {"a": 2}} | known))
    assert raw.read_any(tmp_path / "old.json") == {"results": {"rows": [1], "runs": {"a": 2}}, **known}
    (tmp_path / "old.json").write_text(json.dumps(record | {"layout": 2}))
    with pytest.raises(UserError, match="expected layout 1 of raw results, got 2"):
        raw.read_any(tmp_path / "old.json")
    with pytest.raises(UserError, match=r"none\.json does not exist; run the experiment"):
        raw.read_any(tmp_path / "none.json")


def test_the_first_setting_that_differs_is_named_with_both_values():
    kept = {"steps": 1, "sizes": [1, 2], "model": {"width": 32, "rate": 0.1}}
    assert raw.difference(kept, kept | {"sizes": (1, np.int64(2)), "new": None}) == ""
    assert raw.difference(kept, kept | {"steps": 2}) == "steps: 1 there, 2 now"
    assert raw.difference(kept, kept | {"model": {"width": 32, "rate": 0.2}}) == "model.rate: 0.1 there, 0.2 now"
    assert raw.difference(kept, {"steps": 1}) == "sizes: [1, 2] there, null now"


def test_a_command_can_be_typed_as_it_is_recorded():
    arguments = ["--fresh", "--config.task.kinds=('digits',)", "--only", "local line"]
    command = raw.command("x", *arguments)
    assert shlex.split(command) == ["python", "experiments/x.py", *arguments]
    assert raw.command("x", "--fresh") == "python experiments/x.py --fresh"
    for path in (raw.ROOT / "experiments").rglob("*.py"):
        assert not re.search(r"[\"']\.join\(\[f?[\"']python", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("wrong", [float("nan"), np.array([np.inf]), jnp.ones(1), {1: 2}, object()])
def test_what_json_cannot_hold_is_refused(wrong, tmp_path):
    with pytest.raises(ValueError, match="raw results have"):
        raw.write(tmp_path / "x.json", {"x": [wrong]}, command="", begun=raw.Begun.now())
    assert not (tmp_path / "x.json").exists()


def test_a_file_that_is_none_of_ours_is_one_line(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(UserError, match=r"x\.json does not exist; run the experiment"):
        raw.read(path)
    record = written(path)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(UserError, match=r"cannot read .*x\.json: not valid JSON \(line"):
        raw.read(path)
    path.write_text(json.dumps({"runs": {}}))
    with pytest.raises(UserError, match="expected layout 1 of raw results, got none"):
        raw.read(path)
    path.write_text(json.dumps(record | {"layout": 2}))
    with pytest.raises(UserError, match="expected layout 1 of raw results, got 2"):
        raw.read(path)
    del record["results"]
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match="raw results without results"):
        raw.read(path)


def test_where_nothing_can_be_written_nothing_is_measured(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "x.json").mkdir()
    out, page = f"--out={tmp_path / 'file'}", raw.Page("x", lambda record: "text")
    monkeypatch.setattr(kernels, "measure_errors", lambda draws: pytest.fail("measured"))
    with pytest.raises(UserError, match=r"cannot write .*file.kernels\.json: "):
        kernels.main([out])
    with pytest.raises(UserError, match=r"cannot write .*file.x\.json: "):
        raw.main(page, lambda: pytest.fail("measured"), [out])
    with pytest.raises(UserError, match=r"cannot write .*x\.json: it is a folder"):
        raw.begin(tmp_path / "x.json")
    with pytest.raises(UserError, match=r"cannot write .*file: "):
        page.save({}, tmp_path / "file")


def test_the_folder_of_the_results_is_made_before_they_are_measured(tmp_path):
    assert raw.begin(tmp_path / "a" / "b" / "x.json").wall > 0
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_every_experiment_begins_with_a_check_of_where_it_writes():
    for path in (raw.ROOT / "experiments").glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert path.name == "raw.py" or "Begun.now" not in source, path
        assert source.count("raw.write(") <= source.count("raw.begin("), path


def test_every_experiment_ends_at_a_mistake_with_one_line():
    for path in (raw.ROOT / "experiments").glob("*.py"):
        main = path.read_text(encoding="utf-8").partition('if __name__ == "__main__":\n')[2]
        assert not main or f'with one_line("{path.name}"):' in main, path


def test_a_table_has_its_numbers_flush_right():
    assert raw.table(["a", "b", "c"], [["1", "2", "3"]], left=2).splitlines()[1] == "|---|---|---:|"


def test_a_row_says_when_it_was_measured_if_that_was_kept():
    assert raw.measured_at({"commit": "0123456789", "date": "2026-11-26T10:00:00"}) == "0123456, 2026-11-26"
    assert raw.measured_at({"commit": "0123456789+changes", "date": "2026-11-26"}) == "0123456 with changes, 2026-11-26"
    assert raw.measured_at({"commit": None, "date": "2026-11-26"}) == "2026-11-26" and raw.measured_at(None) == ""


def test_only_accelerators_are_named():
    cpu, gpu = (
        {"device": {"platform": name, "kind": kind, "count": 1}} for name, kind in (("cpu", "cpu"), ("gpu", "H1"))
    )
    assert raw.accelerators([cpu, {}]) == ""
    assert raw.accelerators([gpu, cpu, gpu]) == ", 1 x H1"
    assert raw.training([gpu | {"commit": "0123456789"}]) == "- trained at commit 0123456, 1 x H1"


def test_an_interval_of_three_values_is_its_mean_and_half_its_width():
    """Student's t for two degrees of freedom: 4.303 / sqrt(3) standard deviations."""
    assert raw.interval(t_interval([20.0, 21.0, 22.0])) == "21.0 ± 2.5"
    assert raw.interval(t_interval([5.0, 5.0, 5.0]), 3) == "5.000 ± 0.000"
