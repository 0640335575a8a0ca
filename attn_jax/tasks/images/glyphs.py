"""Bitmaps of objects: digits, letters and shapes in grey, cropped to their ink.

A face is a typeface, or a handwritten digit, such as "mnist:17", see attn_jax.tasks.images.real_digits.
"""

import functools
import pathlib

import numpy as np
from jaxtyping import Float

from attn_jax.tasks.images.real_digits import REAL, drawn

SHAPES = ("square", "disc", "triangle", "cross", "ring")
KINDS = {  # task.kinds -> the words for objects of this kind
    "digits": tuple("0123456789"),
    "letters": tuple("abcdefghijklmnopqrstuvwxyz"),
    "shapes": SHAPES,
}
# Fonts of matplotlib: FACES for training, and NEW_FACES, not seen in training, for validation and test.
FACES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral", "STIXGeneralBol", "cmss10")
NEW_FACES = ("DejaVuSerif-Bold", "DejaVuSansMono-Bold", "cmb10")
GLYPHS = ("fonts", *REAL)  # task.glyphs: source of the digits; letters always come from fonts
DIGIT_HEIGHT = 0.72  # height of a digit, in ems
INK = 0.2  # least ink of a pixel inside of the box


@functools.lru_cache(maxsize=4096)
def bitmap(word: str, size: int, face: str, folder: str = "") -> Float[np.ndarray, "h w"]:
    """Draws an object about `size` pixels high: 1 is ink, 0 is background; cropped to the ink.

    Shapes have no face. `folder` has the files of handwritten digits.
    """
    if word in SHAPES:
        return _crop(_shape(word, size))
    glyphs, written, number = face.partition(":")
    if written:
        return _crop(drawn(glyphs, folder, int(number), size))
    font = _font(face)
    font.set_size(size / DIGIT_HEIGHT, 72)
    font.set_text(word)
    font.draw_glyphs_to_bitmap()
    return _crop(np.asarray(font.get_image()) / 255.0)


def _shape(word: str, size: int) -> Float[np.ndarray, "h w"]:
    fine = 4  # points per pixel in each direction
    places = (np.arange(size * fine) + 0.5) / (size * fine) * 2 - 1
    y, x = np.meshgrid(places, places, indexing="ij")
    radius = np.hypot(x, y)
    inside = {
        "square": np.maximum(abs(x), abs(y)) <= 0.9,
        "disc": radius <= 1,
        "triangle": 2 * abs(x) <= y + 1,
        "cross": np.minimum(abs(x), abs(y)) <= 0.3,
        "ring": (radius <= 1) & (radius >= 0.5),
    }[word]
    return inside.reshape(size, fine, size, fine).mean(axis=(1, 3))


def _crop(image: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    ink = image >= INK
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.float32)


def choose_face(word: str, rng: np.random.Generator, *, glyphs: str, folder: str, new: bool) -> str:
    """Samples the face of an object; `new` faces do not occur in training.

    Raises:
        UserError: the digits cannot be read.
    """
    if glyphs not in REAL or word not in KINDS["digits"]:
        return str(rng.choice(NEW_FACES if new else FACES))
    return f"{glyphs}:{int(rng.choice(REAL[glyphs](folder).numbers(int(word), new)))}"


@functools.cache
def _font(face: str):
    import matplotlib
    from matplotlib.ft2font import FT2Font

    return FT2Font(str(pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"))
