"""Downloads from a server on the loopback interface: whole, resumed, refused, and checked."""

import functools
import gzip
import hashlib
import http.server
import io
import pathlib
import re
import tarfile
import threading
import zipfile

import pytest

pytest.importorskip("pooch")
pytest.importorskip("tqdm")

from attn_jax.data import download as module
from attn_jax.data import unpack
from attn_jax.data.download import SUMS, download, main
from attn_jax.data.sources import DATASETS, LANGUAGES, Dataset, Remote
from attn_jax.errors import UserError

DATA = bytes(range(256)) * 1000


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `files`, ranges too. `log` has (path, Range header) of each request."""

    def __init__(self, site, *args):
        self.site = site
        super().__init__(*args)

    def do_GET(self):
        site, wanted = self.site, self.headers.get("Range")
        site.log.append((self.path, wanted))
        data = site.files.get(self.path)
        if data is None:
            return self.send_error(404)
        current = self.headers.get("If-Range") in (None, site.etag)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and site.ranges and current else None
        if start is not None and start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(200 if start is None else 206)
        if start is not None:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if site.etag:
            self.send_header("ETag", site.etag)
        body = data[start or 0 :]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: site.break_after])

    def log_message(self, *args):
        pass


class Site:
    def __init__(self):
        self.files, self.log, self.ranges, self.etag, self.break_after = {"/x": DATA}, [], True, '"1"', None
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site = Site()
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture
def dataset(site):
    return Dataset("test", site.url, (Remote("x", "x.bin", sha256(DATA)),), unpack.nothing)


@pytest.fixture
def unknown(site):
    """The same, of unknown checksum."""
    return Dataset("test", site.url, (Remote("x", "x.bin"),), unpack.nothing)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_whole_and_only_once(site, dataset, tmp_path):
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        assert download(dataset, folder) == [folder / "x.bin"]
        assert (folder / "x.bin").read_bytes() == DATA and names(folder) == ["x.bin"]
    assert site.log == [("/x", None)]


@pytest.mark.parametrize("etag", ['"1"', 'W/"1"', ""], ids=["strong", "weak", "none"])
def test_a_broken_download_goes_on(site, dataset, tmp_path, etag):
    site.etag, site.break_after = etag, 100_000
    with pytest.raises(UserError, match=r"no data from 127\S+ \(Connection broken: .*; \d+ bytes are kept, run the s"):
        download(dataset, tmp_path)
    kept = (tmp_path / "x.bin.part").read_bytes()
    assert 0 < len(kept) <= 100_000 and kept == DATA[: len(kept)] and not (tmp_path / "x.bin").exists()
    site.break_after = None
    download(dataset, tmp_path)
    assert site.log == [("/x", None), ("/x", f"bytes={len(kept)}-")]
    assert (tmp_path / "x.bin").read_bytes() == DATA and names(tmp_path) == ["x.bin"]


@pytest.mark.parametrize("etags", [('"1"', '"2"'), ('W/"1"', 'W/"2"'), ("", "")], ids=["strong", "weak", "none"])
def test_a_part_of_unknown_checksum_is_never_joined_to_another_file_of_its_size(site, unknown, tmp_path, etags):
    site.etag, site.break_after = etags[0], 100_000
    with pytest.raises(UserError, match="no data from"):
        download(unknown, tmp_path)
    assert (tmp_path / "x.bin.part").exists()
    site.files["/x"], site.etag, site.break_after = DATA[::-1], etags[1], None
    download(unknown, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == DATA[::-1] and names(tmp_path) == [SUMS, "x.bin"]


def test_a_part_is_never_joined_to_a_file_of_another_server(site, unknown, tmp_path):
    """That has the same ETag, such as the number of a version."""
    site.files["/other/x"], site.break_after = DATA[::-1], 100_000
    with pytest.raises(UserError, match="no data from"):
        download(unknown, tmp_path)
    site.break_after = None
    download(unknown, tmp_path, base_url=f"{site.url}/other")
    assert (tmp_path / "x.bin").read_bytes() == DATA[::-1]


def test_a_part_never_has_the_etag_of_another_file(site, unknown, tmp_path, monkeypatch):
    """Of a download that is interrupted between the answer of the server and the first byte."""
    path, opens = tmp_path / "x.bin.part", pathlib.Path.open
    path.write_bytes(DATA[:1000])
    (tmp_path / "x.bin.part.etag").write_text('"1"')
    site.files["/x"], site.etag = DATA[::-1], '"2"'

    def interrupted(self, *args, **options):
        if self == path:
            raise KeyboardInterrupt
        return opens(self, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(path), "open", interrupted)
        download(unknown, tmp_path)
    download(unknown, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == DATA[::-1]


@pytest.mark.parametrize(
    ("part", "etag", "ranges"),
    [(DATA, "", True), (DATA + b"more", "", True), (DATA[:1000], "", False), (b"old" * 100, '"0"', True)],
    ids=["whole", "too long", "server without ranges", "of a file that was changed"],
)
def test_a_part_that_cannot_be_continued(site, dataset, tmp_path, part, etag, ranges):
    (tmp_path / "x.bin.part").write_bytes(part)
    if etag:
        (tmp_path / "x.bin.part.etag").write_text(etag)
    site.ranges = ranges
    download(dataset, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == DATA and names(tmp_path) == ["x.bin"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        download(dataset, tmp_path / "file")


def test_wrong_checksum_says_both_and_keeps_nothing(site, dataset, tmp_path):
    site.files["/x"] = b"something else"
    with pytest.raises(UserError) as error:
        download(dataset, tmp_path)
    assert f"expected SHA-256 {sha256(DATA)} but got {sha256(b'something else')}" in str(error.value)
    assert names(tmp_path) == []


def test_a_file_of_the_user_is_not_overwritten(site, dataset, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"mine")
    with pytest.raises(UserError, match=f"expected SHA-256 {sha256(DATA)} but it is {sha256(b'mine')}"):
        download(dataset, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == b"mine" and site.log == []


def test_without_a_known_checksum_the_first_is_trusted(site, unknown, tmp_path, capsys):
    for _ in range(2):
        download(unknown, tmp_path)
        assert (tmp_path / SUMS).read_text() == f"{sha256(DATA)}  x.bin\n"
    assert len(site.log) == 1 and capsys.readouterr().err.count(sha256(DATA)) == 1
    (tmp_path / "x.bin").unlink()
    site.files["/x"] = b"something else"
    with pytest.raises(UserError, match="wrong checksum"):
        download(unknown, tmp_path)
    (tmp_path / SUMS).write_text("nonsense\n")
    with pytest.raises(UserError, match=r"SHA256SUMS, line 1: expected a SHA-256"):
        download(unknown, tmp_path)


def test_mirror(site, tmp_path):
    remote = Remote("gone", "x.bin", sha256(DATA), mirrors=(f"{site.url}/x",))
    dataset = Dataset("test", site.url, (remote,), unpack.nothing)
    download(dataset, tmp_path / "a")
    assert [path for path, _ in site.log] == ["/gone", "/x"]
    with pytest.raises(UserError, match=r"gone: the server answered 404 Not Found$"):
        download(dataset, tmp_path / "b", base_url=site.url)  # the user's own server has no mirrors


def test_no_network_is_one_line(site, dataset, tmp_path):
    site.server.shutdown()
    site.server.server_close()
    with pytest.raises(UserError, match="no data from 127") as error:
        download(dataset, tmp_path)
    assert "refused" in str(error.value) and "\n" not in str(error.value) and "0x" not in str(error.value)
    with pytest.raises(UserError, match="not a URL such as"):
        download(dataset, tmp_path, base_url="here")


@pytest.mark.parametrize("url", ["http://[::1", "http://[::1/folder", "http://::1]/"])
def test_brackets_of_no_address_are_one_line(tmp_path, capsys, url):
    assert main(["enja", f"--data_dir={tmp_path}", f"--base_url={url}"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"download: {url.rstrip('/')}/") and err.count("\n") == 1
    assert err.endswith(": not a URL such as https://host/folder/\n") and names(tmp_path) == []


def make_zip(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


TALKS = {
    "ja-en/train.tags.ja-en.ja": "<url>u</url>\n<title>題\n こんにちは \n<拍手>\n空\n<talkid>1</talkid>\nまた\n",
    "ja-en/train.tags.ja-en.en": "<url>u</url>\n<title>T\nhello\n<Applause> !\n\n<talkid>1</talkid>\nagain\n",
    "ja-en/IWSLT17.TED.dev2010.ja-en.ja.xml": '<mteval>\n<doc docid="1">\n<seg id="1"> はい </seg>\n</doc>\n',
    "ja-en/IWSLT17.TED.dev2010.ja-en.en.xml": '<mteval>\n<doc docid="1">\n<seg id="1"> yes > no </seg>\n</doc>\n',
    "ja-en/README": "<x>",
}


def test_tag_lines_are_dropped(tmp_path, site):
    site.files["/x.zip"] = make_zip(TALKS)
    dataset = Dataset("test", site.url, (Remote("x.zip", "x.zip"),), unpack.tagged_zip)
    for _ in range(2):
        written = download(dataset, tmp_path)
    assert [path.name for path in written] == ["dev2010.ja", "dev2010.en", "train.ja", "train.en"]
    texts = ["はい\n", "yes > no\n", "こんにちは\n<拍手>\nまた\n", "hello\n<Applause> !\nagain\n"]
    assert [path.read_text() for path in written] == texts

    for data, message in (
        (b"no archive", "cannot be unpacked"),
        (make_zip({"x": ""}), "lacks train.tags.ja-en.ja"),
        (make_zip(TALKS | {"train.tags.ja-en.en": "one\n"}), r"train.ja has 4 sentences but train.en has 1"),
    ):
        (tmp_path / "y.zip").write_bytes(data)
        with pytest.raises(UserError, match=message):
            unpack.tagged_zip([tmp_path / "y.zip"], tmp_path)


def test_gunzip(tmp_path):
    path = tmp_path / "train.en.gz"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert unpack.gunzip([path], tmp_path) == [tmp_path / "train.en"]
    assert (tmp_path / "train.en").read_bytes() == b"a\nb\n"
    path.write_bytes(gzip.compress(b"other"))
    with pytest.raises(UserError, match="is there already with another content"):
        unpack.gunzip([path], tmp_path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"cannot be unpacked .*; delete it and download again"):
        unpack.gunzip([path], tmp_path)


def test_babi_tar(tmp_path):
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        files = "en/qa1_a-b_train.txt en-10k/qa1_a-b_test.txt hn/qa1_a-b_train.txt en/._qa1_a-b_train.txt"
        for name in files.split():
            member = tarfile.TarInfo(f"tasks_1-20_v1-2/{name}")
            member.size = 2
            archive.addfile(member, io.BytesIO(b"1\n"))
    written = unpack.babi_tar([path], tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in written] == ["en-10k/qa1_a-b_test.txt", "en/qa1_a-b_train.txt"]
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be unpacked"):
        unpack.babi_tar([path], tmp_path)


def test_command_line(site, tmp_path, capsys, monkeypatch, dataset):
    monkeypatch.setitem(module.DATASETS, "test", dataset)
    assert main(["test", f"--data_dir={tmp_path}", f"--base_url={site.url}/"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'x.bin'}\t{len(DATA.split(bytes([10])))} lines\n" and captured.err == ""
    assert main(["enjaa", f"--data_dir={tmp_path}"]) == 1
    assert capsys.readouterr().err == "download: unknown data set 'enjaa'; did you mean enja?\n"


def test_the_table_of_data_sets():
    assert set(DATASETS) == {"enja", "multi30k", "iwslt2017-ja-en", "babi", "sigmorphon2017"}
    for dataset in DATASETS.values():
        assert dataset.base_url.startswith("https://") and dataset.base_url.endswith("/")
        assert len({remote.name for remote in dataset.files}) == len(dataset.files)
        for remote in dataset.files:
            assert remote.sha256 is None or re.fullmatch("[0-9a-f]{64}", remote.sha256)
    files = {remote.name: remote for remote in DATASETS["sigmorphon2017"].files}
    assert len(files) == 5 * len(LANGUAGES) == 50
    assert sum(remote.sha256 is not None for remote in files.values()) == 3 * len(LANGUAGES)
    assert files["german-train-high"].path == "all/task1/german-train-high"
