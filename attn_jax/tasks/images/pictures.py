"""Sources that are images: galleries, which find images by name, and batches of images.

A source is the text `image` or `image TAB question`. Pixels stay uint8 until a model reads them on the device. Batches
are made on demand, and at most KEPT_BYTES of images are kept in memory.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt8

from attn_jax.data.batching import EncodedPairs, Ragged, encode, encode_targets, make_ragged
from attn_jax.data.facts import Images
from attn_jax.data.files import reason
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Questions, Vocabulary
from attn_jax.errors import UserError
from attn_jax.paths import user_path
from attn_jax.tasks.images.scene import Scene, World
from attn_jax.tasks.task import Task
from attn_jax.token_ids import SPECIAL
from attn_jax.types import Picture

KEPT_BYTES = 2**28  # largest size of the images kept in memory, such as 38,000 of 48 x 48 pixels
SPLITS = ("train", "valid", "test")
MOST_DIGITS = 18  # largest number of digits in the number of a scene
DEEP = ("I", "F")  # first letters of PIL's modes with more than 8 bits
FORMATS = ("PNG", "JPEG", "MPO")  # formats of PIL; MPO is a JPEG file with further images, from cameras
EXPECTED = "expected a PNG or JPEG file"


@runtime_checkable
class Gallery(Protocol):
    """Finds an image by its name."""

    def pixels(self, name: str) -> UInt8[np.ndarray, "h w c"]:
        """Returns an image.

        Raises:
            UserError: there is no image of this name, or it has another shape than the others.
        """
        ...


class FileGallery:
    """Images in PNG or JPEG files, named by their paths; all of one shape, with 1 channel (grey) or 3 (RGB)."""

    def __init__(self, image: tuple[int, int, int]):
        self.image = image

    def pixels(self, name: str) -> UInt8[np.ndarray, "h w c"]:
        """Reads an image; see Gallery."""
        found = read_image(user_path(name), self.image[2])
        if found.shape != tuple(self.image):
            height, width, _ = found.shape
            raise UserError(f"{name}: {width} x {height} pixels; expected {self.image[1]} x {self.image[0]}, as others")
        return found

    def version(self, name: str) -> Any:
        """Returns a value that changes when the file is rewritten; None if there is no such file."""
        try:
            found = user_path(name).stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class SceneGallery(FileGallery):
    """Generated scenes, named by split and number, such as "test:17"; other names are file names."""

    def __init__(self, world: World, seed: int):
        super().__init__((world.canvas, world.canvas, 3))
        self.world, self.seed = world, seed

    def scene(self, name: str) -> Scene | None:
        """Samples the scene of a name; None if the name is a file name."""
        if not self.names_scene(name):
            return None
        split, _, number = name.partition(":")
        return self.world.sample((self.seed, SPLITS.index(split), int(number)), new=split != "train")

    def names_scene(self, name: str) -> bool:
        """Tells whether a name is the name of a scene."""
        split, _, number = name.partition(":")
        return split in SPLITS and number.isdecimal() and len(number) <= MOST_DIGITS

    def version(self, name: str) -> Any:
        """Returns None for a scene, which never changes; for a file see FileGallery."""
        return None if self.names_scene(name) else super().version(name)

    def pixels(self, name: str) -> UInt8[np.ndarray, "h w c"]:
        """Draws a scene or reads a file; see Gallery."""
        scene = self.scene(name)
        return super().pixels(name) if scene is None else self.world.render(scene)


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[Any]:
    """Opens an image with PIL, in one of the FORMATS; its pixels are read on demand.

    Raises:
        UserError: the file is unreadable or not such an image, on opening or within the `with` block.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.format not in FORMATS:
                raise UserError(f"{path}: a {image.format} image; {EXPECTED}")
            if image.format == "PNG" and getattr(image, "n_frames", 1) > 1:
                raise UserError(f"{path}: an animation of {image.n_frames} images; {EXPECTED} of one image")
            yield image
    except UserError:  # a ValueError from the `with` block
        raise
    except OSError as error:
        why = f"not an image that can be read; {EXPECTED}" if error.strerror is None else reason(error)
        raise UserError(f"{path}: {why}") from error
    except (ValueError, SyntaxError, Image.DecompressionBombError) as error:  # from damaged or huge files
        raise UserError(f"{path}: not an image that can be read; {EXPECTED}") from error


def read_image(path: pathlib.Path, channels: int = 3) -> UInt8[np.ndarray, "h w c"]:
    """Reads a PNG or JPEG file with 8 bits per channel, upright as in a viewer, with a white background if transparent.

    Raises:
        UserError: the file cannot be read, is not such an image, or has more than 8 bits per channel.
    """
    with opened(path) as image:
        check_depth(path, image)
        image = upright(image)
        if "A" in image.getbands() or "transparency" in image.info:
            from PIL import Image

            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"), np.uint8)
    return pixels.reshape(*pixels.shape[:2], channels)


