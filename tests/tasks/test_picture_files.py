"""Own images: captions, questions and boxes are read as written, and each kind of bad input is one line."""

from functools import partial

import numpy as np
import pytest
from PIL import Image

from attn_jax.errors import UserError
from attn_jax.tasks.images.picture_files import PictureFilesOptions
from attn_jax.tasks.images.pictures import check_image, encode_pictures, read_image

LINES = ["0.png\ta cat", "1.png\ta dog", "1.png\tno cat", "2.png\ta cat", "3.png\ta dog"]


@pytest.fixture
def folder(tmp_path):
    for number in range(4):
        Image.fromarray(np.full((8, 12, 3), 40 * number, np.uint8)).save(tmp_path / f"{number}.png")
    return tmp_path


def build(folder, lines, **options):
    (folder / "captions.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    given = {"valid_size": 1, "min_count": 1} | options
    return PictureFilesOptions(**given).build(data_dir=str(folder), kept=None, seeds=(0,))


def test_captions_of_images(folder):
    task = build(folder, LINES)
    assert task.facts.shape == (8, 12, 3) and task.stats["valid"] == 1
    held_out = set(task.splits["valid"].source)
    assert not held_out & set(task.splits["train"].source) and task.splits["train"].boxes is None
    picture = task.batches(batch_size=2, encode=partial(encode_pictures, facts=task.facts)).batch_at(0)["source"]
    assert picture.pixels.shape == (2, 8, 12, 3) and picture.words.shape == (2, 0)
    grey = build(folder, LINES, channels=1)
    encoded = encode_pictures(grey.splits["train"], *grey.kept)
    assert encoded.batch(np.array([0]), (1, 4))["source"].pixels.shape[-1] == 1


def test_images_of_a_given_file_that_training_has_are_counted(folder):
    (folder / "valid.tsv").write_text("1.png\ta hat\n./1.png\ta rat\n3.png\ta bat\n")
    assert build(folder, LINES[:4], valid="valid.tsv").stats["valid captions with an image that training has too"] == 2


def test_questions_and_boxes(folder):
    lines = ["0.png\twhat is it\tred cat\t1,1,4,4+0,0,2,2 -", "1.png\twhat is there\tdog"]
    (folder / "valid.tsv").write_text("2.png\twho\tcat\t0,1,12,8\n3.png\twho\tcat\n")
    task = build(folder, lines, questions=True, valid="valid.tsv")
    train, valid = task.splits["train"], task.splits["valid"]
    assert [source.rpartition("/")[2] for source in train.source] == ["0.png\twhat is it", "1.png\twhat is there"]
    assert train.target == ["red cat", "dog"] and valid.target == ["cat", "cat"]
    assert train.boxes == [(((1, 1, 4, 4), (0, 0, 2, 2)), ()), ((),)]
    assert valid.boxes == [(((0, 1, 12, 8),),), ((),)]
    assert "what" in task.source_vocabulary.to_json()["tokens"] and len(task.target_vocabulary) > 4


def test_what_is_transparent_is_over_white(folder):
    pixels = np.full((8, 12, 4), (0, 255, 0, 0), np.uint8)
    pixels[2:4, 3:5] = (9, 8, 7, 255)
    Image.fromarray(pixels).save(folder / "clear.png")
    expected = np.full((8, 12, 3), 255, np.uint8)
    expected[2:4, 3:5] = (9, 8, 7)
    np.testing.assert_array_equal(read_image(folder / "clear.png"), expected)


def test_two_names_of_one_image_are_one_image(folder):
    lines = [f"{number}.png\ta cat" for number in range(4)]
    lines += [f"../{folder.name}/{number}.png\ta dog" for number in range(4)]
    task = build(folder, lines)
    images = [{source.rpartition("/")[2] for source in task.splits[name].source} for name in ("train", "valid")]
    assert images[1] and not images[0] & images[1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["4.png\ta cat", *LINES], "captions.tsv, line 1: there is no image .*4.png"),
        ([*LINES, 300 * "a" + "\tb.png"], 'line 6: there is no image "aaa.* in '),
        ([*LINES, "half.png\ta cat"], "half.png: not an image that can be read; expected a PNG or JPEG file"),
        ([*LINES, "deep.png\ta cat"], "deep.png: more than 8 bits a channel; expected an image of 8 bits"),
        ([*LINES, "a cat"], r"captions.tsv, line 6: 1 fields; expected image TAB caption, and perhaps TAB boxes"),
        ([*LINES, "0.png\t "], r"captions.tsv, line 6: field 2 is empty; expected image TAB caption, and perhaps TAB"),
        ([*LINES, "big.png\ta cat"], r"big.png: 9 x 9 pixels, but .*.png has 12 x 8; expected images of one size"),
        ([*LINES, "text.png\ta cat"], "text.png: not an image that can be read; expected a PNG or JPEG file"),
        ([*LINES, "0.png\ta cat\t1,1,4,4"], "line 6: boxes of 1 words, but the caption has 2; - is a word without one"),
        ([*LINES, "0.png\tcat\t1,1,4," + 5000 * "1"], "line 6: the box '1,1,4,1*'; expected left,top,right,bottom in"),
        ([*LINES, "0.png\tcat\t1,1,4"], "line 6: the box '1,1,4'; expected left,top,right,bottom in pixels"),
        ([*LINES, "0.png\tcat\t1,1,4,9"], r"0.png: the box 1,1,4,9 is not inside of the image, which has 12 x 8 pi"),
    ],
)
def test_bad_input_is_one_line(folder, lines, message):
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(folder / "big.png")
    (folder / "text.png").write_text("no image", encoding="utf-8")
    whole = (folder / "1.png").read_bytes()
    (folder / "half.png").write_bytes(whole[: len(whole) // 2])
    Image.fromarray(np.zeros((8, 12), np.uint16)).save(folder / "deep.png")
    with pytest.raises(UserError, match=message):
        build(folder, lines)


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png"])
def test_an_image_that_is_cut_in_its_data_is_found_before_training(folder, name):
    """Its header, which has the size, is whole."""
    path = folder / name
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)).save(path)
    assert check_image(path) == (8, 12)
    build(folder, [*LINES, f"{name}\ta cat"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 60])
    with Image.open(path) as image:
        assert image.size == (12, 8)
    for use in (check_image, lambda path: build(folder, [*LINES, f"{path.name}\ta cat"])):
        with pytest.raises(UserError, match=rf"{name}: not an image that can be read; expected a PNG or JPEG file$"):
            use(path)


