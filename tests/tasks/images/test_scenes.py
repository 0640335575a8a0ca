"""Scenes: boxes lie on the ink of their objects, captions can be read back from the scene, seeds decide everything."""

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
from PIL import Image

from attn_jax.errors import UserError
from attn_jax.tasks.images import glyphs
from attn_jax.tasks.images.captions import FORMS, vocabulary_of
from attn_jax.tasks.images.pictures import FileGallery, SceneGallery, encode_pictures, gallery_of, read_image
from attn_jax.tasks.images.scene import COLORS, STEP, World, near
from attn_jax.tasks.images.scenes import ScenesOptions

OBJECTS = {"kinds": ("digits", "shapes"), "num_colors": 4, "sizes": (9, 12), "num_objects": (1, 4)}
WORLD = World(canvas=48, clutter=0, noise=0.0, order="left_to_right", **OBJECTS)


def scenes_of(world=WORLD, count=40, split="train"):
    gallery = SceneGallery(world, 0)
    return [(gallery.scene(f"{split}:{i}"), gallery.pixels(f"{split}:{i}")) for i in range(count)]


def build(**options):
    return ScenesOptions(**{"num_examples": 30, "valid_size": 5} | options).build(data_dir="", kept=None, seeds=(0,))


def test_a_box_is_all_ink_of_its_object_and_no_other():
    for scene, image in scenes_of():
        outside = np.ones(image.shape[:2], bool)
        for thing in scene.things:
            left, top, right, bottom = thing.box
            part = image[top:bottom, left:right].astype(float)
            edges = (part[0], part[-1], part[:, 0], part[:, -1])
            assert all(edge.max() > 255 * glyphs.INK * 0.8 for edge in edges)
            brightest = part.reshape(-1, 3)[np.argmax(part.sum(-1))]
            nearest = min(COLORS, key=lambda name: np.abs(np.array(COLORS[name]) - brightest).sum())
            assert nearest == thing.color
            outside[top:bottom, left:right] = False
        assert not image[outside].any()
        assert not any(near(a.box, b.box) for a in scene.things for b in scene.things if a is not b)


@pytest.mark.parametrize(("order", "axis"), [("left_to_right", 0), ("top_to_bottom", 1)])
def test_objects_are_named_in_reading_order(order, axis):
    for scene, _ in scenes_of(dataclasses.replace(WORLD, order=order)):
        places = [thing.box[axis] for thing in scene.things]
        assert all(b - a >= STEP for a, b in itertools.pairwise(places))


def test_an_image_depends_on_seed_split_and_number_alone():
    noisy = dataclasses.replace(WORLD, clutter=6, noise=0.05)
    images = [image for _, image in scenes_of(noisy, 4)]
    again = [SceneGallery(noisy, 0).pixels(f"train:{i}") for i in reversed(range(4))]
    assert all(np.array_equal(a, b) for a, b in zip(images, reversed(again), strict=True))
    others = [SceneGallery(noisy, 1).pixels("train:0"), SceneGallery(noisy, 0).pixels("valid:0"), images[1]]
    assert not any(np.array_equal(images[0], other) for other in others)
    faces = {thing.face for scene, _ in scenes_of(noisy, 20, "test") for thing in scene.things}
    assert faces <= set(glyphs.NEW_FACES) and not set(glyphs.FACES) & set(glyphs.NEW_FACES)


def test_a_work_directory_keeps_what_a_name_means(tmp_path):
    task = build(clutter=3)
    task.save(tmp_path)
    kept = type(task).load(tmp_path)
    before, after = (gallery_of(facts).pixels("test:4") for facts in (task.facts, kept.facts))
    assert np.array_equal(before, after) and len(kept.target) == len(task.target_vocabulary)


def answer(question, scene):
    """Answers a question by its words alone."""
    words, things = question.split(), scene.things
    if words[:2] == ["how", "many"]:
        return str(sum(thing.color == words[-1] for thing in things))
    if words[0] == "is":
        return "yes" if any((thing.color, thing.word) == tuple(words[-2:]) for thing in things) else "no"
    (place,) = [i for i, thing in enumerate(things) if thing.word == words[-1]]
    if words[1] == "color":
        return things[place].color
    return things[place + (1 if words[2] == "after" else -1)].word


def test_captions_and_answers_are_true_of_the_scene():
    rng, kinds = np.random.default_rng(0), set()
    for scene, _ in scenes_of(count=150):
        read, named, told, asked = (FORMS[form](WORLD, scene, rng) for form in FORMS)
        assert read.words == tuple(thing.word for thing in scene.things)
        assert named.words[1::2] == read.words and named.words[::2] == tuple(thing.color for thing in scene.things)
        assert [word for word in told.words if word in (*WORLD.words, *COLORS)] == list(named.words)
        assert answer(asked.question, scene) == asked.words[0]
        kinds.add(" ".join(asked.question.split()[:2]))
        for form, caption in zip(FORMS, (read, named, told, asked), strict=True):
            assert len(caption.words) == len(caption.boxes)
            questions, targets = vocabulary_of(WORLD, form)
            assert set(caption.words) <= set(targets) and set(caption.question.split()) <= set(questions)
        for word, boxes in zip(told.words, told.boxes, strict=True):
            own = [thing.box for thing in scene.things if word in (thing.word, thing.color)]
            assert set(boxes) <= set(own) and bool(boxes) == bool(own)
    assert len(kinds) == 4


