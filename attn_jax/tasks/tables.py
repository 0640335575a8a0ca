"""Tables of numbers as text: rows of a CSV file or of lines to predict, and the numbers in their cells."""

import csv
import io
import math
import pathlib
import re
from typing import NamedTuple

from attn_jax.errors import UserError
from attn_jax.tasks.text import read_text

OTHERS = (";", "\t")  # separators of cells besides the comma
LARGEST_NUMBER = 1e18  # its square, and the sum of some such, has to fit in a float32
EXPECTED = "a line with the names of the columns, then numbers"


class Table(NamedTuple):
    """The cells of a CSV file."""

    path: pathlib.Path
    separator: str
    names: list[str]  # of the columns, from the first line
    rows: list[tuple[int, list[str]]]  # (number of the line, as many cells as there are names)


def read_table(path: pathlib.Path) -> Table:
    """Reads a CSV file whose first line names the columns. Empty lines are left out.

    Cells are separated by commas or, if the first line has no comma, by the separator of OTHERS that it has.

    Raises:
        UserError: no such file, or names that are none; a line that is no row, or has too few or too many cells.
    """
    text = read_text(path, EXPECTED)
    separator = find_separator(text)
    lines = io.StringIO(text, newline=None)  # lines end with LF, CR LF or CR
    read = [(number, cells_of(line, separator, f"{path}, line {number}")) for number, line in enumerate(lines, 1)]
    read = [(number, cells) for number, cells in read if cells]
    if not read:
        raise UserError(f"{path}: only empty lines; expected {EXPECTED}")
    (start, first), *rows = read
    names = [name.strip() for name in first]
    if all(map(_is_number, names)):
        raise UserError(f"{path}, line {start}: only numbers; expected a first line with the names of the columns")
    if len(set(names)) != len(names) or "" in names:
        raise UserError(f"{path}, line {start}: expected different names of columns, got {', '.join(map(repr, names))}")
    if len(names) == 1:
        raise UserError(
            f"{path}, line {start}: one column only, {names[0]!r}; expected several, with commas between them "
            "(or, without any comma, semicolons or tabs)"
        )
    for line, cells in rows:
        if len(cells) != len(names):
            raise UserError(f"{path}, line {line}: {len(cells)} cells, but the first line names {len(names)} columns")
    return Table(path, separator, names, rows)


def find_separator(text: str) -> str:
    """Separator of the cells: a comma, or one of OTHERS if the first line that is not empty has it and no comma."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "," if "," in first else next((other for other in OTHERS if other in first), ",")


def cells_of(line: str, separator: str, where: str) -> list[str]:
    """Splits a line into cells, which may be in double quotes; [] for an empty line.

    A quote ends in its line: one that is not closed would take the rows after it for a cell.

    Raises:
        UserError: a quote is not closed, or something follows it, with the place in the file.
    """
    line = line.rstrip("\r\n")
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise UserError(f'{where}: a quote is not closed; expected a second " in this line') from None
        raise UserError(f"{where}: not a row of a CSV file ({error})") from None


def number(text: str, where: str) -> float:
    """Parses a finite number of at most LARGEST_NUMBER; UserError, with the place in the file, for other text."""
    try:
        value = _parsed(text)
    except ValueError:
        hint = "; write a point for the decimal comma" if re.fullmatch(r"[-+]?\d+,\d+", text.strip()) else ""
        raise UserError(f"{where}: {text.strip()!r} is not a number{hint}") from None
    if not math.isfinite(value):
        raise UserError(f"{where}: {text.strip()} is not a finite number")
    if abs(value) > LARGEST_NUMBER:
        raise UserError(
            f"{where}: {text.strip()} is too large to be squared in float32; expected a number from "
            f"{-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}, so choose another unit"
        )
    return value


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(_parsed(text))
    except ValueError:
        return False


def _parsed(text: str) -> float:
    if "_" in text:  # Python reads 1_0 as 10
        raise ValueError(text)
    return float(text)
