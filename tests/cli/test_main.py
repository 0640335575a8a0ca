"""The program starts in the same way as a file and as a module, and sets the cache of jax before jax is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMS = ([str(ROOT / "launch.py")], ["-m", "attn_jax.cli"])


def started(form, *argv, **options):
    return subprocess.run([sys.executable, *form, *argv], capture_output=True, text=True, **options)


@pytest.mark.parametrize("form", FORMS, ids=["file", "module"])
def test_a_slip_is_one_line(form):
    result = started(form, f"--config={ROOT}/configs/quickstart.py", "--config.modl.cell=x", cwd=ROOT)
    assert (result.returncode, result.stdout) == (1, "")
    assert (
        result.stderr.startswith("launch.py: unknown config key modl.cell; did you mean") and "\n" == result.stderr[-1]
    )


def test_both_forms_give_the_same_help(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # as a sweep sets it: the package need not be installed
    first, second = (started(form, "--help", cwd=tmp_path, env=environment) for form in FORMS)
    assert first.stdout == second.stdout and "--workdir" in first.stdout and (first.returncode, first.stderr) == (0, "")


def test_the_cache_is_set_before_jax_is_imported():
    code = "from attn_jax.cli import main; import jax; print(jax.config.jax_compilation_cache_dir)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    result = started(["-c", code], cwd=ROOT, env=environment)
    assert result.stdout.strip().endswith("attn_jax"), result.stderr
