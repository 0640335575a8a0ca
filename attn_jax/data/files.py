"""Files of a work directory: written atomically, never through links, and checked when read.

A work directory may come from someone else. A link in it, named like a file that a command writes, could make the
command overwrite another file of the user. So links are refused, and temporary files have unpredictable names.
"""

import base64
import errno
import json
import os
import pathlib
import secrets
import sys
import zlib
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from attn_jax.errors import UserError

CHECKSUM = "crc32"  # the key under which a file holds its own checksum


def check_links(workdir: pathlib.Path) -> None:
    """Raises UserError for links and other special files in a work directory or in a folder of it.

    The work directory itself may be a link, since the user named it.
    """
    try:
        for entry in [*_entries(workdir)]:
            if entry.is_symlink():
                raise is_link(entry.path)
            if not entry.is_dir() and not entry.is_file():
                raise UserError(f"{entry.path} is neither a file nor a folder; remove it")
    except OSError as error:
        raise UserError(f"cannot read {error.filename or workdir}: {reason(error)}") from error


def _entries(workdir: pathlib.Path) -> Iterator[os.DirEntry]:
    if not workdir.is_dir():
        return
    for entry in os.scandir(workdir):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from os.scandir(entry.path)


def is_link(path: str | os.PathLike) -> UserError:
    """Returns the error for a link where a file is expected."""
    return UserError(f"{os.fspath(path)} is a link; nothing is written through links in a work directory: remove it")


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file atomically, and makes its folder if needed. A link with this name is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    with open(partial, "xb", opener=_open) as file:  # mode x fails if the name exists, for instance a link
        try:
            file.write(content)
            file.close()
            os.replace(partial, path)
        except OSError as error:  # name the final file in the message
            partial.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def clear_partial(folder: pathlib.Path) -> None:
    """Removes partial files left by killed processes. No other process may be writing to the folder."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def append(path: pathlib.Path) -> TextIO:
    """Opens a text file to append to, line by line. A file with several hard links is first replaced by a copy.

    Raises:
        UserError: the file is a link.
        OSError: the file cannot be written.
    """
    file = open_plain(path)
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        write(path, path.read_bytes())
        file = open_plain(path)
    return file


def open_plain(path: pathlib.Path) -> TextIO:
    """Opens a text file to append to, line by line, without replacing hard links. Raises as `append`."""
    try:
        return open(path, "a", encoding="utf-8", buffering=1, opener=_open)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise is_link(path) from None
        raise


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def save_json(path: pathlib.Path, data: Any, indent: int | None = 1) -> None:
    """Writes data as JSON, atomically; on one line without indent."""
    try:
        # A lone surrogate, which UTF-8 cannot hold, is written as its escape, which JSON reads back.
        text = json.dumps(data, ensure_ascii=False, indent=indent) + "\n"
        write(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from error


def load_json(path: pathlib.Path) -> dict:
    """Reads a JSON object; raises a UserError if the file is missing or has other content."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: {path.parent} is not the work directory of a run, or lost it"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: not valid UTF-8 (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        wrong = f"not valid JSON (line {error.lineno}: {error.msg})" if error.doc.strip() else "the file is empty"
        raise UserError(f"cannot read {path}: {wrong}") from None
    except ValueError:  # the limit of the json package
        raise UserError(f"cannot read {path}: a number in it has thousands of digits") from None
    except RecursionError:
        raise UserError(f"cannot read {path}: too many brackets within brackets") from None
    if not isinstance(data, dict):
        raise UserError(f"cannot read {path}: expected a JSON object")
    return data


def save_checked(path: pathlib.Path, data: dict) -> None:
    """Writes data as JSON with a checksum, which `load_checked` verifies."""
    save_json(path, data | {CHECKSUM: text_checksum(data)})


def load_checked(path: pathlib.Path) -> tuple[dict, bool]:
    """Reads a file of `save_checked`; returns its contents and whether it has a checksum.

    Raises:
        UserError: the file cannot be read, or was changed since it was written.
    """
    data = load_json(path)
    if CHECKSUM not in data:
        return data, False
    expected = data.pop(CHECKSUM)
    try:
        found = text_checksum(data)
    except RecursionError:
        found = None
    if found != expected:
        raise changed(path)
    return data, True


def changed(path: pathlib.Path) -> UserError:
    """Returns the error for a file that was changed since the run wrote it."""
    return UserError(
        f"{path} was changed since the run wrote it (wrong checksum); put it back as it was, and set options on the "
        "command line: --config.key=value"
    )


def text_checksum(content: Any) -> int:
    """Returns the crc32 of the JSON text of the content."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def checksum(x: np.ndarray) -> int:
    """Returns the crc32 of the dtype, shape and bytes of an array."""
    header = header_checksum(x.dtype, x.shape)
    return zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8), header)


def header_checksum(dtype: np.dtype, shape: tuple[int, ...]) -> int:
    """Returns the crc32 of the dtype and shape of an array."""
    return zlib.crc32(f"{dtype.name}{shape}".encode())


def short(value: Any) -> str:
    """JSON text of a value, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]} ..."


def is_finite(value: Any) -> bool:
    """Tells whether a value read from JSON is a finite number within the range of a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_text(value: Any) -> bool:
    """Tells whether the value is a str that can be encoded as UTF-8; JSON can hold lone surrogates, which cannot."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def is_base64(value: Any) -> bool:
    """Tells whether the value is valid base64 text."""
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except ValueError:
        return False


def reason(error: OSError) -> str:
    """Message of the operating system for an error, such as "permission denied"."""
    return (error.strerror or str(error)).lower()