def test_a_relation_is_true_of_the_centres_of_its_boxes():
    for scene, _ in scenes_of():
        told = FORMS["relations"](WORLD, scene, np.random.default_rng(0))
        named = [boxes[0] for boxes in told.boxes if boxes][::2]
        found = [word for word in told.words if word in ("left", "right", "above", "below")]
        for word, (a, b) in zip(found, itertools.pairwise(named), strict=True):
            axis, sign = {"left": (0, 1), "right": (0, -1), "above": (1, 1), "below": (1, -1)}[word]
            assert sign * (b[axis] + b[axis + 2] - a[axis] - a[axis + 2]) >= 0


def test_batches_hold_the_images_and_the_words():
    task = build(form="questions")
    share = task.stats["percent of test answers right that see the question alone"]
    assert task.stats["train"] == 30 and 0 < share < 70
    batches = task.batches(batch_size=8, encode=partial(encode_pictures, facts=task.facts), seeds=(0, 1))
    batch = batches.batch_at(0)
    picture, width = batch["source"], batch["source"].words.shape[-1]
    assert picture.pixels.shape == (2, 8, 48, 48, 3) and picture.pixels.dtype == np.uint8
    assert picture.words.shape == (2, 8, width) and picture.words.dtype == np.int32
    assert np.array_equal(batches.batch_at(0)["source"].pixels, picture.pixels)
    encoded = encode_pictures(task.splits["train"], *task.kept)
    row = encoded.batch(np.array([3, -1]), (8, 3))
    assert np.array_equal(row["source"].pixels[0], gallery_of(task.facts).pixels("train:3"))
    question = task.splits["train"].source[3].partition("\t")[2]
    assert task.source_vocabulary.decode(row["source"].words[0]) == question
    assert not row["source"].pixels[1].any() and not row["source"].words[1].any() and not row["target_out"][1].any()
    told = build()  # captions have no words in their source
    batch = told.batches(batch_size=8, encode=partial(encode_pictures, facts=told.facts)).batch_at(0)
    assert batch["source"].words.shape == (8, 0) and len(told.source_vocabulary) == 4
    assert told.splits["train"].select([2, 0]).boxes == [told.splits["train"].boxes[i] for i in (2, 0)]
    assert gallery_of(task.facts).gallery.scene("test:" + 5000 * "1") is None


def test_other_options_make_other_images_for_the_words_of_a_run():
    kept = build().kept
    options = ScenesOptions(num_examples=3, valid_size=2, clutter=9, num_objects=(3, 3))
    renewed = options.renewed(kept, data_dir="")
    world = renewed.facts.world
    assert world["clutter"] == 9 and world["seed"] == 0 and renewed.target is kept.target
    task = options.build(data_dir="", kept=kept, seeds=(0,))
    scene = gallery_of(task.facts).gallery.scene("valid:0")
    assert len(scene.things) == 3 and len(task.splits["valid"].boxes[0]) == len(task.splits["valid"].target[0].split())
    pixels = gallery_of(renewed.facts).pixels("valid:0")
    np.testing.assert_array_equal(pixels, gallery_of(task.facts).pixels("valid:0"))
    assert (pixels != gallery_of(kept.facts).pixels("valid:0")).any()
    with pytest.raises(UserError, match=r"task.canvas is 64; the run was trained with images of 48"):
        ScenesOptions(canvas=64).renewed(kept, data_dir="")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ("digit",)}, "unknown task.kinds 'digit'; did you mean digits"),
        ({"kinds": ()}, "task.kinds is empty; expected some of digits, letters, shapes"),
        ({"sizes": (60,)}, r"task.sizes \(60,\): expected heights from 5 to task.canvas 48"),
        ({"num_objects": (4, 2)}, r"task.num_objects \(4, 2\): expected the fewest and the most objects"),
        ({"num_objects": (0, 49)}, r"task.num_objects \(0, 49\): expected the fewest and the most objects"),
        ({"num_objects": (30, 30)}, "30 objects of up to 12 pixels find no room in an image of 48; expected fewer"),
    ],
)
def test_what_scenes_cannot_be(options, message):
    with pytest.raises(UserError, match=message):
        build(**options)


def test_an_image_of_another_size_or_none_at_all_is_refused(tmp_path):
    Image.fromarray(np.full((6, 4, 3), 9, np.uint8)).save(tmp_path / "a.png")
    assert np.all(read_image(tmp_path / "a.png") == 9) and read_image(tmp_path / "a.png", 1).shape == (6, 4, 1)
    for name, message in (
        ("a.png", "a.png: 4 x 6 pixels; expected 4 x 4, as others"),
        ("c.png", "c.png: no such file"),
    ):
        with pytest.raises(UserError, match=message):
            FileGallery((4, 4, 3)).pixels(str(tmp_path / name))
