"""Links of the pages at the root lead somewhere, and names and versions are those of the package."""

import pathlib
import re

import pytest
import yaml

import attn_jax

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_the_citation_is_that_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == attn_jax.__version__
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"version = {{{citation['version']}}}" in readme
    assert citation["license"] in readme


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md"])
def test_links_and_files_are_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        assert (ROOT / target).exists(), target
    for file in re.findall(r"requirements-\w+\.txt|\.ci/run|tests/mutations|tests/attention\b", text):
        assert (ROOT / file).exists(), file


def test_the_changes_know_the_version():
    assert re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE) == [
        "0.2.0",
        "0.1.0",
    ]
    assert attn_jax.__version__.startswith("0.2.0.dev")
