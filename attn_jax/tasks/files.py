"""Files of a work directory: written as a whole or not at all, never through a link, and checked when read.

A work directory may come from a stranger. A link in it that has the name of a file which a command writes would have
another file of the user's overwritten, so links are refused, and no file is opened by a name that can be foretold.
"""

import base64
import errno
import json
import os
import pathlib
import secrets
import zlib
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from attn_jax.errors import UserError

CHECKSUM = "crc32"  # the key under which a file holds its own checksum


def check_links(workdir: pathlib.Path) -> None:
    """UserError for a link, or anything else that is no plain file or folder, in a work directory or in a folder of it.

    The work directory itself may be a link: that is the choice of the user, who named it.
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
    """The error of a path that is a link and must not be."""
    return UserError(f"{os.fspath(path)} is a link; nothing is written through links in a work directory: remove it")


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file as a whole or not at all; makes its folder if need be. A link of that name is replaced.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    with open(partial, "xb", opener=_open) as file:  # x: never through a link, whatever has this name
        try:
            file.write(content)
            file.close()
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def clear_partial(folder: pathlib.Path) -> None:
    """Removes what processes that were killed were writing to a folder. No other process may be writing there."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def append(path: pathlib.Path) -> TextIO:
    """Opens a text file to write at its end, line by line. One that has other names is first replaced by a copy.

    Raises:
        UserError: it is a link.
        OSError: it cannot be written.
    """
    file = open_plain(path)
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        write(path, path.read_bytes())
        file = open_plain(path)
    return file


def open_plain(path: pathlib.Path) -> TextIO:
    """Opens a text file to write at its end, line by line; what it holds stays. Raises as `append`."""
    try:
        return open(path, "a", encoding="utf-8", buffering=1, opener=_open)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise is_link(path) from None
        raise


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def save_json(path: pathlib.Path, data: Any) -> None:
    """Writes data as JSON, as a whole or not at all."""
    try:
        write(path, (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from error


def load_json(path: pathlib.Path) -> dict:
    """The contents, or a UserError where the file is missing or no JSON object."""
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
    except ValueError:  # json's own limit
        raise UserError(f"cannot read {path}: a number in it has thousands of digits") from None
    except RecursionError:
        raise UserError(f"cannot read {path}: too many brackets within brackets") from None
    if not isinstance(data, dict):
        raise UserError(f"cannot read {path}: expected a JSON object")
    return data


def save_checked(path: pathlib.Path, data: dict) -> None:
    """`save_json` with a checksum, from which `load_checked` knows that the file is as it was written."""
    save_json(path, data | {CHECKSUM: text_checksum(data)})


def load_checked(path: pathlib.Path) -> tuple[dict, bool]:
    """Reads (the contents, True) of a file of `save_checked`, (the contents, False) of one without a checksum.

    Raises:
        UserError: it cannot be read, or was changed since it was written.
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
    """The error of a file that is not as the run wrote it."""
    return UserError(
        f"{path} was changed since the run wrote it (wrong checksum); put it back as it was, and set options on the "
        "command line: --config.key=value"
    )


def text_checksum(content: Any) -> int:
    """crc32 of what JSON writes for it."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def checksum(x: np.ndarray) -> int:
    """crc32 of the type, the shape and the bytes."""
    header = f"{x.dtype.name}{x.shape}".encode()
    return zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8), zlib.crc32(header))


def short(value: Any) -> str:
    """The value as it is written in JSON; of a long one the beginning."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]} ..."


def is_text(value: Any) -> bool:
    """Tells whether it is a str that can be written as UTF-8: JSON may hold halves of characters, which cannot."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def is_base64(value: Any) -> bool:
    """Tells whether it is the base64 text of some bytes."""
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except ValueError:
        return False


def reason(error: OSError) -> str:
    """The operating system's words for an error, such as "permission denied"."""
    return (error.strerror or str(error)).lower()
