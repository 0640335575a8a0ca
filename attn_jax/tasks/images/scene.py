"""Scenes: objects at random places of a small image, sampled from a seed whenever the image is needed."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from attn_jax.errors import UserError
from attn_jax.tasks.images.glyphs import KINDS, bitmap, choose_face
from attn_jax.tasks.images.real_digits import REAL

COLORS = {
    "red": (255, 60, 60),
    "green": (60, 220, 80),
    "blue": (90, 130, 255),
    "yellow": (240, 220, 60),
    "purple": (210, 90, 240),
    "white": (235, 235, 235),
}
ORDERS = {"left_to_right": 0, "top_to_bottom": 1}  # task.order -> the reading axis of a box
APART = 1  # least number of empty pixels between objects
STEP = 3  # least distance in pixels of two objects along the reading order, which keeps the order unambiguous
TRIES = 60  # number of tries for the place of an object, and for a whole scene
PIECE = 4  # side of a piece of clutter, in pixels

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom are exclusive


class Thing(NamedTuple):
    """An object of a scene."""

    word: str
    color: str
    box: Box
    size: int
    face: str


class Scene(NamedTuple):
    """Objects in their reading order, and the seed of clutter and noise."""

    things: tuple[Thing, ...]
    seed: tuple[int, ...]
    new: bool = False  # with faces that do not occur in training


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """The distribution of scenes. Every scene is a function of (seed, number of the split, number of the scene).

    Attributes:
        canvas: side of the image, in pixels.
        kinds: names in KINDS.
        num_colors: number of colours, the first ones of COLORS.
        sizes: heights of objects, in pixels.
        num_objects: least and largest number of objects in a scene.
        clutter: largest number of pieces of clutter.
        noise: standard deviation of the noise of each pixel, where white is 1.
        order: name in ORDERS.
        glyphs: name in GLYPHS, the source of digits.
        folder: folder with the files of handwritten digits.

    Raises:
        UserError: from `sample`, if the objects do not fit into the image, or handwritten digits cannot be read.
    """

    canvas: int
    kinds: tuple[str, ...]
    num_colors: int
    sizes: tuple[int, ...]
    num_objects: tuple[int, int]
    clutter: int
    noise: float
    order: str
    glyphs: str = "fonts"
    folder: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words for objects."""
        return tuple(word for kind in self.kinds for word in KINDS[kind])

    @property
    def colors(self) -> tuple[str, ...]:
        """The words for colours."""
        return tuple(COLORS)[: self.num_colors]

    def sample(self, seed: tuple[int, ...], *, new: bool = False) -> Scene:
        """Samples a scene, with faces of training or with new faces."""
        rng = np.random.default_rng(seed)
        count = int(rng.integers(self.num_objects[0], self.num_objects[1] + 1))
        for _ in range(TRIES):
            things: list[Thing] = []
            while len(things) < count and (thing := self._place(rng, things, new)) is not None:
                things.append(thing)
            if len(things) == count:
                axis = ORDERS[self.order]
                return Scene(tuple(sorted(things, key=lambda thing: thing.box[axis])), seed, new)
        raise UserError(
            f"task.num_objects {self.num_objects}: {count} objects of up to {max(self.sizes)} pixels find no room in "
            f"an image of {self.canvas}; expected fewer, smaller task.sizes, or a larger task.canvas"
        )

    def _place(self, rng: np.random.Generator, things: Sequence[Thing], new: bool) -> Thing | None:
        word, color = (str(rng.choice(names)) for names in (self.words, self.colors))
        size, face = int(rng.choice(self.sizes)), self._face(word, rng, new)
        height, width = self.bitmap(word, size, face).shape
        if max(height, width) > self.canvas:
            return None
        axis = ORDERS[self.order]
        for _ in range(TRIES):
            x, y = (int(rng.integers(self.canvas - side + 1)) for side in (width, height))
            box = (x, y, x + width, y + height)
            if all(not near(box, other.box) and abs(box[axis] - other.box[axis]) >= STEP for other in things):
                return Thing(word, color, box, size, face)
        return None

    def _face(self, word: str, rng: np.random.Generator, new: bool) -> str:
        return choose_face(word, rng, glyphs=self.glyphs, folder=self.folder, new=new)

    def bitmap(self, word: str, size: int, face: str) -> Float[np.ndarray, "h w"]:
        """Draws an object; see glyphs.bitmap."""
        return bitmap(word, size, face, self.folder)

    def render(self, scene: Scene) -> UInt8[np.ndarray, "h w 3"]:
        """Draws a scene: clutter, then the objects, then noise."""
        rng = np.random.default_rng((*scene.seed, 1))
        image = np.zeros((self.canvas, self.canvas, 3), np.float32)
        for _ in range(int(rng.integers(self.clutter + 1))):
            word, face = str(rng.choice(self.words)), scene.things[0].face
            if self.glyphs in REAL:  # clutter of handwritten digits needs a face for its own digit
                face = self._face(word, rng, scene.new)
            mask = self.bitmap(word, max(self.sizes), face)
            top, left = (int(rng.integers(max(1, side - PIECE + 1))) for side in mask.shape)
            piece = mask[top : top + PIECE, left : left + PIECE]
            x, y = (int(rng.integers(self.canvas - side + 1)) for side in piece.shape[::-1])
            paint(image, piece, x, y, str(rng.choice(self.colors)))
        for thing in scene.things:
            paint(image, self.bitmap(thing.word, thing.size, thing.face), *thing.box[:2], thing.color)
        if self.noise:
            image += 255 * self.noise * rng.standard_normal(image.shape, np.float32)
        return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def paint(image: Float[np.ndarray, "h w 3"], mask: Float[np.ndarray, "y x"], left: int, top: int, color: str) -> None:
    """Paints a bitmap over a part of the image, in place."""
    part = image[top : top + mask.shape[0], left : left + mask.shape[1]]
    part += mask[..., None] * (np.float32(COLORS[color]) - part)


def near(a: Box, b: Box) -> bool:
    """Returns whether two boxes have fewer than APART pixels between them."""
    return all(a[i] < b[i + 2] + APART and b[i] < a[i + 2] + APART for i in (0, 1))
