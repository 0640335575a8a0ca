"""Python blocks of pages run from the first to the last in one namespace, as a reader would type them."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("faq", 8), ("how_to", 8), ("recurrent_memory", 1)])
def test_the_blocks_of_a_page_run(name, least, tmp_path, monkeypatch):
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        above = "\n" * (text[: match.start()].count("\n") + 1)  # so that an error names the line of the page
        exec(compile(above + match[1], f"{name}.md", "exec"), names)
    assert text.count("```python") >= least


@pytest.mark.slow
def test_every_answer_has_a_link_or_code():
    answers = re.split(r"^### ", (DOCS / "faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(answers) >= 20
    for answer in answers:
        assert "](" in answer or "```" in answer or "--config." in answer, answer.splitlines()[0]
