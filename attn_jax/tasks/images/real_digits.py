"""Handwritten digits as small grey bitmaps, from scikit-learn or from the MNIST files.

An image is in [0, 1]; 1 is ink. Every fifth image is held out for validation and test. If a folder has both parts of
MNIST, the training images are for training, and the test images are held out.
"""

import functools
import gzip
import pathlib
import zlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attn_jax.data.files import reason
from attn_jax.errors import UserError

PARTS = {"train": False, "t10k": True}  # parts of MNIST: first part of their file names -> held out
EVERY = 5
INK = 0.1  # a pixel above this is ink
MAGIC = {"images-idx3": 0x803, "labels-idx1": 0x801}


class Digits(NamedTuple):
    """Images of digits; `checksum` is the checksum of their files."""

    images: Float[np.ndarray, "n h w"]
    labels: Int[np.ndarray, " n"]
    held_out: Bool[np.ndarray, " n"]
    checksum: int = 0

    def numbers(self, digit: int, held_out: bool) -> Int[np.ndarray, " m"]:
        """Returns the indices of the images of a digit."""
        return np.flatnonzero((self.labels == digit) & (self.held_out == held_out))


def every_fifth(count: int) -> Bool[np.ndarray, " n"]:
    """Returns a mask that is True for held-out images."""
    return np.arange(count) % EVERY == EVERY - 1


@functools.cache
def of_scikit_learn(folder: str = "") -> Digits:
    """Reads the 1,797 digits of 8 x 8 pixels from sklearn.datasets.load_digits.

    Raises:
        UserError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError(
            "task.glyphs digits takes the digits of scikit-learn, which is not installed; pip install scikit-learn, or "
            "use fonts"
        ) from None
    found = load_digits()
    return Digits(found.images / 16, found.target, every_fifth(len(found.target)))


@functools.cache
def of_mnist(folder: str) -> Digits:
    """Reads MNIST from the idx files in a folder, compressed (.gz) or not.

    Raises:
        UserError: there is no file, a file is damaged, or an image is blank.
    """
    found, crc32 = [], 0
    for part, held_out in PARTS.items():
        paths = [_find(pathlib.Path(folder), f"{part}-{kind}-ubyte") for kind in MAGIC]
        if None in paths:
            continue
        images, labels = (read_idx(path, magic) for path, magic in zip(paths, MAGIC.values(), strict=True))
        crc32 = zlib.crc32(labels, zlib.crc32(images, crc32))
        if len(images) != len(labels):
            raise UserError(f"{paths[1]}: {len(labels)} labels for the {len(images)} images of {paths[0].name}")
        if labels.max(initial=0) > 9:
            raise UserError(f"{paths[1]}: the label {labels.max()}; expected digits")
        blank = ~(images > 255 * INK).any(axis=(1, 2))
        if blank.any():
            raise UserError(
                f"{paths[0]}, image {np.argmax(blank) + 1}: blank, no pixel is above {int(255 * INK)}; expected ink"
            )
        found.append((images / 255, labels.astype(int), np.full(len(labels), held_out)))
    if not found:
        raise UserError(
            f"task.glyphs mnist needs t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, or train-..., packed or not, "
            f"in config.data_dir, which is {folder or 'empty'}"
        )
    digits = Digits(*(np.concatenate(parts) for parts in zip(*found, strict=True)), checksum=crc32)
    if len(found) == 1:
        digits = digits._replace(held_out=every_fifth(len(digits.labels)))
    for digit in range(10):
        if not len(digits.numbers(digit, False)) or not len(digits.numbers(digit, True)):
            raise UserError(f"{folder}: too few images of the digit {digit} for training and test")
    return digits


def read_idx(path: pathlib.Path, magic: int) -> np.ndarray:
    """Reads an idx file: the magic number, the length of each axis, then bytes.

    Raises:
        UserError: the file cannot be read, or is of another kind.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        why = reason(error) if isinstance(error, OSError) and error.strerror else "not a gzip file that can be read"
        raise UserError(f"{path}: {why}") from error
    axes = magic & 0xFF
    begin = 4 * (1 + axes)
    header = np.frombuffer(data[:begin], ">u4") if len(data) >= begin else np.zeros(1)
    if header[0] != magic:
        raise UserError(f"{path}: not an idx file of {axes} axes of bytes, such as those of MNIST")
    shape = tuple(int(n) for n in header[1:])
    if len(data) != (expected := begin + int(np.prod(shape))):
        raise UserError(f"{path}: {len(data):,} bytes; expected {expected:,}")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


def _find(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


REAL = {"digits": of_scikit_learn, "mnist": of_mnist}


def drawn(glyphs: str, folder: str, number: int, size: int) -> Float[np.ndarray, "h w"]:
    """Returns an image, scaled so that its ink is `size` pixels high."""
    from PIL import Image

    image = REAL[glyphs](folder).images[number]
    ink = image > INK
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    part = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    width = max(1, round(size * part.shape[1] / part.shape[0]))
    scaled = Image.fromarray((255 * part).astype(np.uint8)).resize((width, size), Image.Resampling.BILINEAR)
    found = np.asarray(scaled, np.float32)
    return found / max(1.0, float(found.max()))
