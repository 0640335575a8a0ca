"""Code cells of a chapter of the book."""

import pathlib
import re

BOOK = pathlib.Path(__file__).resolve().parents[2] / "docs" / "book"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)(.*?)^```$", re.MULTILINE | re.DOTALL)


def chapters() -> list[pathlib.Path]:
    """Lists the chapters in their order."""
    return sorted(BOOK.glob("[0-9][0-9]_*.md"))


def cells(chapter: pathlib.Path) -> list[str]:
    """Returns the code of each cell."""
    return [code for _, code in CELL.findall(chapter.read_text(encoding="utf-8"))]
