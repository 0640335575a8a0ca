"""The locked packages are those that the requirements ask for, each with hashes."""

import pathlib
import re

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def requirements(name):
    """The lines of a requirements file, and of those that it includes."""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            yield from requirements(line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            yield Requirement(line)


def normal(name):
    """The name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_requirement_is_pinned_with_hashes(version):
    text = (ROOT / ".ci" / f"lock-{version}.txt").read_text(encoding="utf-8")
    pins = {normal(name): pinned for name, pinned, _ in PIN.findall(text)}
    assert len(pins) == len(re.findall(r"^[A-Za-z]", text, re.MULTILINE))  # no line without a version and a hash
    for requirement in [*requirements("requirements-dev.txt"), *requirements("requirements-docs.txt")]:
        if requirement.marker is None or requirement.marker.evaluate({"python_version": version}):
            assert pins[normal(requirement.name)] in requirement.specifier, str(requirement)
