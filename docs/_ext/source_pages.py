"""Makes links from a page to a file of the repository work on the site, which gets a page or a copy of each such file.

A page says [core.py](../attn_jax/attention/core.py), which works wherever the repository is read. On the site the link
leads to files/attn_jax/attention/core.py.html, with numbered lines. A link to a file that is not there is a warning.
The README is the page start.md of the site, and links to it lead there.
"""

import os
import pathlib
import re
import shutil

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.util import logging

LINK = re.compile(r"(?<!!)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^(```|~~~|:::\{).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST = 200_000  # characters of a file that is shown as a page; a longer one is copied
README, START = ROOT / "README.md", "start"
logger = logging.getLogger(__name__)


def rewrite(text: str, docname: str, source: pathlib.Path, docs: pathlib.Path, used: set) -> str:
    """Replaces links to files outside of docs/ by links to their pages on the site, and notes the files in `used`."""
    hidden = [match.span() for match in CODE.finditer(text) if match.group().startswith(("```", "~~~"))]

    def replaced(match: re.Match) -> str:
        if any(start <= match.start() < end for start, end in hidden):
            return match.group()
        label, target, anchor = match.groups()
        file = (source.parent / target).resolve()
        page = file.is_relative_to(docs) and file.suffix != ".py"
        if page or not file.is_relative_to(ROOT):
            return match.group()
        if file == README:
            return f"{label}({'../' * docname.count('/')}{START}.md{anchor or ''})"
        if not file.exists():
            logger.warning("no such file: %s", target, location=docname)
            return label
        used.add(file)
        up = "../" * docname.count("/")
        return f"{label}(repository:{up}{address(file)}{anchor or ''})"

    return LINK.sub(replaced, text)


def address(file: pathlib.Path) -> str:
    """Returns where a file is on the site."""
    name = f"files/{file.relative_to(ROOT)}"
    return f"{name}/index.html" if file.is_dir() else name if lexer_of(file) is None else f"{name}.html"


def lexer_of(file: pathlib.Path):
    """Returns what colours the text of a file; None: it is copied as it is."""
    try:
        if file.stat().st_size <= LONGEST:
            return get_lexer_for_filename(file.name)
    except ClassNotFound:
        pass
    return None


def read(app, docname, source):
    used = app.env.__dict__.setdefault("repository_files", {}).setdefault(docname, set())
    used.clear()
    if docname == START:  # links of the README begin at the root
        source[0] = README.read_text(encoding="utf-8").replace("](docs/", "](")
        source[0] = re.sub(r"\]\((experiments/|LICENSE)", r"](../\1", source[0]).replace("# attn_jax", "# Start", 1)
    source[0] = rewrite(source[0], docname, pathlib.Path(app.env.doc2path(docname)), pathlib.Path(app.srcdir), used)


def pages(app):
    """Yields a page for each file with a link, and copies the files that are no text."""
    files = set().union(*getattr(app.env, "repository_files", {}).values())
    for folder in sorted(file for file in files if file.is_dir()):
        files |= {file for file in folder.iterdir() if file.suffix in (".py", ".md")}
    for file in sorted(files):
        name = str(file.relative_to(ROOT))
        if file.is_dir():
            inside = sorted(x.name for x in file.iterdir() if x in files)
            items = "".join(f'<li><a href="{x}.html">{x}</a></li>' for x in inside)
            yield f"files/{name}/index", {"title": name, "body": f"<h1>{name}</h1><ul>{items}</ul>"}, "page.html"
        elif lexer := lexer_of(file):
            formatter = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, cssclass="highlight")
            body = highlight(file.read_text(encoding="utf-8"), lexer, formatter)
            yield f"files/{name}", {"title": name, "body": f"<h1>{name}</h1>{body}"}, "page.html"
        else:
            copy = pathlib.Path(app.outdir, "files", name)
            os.makedirs(copy.parent, exist_ok=True)
            shutil.copyfile(file, copy)


def merge(app, env, docnames, other):
    for name in docnames:
        env.__dict__.setdefault("repository_files", {})[name] = other.repository_files.get(name, set())


def setup(app):
    app.connect("source-read", read)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", pages)
    return {"version": "1", "parallel_read_safe": True, "env_version": 1}
