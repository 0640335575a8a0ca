"""The data of a training is told by its content: other content of the same name and size is other data."""

import os

import numpy as np
import pytest
from tiny_run import write_pairs

from attn_jax.data.indexing import IndexOptions, write_index
from attn_jax.data.vocabulary_options import WordsOptions
from attn_jax.tasks import TASKS
from attn_jax.tasks.images.pictures import gallery_of

ROWS = 12
WORDS = {"vocabulary": WordsOptions(min_count=1)}


def of_pairs(folder):
    write_pairs(folder, "valid", 4)
    return *write_pairs(folder), {"train": ("train.source", "train.target"), "valid": ("valid.source", "valid.target")}


def parallel_text(folder, other):
    source, _, options = of_pairs(folder)
    swap_lines(source) if other else None
    return options | WORDS


def plain_text(folder, other):
    source, _, _ = of_pairs(folder)
    swap_lines(source) if other else None
    return {"train": ("train.source", ""), "valid": ("valid.source", "")} | WORDS


def labelled_text(folder, other):
    (folder / "train").write_text("".join(f"good bad {i % 3}\t{'yn'[(i + other) % 2]}\n" for i in range(ROWS)))
    return {"train": ("train", ""), "valid_size": 3} | WORDS


def inflection(folder, other):
    for name in ("a.train", "a.dev"):
        rows = (f"gehen{i:02d}\tging{i:02d}\tV;{'PST' if other else 'PRS'}\n" for i in range(ROWS))
        (folder / name).write_text("".join(rows))
    return {"train": ("a.train", ""), "valid": ("a.dev", "")}


def language_id(folder, other):
    for name in ("german", "french"):
        for split in ("train-low", "dev"):
            word = name[::-1] if other else name
            (folder / f"{name}-{split}").write_text("".join(f"{word}{i:02d}\tx\tV\n" for i in range(ROWS)))
    return {"size": "low", "valid_size": 2}


def babi(folder, other):
    """The answers stay; the numbers of the supporting facts are others."""
    story = f"1 Mary is in the hall.\n2 John is in the hall.\n3 Where is Mary? \thall\t{1 + other}\n"
    for name in ("train", "valid"):
        (folder / name).write_text(story * ROWS)
    return {"train": ("train", ""), "valid": ("valid", "")}


def pictures(folder, other):
    """The captions stay; a pixel of an image is another."""
    from PIL import Image

    for i in range(ROWS):
        pixels = np.full((8, 8, 3), i, np.uint8)
        pixels[0, 0] = 200 * other * (i == ROWS - 1)
        Image.fromarray(pixels).save(folder / f"{i}.png", compress_level=0)
    (folder / "captions.tsv").write_text("".join(f"{i}.png\ta {i % 3}\n" for i in range(ROWS)))
    return {"valid_size": 3, "min_count": 1}


def scenes(folder, other):
    """Written digits; those of MNIST in files of idx."""
    images, labels = np.full((60, 9, 9), 200, np.uint8), np.arange(60, dtype=np.uint8) // 5 % 10
    images[0, 0, 0] = 100 * other
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
        (folder / f"t10k-{name}").write_bytes(header + array.tobytes())
    return {"glyphs": "mnist", "canvas": 24, "sizes": (8, 8), "num_examples": 5, "valid_size": 5}


def indexed_text(folder, other):
    """The first pairs stay, which the task has in memory, and so do the vocabularies."""
    *texts, _ = of_pairs(folder)
    for text in texts if other else ():
        swap_lines(text)
    write_index(*texts, folder / "index", IndexOptions(min_count=1))
    files = {name: (f"../valid.{name}") for name in ("source", "target")}
    return {"valid": (files["source"], files["target"])}, folder / "index"


def regression(folder, other):
    rows = [f"{i},{(i * 7) % 5}\n" for i in range(50)]
    rows[-1] = rows[-1].replace(",", ",1" if other else ",2")
    (folder / "points.csv").write_text("x,y\n" + "".join(rows))
    return {"train": ("points.csv", ""), "valid_size": 5}


WRITERS = (parallel_text, plain_text, labelled_text, inflection, language_id, babi, pictures, scenes, indexed_text)
FROM_FILES = {writer.__name__: writer for writer in (*WRITERS, regression)}
GENERATED = set("dates sequences zipf recall flip_flop addition permutations".split())  # by a seed


def swap_lines(path):
    """The last two lines change places."""
    *lines, before, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, last, before]))


def test_every_task_is_known_to_read_files_or_not():
    assert FROM_FILES.keys() | GENERATED == TASKS.keys() and not FROM_FILES.keys() & GENERATED


@pytest.mark.slow
@pytest.mark.parametrize("name", FROM_FILES)
def test_other_data_of_the_same_names_and_sizes_has_other_checksums(name, tmp_path, monkeypatch):
    monkeypatch.setattr("attn_jax.tasks.text.indexed_text.SHOWN", 10)
    found, sizes = [], []
    for number, other in enumerate((False, False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = FROM_FILES[name](folder, other)
        options, data_dir = given if isinstance(given, tuple) else (given, folder)
        if name == "pictures":  # whose names are part of the sources
            monkeypatch.chdir(folder)
            data_dir = "."
        task = TASKS[name](**options).build(data_dir=str(data_dir), kept=None, seeds=(0,))
        found.append(task.checksums())
        sizes.append({path.name: path.stat().st_size for path in folder.iterdir()})
    assert found[0] == found[1] != found[2] and sizes[0] == sizes[1] == sizes[2]


def test_an_image_that_is_written_anew_is_read_again(tmp_path, monkeypatch):
    """Of a process that has read the file of this name before, such as a notebook."""
    monkeypatch.chdir(tmp_path)
    options = pictures(tmp_path, False)
    task = TASKS["pictures"](**options).build(data_dir=".", kept=None, seeds=(0,))
    gallery, name = gallery_of(task.facts), f"{ROWS - 1}.png"
    before, sums = gallery.pixels(name), dict(gallery.sums)
    assert gallery.pixels(name) is before
    size = os.path.getsize(name)
    pictures(tmp_path, True)
    assert os.path.getsize(name) == size
    assert gallery.pixels(name)[0, 0, 0] == 200 and before[0, 0, 0] == 0
    assert gallery.sums.keys() == sums.keys() and gallery.sums != sums
