"""Plugins are executed before names are read, and those of a stored run only if it is trusted."""

import pytest

from attn_jax.attention import NORMALIZERS
from attn_jax.data.files import save_checked
from attn_jax.errors import UserError
from attn_jax.runs import plugins
from attn_jax.runs.options import change, default_config, resolve
from attn_jax.runs.tree import Text
from attn_jax.runs.workdir import holds, load_config, plain, save_config

MINE = "from attn_jax.attention import NORMALIZERS\nNORMALIZERS['{}'] = NORMALIZERS['softmax']\n"


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    monkeypatch.setattr(plugins, "_executed", {})
    before = dict(NORMALIZERS)
    yield
    NORMALIZERS.clear()
    NORMALIZERS.update(before)


def forget():
    plugins._executed.clear()
    del NORMALIZERS["mine"]


@pytest.mark.parametrize("given", [("mine.py",), ("~/mine.py",), Text("mine.py"), Text("('mine.py',)")], ids=str)
def test_a_name_that_a_plugin_enters_is_known(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.py").write_text(MINE.format("mine"))
    config = change(default_config(), {"model.attention.normalize": "mine", "plugins": given})
    assert config.model.attention.normalize.name == "mine"
    assert [name.removeprefix("~/") for name in config.plugins] == ["mine.py"]


def test_a_module_is_imported_from_the_folder_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_own").mkdir()
    (tmp_path / "my_own" / "parts.py").write_text(MINE.format("mine"))
    assert default_config(plugins=("my_own.parts",)).plugins == ("my_own.parts",)
    assert NORMALIZERS["mine"]


def test_a_stored_run_executes_nothing_unless_it_is_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE.format("mine"))
    config = change(default_config(), {"model.attention.normalize": "mine", "plugins": ("mine.py",)})
    (tmp_path / "run" / "checkpoints" / "1").mkdir(parents=True)
    save_config(tmp_path / "run", config)
    assert holds(tmp_path / "run", config)
    (tmp_path / "mine.py").write_text("raise RuntimeError")  # the copy is executed
    with pytest.raises(UserError, match=r"mine.py has changed since .*run was begun with it"):
        holds(tmp_path / "run", config)
    (tmp_path / "mine.py").unlink()
    forget()
    with pytest.raises(UserError, match=r"run was trained with mine.py, which is Python: read it, then --trust"):
        load_config(tmp_path / "run")
    copy = str(tmp_path / "run" / "plugins" / "mine.py")
    assert load_config(tmp_path / "run", trust=True).plugins == (copy,)
    assert load_config(tmp_path / "run").plugins == (copy,)  # executed already


def test_a_path_in_a_run_of_others_is_not_followed(tmp_path, monkeypatch):
    """Not even where a plugin of the same name was executed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE.format("mine"))
    config = default_config(plugins=("mine.py",))
    save_config(tmp_path / "run", config)
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "mine.py").write_text("raise SystemExit('executed')")
    with config.unlocked():
        config.plugins = (str(tmp_path / "evil" / "mine.py"),)
    save_checked(tmp_path / "run" / "config.json", plain(config))
    assert resolve(load_config(tmp_path / "run")).plugins == ("mine.py",)
    (tmp_path / "run" / "plugins" / "mine.py").write_text("raise SystemExit('executed')")
    with pytest.raises(UserError, match="has changed since"):
        load_config(tmp_path / "run")


@pytest.mark.parametrize(
    "text, words",
    [
        ("", r"there is no file .*mine.py"),
        ("x = ", r"cannot load .*mine.py: "),
        ("raise ValueError('no')", r"cannot load .*mine.py: no"),
    ],
)
def test_a_plugin_that_fails_is_one_line(text, words, tmp_path):
    if text:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=words):
        default_config(plugins=(str(tmp_path / "mine.py"),))
    with pytest.raises(UserError, match=r"plugins not_here.mine: no module not_here; expected a module, or a file"):
        default_config(plugins=("not_here.mine",))
