"""Pairs of texts in one file: JSON lines, CSV or TSV, with a field for the sources and one for the targets.

{"source": "der Hund", "target": "the dog"}        pairs.jsonl: an object per line
source,target                                      pairs.csv, pairs.tsv: names in the first line
"""

import csv
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from attn_jax.data.text import read_text
from attn_jax.errors import UserError, nearest

SUFFIXES = (".jsonl", ".csv", ".tsv")
FIELDS = ("source", "target")  # names of the fields, unless others are given


def is_text_table(name: str) -> bool:
    """Tells whether a file of this name has sources and targets."""
    return pathlib.Path(name).suffix.lower() in SUFFIXES


def read_pairs(path: pathlib.Path, fields: Sequence[str] = FIELDS) -> tuple[list[str], list[str]]:
    """Reads the two fields of each row. A CSV or TSV file of two columns without their names has them in this order.

    Raises:
        UserError: the file cannot be read, a row has no such field, or a field is no text, empty, or has several lines.
    """
    text = read_text(path, f"rows with {' and '.join(fields)}")
    kind = path.suffix.lower()
    rows = _objects(path, text) if kind == ".jsonl" else _rows(path, text, "\t" if kind == ".tsv" else ",", fields)
    sides: tuple[list[str], list[str]] = [], []
    for number, row in rows:
        for side, field in zip(sides, fields, strict=True):
            if field not in row:
                raise UserError(
                    f"{path}, line {number}: no field {field!r}; {nearest(field, map(str, row))}; see task.fields"
                )
            value = row[field]
            if not isinstance(value, str) or not value.strip() or "\n" in value.strip():
                raise UserError(f"{path}, line {number}: {field} is {value!r}; expected a text of one line")
            side.append(value.strip("\r\n"))
    if not sides[0]:
        raise UserError(f"{path}: no rows; expected some with {' and '.join(fields)}")
    return sides


def _objects(path: pathlib.Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{path}, line {number}: not valid JSON ({error}); expected an object per line"
                ) from None
            if not isinstance(row, dict):
                raise UserError(
                    f'{path}, line {number}: {line[:40]!r} is no object; expected such as {{"source": ...}}'
                )
            yield number, row


def _rows(path: pathlib.Path, text: str, separator: str, fields: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL  # a quote in TSV is a letter
    reader = csv.reader(text.split("\n"), delimiter=separator, quoting=quoting, strict=True)
    names: Sequence[str] | None = None
    try:
        for cells in reader:
            if not cells:
                continue
            if names is None:
                named = set(fields) <= set(cells)
                names = cells if named or len(cells) != 2 or tuple(fields) != FIELDS else FIELDS
                if names is cells:
                    if not named:
                        raise UserError(
                            f"{path}, line 1: the columns {', '.join(map(repr, cells))}; expected {fields[0]!r} and "
                            f"{fields[1]!r}, see task.fields"
                        )
                    continue
            if len(cells) != len(names):
                raise UserError(f"{path}, line {reader.line_num}: {len(cells)} columns; expected {len(names)}")
            yield reader.line_num, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num}: {error}; expected {separator!r} between two columns"
        ) from None
