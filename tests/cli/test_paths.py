"""A path that a user gives may begin with ~, which a shell leaves alone after "="."""

import itertools
import operator
import os
import pathlib
import re
import sys

import pytest
from absl import flags

import attn_jax
from attn_jax.cli import commands, index, main
from attn_jax.cli.command_line import parse
from attn_jax.cli.reference import parts_of
from attn_jax.data import download
from attn_jax.errors import UserError
from attn_jax.models.families import FAMILIES
from attn_jax.outputs import OUTPUTS
from attn_jax.parts import Option, fields_of
from attn_jax.runs.options import TASKS, RunOptions, change, default_config, resolve, schema_of
from attn_jax.runs.tree import flatten
from attn_jax.sweeps import sweep
from attn_jax.tasks.images.pictures import FileGallery

NAMES_PATHS = re.compile(r"\b(files?|folder|director(y|ies))\b", re.IGNORECASE)
NO_PATHS = ("language", "size", "columns", "fields", "sample")  # of files
NO_PATHS += ("plugins",)  # which may be modules; see tests/runs/test_plugins.py
NO_FLAGS = ("options", "num_examples")


def names_a_path(name, about):
    free = isinstance(about, Option) and about.kind in (str, tuple) and not about.choices
    return free and NAMES_PATHS.search(about.meaning) and name not in NO_PATHS


def configs():
    """A config of each task and family, and of each part that has a path beside them."""
    for task, model in itertools.product(TASKS, FAMILIES):
        try:
            yield default_config(task, model)
        except UserError:
            continue
    for changes in ({"train.start": "run"}, {"train.start": "vectors"}, {"decode.ensemble": "runs"}):
        yield change(default_config(), changes)
    for output in OUTPUTS:
        yield change(default_config("plain_text", "language_model"), {"model.output": output})


OPTIONS = {}
for each in configs():
    OPTIONS = {key: (each, about) for key, about in schema_of(each).items()} | OPTIONS  # of the first that has a key
PATHS = [key for key, (_, about) in OPTIONS.items() if names_a_path(key.rpartition(".")[2], about)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home folder, from another folder, in which nothing may be called ~."""
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path
    assert not os.path.lexists(tmp_path / "here" / "~")


@pytest.mark.parametrize("key", PATHS)
def test_an_option_that_names_a_file_or_folder_knows_the_home_folder(home, key):
    config, about = OPTIONS[key]
    value = ("~/x", "y") if about.kind is tuple else "~/x"
    config = change(config, {key: value})
    expected = f"{home}/x"
    assert operator.attrgetter(key)(resolve(config)) == ((expected, "y") if about.kind is tuple else expected)
    assert flatten(config)[key] == value  # a work directory keeps it as it was written


def test_the_options_that_are_paths_are_among_those_tested():
    known = {key for key, (_, about) in OPTIONS.items() if about.path}
    assert known == set(PATHS)
    assert {"data_dir", "task.train", "train.start.workdir", "train.start.source", "decode.ensemble.workdirs"} < known


def test_every_part_with_a_path_is_among_those_tested():
    parts = [RunOptions]
    for kind in parts:
        parts += [part for field in fields_of(kind).values() for _, part in parts_of(field) if part not in parts]
    found = {name for kind in parts for name, field in fields_of(kind).items() if names_a_path(name, field)}
    assert found == {key.rpartition(".")[2] for key in PATHS} and len(parts) > 50


FLAGS = [
    name
    for name, flag in flags.FLAGS._flags().items()
    if flags.FLAGS.find_module_defining_flag(name) == "attn_jax.cli.main"
    and NAMES_PATHS.search(flag.help)
    and name not in NO_FLAGS
]


@pytest.mark.parametrize("name", FLAGS)
def test_an_option_of_the_command_line_that_is_a_path_knows_it(home, name):
    assert {"workdir", "source", "target", "gold", "baseline", "sweep", "config"} <= set(FLAGS)
    assert flags.FLAGS[name].parser.parse("~/x/") == f"{home}/x/"
    assert flags.FLAGS[name].parser.parse("./x") == "./x" and flags.FLAGS[name].parser.parse("") == ""


@pytest.fixture
def unparsed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["launch.py"])
    yield
    for name in FLAGS:
        flags.FLAGS[name].unparse()
    flags.FLAGS["mode"].unparse()


def test_a_training_goes_into_the_home_folder(home, monkeypatch, unparsed):
    (home / "own.py").write_text("from configs import quickstart\n\nget_config = quickstart.get_config\n")
    taken = []
    monkeypatch.setattr(commands, "train", lambda config, workdir, files: taken.append((workdir, files)))
    assert main.main(["launch.py", "--config=~/own.py", "--workdir=~/run", "--config.data_dir=~/data"]) == 0
    with pytest.raises(UserError, match=f"{home}/run: there is no such work directory"):
        attn_jax.train("~/own.py", "~/run")
    assert [workdir for workdir, _ in taken] == [home / "run"] * 2


@pytest.mark.parametrize(
    "use",
    [
        lambda: parse(["launch.py", "--mode=predict", "--workdir=~/none"]),
        lambda: parse(["launch.py", "--config=~/none.py"]),
        lambda: attn_jax.load("~/none"),
        lambda: attn_jax.get_config("~/none.py"),
        lambda: attn_jax.import_parameters("~/none", default_config()),
        lambda: index.main(["--check=~/none"]),
        lambda: index.main(["--source=~/none", "--target=~/other", "--out=~/out"]),
        lambda: FileGallery((8, 8, 3)).pixels("~/none.png"),
    ],
)
def test_a_message_names_the_file_that_was_looked_for(home, unparsed, use):
    with pytest.raises(UserError, match=f"{home}/none"):
        use()


def test_a_sweep_and_a_download_go_into_the_home_folder(home, monkeypatch, unparsed):
    (home / "sweep.py").write_text("def sweep():\n    raise ValueError('reached')\n")
    with pytest.raises(UserError, match=f"{home}/sweep.py: reached"):
        parse(["launch.py", "--sweep=~/sweep.py", "--workdir=~/sweep"])
        sweep.run_sweep(pathlib.Path(main.SWEEP.value[0]), main.WORKDIR.value, [], 1)
    monkeypatch.setattr(download.pooch, "retrieve", lambda *_, **__: pytest.fail("nothing is fetched"))
    with pytest.raises(UserError, match=f"{home}/sweep.py"):
        download.download(next(iter(download.DATASETS.values())), "~/sweep.py")


PROGRAMS = sorted((pathlib.Path(__file__).resolve().parents[2] / "experiments").rglob("*.py"))
ARGUMENT = re.compile(r"add_argument\(\s*\"--(?:data_dir|runs|out)\"[^)]*\)")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_path_of_an_experiment_knows_the_home_folder(path):
    text = path.read_text(encoding="utf-8")
    assert "type=pathlib.Path" not in text
    assert all(re.search("type=(expanded|user_path)", argument) for argument in ARGUMENT.findall(text))
