"""Images from files: PNG or JPEG files of one size in a folder, with a file of captions, or of questions and answers.

A line of a captions file is `image TAB caption`, a line of a file of questions `image TAB question TAB answer`. An
additional field may contain the true boxes of each word of the caption or answer, which are not used in training:

    street.png TAB a red car left of a tree TAB - 4,20,18,30 4,20,18,30 - - - 30,5,44,40

A box is left,top,right,bottom in pixels, with right and bottom exclusive; "+" joins several boxes, and "-" is no box.
"""

import dataclasses
import os
import pathlib
import zlib
from typing import Any, ClassVar

from attn_jax.data.facts import Images, Kept
from attn_jax.data.files import short, text_checksum
from attn_jax.data.pairs import Pairs
from attn_jax.data.splits import hold_out, seen_in_training
from attn_jax.data.text import read_lines
from attn_jax.data.vocabulary import Questions, Words
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.paths import user_path
from attn_jax.tasks.images.picture_options import PictureTaskOptions
from attn_jax.tasks.images.pictures import PictureTask, check_image, read_image
from attn_jax.tasks.images.scene import Box
from attn_jax.token_ids import SPECIAL

SHUFFLE_SEED = 0  # seed of the held-out images: the same for every seed of a run


def _images(pairs: Pairs) -> list[str]:
    return [os.path.realpath(image_of(source)) for source in pairs.source]


def image_of(source: str) -> str:
    """Returns the file name of the image in a source."""
    return source.partition("\t")[0]


def read_captions(folder: pathlib.Path, file: str, questions: bool) -> Pairs:
    """Reads a file of captions, or of questions and answers.

    Raises:
        UserError: the file cannot be read; a line has missing or empty fields, an unknown image, or wrong boxes.
    """
    path, kind = folder / file, "image TAB question TAB answer" if questions else "image TAB caption"
    sources, targets, boxes = [], [], []
    for number, line in enumerate(read_lines(path, kind), 1):
        where, fields = f"{path}, line {number}", line.split("\t")
        count = 3 if questions else 2
        if len(fields) not in (count, count + 1):
            raise UserError(f"{where}: {len(fields)} fields; expected {kind}, and perhaps TAB boxes")
        if empty := [place for place, field in enumerate(fields, 1) if not field.strip()]:
            raise UserError(f"{where}: field {empty[0]} is empty; expected {kind}, and perhaps TAB boxes")
        image = folder / user_path(fields[0])
        if not os.path.isfile(image):
            raise UserError(f"{where}: there is no image {short(fields[0])} in {folder}")
        sources.append("\t".join([str(image), *fields[1 : count - 1]]))
        targets.append(fields[count - 1])
        boxes.append(read_boxes(fields[count], len(targets[-1].split()), where) if len(fields) > count else None)
    if all(found is None for found in boxes):
        return Pairs(sources, targets)
    own = [((),) * len(t.split()) if found is None else found for found, t in zip(boxes, targets, strict=True)]
    return Pairs(sources, targets, boxes=own)


def read_boxes(text: str, num_words: int, where: str) -> tuple[tuple[Box, ...], ...]:
    """Reads the boxes of each word.

    Raises:
        UserError: the number of boxes is not the number of words, or a box is not of the form left,top,right,bottom.
    """
    words = text.split()
    if len(words) != num_words:
        raise UserError(
            f"{where}: boxes of {len(words)} words, but the caption has {num_words}; - is a word without one"
        )
    found = []
    for word in words:
        own = []
        for box in word.split("+") if word != "-" else ():
            sides = box.split(",")
            if len(sides) != 4 or not all(side.isdecimal() and len(side) < 10 for side in sides):
                raise UserError(f"{where}: the box {box[:40]!r}; expected left,top,right,bottom in pixels")
            own.append(tuple(map(int, sides)))
        found.append(tuple(own))
    return tuple(found)


