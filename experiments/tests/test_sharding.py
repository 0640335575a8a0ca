"""The table of memory on each device is what its file says, whichever layout that has."""

import pytest

from attn_jax.data.files import save_json
from attn_jax.errors import UserError
from experiments import raw, sharding

ROWS = [{"parallel": "mesh", "devices": 1, "state": 43_800_020, "temporary": 74_842_432}]
PAGE = "before\n<!-- sharding -->\nold\n<!-- end -->\nafter\n"


def test_the_committed_table_is_what_rendering_gives():
    page = sharding.PAGE.read_text(encoding="utf-8")
    assert sharding.render(raw.read_any(sharding.RESULT)["results"], page) == page


def test_the_table_is_written_from_the_file_alone(tmp_path, monkeypatch):
    result, page = tmp_path / "sharding.json", tmp_path / "devices.md"
    monkeypatch.setattr(sharding, "RESULT", result)
    monkeypatch.setattr(sharding, "PAGE", page)
    monkeypatch.setattr(sharding, "measure", lambda *_: pytest.fail("measured"))
    page.write_text(PAGE)
    with pytest.raises(UserError, match=r"sharding\.json does not exist; run the experiment"):
        sharding.main(["--render"])
    for write in (save_json, lambda path, found: raw.write(path, found, command="", begun=raw.begin(path))):
        page.write_text(PAGE)
        write(result, {"rows": ROWS})
        sharding.main(["--render"])
        assert "| mesh | 1 | 43.8 MB | 74.8 MB |" in page.read_text() and "old" not in page.read_text()
    page.unlink()
    with pytest.raises(UserError, match=r"devices\.md: no such file or directory"):
        sharding.main(["--render"])