UPRIGHT = np.zeros((16, 32, 3), np.uint8)  # every quarter has another colour
UPRIGHT[:8, :16], UPRIGHT[:8, 16:], UPRIGHT[8:, :16] = (250, 20, 20), (20, 250, 20), (20, 20, 250)
STORED = {  # by EXIF orientation: where the first row and the first column of the file are in the upright image
    1: UPRIGHT,  # top, left
    2: UPRIGHT[:, ::-1],  # top, right
    3: UPRIGHT[::-1, ::-1],  # bottom, right
    4: UPRIGHT[::-1],  # bottom, left
    5: UPRIGHT.swapaxes(0, 1),  # left, top
    6: UPRIGHT[:, ::-1].swapaxes(0, 1),  # right, top
    7: UPRIGHT[::-1, ::-1].swapaxes(0, 1),  # right, bottom
    8: UPRIGHT[::-1].swapaxes(0, 1),  # left, bottom
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("name", ["photo.png", "photo.jpg", "photo.mpo"])
def test_an_image_is_read_as_a_viewer_shows_it(folder, name, orientation):
    """Its size, its pixels and its boxes are those of the upright image."""
    image, exif = Image.fromarray(STORED[orientation]), Image.Exif()
    exif[0x0112] = orientation
    further = {"save_all": True, "append_images": [image.rotate(90)]} if name.endswith("mpo") else {}
    exact = {} if name.endswith("png") else {"quality": 100, "subsampling": 0}
    image.save(folder / name, exif=exif, **exact, **further)
    assert check_image(folder / name) == (16, 32)
    np.testing.assert_allclose(read_image(folder / name).astype(int), UPRIGHT, atol=5)
    Image.fromarray(UPRIGHT).save(folder / "other.png")
    task = build(folder, [f"{name}\tcat\t16,8,32,16", "other.png\ta dog"])
    assert task.facts.shape == (16, 32, 3)


def test_exif_data_that_cannot_be_parsed_turn_nothing(folder):
    Image.fromarray(UPRIGHT).save(folder / "odd.jpg", exif=b"Exif\0\0MM nonsense", quality=100)
    assert check_image(folder / "odd.jpg") == read_image(folder / "odd.jpg").shape[:2] == (16, 32)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "BMP", "PPM", "TGA"])
def test_an_image_of_another_format_is_told_by_its_format_whatever_its_name(folder, kind):
    for path in (folder / f"other.{kind}", folder / f"other.{kind}.png"):
        Image.fromarray(UPRIGHT).save(path, format=kind)
        for use in (check_image, read_image, lambda path: build(folder, [*LINES, f"{path.name}\ta cat"])):
            with pytest.raises(UserError, match=rf"{path.name}: a {kind} image; expected a PNG or JPEG file$"):
                use(path)


def test_an_animation_and_an_image_too_large_to_be_safe_are_no_images(folder, monkeypatch):
    first = Image.fromarray(UPRIGHT)
    first.save(folder / "moves.png", save_all=True, append_images=[first.rotate(180)])
    with pytest.raises(UserError, match=r"moves.png: an animation of 2 images; expected a PNG or JPEG file of one"):
        build(folder, [*LINES, "moves.png\ta cat"])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match=r"0.png: not an image that can be read; expected a PNG or JPEG file"):
        build(folder, LINES)


def test_a_folder_has_to_be_named(folder):
    with pytest.raises(UserError, match=r"task.name pictures needs config.data_dir, a folder of images"):
        PictureFilesOptions().build(data_dir="", kept=None, seeds=(0,))
    with pytest.raises(UserError, match=r"task.channels is 2"):
        build(folder, LINES, channels=2)
