"""Written digits: idx files are read as they are defined, training never has those of the test, boxes fit the ink."""

import gzip

import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.tasks.images.pictures import gallery_of
from attn_jax.tasks.images.real_digits import of_mnist
from attn_jax.tasks.images.scenes import ScenesOptions

NAMES = ("images-idx3-ubyte", "labels-idx1-ubyte")


def idx(array):
    header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def with_image(number, value):
    """60 bright images but one, all of whose pixels have this value."""
    images = np.full((60, 9, 9), 200)
    images[number] = value
    return images


def write(folder, count=60, part="t10k", packed=True, value=200):
    """Files of `count` images: a bar whose height and brightness tell the number of the image."""
    images, labels = np.zeros((count, 9, 9)), np.arange(count) // 5 % 10
    for i in range(count):
        images[i, 1 : 4 + i % 5, 3:6] = value - i
    folder.mkdir(exist_ok=True)
    for name, array in zip(NAMES, (images, labels), strict=True):
        data = idx(array)
        path = folder / f"{part}-{name}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data) if packed else data)
    return images, labels


def build(folder, **options):
    given = {"num_examples": 12, "valid_size": 3, "glyphs": "mnist", "clutter": 2} | options
    return ScenesOptions(**given).build(data_dir=str(folder), kept=None, seeds=(0,))


@pytest.mark.parametrize("packed", [True, False])
def test_an_idx_file_is_read_as_it_was_written(tmp_path, packed):
    images, labels = write(tmp_path / f"{packed}", packed=packed)
    found = of_mnist(str(tmp_path / f"{packed}"))
    np.testing.assert_allclose(found.images, images / 255)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.held_out.sum() == 12 and not set(found.numbers(4, True)) & set(found.numbers(4, False))


def test_both_parts_of_mnist_are_training_and_test(tmp_path):
    write(tmp_path, 60, "train")
    write(tmp_path, 50)
    found = of_mnist(str(tmp_path))
    assert found.held_out.tolist() == [False] * 60 + [True] * 50
    write(tmp_path, 20)
    of_mnist.cache_clear()
    with pytest.raises(UserError, match="too few images of the digit 4 for training and test"):
        of_mnist(str(tmp_path))


def test_training_never_has_a_digit_of_the_test_and_boxes_are_those_of_the_ink(tmp_path):
    write(tmp_path)
    task = build(tmp_path, clutter=0, noise=0.0)
    world = task.facts.world
    assert world["glyphs"] == "mnist" and world["folder"] == str(tmp_path)
    gallery = gallery_of(task.facts).gallery
    used = {}
    for split in ("train", "test"):
        for i in range(12):
            scene, image = gallery.scene(f"{split}:{i}"), gallery.pixels(f"{split}:{i}")
            used.setdefault(split, set()).update(thing.face for thing in scene.things)
            outside = np.ones(image.shape[:2], bool)
            for thing in scene.things:
                left, top, right, bottom = thing.box
                part = image[top:bottom, left:right].max(-1)
                assert all(edge.max() > 20 for edge in (part[0], part[-1], part[:, 0], part[:, -1]))
                assert int(thing.face.partition(":")[2]) // 5 % 10 == int(thing.word)
                assert thing.size - 3 <= bottom - top <= thing.size
                outside[top:bottom, left:right] = False
            assert not image[outside].any()
    assert not used["train"] & used["test"] and len(used["train"]) > 5


def test_the_digits_of_scikit_learn_are_drawn_where_it_is_installed():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    task = build("", glyphs="digits", kinds=("digits", "letters"))
    gallery = gallery_of(task.facts)
    assert gallery.pixels("train:0").any()
    faces = {thing.face for i in range(30) for thing in gallery.gallery.scene(f"train:{i}").things}
    assert any(face.startswith("digits:") for face in faces) and any(":" not in face for face in faces)


def test_a_world_of_an_old_work_directory_is_one_of_typefaces():
    """It names neither glyphs nor a folder."""
    task = build("", glyphs="fonts")
    old = {key: value for key, value in task.facts.world.items() if key not in ("glyphs", "folder")}
    found = task.facts._replace(world=old)
    before, after = (gallery_of(facts).pixels("test:2") for facts in (task.facts, found))
    assert len(old) < len(task.facts.world) and np.array_equal(before, after)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (NAMES[0], None, r"task.glyphs mnist needs t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.*in config.data_"),
        (NAMES[0], b"no idx file", "t10k-images-idx3-ubyte: not an idx file of 3 axes of bytes"),
        (NAMES[1], idx(np.arange(7)), "t10k-labels-idx1-ubyte: 7 labels for the 60 images of t10k-images-idx3-ubyte"),
        (NAMES[1], idx(np.full(60, 11)), "the label 11; expected digits"),
        (NAMES[1], idx(np.arange(60) // 5 % 10)[:-1], "t10k-labels-idx1-ubyte: 67 bytes; expected 68"),
        (NAMES[0], idx(with_image(40, 0)), "t10k-images-idx3-ubyte, image 41: blank, no pixel is above 25; expected i"),
        (NAMES[0], idx(with_image(0, 25)), "t10k-images-idx3-ubyte, image 1: blank, no pixel is above 25; expected in"),
        (NAMES[0], idx(np.zeros((60, 0, 9))), "t10k-images-idx3-ubyte, image 1: blank"),
    ],
    ids=["no file", "no idx file", "fewer labels", "no digit", "cut short", "blank", "faint", "no pixels"],
)
def test_what_is_no_mnist_is_one_line(tmp_path, name, content, message):
    write(tmp_path, packed=False)
    path = tmp_path / f"t10k-{name}"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        build(tmp_path)


def test_written_digits_need_digits(tmp_path):
    with pytest.raises(UserError, match=r"task.glyphs mnist is for digits, but task.kinds is \('shapes',\)"):
        build(tmp_path, kinds=("shapes",))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"nothing")
    packed = gzip.compress(bytes(1000))
    for damaged in (b"nothing", packed[:20], packed[:10] + b"\xff" + packed[11:]):
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte.gz: not a gzip file that can be read"):
            build(tmp_path)
