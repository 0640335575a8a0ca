"""The task of describing generated scenes, or of answering questions about them."""

import collections
import dataclasses
import pathlib
from typing import Any, ClassVar

import numpy as np

from attn_jax.data.facts import Images, Kept
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Questions, Words
from attn_jax.errors import UserError, check_known
from attn_jax.parts import option
from attn_jax.tasks.images.captions import FORMS, vocabulary_of
from attn_jax.tasks.images.glyphs import GLYPHS, KINDS
from attn_jax.tasks.images.picture_options import PictureTaskOptions
from attn_jax.tasks.images.pictures import SPLITS, PictureTask, SceneGallery
from attn_jax.tasks.images.real_digits import REAL
from attn_jax.tasks.images.scene import COLORS, ORDERS, World
from attn_jax.tasks.options import SEED

NUM_EXAMPLES = 10_000  # training scenes by default
TEST_SIZE = 500
CAPTION_SEED = 2  # last part of the seed of a caption; the seed of a scene lacks this part, the seed of its noise has 1


def images_of(world: World, seed: int) -> Images:
    """Describes the images of a world."""
    return Images((world.canvas, world.canvas, 3), dataclasses.asdict(world) | {"seed": seed})


def check_world(world: World) -> None:
    """Checks the options of a world.

    Raises:
        UserError: an option is out of range, or handwritten digits cannot be read.
    """
    if not world.kinds:
        raise UserError(f"task.kinds is empty; expected some of {', '.join(KINDS)}")
    for kind in world.kinds:
        check_known(kind, KINDS, "task.kinds")
    if not world.sizes or min(world.sizes) < 5 or max(world.sizes) > world.canvas:
        raise UserError(f"task.sizes {world.sizes}: expected heights from 5 to task.canvas {world.canvas}")
    if world.glyphs in REAL:
        if "digits" not in world.kinds:
            raise UserError(f"task.glyphs {world.glyphs} is for digits, but task.kinds is {world.kinds}")
        REAL[world.glyphs](world.folder)
    count = world.num_objects
    if len(count) != 2 or not 1 <= count[0] <= count[1]:
        raise UserError(f"task.num_objects {count}: expected the fewest and the most objects, such as (2, 4)")


def blind(splits: dict[str, Pairs]) -> float:
    """Returns the share of test answers that equal the most frequent answer to their question in training."""
    answers: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for source, answer in zip(splits["train"].source, splits["train"].target, strict=True):
        answers[source.partition("\t")[2]][answer] += 1
    best = {question: max(sorted(found), key=found.get) for question, found in answers.items()}
    test = zip(splits["test"].source, splits["test"].target, strict=True)
    return float(np.mean([best.get(source.partition("\t")[2]) == answer for source, answer in test]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScenesOptions(PictureTaskOptions):
    """Options of the task of generated scenes.

    A scene is a function of (seed, split, number), and its image is drawn when a batch needs it, so a smaller split is
    the beginning of a larger one. Validation and test have other typefaces, and other handwritten digits, than
    training. The test split has TEST_SIZE scenes.
    """

    name: ClassVar[str] = "scenes"

    form: str = option(
        "attributes", "captions: 7 3; red 7 blue 3; a red 7 left of a blue 3; or questions of one answer", choices=FORMS
    )
    order: str = option("left_to_right", "order in which captions name the objects", choices=ORDERS)
    kinds: tuple = option(("digits",), f"kinds of objects: some of {', '.join(KINDS)}", each=str)
    glyphs: str = option(
        "fonts",
        "digits: of typefaces; digits: written ones of scikit-learn; mnist: of idx files in data_dir",
        choices=GLYPHS,
    )
    canvas: int = option(48, "pixels of a side of the image", at_least=8, at_most=1024)
    sizes: tuple = option((9, 12), "heights of objects in pixels", each=int)
    num_objects: tuple = option((2, 4), "the fewest and the most objects", each=int)
    num_colors: int = option(4, "number of colours", at_least=1, at_most=len(COLORS))
    clutter: int = option(4, "the most pieces of clutter, cut out of objects", at_least=0, at_most=1000)
    noise: float = option(0.05, "standard deviation of the noise of pixels, where white is 1", at_least=0, at_most=1)
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> PictureTask:
        """Makes the task; raises a UserError if an option is out of range, or the objects do not fit."""
        world = self.world(data_dir)
        kept = None if kept is None else self.renewed(kept, data_dir=data_dir)
        check_world(world)
        gallery, splits = SceneGallery(world, SEED), {}
        for split, count in zip(SPLITS, (self.num_examples or NUM_EXAMPLES, self.valid_size, TEST_SIZE), strict=True):
            captions = {}
            for name in (f"{split}:{number}" for number in range(count)):
                scene = gallery.scene(name)
                captions[name] = FORMS[self.form](world, scene, np.random.default_rng((*scene.seed, CAPTION_SEED)))
            splits[split] = Pairs(
                [f"{name}\t{caption.question}" if caption.question else name for name, caption in captions.items()],
                [" ".join(caption.words) for caption in captions.values()],
                boxes=[caption.boxes for caption in captions.values()],
            )
        if kept is None:
            asked, said = vocabulary_of(world, self.form)
            kept = Kept(Questions(asked), Words(said), images_of(world, SEED))
        stats: dict[str, int | float] = {name: len(split) for name, split in splits.items()}
        if self.form == "questions":
            stats["percent of test answers right that see the question alone"] = round(100 * blind(splits), 1)
        files = {"digits": REAL[world.glyphs](world.folder).checksum} if world.glyphs == "mnist" else {}
        examples = tuple(splits["test"].source[:3])
        return PictureTask("scenes", splits, *kept, stats=stats, examples=examples, files=files)

    def world(self, data_dir: str) -> World:
        """Builds the world of these options."""
        return World(
            canvas=self.canvas,
            kinds=self.kinds,
            num_colors=self.num_colors,
            sizes=self.sizes,
            num_objects=self.num_objects,
            clutter=self.clutter,
            noise=self.noise,
            order=self.order,
            glyphs=self.glyphs,
            folder=str(pathlib.Path(data_dir).resolve()) if self.glyphs == "mnist" and data_dir else "",
        )

    def renewed(self, kept: Any, *, data_dir: str) -> Any:
        """Returns the saved data of a run with the images of these options; see TaskOptions.renewed."""
        images = images_of(self.world(data_dir), kept.facts.world.get("seed", 0))
        if kept.facts.shape != images.shape:
            raise UserError(f"task.canvas is {self.canvas}; the run was trained with images of {kept.facts.shape[0]}")
        return kept._replace(facts=images)
