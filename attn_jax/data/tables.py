"""Tables of numbers as text: CSV files and lines of input, and the numbers in their cells."""

import io
import math
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attn_jax.data.text import read_text
from attn_jax.errors import UserError

SEPARATORS = (",", ";", "\t")  # separators of cells, in order of preference
QUOTED = re.compile(r'(?:^|(?<=[,;\t])) *"(?:[^"]|"")*"')  # cells in double quotes, for any separator
LARGEST_NUMBER = 1e18  # squares of numbers and sums of some squares have to fit in a float32
EXPECTED = "a line with the names of the columns, then numbers"


class Table(NamedTuple):
    """The cells of a CSV file."""

    path: pathlib.Path
    separator: str
    names: list[str]  # names of the columns, from the first line; some may be empty or equal
    rows: list[tuple[int, list[str]]]  # (number of the line, as many cells as there are names)


def read_table(path: pathlib.Path) -> Table:
    """Reads a CSV file whose first line names the columns. Empty lines are left out.

    The separator of the cells is found in the first two lines, see `find_separator`.

    Raises:
        UserError: the file does not exist, or has no names; a line is no row, or has too few or too many cells.
    """
    lines = io.StringIO(read_text(path, EXPECTED), newline=None)  # lines end with LF, CR LF or CR
    lines = [(number, line) for number, line in enumerate(lines, 1) if line.strip(" \r\n")]
    if not lines:
        raise UserError(f"{path}: only empty lines; expected {EXPECTED}")
    separator = find_separator([line for _, line in lines[:2]])
    (start, first), *rows = [(n, cells_of(line, separator, f"{path}, line {n}")) for n, line in lines]
    names = [name.strip() for name in first]
    if all(map(_is_number, names)):
        raise UserError(f"{path}, line {start}: only numbers; expected a first line with the names of the columns")
    if len(names) == 1:
        raise UserError(
            f"{path}, line {start}: one column only, {names[0]!r}; expected several, with commas between them "
            "(or, without any comma, semicolons or tabs)"
        )
    for line, cells in rows:
        if len(cells) != len(names):
            raise UserError(f"{path}, line {line}: {len(cells)} cells, but the first line names {len(names)} columns")
    return Table(path, separator, names, rows)


def place_of(names: Sequence[str], name: str, where: str) -> int:
    """Returns the index of an existing column.

    Raises:
        UserError: several columns have this name.
    """
    if names.count(name) > 1:
        raise UserError(
            f"{where}: {names.count(name)} columns are called {name!r}; expected different names of those in use"
        )
    return names.index(name)


def find_separator(lines: Sequence[str]) -> str:
    """Finds the separator of lines, outside of quotes.

    It is the first of SEPARATORS in the first line that all lines have equally often, else the first in the first line,
    else a comma.
    """
    bare = [QUOTED.sub("", line) for line in lines]
    used = [separator for separator in SEPARATORS if separator in bare[0]]
    even = [separator for separator in used if len({line.count(separator) for line in bare}) == 1]
    return next(iter((*even, *used, *SEPARATORS)))


def cells_of(line: str, separator: str, where: str) -> list[str]:
    """Splits a line into cells. A cell may be in double quotes, with spaces around them, and has "" for a quote.

    A quote has to end in its line, since an unclosed one would turn all following rows into one cell.

    Raises:
        UserError: a quote is not closed, or text follows it; the message has the place in the file.
    """
    line, cells, at = line.rstrip("\r\n"), [], 0
    pattern = re.compile(rf' *"((?:[^"]|"")*)" *(?={separator}|$)|([^{separator}]*)')
    while at <= len(line):
        found = pattern.match(line, at)
        quoted, bare = found.groups()
        if quoted is None and bare.lstrip(" ").startswith('"'):
            if not QUOTED.match(line[at:]):
                raise UserError(f'{where}: a quote is not closed; expected a second " in this line')
            raise UserError(f"{where}: not a row of a CSV file ({separator!r} expected after the closing quote)")
        cells.append(bare if quoted is None else quoted.replace('""', '"'))
        at = found.end() + 1
    return cells


def number(text: str, where: str) -> float:
    """Parses a finite number of at most LARGEST_NUMBER; raises a UserError, with the place in the file, otherwise."""
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


def digits_of(values: Float[np.ndarray, "_"], least: int) -> int:
    """Returns the number of significant digits, at least `least`, that resolve 10^-`least` of the values' spread.

    It is for numbers shown to users: 1764272400 and 1764272401 differ in the tenth digit.
    """
    largest, spread = np.max(np.abs(values), initial=0.0), np.ptp(values) if len(values) else 0.0
    return least + (max(0, math.ceil(math.log10(largest / spread))) if spread > 0 else 0)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(_parsed(text))
    except ValueError:
        return False


def _parsed(text: str) -> float:
    if "_" in text:  # Python reads 1_0 as 10
        raise ValueError(text)
    return float(text)
