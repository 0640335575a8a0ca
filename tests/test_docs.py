"""What a newcomer reads: short, with links that lead somewhere, code that runs, and options that are there."""

import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention.scores import products
from attn_jax.cli.reference import reference

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
LONGEST = 8000  # characters of the README


def blocks(path, language):
    """The fenced blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def headings(path):
    """The anchors of a page, as they are made from its headings."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8")) <= LONGEST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"https?://", target):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in headings(there), f"{page.name}: {target} has no such heading"


def test_every_page_is_in_the_index_or_the_readme():
    texts = README.read_text(encoding="utf-8") + (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert page.name in texts, page.name


def test_the_blocks_for_ci_are_there():
    text = README.read_text(encoding="utf-8")
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for name in ("tests", "quickstart", "site"):
        assert len(re.findall(rf"^<!-- ci: {name} -->\n```bash\n", text, re.MULTILINE)) == 1
        assert f"block {name}" in run


def test_the_library_example_runs():
    (example,) = blocks(README, "python")
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(5, 8)")


def test_the_score_of_the_documentation_works():
    """Also where a key is zeros, as padding may be: the gradient is finite."""
    names = vars(products).copy()
    exec(blocks(ROOT / "docs" / "adding.md", "python")[0], names)
    score = names["Cosine"]()

    def total(keys):
        return jnp.sum(score.apply({}, jnp.eye(3), score.apply({}, keys, method="project_keys")))

    keys = jnp.array([[3.0, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(total(keys), 1)
    assert np.all(np.isfinite(jax.grad(total)(keys)))


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_other_examples_are_python(page):
    for example in blocks(page, "python"):
        compile(re.sub(r"^    (?=\w+: )", "", example), page.name, "exec")


def test_the_reference_of_options_is_that_of_the_code():
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m attn_jax.cli.reference > docs/options.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_commands_exist(page):
    known = set(re.findall(r"^\| `([a-z_.]+\w)` \|", reference(), re.MULTILINE)) | {"task.name", "model.name"}
    known |= {"optimizer.name"}
    for key in re.findall(r"--config\.([a-z_]+(?:\.[a-z_0-9]+)*)", page.read_text(encoding="utf-8")):
        assert key in known or key in ("", "key"), f"{page.name}: {key}"