def check_image(path: pathlib.Path) -> tuple[int, int]:
    """Returns height and width of an image as `read_image` does, after checking its data and checksums.

    Raises:
        UserError: the file cannot be read, is not such an image, is damaged, or has more than 8 bits per channel.
    """
    with opened(path) as image:
        check_depth(path, image)
        image.verify()  # checks a PNG file; the image cannot be used afterwards
    with opened(path) as image:
        return upright(image).size[::-1]


def upright(image: Any) -> Any:
    """Reads the pixels of a PIL image and rotates it by the orientation in its EXIF data, as viewers do.

    EXIF data that cannot be parsed are ignored, as in viewers.
    """
    from PIL import ImageOps

    image.load()  # outside of `try`: errors in the pixels, unlike errors in the EXIF data, must be raised
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def check_depth(path: pathlib.Path, image: Any) -> None:
    """Raises a UserError if a PIL image has more than 8 bits per channel, since values above 255 would be clipped."""
    if image.mode.startswith(DEEP):
        raise UserError(f"{path}: more than 8 bits a channel; expected an image of 8 bits")


def gallery_of(images: Images) -> Gallery:
    """Returns the gallery of the images named in the sources of a run."""
    return _gallery(json.dumps(images.world, sort_keys=True), images.shape)


@functools.lru_cache(maxsize=4)  # cached because of the images that it keeps
def _gallery(world: str, image: tuple[int, int, int]) -> "Kept":
    given = json.loads(world)
    if not given:
        return Kept(FileGallery(image))
    try:
        seed = given.pop("seed")
        lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        return Kept(SceneGallery(World(**given | lists), seed))
    except (TypeError, KeyError) as error:
        raise UserError("cannot read what the images are: their world is none of scenes") from error


class Kept:
    """A gallery that keeps images in memory, at most KEPT_BYTES, until their files change.

    `sums` maps each name to the crc32 of the pixels.
    """

    def __init__(self, gallery: FileGallery):
        self.gallery, self.sums = gallery, dict[str, int]()
        self._found: dict[str, tuple[Any, np.ndarray]] = {}

    def pixels(self, name: str) -> UInt8[np.ndarray, "h w c"]:
        """Returns an image; see Gallery."""
        version = self.gallery.version(name)
        before, found = self._found.get(name, (None, None))
        if found is None or before != version:
            found = self.gallery.pixels(name)
            self.sums[name] = zlib.crc32(np.ascontiguousarray(found))
            if (len(self._found) + 1) * found.nbytes <= KEPT_BYTES:
                self._found[name] = version, found
        return found


class PictureRows(NamedTuple):
    """Sources that are images with their questions: the counterpart of Ragged for batches of images.

    The words of a question end with eos; images without questions have no words. `lengths` are lengths of the
    questions, at least 1.
    """

    names: list[str]
    gallery: Gallery
    image: tuple[int, int, int]
    words: Ragged

    @property
    def tokens(self) -> Int[np.ndarray, " n"]:
        return self.words.tokens

    @property
    def offsets(self) -> Int[np.ndarray, " m"]:
        return self.words.offsets

    @property
    def lengths(self) -> Int[np.ndarray, " m"]:
        return np.maximum(self.words.lengths, 1)

    def gather(self, indices: Int[np.ndarray, "..."], length: int) -> tuple[Picture, np.ndarray]:
        """Returns (the images at `indices` [...] with their questions padded to `length`, mask of the real words).

        FILL gives a black image without a question.
        """
        pixels = np.zeros((*indices.shape, *self.image), np.uint8)
        for place, index in np.ndenumerate(indices):
            if index >= 0:
                pixels[place] = self.gallery.pixels(self.names[index])
        words, real = self.words.gather(indices, length if len(self.words.tokens) else 0)
        return Picture(pixels, words.astype(np.int32)), real


def encode_pictures(
    pairs: Pairs, source_vocabulary: Questions, target_vocabulary: Vocabulary, facts: Images
) -> EncodedPairs:
    """Encodes questions and targets as ids; images are found when a batch is made."""
    names = [text.partition("\t")[0] for text in pairs.source]
    asks = len(source_vocabulary) > len(SPECIAL)
    words = encode(pairs.source, source_vocabulary) if asks else make_ragged([[]] * len(names))
    rows = PictureRows(names, gallery_of(facts), facts.shape, words)
    return EncodedPairs(rows, encode_targets(pairs, target_vocabulary))


@dataclasses.dataclass(frozen=True)
class PictureTask(Task):
    """A task whose sources are images; `files` maps descriptions of data files to checksums.

    A description of images begins with their split, such as "train images".
    """

    files: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def checksums(self) -> dict[str, int]:
        """Returns the checksums of the splits and of the files; see Task.checksums."""
        return super().checksums() | self.files
