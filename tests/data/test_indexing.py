"""An index is of the texts that it was begun with, byte for byte, and one process at a time writes it."""

import random
import subprocess
import sys

import pytest
from tiny_run import write_pairs

from attn_jax.cli import index as command
from attn_jax.data import indexing
from attn_jax.data.indexing import IndexOptions, write_index
from attn_jax.data.token_index import INDEX, PROGRESS, VOCABULARIES, open_index, read_index
from attn_jax.errors import UserError

OPTIONS = IndexOptions(min_count=1, buckets=(6, 9))
COUNT, PART, DONE = 90, 20, 40  # pairs: in all, in a part, done when it is interrupted


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(indexing, "PART", PART)


@pytest.fixture
def texts(tmp_path):
    return write_pairs(tmp_path, count=COUNT)


@pytest.fixture
def begun(texts, tmp_path):
    """A folder of which DONE pairs are written."""

    def stop(what, done, total):
        if what == "pairs" and done >= DONE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(*texts, tmp_path / "index", OPTIONS, stop)
    return tmp_path / "index"


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def permuted(paths):
    """Both texts in another order, the same for both."""
    count = len(paths[0].read_text().splitlines())
    order = random.Random(0).sample(range(count), count)
    for path in paths:
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{lines[i]}\n" for i in order))


def swap(path, place):
    """Two different bytes of a line change places."""
    content = bytearray(path.read_bytes())
    first = content.index(b"\n", place % len(content)) - 1
    other = next(i for i in range(first - 1, 0, -1) if content[i] not in (content[first], *b"\n "))
    content[first], content[other] = content[other], content[first]
    path.write_bytes(content)