def check_images(names: list[str], channels: int) -> tuple[tuple[int, int, int], dict[str, int]]:
    """Returns (shape of the images, crc32 of each file), after reading each file: a damaged one would stop training.

    Raises:
        UserError: a file is not an image, or has another size than the first image.
    """
    first, size, sums = names[0], None, {}
    read_image(pathlib.Path(first), channels)
    for name in dict.fromkeys(names):
        own = check_image(pathlib.Path(name))
        sums[name] = zlib.crc32(pathlib.Path(name).read_bytes())
        size = size or own
        if own != size:
            found = f"{own[1]} x {own[0]} pixels, but {first} has {size[1]} x {size[0]}"
            raise UserError(f"{name}: {found}; expected images of one size")
    return (*size, channels), sums


def check_boxes(pairs: Pairs, image: tuple[int, int, int]) -> None:
    """Checks that boxes are inside their images.

    Raises:
        UserError: a box is outside of its image, or empty.
    """
    for source, boxes in zip(pairs.source, pairs.boxes or (), strict=False):
        for left, top, right, bottom in (box for own in boxes for box in own):
            if not (0 <= left < right <= image[1] and 0 <= top < bottom <= image[0]):
                raise UserError(
                    f"{image_of(source)}: the box {left},{top},{right},{bottom} is not inside of the image, which has "
                    f"{image[1]} x {image[0]} pixels; expected left < right and top < bottom"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureFilesOptions(PictureTaskOptions):
    """Options of the task of captioning images from files."""

    name: ClassVar[str] = "pictures"

    train: str = option(
        "captions.tsv", "file of lines: image TAB caption (TAB boxes), in data_dir with the images", path=True
    )
    valid: str = option("", "validation file; empty: valid_size training lines are held out", path=True)
    test: str = option("", "test file; empty: the validation split is measured", path=True)
    questions: bool = option(False, "lines are: image TAB question TAB answer (TAB boxes)")
    tokenize: str = option(
        "13a",
        "bleu: tokenizer of sacrebleu; none: the text is tokenized already",
        affects="results",
        afterwards=True,
    )
    channels: int = option(3, "3: colours; 1: grey", at_least=1, at_most=3)
    valid_size: int = option(500, "number of validation examples", at_least=1)
    vocab_size: int = option(8000, "largest size of a vocabulary", at_least=len(SPECIAL) + 1, afterwards=False)
    min_count: int = option(2, "words seen less often than this in training become unk", at_least=0, afterwards=False)

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        return {} if self.valid else {"valid": ("train", "valid", "valid_size")}

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> PictureTask:
        """Makes the task.

        Raises:
            UserError: a file cannot be read, a line has the wrong form, or images have different sizes.
        """
        if self.channels == 2:
            raise UserError("task.channels is 2; expected 3 (colours) or 1 (grey)")
        if not data_dir or not self.train:
            raise UserError(
                "task.name pictures needs config.data_dir, a folder of images, and task.train, its captions"
            )
        folder = pathlib.Path(data_dir)
        train = read_captions(folder, self.train, self.questions)
        cut = hold_out(
            train,
            read_captions(folder, self.valid, self.questions) if self.valid else None,
            valid_size=self.valid_size,
            num_examples=self.num_examples,
            seed=SHUFFLE_SEED,
            same=_images,
            what="captions",
        )
        splits = {"train": cut.train, "valid": cut.valid}
        if self.test:
            splits["test"] = read_captions(folder, self.test, self.questions)
        names = [image_of(source) for split in splits.values() for source in split.source]
        image, sums = check_images(names, self.channels)
        for split in splits.values():
            check_boxes(split, image)
        if kept is None:
            sizes = {"vocab_size": self.vocab_size, "min_count": self.min_count}
            asked = [source.partition("\t")[2] for source in cut.train.source]
            tokens = Words.train(asked, **sizes).to_json()["tokens"] if self.questions else []
            kept = Kept(Questions(tokens), Words.train(cut.train.target, **sizes), Images(image, {}))
        elif kept.facts.shape != image:
            raise UserError(f"{folder}: images of shape {image}; the run was trained with {kept.facts.shape}")
        stats = {name: len(split) for name, split in splits.items()}
        stats |= {"training captions of a held-out image": cut.equal} if cut.equal else {}
        stats |= seen_in_training(splits, _images, "captions with an image")
        files = {
            f"{name} images": text_checksum([sums[image_of(source)] for source in split.source])
            for name, split in splits.items()
            if name != "test"
        }
        return PictureTask("pictures", splits, *kept, stats=stats, files=files)
