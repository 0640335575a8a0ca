"""The strangers' parts of docs/adding.md, each as a file of its own: they train, resume and predict."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding.md").read_text(encoding="utf-8"), re.DOTALL)
FILES = {re.search(r'config\.name = "(\w+)"', block)[1]: block for block in BLOCKS if "def get_config" in block}
SMALL = {"task.num_examples": 200, "task.valid_size": 20, "train.num_steps": 4, "train.eval_every": 2}


def launch(folder, *arguments, text=""):
    command = [sys.executable, str(ROOT / "launch.py"), *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=folder, env=env, input=text, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_there_are_a_normalizer_a_family_and_a_kind_of_data():
    assert FILES.keys() == {"power", "bigram", "years"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["power", "bigram", "years"])
def test_a_part_of_ones_own_trains_from_an_empty_folder(name, tmp_path):
    (tmp_path / f"{name}.py").write_text(FILES[name], encoding="utf-8")
    small = [f"--config.{key}={value}" for key, value in SMALL.items()]
    config = [f"--config={name}.py", f"--workdir={tmp_path / 'run'}"]
    done = launch(tmp_path, *config, *small)
    assert done.returncode == 0 and "test" in done.stdout, done.stderr
    done = launch(tmp_path, "--mode=predict", *config, text="21 Nov 2026\n")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done.stderr
    alone = launch(tmp_path, "--mode=predict", f"--workdir={tmp_path / 'run'}", text="21 Nov 2026\n")
    assert alone.returncode == 1 and len(alone.stderr.splitlines()) == 1  # the table has no such name
