"""Faults that are listed by hand are still in the package: a list that went out of date would test nothing."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_every_listed_fault_is_once_in_its_file():
    found = subprocess.run(
        [sys.executable, "tests/mutations", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0 and found.stdout.startswith("0 of "), found.stdout + found.stderr
