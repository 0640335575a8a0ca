"""Code cells of a chapter of the book, and a way to run them without Jupyter."""

import pathlib
import re
from typing import Any

BOOK = pathlib.Path(__file__).resolve().parents[2] / "docs" / "book"
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)(.*?)^```$", re.MULTILINE | re.DOTALL)


def chapters() -> list[pathlib.Path]:
    """Lists the chapters in their order."""
    return sorted(BOOK.glob("[0-9][0-9]_*.md"))


def cells(chapter: pathlib.Path) -> list[str]:
    """Returns the code of each cell."""
    return [code for _, code in CELL.findall(chapter.read_text(encoding="utf-8"))]


def run(chapter: pathlib.Path) -> dict[str, Any]:
    """Runs all cells in one namespace, and returns it. An error names the chapter and the cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(cells(chapter), 1):
        exec(compile(code, f"{chapter.name}, cell {number}", "exec"), names)
    return names
