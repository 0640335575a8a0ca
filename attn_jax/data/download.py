"""Fetches public data sets:

    python -m attn_jax.data.download enja --data_dir=data/enja

A broken download continues when the same command is run again, and a complete file is not fetched again.
Each file is checked against the SHA-256 known to attn_jax/data/sources.py. Where none is known, the first download
is trusted: its SHA-256 is printed and written to SHA256SUMS in the data folder, and every later run checks against it,
like `sha256sum -c SHA256SUMS`. An existing file with other content is never overwritten.
"""

import argparse
import hashlib
import pathlib
import re
import sys
from urllib.parse import urlsplit

import pooch
import requests
from tqdm import tqdm

from attn_jax.data.sources import DATASETS, Dataset, Remote
from attn_jax.errors import UserError, lookup
from attn_jax.paths import user_path

SUMS = "SHA256SUMS"
CHUNK = 1 << 16  # bytes
TIMEOUT = 30  # seconds without an answer


class Resumable:
    """A downloader for pooch that stores received bytes in `part` and requests only the missing ones.

    The request has a Range header (RFC 9110, section 14) and, if the server gave a strong ETag, an If-Range condition
    that the file has not changed. A server without ranges sends the whole file, which then replaces the part. With
    neither an ETag nor a known checksum, nothing shows that the rest belongs to the part, and the part is not used.
    """

    def __init__(self, part: pathlib.Path, known: bool):
        self.part, self.known = part, known
        self.etag = part.with_name(part.name + ".etag")

    def __call__(self, url: str, output_file: str, pooch: object, check_only: bool = False) -> None:
        """Downloads `url` into the part, then renames the part to `output_file`."""
        offset = self.part.stat().st_size if self.goes_on(url) else 0
        response = self._get(url, offset)
        if response.status_code == 416:  # no bytes from `offset` on: the part is complete, or of another file
            size = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", ""))
            if size is None or int(size[1]) != offset:
                self.part.unlink()
                offset, response = 0, self._get(url, 0)
        if response.status_code != 416:
            response.raise_for_status()
            self._save(url, response, offset)
        self.part.replace(output_file)
        self.etag.unlink(missing_ok=True)

    def goes_on(self, url: str) -> bool:
        """Tells whether a part exists that a download of this URL can continue."""
        return self.part.exists() and (self.known or bool(self._validator(url)))

    def _validator(self, url: str) -> str:
        """Returns the ETag that this URL had when the part was begun; "" if unknown."""
        kept = self.etag.read_text().splitlines() if self.etag.exists() else []
        return kept[0] if kept and kept[1:] in ([], [url]) else ""  # earlier versions kept no URL

    def _get(self, url: str, offset: int) -> requests.Response:
        headers = {"Accept-Encoding": "identity"}  # a range of a compressed response could not be appended
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if etag := self._validator(url):
                headers["If-Range"] = etag
        return requests.get(url, headers=headers, stream=True, timeout=TIMEOUT)

    def _save(self, url: str, response: requests.Response, offset: int) -> None:
        start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        resumed = response.status_code == 206 and start is not None and int(start[1]) == offset
        if response.status_code == 206 and not resumed:
            raise UserError(f"{url}: the server sent another range than the asked one, from byte {offset} on")
        if not resumed:  # first remove the old part, which the new ETag below would not fit
            self.part.unlink(missing_ok=True)
            offset = 0
        etag = response.headers.get("ETag", "")
        if etag.startswith('"'):  # weak ETags, W/"...", do not guarantee equal bytes
            self.etag.write_text(f"{etag}\n{url}\n")
        elif not resumed:
            self.etag.unlink(missing_ok=True)
        length = response.headers.get("Content-Length")
        total = None if length is None else offset + int(length)
        with (
            self.part.open("ab" if resumed else "wb") as file,
            tqdm(
                total=total, initial=offset, desc=self.part.stem, unit="B", unit_scale=True, disable=None, leave=False
            ) as bar,
        ):
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
        size = self.part.stat().st_size
        if total is not None and size < total:
            raise requests.ConnectionError(f"the connection ended after {size} of {total} bytes")


