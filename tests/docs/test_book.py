"""Chapters of the book have all their parts, and exercises with answers. Their cells run where the site is built."""

import ast
import re
import sys
import types

import pytest
from book_cells import BOOK, cells, chapters

sys.path.insert(0, str(BOOK.parent / "_ext"))
import book

PARTS = ("## The equation", "## Ten lines", "## Picture", "## Experiment", "## Exercises")


def named(chapter):
    """The name of a chapter, for the list of tests."""
    return chapter.stem


def test_there_are_ten_chapters_in_the_order_of_the_contents():
    names = [chapter.stem for chapter in chapters()]
    assert [name[:2] for name in names] == [f"{i:02}" for i in range(1, 11)]
    contents = (BOOK / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^(\d\d_\w+)$", contents, re.MULTILINE) == names


@pytest.mark.parametrize("chapter", chapters(), ids=named)
def test_a_chapter_has_all_its_parts(chapter):
    text = chapter.read_text(encoding="utf-8")
    headings = re.findall(r"^## .*$", text, re.MULTILINE)
    for part in PARTS:
        assert any(heading.startswith(part) for heading in headings), part
    assert re.search(r"## The equation\n[^#]*?\$\$", text), "no formula under The equation"
    assert re.search(r"^## By hand", text, re.MULTILINE), "no worked example"
    assert any("plt.show()" in code for code in cells(chapter)), "no picture"
    assert any("import attn_jax" in code or "from attn_jax" in code for code in cells(chapter))


@pytest.mark.parametrize("chapter", chapters(), ids=named)
def test_the_cells_of_a_chapter_are_python_with_short_lines(chapter):
    for code in cells(chapter):
        ast.parse(code)
        assert max(map(len, code.splitlines())) <= 140


@pytest.mark.parametrize("chapter", chapters(), ids=named)
def test_every_exercise_has_an_answer_in_words_and_as_a_test(chapter):
    text = chapter.read_text(encoding="utf-8")
    numbers = re.findall(r"^(\d)\. ", text.split("## Exercises")[1], re.MULTILINE)
    answers = book.answers(book.ROOT / book.ANSWERS.search(text)[1])
    for number in numbers:
        words, code = answers[int(chapter.stem[:2]), int(number)]
        assert words and "def test_" in code
    assert book.with_answers(text, int(chapter.stem[:2])).count("<summary>Answer</summary>") == len(numbers)


@pytest.mark.parametrize("repository", ["", "https://github.com/OWNER/attn_jax"])
def test_a_notebook_has_no_dead_links_and_one_to_colab_where_the_repository_is_known(repository, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    made = tmp_path / "jupyter_execute" / "book" / "01.ipynb"
    made.parent.mkdir(parents=True)
    text = "[a page](02.md), [a file](repository:../x.html), [a paper](https://arxiv.org)"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), made)
    app = types.SimpleNamespace(outdir=tmp_path / "html", config=types.SimpleNamespace(repository=repository))
    context = {"meta": {"kernelspec": {"name": "python3"}}, "header_buttons": []}
    book.notebook(app, "book/01", "page.html", context, doctree=True)
    install, cell = nbformat.read(tmp_path / "html" / "_sources" / context["ipynb_source"], as_version=4).cells
    assert cell.source == "a page, a file, [a paper](https://arxiv.org)"
    assert install.source.startswith("%pip") is bool(repository)
    links = [button["url"] for button in context["header_buttons"]]
    there = "https://colab.research.google.com/github/OWNER/attn_jax/blob/gh-pages/_sources/book/01.ipynb"
    assert links == ([there] if repository else [])
