"""Reads UTF-8 text files. Every error is a single line that names the file and the line number."""

import pathlib

from attn_jax.errors import UserError, nearest

Path = str | pathlib.Path
UTF_16 = "UTF-16; convert it to UTF-8, such as with iconv -f UTF-16 -t UTF-8"
# Formats of files that begin with these bytes, and advice to the user.
SIGNS = {b"\x1f\x8b": "a gzip file; unpack it with gunzip", b"\xff\xfe": UTF_16, b"\xfe\xff": UTF_16}


def read_lines(path: Path, expected: str = "one sentence per line") -> list[str]:
    """Reads the lines of a UTF-8 file, without their line ends (LF or CR LF) and without a byte order mark.

    Only LF ends a line. Other Unicode separators, such as U+2028, are part of the text, so that line numbers agree with
    other programs and with the parallel file. `expected` describes the lines in error messages.

    Raises:
        UserError: the file is missing, a directory, unreadable, empty, not UTF-8, or has an empty line.
    """
    lines = read_text(path, expected).removesuffix("\n").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            raise UserError(f"{path}, line {number}: the line is empty; expected {expected}")
    return lines


def read_text(path: Path, expected: str = "a text") -> str:
    """Reads a UTF-8 file, without a byte order mark. `expected` describes the text in error messages.

    Raises:
        UserError: the file is missing, a directory, unreadable, empty, or not UTF-8.
    """
    path = pathlib.Path(path)
    text = decode(_read_bytes(path), str(path))
    if not text:
        raise UserError(f"{path}: the file is empty; expected {expected}")
    return text


def read_parallel(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Reads the lines of two parallel files: line i of one is the translation of line i of the other.

    Raises:
        UserError: as `read_lines`, or the files have different numbers of lines.
    """
    source_lines, target_lines = read_lines(source), read_lines(target)
    if len(source_lines) != len(target_lines):
        raise UserError(
            f"{source} has {len(source_lines)} lines but {target} has {len(target_lines)}; expected line i of one "
            "to be the translation of line i of the other"
        )
    return source_lines, target_lines


def decode(data: bytes, name: str, number: int = 1) -> str:
    """Decodes UTF-8; a byte order mark before the first line is left out.

    Args:
        data: a line, or several.
        name: name of the text, for messages.
        number: number of the first line of `data`.

    Raises:
        UserError: the data is not UTF-8, or is the beginning of a text in UTF-16.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        known = [what for sign, what in SIGNS.items() if number == 1 and data.startswith(sign)]
        then = f", it is {known[0]}" if known else "; convert it to UTF-8"
        line = number + data.count(b"\n", 0, error.start)
        raise UserError(f"{name}, line {line}: not valid UTF-8 (byte 0x{data[error.start]:02x}){then}") from None
    if number == 1 and data[:2].count(0) == 1:  # UTF-16 without a mark: its ASCII is valid UTF-8 with zeros
        raise UserError(f"{name}, line 1: not UTF-8 (zero byte), it is {UTF_16}")
    return text.removeprefix("\ufeff") if number == 1 else text


def _read_bytes(path: pathlib.Path) -> bytes:
    if path.is_dir():
        raise UserError(f"{path}: is a directory; expected a text file")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {_hint(path)}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _hint(path: pathlib.Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    names = [entry.name for entry in folder.iterdir()]
    if not names:
        return f"the folder {folder} is empty"
    return nearest(path.name, names) if len(names) < 30 else f"the folder {folder} holds {len(names)} other files"
