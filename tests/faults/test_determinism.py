"""The same seed gives the same bits in another process."""

import shutil

from runs_killed import command, differs


def test_the_same_seed_gives_the_same_bits(server, whole, tmp_path):
    result = server.run(*command(tmp_path / "again"))
    assert result.code == 0, result.err
    assert differs(whole, tmp_path / "again") == ""


def test_another_seed_is_another_run(server, whole, tmp_path):
    """What `differs` compares can differ."""
    shutil.copytree(whole, tmp_path / "again")
    path = max((tmp_path / "again" / "checkpoints").iterdir(), key=lambda path: int(path.name))
    result = server.run(*command(tmp_path / "other", seed=1, train__num_steps=2))
    assert result.code == 0, result.err
    shutil.rmtree(path)
    (tmp_path / "other" / "checkpoints" / "2").rename(path)
    assert "arrays differ" in differs(whole, tmp_path / "again")