OTHERS = {  # other content of the same size
    "both in another order": permuted,
    "upper case": lambda paths: paths[0].write_text(paths[0].read_text().upper()),
    "a letter of the source that is encoded": lambda paths: swap(paths[0], 0),
    "a letter of the source that is not": lambda paths: swap(paths[0], -40),
    "a letter of the target that is encoded": lambda paths: swap(paths[1], 0),
    "a letter of the target that is not": lambda paths: swap(paths[1], -40),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_an_interrupted_index_never_goes_on_over_another_text_of_the_same_size(texts, begun, change):
    before = [path.read_bytes() for path in texts]
    change(texts)
    assert [path.stat().st_size for path in texts] == list(map(len, before))
    assert before != [path.read_bytes() for path in texts]
    left = files_of(begun)
    side = "source" if texts[0].read_bytes() != before[0] else "target"
    with pytest.raises(UserError, match=f"was begun with another {side} text than .*; choose another folder"):
        write_index(*texts, begun, OPTIONS)
    assert files_of(begun) == left  # nothing is lost
    for path, content in zip(texts, before, strict=True):
        path.write_bytes(content)
    assert write_index(*texts, begun, OPTIONS) == COUNT
    write_index(*texts, begun.with_name("whole"), OPTIONS)
    assert files_of(begun) == files_of(begun.with_name("whole"))


CHANGES = {  # while it is indexed
    "fewer source lines": lambda paths: paths[0].write_text("".join(paths[0].read_text().splitlines(True)[:-9])),
    "fewer target lines": lambda paths: paths[1].write_text("".join(paths[1].read_text().splitlines(True)[:30])),
    "no source lines": lambda paths: paths[0].write_text(""),
    "more target lines": lambda paths: paths[1].write_text(paths[1].read_text() + "one more\n"),
    **{name: OTHERS[name] for name in ("both in another order", "upper case", "a letter of the target that is not")},
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["vocabulary", "pairs"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_text_that_changes_while_it_is_indexed_is_one_line(tmp_path, monkeypatch, change, moment):
    monkeypatch.setattr(indexing, "PART", 2000)
    texts, changed = write_pairs(tmp_path, count=8000), []  # more bytes than a buffer has read ahead

    def at(what, done, total):
        if what == moment and not changed:
            changed.append(change(texts))

    with pytest.raises(UserError, match=r"was changed while it was indexed: remove .*/index, and index") as error:
        write_index(*texts, tmp_path / "index", OPTIONS, at)
    assert "\n" not in str(error.value) and not (tmp_path / "index" / INDEX).exists()
    with pytest.raises(UserError):  # nor when the same command is run again
        write_index(*texts, tmp_path / "index", OPTIONS)
    assert not (tmp_path / "index" / INDEX).exists()


@pytest.mark.parametrize("name", ["source.tokens", "target.tokens", "source.offsets", "target.offsets", VOCABULARIES])
def test_an_interrupted_index_never_goes_on_over_changed_files(texts, begun, name):
    """Such as those of another index of as many bytes, or with zeros where they were lost."""
    path, other = begun / name, begun.with_name("other")
    if name == VOCABULARIES:
        permuted(texts[::-1])
        for text in texts:
            text.write_text(text.read_text()[::-1].strip() + "\n")
        write_index(*texts, other, OPTIONS)
        path.write_bytes((other / name).read_bytes())
        write_pairs(begun.parent, count=COUNT)
    else:
        path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match=f"{name} was changed since .*; choose another folder, or remove it"):
        write_index(*texts, begun, OPTIONS)


@pytest.mark.slow
def test_a_killed_indexer_leaves_its_folder_to_the_same_command(texts, tmp_path, capsys):
    """While it works, no other process writes to the folder; after a SIGKILL the next one goes on."""
    folder = tmp_path / "index"
    arguments = [f"--source={texts[0]}", f"--target={texts[1]}", f"--out={folder}", "--min_count=1"]
    code = f"""if True:
        import sys
        from attn_jax.cli import index
        from attn_jax.data import indexing
        indexing.PART = {PART}
        def show(bar, what, done, total):
            if what == "pairs" and done >= {DONE}:
                print("waits", flush=True)
                input()
        index.show = show
        index.main(sys.argv[1:])
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", code, *arguments], **pipes)
    try:
        assert other.stdout.readline() == "waits\n"
        with pytest.raises(UserError, match=f"^{folder} is in use: another process is writing there$"):
            command.main(arguments)
    finally:
        other.kill()
        other.communicate()
    assert (folder / PROGRESS).exists()
    command.main(arguments)
    assert f"{COUNT} pairs" in capsys.readouterr().out
    write_index(*texts, tmp_path / "whole", IndexOptions(min_count=1))
    assert files_of(folder) == files_of(tmp_path / "whole")


def test_a_check_says_whether_an_index_is_of_these_texts(texts, tmp_path, capsys):
    folder = tmp_path / "index"
    write_index(*texts, folder, OPTIONS)
    arguments = [f"--check={folder}", f"--source={texts[0]}", f"--target={texts[1]}"]
    command.main(arguments)
    assert "files are sound, and of these texts" in capsys.readouterr().out
    swap(texts[1], 0)
    with pytest.raises(UserError, match="is an index of another target text than"):
        command.main(arguments)
    with pytest.raises(UserError, match="expected --source=FILE and --target=FILE"):
        command.main(arguments[:2])
    command.main(arguments[:1])
    assert "files are sound\n" in capsys.readouterr().out
    assert read_index(folder)["texts"].keys() == {"source", "target"}


def test_an_index_with_vocabularies_of_another_one_does_not_open(texts, tmp_path):
    """Of as many bytes, and with a sound checksum of its own."""
    write_index(*texts, tmp_path / "index", OPTIONS)
    for text in texts:
        text.write_text(text.read_text().replace("a", "q"))
    write_index(*texts, tmp_path / "other", OPTIONS)
    content = (tmp_path / "other" / VOCABULARIES).read_bytes()
    assert len(content) == len((tmp_path / "index" / VOCABULARIES).read_bytes())
    (tmp_path / "index" / VOCABULARIES).write_bytes(content)
    with pytest.raises(UserError, match=r"vocabularies.json is not that of the index"):
        open_index(tmp_path / "index")
