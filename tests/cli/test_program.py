"""The program names itself as it was started, and says its version and its configs."""

import subprocess
import sys

import pytest

from attn_jax.cli import program
from attn_jax.runs.config_files import described_configs
from attn_jax.version import VERSION


@pytest.mark.parametrize(
    ("started", "name", "command"),
    [
        ("launch.py", "launch.py", "python launch.py"),
        ("/usr/bin/attn-jax", "attn-jax", "attn-jax"),
        ("/site-packages/attn_jax/__main__.py", "attn_jax", "python -m attn_jax"),
        ("/site-packages/attn_jax/cli/__main__.py", "launch.py", "python launch.py"),
    ],
)
def test_the_program_has_the_name_it_was_started_by(started, name, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", [started])
    assert (program.name(), program.command()) == (name, command)


@pytest.mark.slow
def test_the_package_is_a_program_that_knows_its_version_and_configs():
    run = lambda *argv: subprocess.run([sys.executable, "-m", "attn_jax", *argv], capture_output=True, text=True)  # noqa: E731
    assert run("--version").stdout == f"attn_jax {VERSION}\n"
    lines = run("--configs").stdout.splitlines()
    assert len(lines) == len(described_configs()) and any(line.startswith("quickstart  ") for line in lines)
    assert run("--nothing").stderr.startswith("attn_jax: unknown option --nothing")


def test_every_config_says_what_it_trains():
    assert all(len(what) > 20 for what in described_configs().values())
