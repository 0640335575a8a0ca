"""Unpacks downloaded archives into text files. Each function maps the archives and the data folder to the text files.

An existing text file with different content is a UserError, since it may be the user's own.
"""

import gzip
import pathlib
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable

from attn_jax.errors import UserError

TAG_LINE = re.compile(r"\s*</?[a-z]+[ >]")  # such as "<title>..." between the sentences of a talk
SEGMENT = re.compile(r'\s*<seg id="\d+">(.*)</seg>')
BABI_FILE = re.compile(r"(?:.*/)?(en|en-10k)/(qa\d+_[\w-]+\.txt)")

Paths = list[pathlib.Path]


def nothing(archives: Paths, folder: pathlib.Path) -> Paths:
    """Returns the files unchanged, since they are texts already."""
    return archives


def gunzip(archives: Paths, folder: pathlib.Path) -> Paths:
    """Unpacks x.gz to x."""
    return [
        _write(folder / path.stem, _guard(path, lambda path: gzip.decompress(path.read_bytes()))) for path in archives
    ]


def tagged_zip(archives: Paths, folder: pathlib.Path) -> Paths:
    """Unpacks IWSLT: train.tags.ja-en.{ja,en} to train.{ja,en}, IWSLT17.TED.X.ja-en.{ja,en}.xml to X.{ja,en}.

    Lines of the training files that begin with a tag are dropped; the other files give the text of their segments.
    Pairs with an empty side are dropped.

    Raises:
        UserError: the archive is broken, lacks a file, or the two sides do not have the same number of sentences.
    """
    (archive,) = archives
    texts = _guard(archive, _zip_texts)
    names = sorted(name.removesuffix(".ja") for name in texts if name.endswith(".ja") and name[:-3] + ".en" in texts)
    if "train" not in names:
        raise UserError(f"{archive}: lacks train.tags.ja-en.ja or train.tags.ja-en.en")
    written = []
    for name in names:
        sides = texts[f"{name}.ja"], texts[f"{name}.en"]
        if len(sides[0]) != len(sides[1]):
            raise UserError(f"{archive}: {name}.ja has {len(sides[0])} sentences but {name}.en has {len(sides[1])}")
        pairs = [pair for pair in zip(*sides, strict=True) if all(pair)]
        for language, side in zip(("ja", "en"), zip(*pairs, strict=True), strict=True):
            written.append(_write(folder / f"{name}.{language}", ("\n".join(side) + "\n").encode()))
    return written


def babi_tar(archives: Paths, folder: pathlib.Path) -> Paths:
    """Unpacks the English tasks: en/qa*.txt and en-10k/qa*.txt.

    Raises:
        UserError: the archive is broken or has no such files.
    """
    (archive,) = archives
    files = _guard(archive, _babi_files)
    if not files:
        raise UserError(f"{archive}: has no files such as en/qa1_single-supporting-fact_train.txt")
    return [_write(folder / name, data) for name, data in sorted(files.items())]


def _zip_texts(path: pathlib.Path) -> dict[str, list[str]]:
    texts = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            name = pathlib.PurePosixPath(member).name
            if match := re.fullmatch(r"train\.tags\.ja-en\.(ja|en)", name):
                lines = archive.read(member).decode("utf-8").removesuffix("\n").split("\n")
                texts[f"train.{match[1]}"] = [line.strip() for line in lines if not TAG_LINE.match(line)]
            elif match := re.fullmatch(r"IWSLT17\.TED\.(\w+)\.ja-en\.(ja|en)\.xml", name):
                segments = map(SEGMENT.match, archive.read(member).decode("utf-8").split("\n"))
                texts[f"{match[1]}.{match[2]}"] = [segment[1].strip() for segment in segments if segment]
    return texts


def _babi_files(path: pathlib.Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        matches = {member: BABI_FILE.fullmatch(member.name) for member in archive if member.isfile()}
        return {f"{m[1]}/{m[2]}": archive.extractfile(member).read() for member, m in matches.items() if m}


def _guard(path: pathlib.Path, read: Callable):
    try:
        return read(path)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be unpacked ({error}); delete it and download again") from None


def _write(path: pathlib.Path, data: bytes) -> pathlib.Path:
    if path.exists():
        if path.read_bytes() != data:
            raise UserError(f"{path}: is there already with another content; delete it or move it")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)  # atomic, so that an existing file is complete
    return path
