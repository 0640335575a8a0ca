"""Every way a text file can be wrong gives one line that says which file, where, and what was expected."""

import gzip
import pathlib

import pytest

from attn_jax.data.text import read_lines, read_parallel
from attn_jax.errors import UserError

GZIP = gzip.compress(b"a\n", mtime=0)


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


@pytest.mark.parametrize(
    "data",
    ["a b\nc\n", "a b\nc", "a b\r\nc\r\n", b"\xef\xbb\xbfa b\nc\n"],
    ids=["lf", "no end", "crlf", "byte order mark"],
)
def test_line_ends_are_not_part_of_lines(write, data):
    assert read_lines(write("x", data)) == ["a b", "c"]
    assert read_lines(write("x", "a\u2028b\x0bc\x85d\ne\n")) == ["a\u2028b\x0bc\x85d", "e"]  # nothing else ends one


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "the file is empty"),
        (b"a\n\nb\n", "line 2: the line is empty"),
        (b"a\n \t\r\nb\n", "line 2: the line is empty"),
        ("a\nb\nä\n".encode("latin-1"), "line 3: not valid UTF-8 (byte 0xe4)"),
        ("a\nb\n".encode("utf-16"), "line 1: not valid UTF-8 (byte 0xff), it is UTF-16; convert it to UTF-8"),
        ("a\nb\n".encode("utf-16-le"), "line 1: not UTF-8 (zero byte), it is UTF-16; convert it to UTF-8"),
        (b"\xfe\xff\0a\0\n", "line 1: not valid UTF-8 (byte 0xfe), it is UTF-16; convert it to UTF-8"),
        (GZIP, "line 1: not valid UTF-8 (byte 0x8b), it is a gzip file; unpack it with gunzip"),
        (b"a\n\x1f\x8b\n", "line 2: not valid UTF-8 (byte 0x8b); convert it to UTF-8"),
    ],
)
def test_wrong_content(write, data, message):
    path = write("x", data)
    with pytest.raises(UserError) as error:
        read_lines(path)
    assert str(path) in str(error.value) and message in str(error.value) and "\n" not in str(error.value)


def test_missing_file_names_the_nearest(write):
    path = write("train.en", "a\n")
    with pytest.raises(UserError, match=r"train\.enn: no such file; did you mean train\.en\?"):
        read_lines(path.with_name("train.enn"))
    with pytest.raises(UserError, match="nowhere does not exist either"):
        read_lines(path.parent / "nowhere" / "train.en")
    with pytest.raises(UserError, match="is a directory; expected a text file"):
        read_lines(path.parent)


def test_unreadable(write, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "read_bytes", refuse)  # as root, chmod would not do
    with pytest.raises(UserError, match=r"x: cannot be read \(Permission denied\)"):
        read_lines(write("x", "a\n"))


def test_parallel_files(write):
    source, target = write("a.en", "1\n2\n"), write("a.ja", "1\n2\n3\n")
    assert read_parallel(source, source) == (["1", "2"], ["1", "2"])
    with pytest.raises(UserError, match=r"a\.en has 2 lines but .*a\.ja has 3"):
        read_parallel(source, target)
