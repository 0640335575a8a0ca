"""What is committed in experiments/results and docs/results.md is what rendering the JSON files gives, or is marked."""

import importlib
import json
import re
import subprocess

import pytest

from attn_jax.errors import UserError
from experiments import raw, render

FILES = {path.name: path for path in raw.RESULTS.iterdir() if path.is_file()}
MARKED = {name for name, path in FILES.items() if name.endswith(".md") and raw.NOT_KEPT in path.read_text("utf-8")}


@pytest.mark.slow
@pytest.mark.parametrize("name", render.PAGES)
def test_a_committed_page_is_what_rendering_gives(name):
    page = render.PAGES[name]
    record = render.record_of(page)
    if record is None:
        assert f"{name}.md" in MARKED or f"{name}.md" not in FILES
    else:
        assert FILES[f"{name}.md"].read_text(encoding="utf-8") == page.text(record)
        assert page.figures.keys() <= FILES.keys()


@pytest.mark.slow
def test_the_tables_of_the_document_are_what_rendering_gives():
    text = render.DOCUMENT.read_text(encoding="utf-8")
    assert render.render_document(text) == text
    assert {match[2] for match in render.BLOCK.finditer(text)} == set(render.TABLES)


def test_every_file_is_rendered_from_raw_numbers_or_marked():
    rendered = {name for page in render.PAGES.values() for name in (f"{page.name}.md", *page.figures)}
    texts = "".join(FILES[name].read_text(encoding="utf-8") for name in MARKED)
    unknown = [
        name
        for name in FILES
        if not (name.endswith(".json") or name in MARKED | rendered or (name.endswith(".png") and f"({name})" in texts))
    ]
    assert not unknown
    assert not [name for name in MARKED if name.removesuffix(".md") + ".json" in FILES]


def test_every_experiment_has_results_or_is_listed_as_one_without():
    """Those with a page have it or not; others, whose sweep prints its table or which have numbers alone, a file."""
    scripts = [path for path in (raw.ROOT / "experiments").glob("*.py") if "\ndef sweep(" in path.read_text("utf-8")]
    scripts += [raw.ROOT / "experiments" / f"{name}.py" for name in render.NAMES]
    without = set()
    for path in scripts:
        pages = getattr(importlib.import_module(f"experiments.{path.stem}"), "PAGES", ())
        names = {f"{page.name}.md" for page in pages} or {f"{path.stem}.json"}
        if not names & FILES.keys():
            without.add(path.stem)
    (listed,) = re.findall(r"^Experiments without results so far: (.+)\.$", FILES["README.md"].read_text("utf-8"), re.M)
    assert listed.split(", ") == sorted(without)


def test_a_wrong_name_or_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="unknown page 'kernel'; did you mean kernels"):
        render.main(["kernel"])
    with pytest.raises(UserError, match="unknown table 'ensemble'; did you mean ensembles"):
        render.render_document("<!-- ensemble -->\n\n<!-- end -->\n")
    (tmp_path / "ensembles.json").write_text(json.dumps({"runs": {}})[:-3])
    with pytest.raises(UserError, match="not valid JSON"):
        render.render_document("<!-- ensembles -->\n<!-- end -->\n", tmp_path)


def _commits():
    for path in sorted(raw.RESULTS.rglob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and found.get("commit"):
            yield path, found["commit"].removesuffix("+changes")


def test_every_file_of_numbers_names_a_commit_that_exists():
    """So that a number can be run again as it was measured; a clone without the history cannot tell."""
    git = ["git", "-C", str(raw.ROOT)]
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        pytest.skip("there is no history here")
    commits = list(_commits())
    text = "".join(f"{commit}\n" for _, commit in commits)
    done = subprocess.run([*git, "cat-file", "--batch-check"], input=text, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(commits) == len(lines) > 100
    missing = {path.name for (path, _), line in zip(commits, lines, strict=True) if " commit " not in line}
    assert not missing
