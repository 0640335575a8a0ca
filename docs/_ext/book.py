"""What a chapter of the book gets on the site: an answer below each exercise, and a notebook to download.

Answers are written once, in tests/docs/book: what stands from a docstring "Chapter 3, exercise 1. ..." to the next one.
A notebook has the outputs of the site. Links to other pages become their text, since they lead nowhere from a notebook.
"""

import ast
import pathlib
import re

import docstrings

ROOT = pathlib.Path(__file__).resolve().parents[2]
ANSWERS = re.compile(r"`(tests/docs/book/\w+\.py)`")
EXERCISE = re.compile(r"^(\d)\. .*\n(?:   .*\n)*", re.MULTILINE)
HEADING = re.compile(r"Chapter (\d+), exercise (\d)[.:]\s*")
LOCAL = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)\s]*\)")


def answers(file: pathlib.Path) -> dict[tuple[int, int], tuple[str, str]]:
    """Returns (words, code) of each (chapter, exercise) of a file of tests; a helper is part of the answer below it."""
    text = file.read_text(encoding="utf-8")
    found: dict[tuple[int, int], tuple[str, str]] = {}
    key, helpers = None, ""
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        said, code = ast.get_docstring(node) or "", ast.get_source_segment(text, node)
        if heading := HEADING.match(said):
            key, said = (int(heading[1]), int(heading[2])), said[heading.end() :]
            code = re.sub(r'\n *""".*?"""(?=\n)\n*', "\n", code, count=1, flags=re.DOTALL)
        elif not node.name.startswith("test_"):
            helpers += f"{code}\n\n\n"
            continue
        words, before = found.get(key, ("", ""))
        words += docstrings.markdown(said) if heading else ""
        found[key], helpers = (words, f"{before}\n\n\n{helpers}{code}".strip()), ""
    return found


def with_answers(text: str, chapter: int) -> str:
    """Returns the text of a chapter with an answer, folded, below each exercise."""
    start = text.index("## Exercises")
    of_file = answers(ROOT / ANSWERS.search(text, start)[1])

    def answered(match: re.Match) -> str:
        words, code = of_file[chapter, int(match[1])]
        answer = f"<details><summary>Answer</summary>\n\n{words}\n```python\n{code}\n```\n\n</details>\n"
        inside = "".join(f"   {line}\n" if line else "\n" for line in answer.splitlines())
        return f"{match[0]}\n{inside}\n"

    return text[:start] + EXERCISE.sub(answered, text[start:])


def read(app, docname, source):
    if chapter := re.match(r"book/(\d\d)_", docname):
        source[0] = with_answers(source[0], int(chapter[1]))


def notebook(app, pagename, templatename, context, doctree):
    """Writes the notebook of a page beside its source, where the theme's button looks for it, and links it in Colab."""
    if doctree is None or not (context.get("meta") or {}).get("kernelspec"):
        return
    import nbformat

    made = nbformat.read(pathlib.Path(app.outdir).parent / "jupyter_execute" / f"{pagename}.ipynb", as_version=4)
    for cell in made.cells:
        cell.source = LOCAL.sub(r"\1", cell.source) if cell.cell_type == "markdown" else cell.source
    repository = app.config.repository
    install = (
        f"%pip install --quiet 'attn_jax[train] @ git+{repository}'" if repository else "# %pip install '.[train]'"
    )
    made.cells.insert(0, nbformat.v4.new_code_cell(install, id="install"))
    context["ipynb_source"] = f"{pagename}.ipynb"
    path = pathlib.Path(app.outdir, "_sources", context["ipynb_source"])
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)
    if repository:
        place = f"{repository.removeprefix('https://github.com/')}/blob/gh-pages/_sources/{pagename}.ipynb"
        url = f"https://colab.research.google.com/github/{place}"
        button = {"type": "link", "url": url, "text": "Colab", "tooltip": "Open in Colab", "icon": "fas fa-rocket"}
        context["header_buttons"].append(button | {"label": "launch-colab-button"})


def setup(app):
    app.add_config_value("repository", "", "html", str)
    app.connect("source-read", read)
    app.connect("html-page-context", notebook, priority=501)  # after the theme's list of buttons, before its buttons
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