def download(dataset: Dataset, data_dir: str | pathlib.Path, base_url: str = "") -> list[pathlib.Path]:
    """Fetches and unpacks a data set, and returns the text files.

    Args:
        dataset: the data set, see attn_jax.data.sources.
        data_dir: folder for the files; it is made if needed.
        base_url: another server with the files; empty means the server of the data set and its mirrors.

    Raises:
        UserError: no network, an error of the server, a wrong checksum, a broken archive, an unwritable folder.
    """
    folder = user_path(data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [_fetch(remote, folder, base_url or dataset.base_url, not base_url) for remote in dataset.files]
        return dataset.unpack(files, folder)
    except OSError as error:  # not of requests, whose errors are told below
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from None


def _fetch(remote: Remote, folder: pathlib.Path, base_url: str, with_mirrors: bool) -> pathlib.Path:
    urls = [base_url.rstrip("/") + "/" + remote.path, *(remote.mirrors if with_mirrors else ())]
    path = folder / remote.name
    known = remote.sha256 or _read_sums(folder).get(remote.name)
    if path.exists() and known is not None and (obtained := _sha256(path)) != known:
        raise UserError(f"{path}: wrong checksum, expected SHA-256 {known} but it is {obtained}; delete it or move it")
    if not path.exists():
        failures = []
        for url in urls:
            try:
                _retrieve(url, known, path)
                break
            except UserError as error:
                failures.append(str(error))
        else:
            raise UserError("; ".join(failures))
    if known is None:
        with (folder / SUMS).open("a") as file:
            file.write(f"{_sha256(path)}  {remote.name}\n")
        print(f"{path}: SHA-256 {_sha256(path)}, unknown before, now in {folder / SUMS}", file=sys.stderr)
    return path


def _retrieve(url: str, known: str | None, path: pathlib.Path) -> None:
    part = path.with_name(path.name + ".part")
    try:
        host = urlsplit(url).netloc
    except ValueError:  # such as http://[::1
        raise UserError(f"{url}: not a URL such as https://host/folder/") from None
    downloader = Resumable(part, known is not None)
    known_hash = None if known is None else f"sha256:{known}"
    try:
        pooch.retrieve(url, known_hash=known_hash, fname=path.name, path=path.parent, downloader=downloader)
    except requests.HTTPError as error:
        raise UserError(f"{url}: the server answered {error.response.status_code} {error.response.reason}") from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
        raise UserError(f"{url}: not a URL such as https://host/folder/") from None
    except requests.RequestException as error:
        goes_on = f"; {part.stat().st_size} bytes are kept" if downloader.goes_on(url) else ""
        kept = f"{goes_on}, run the same command again to go on" if goes_on else ""
        raise UserError(f"{url}: no data from {host} ({_reason(error)}){kept}") from None
    except UserError:
        raise
    except ValueError as error:  # of pooch, which deletes the file
        obtained = re.search(r"but got '?([0-9a-f]{64})", str(error))
        if obtained is None:
            raise UserError(f"{url}: {' '.join(str(error).split())}") from None
        raise UserError(
            f"{url}: wrong checksum, expected SHA-256 {known} but got {obtained[1]}; the file was not kept"
        ) from None


def _reason(error: BaseException) -> str:
    """Message of the innermost exception, without addresses of objects."""
    while isinstance(inner := getattr(error, "reason", None) or (error.args or (None,))[0], BaseException):
        error = inner
    text = error.strerror if isinstance(error, OSError) and error.strerror else str((error.args or (error,))[0])
    return " ".join(re.sub(r"<[^>]*>:? ?|\w+\(host=[^)]*\): ?", "", text).split())


def _read_sums(folder: pathlib.Path) -> dict[str, str]:
    path = folder / SUMS
    if not path.exists():
        return {}
    sums = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if match is None:
            raise UserError(f"{path}, line {number}: expected a SHA-256, two spaces and a file name")
        sums[match[2]] = match[1]
    return sums


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit status: 0, or 1 after printing one line to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m attn_jax.data.download", description="Fetches a public data set, or goes on fetching it."
    )
    parser.add_argument("name", help=", ".join(f"{name} ({dataset.title})" for name, dataset in DATASETS.items()))
    parser.add_argument("--data_dir", required=True, help="folder for the files; it is made")
    parser.add_argument("--base_url", default="", help="another server that has the files")
    options = parser.parse_args(arguments)
    pooch.get_logger().setLevel("ERROR")
    try:
        dataset = lookup(DATASETS, options.name, "data set")
        for path in download(dataset, options.data_dir, options.base_url):
            with path.open("rb") as file:
                print(f"{path}\t{sum(1 for _ in file)} lines")
    except UserError as error:
        print(f"download: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("download: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
