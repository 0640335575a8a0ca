"""Captions and questions about scenes, with the true boxes of every word.

A form is a function (world, scene, rng) -> Caption. The words of a caption follow the reading order of the scene; a
word that names no object, such as "a", has no box.
"""

from typing import NamedTuple

import numpy as np

from attn_jax.tasks.images.scene import Box, Scene, Thing, World


class Caption(NamedTuple):
    """A target of one or more words, the boxes of the objects that each word refers to, and the question if any.

    A word that refers to the whole scene ("no" to "is there a red 3") has no boxes.
    """

    words: tuple[str, ...]
    boxes: tuple[tuple[Box, ...], ...]
    question: str = ""


def read(world: World, scene: Scene, rng: np.random.Generator) -> Caption:
    """Names the objects: 7 3 9."""
    return Caption(tuple(thing.word for thing in scene.things), tuple((thing.box,) for thing in scene.things))


def attributes(world: World, scene: Scene, rng: np.random.Generator) -> Caption:
    """Names colours and objects: red 7 blue 3."""
    words = tuple(word for thing in scene.things for word in (thing.color, thing.word))
    return Caption(words, tuple((thing.box,) for thing in scene.things for _ in range(2)))


def relations(world: World, scene: Scene, rng: np.random.Generator) -> Caption:
    """States the position of each object relative to the next: a red 7 left of a blue 3 above a green 1."""
    words, boxes = [], []
    for before, thing in zip((None, *scene.things), scene.things, strict=False):
        link = () if before is None else RELATIONS[relation(before, thing)]
        words += [*link, "a", thing.color, thing.word]
        boxes += [()] * (len(link) + 1) + [(thing.box,)] * 2
    return Caption(tuple(words), tuple(boxes))


RELATIONS = {"left": ("left", "of"), "right": ("right", "of"), "above": ("above",), "below": ("below",)}


def relation(a: Thing, b: Thing) -> str:
    """Returns the position of `a` relative to `b`, along the axis on which their centres are further apart."""
    across, down = (b.box[i] + b.box[i + 2] - a.box[i] - a.box[i + 2] for i in (0, 1))
    if abs(across) >= abs(down):
        return "left" if across > 0 else "right"
    return "above" if down > 0 else "below"


def ask(world: World, scene: Scene, rng: np.random.Generator) -> Caption:
    """Asks a question of one of four kinds, answered by one word; what_color and what_next need a unique object."""
    single = [thing for thing in scene.things if sum(other.word == thing.word for other in scene.things) == 1]
    kinds = [count_color, is_there]
    if single:
        kinds.append(what_color)
    if single and len(scene.things) > 1:
        kinds.append(what_next)
    return kinds[rng.integers(len(kinds))](world, scene, single, rng)


def what_color(world: World, scene: Scene, single: list[Thing], rng: np.random.Generator) -> Caption:
    """what color is the 7"""
    thing = single[rng.integers(len(single))]
    return Caption((thing.color,), ((thing.box,),), f"what color is the {thing.word}")


def what_next(world: World, scene: Scene, single: list[Thing], rng: np.random.Generator) -> Caption:
    """what comes before the 3, what comes after the 3: in the reading order"""
    thing = single[rng.integers(len(single))]
    place, last = scene.things.index(thing), len(scene.things) - 1
    before = place == last or (place > 0 and rng.random() < 0.5)
    other = scene.things[place - 1 if before else place + 1]
    question = f"what comes {'before' if before else 'after'} the {thing.word}"
    return Caption((other.word,), ((other.box, thing.box),), question)


def count_color(world: World, scene: Scene, single: list[Thing], rng: np.random.Generator) -> Caption:
    """how many are red"""
    names = [thing.color for thing in scene.things] if rng.random() < 0.7 else world.colors
    color = str(names[rng.integers(len(names))])
    found = tuple(thing.box for thing in scene.things if thing.color == color)
    return Caption((str(len(found)),), (found,), f"how many are {color}")


def is_there(world: World, scene: Scene, single: list[Thing], rng: np.random.Generator) -> Caption:
    """is there a red 3: half of the answers are yes, and most "no" questions are wrong only in the colour"""
    thing = scene.things[rng.integers(len(scene.things))]
    color = thing.color
    if rng.random() < 0.5 and world.num_colors > 1:
        others = [name for name in world.colors if name != color]
        color = others[rng.integers(len(others))]
    found = tuple(other.box for other in scene.things if (other.word, other.color) == (thing.word, color))
    return Caption(("yes" if found else "no",), (found,), f"is there a {color} {thing.word}")


FORMS = {"read": read, "attributes": attributes, "relations": relations, "questions": ask}


def vocabulary_of(world: World, form: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns all possible words of a form: (words of questions, words of captions or answers)."""
    words, colors = world.words, world.colors
    if form == "questions":
        asked = "what color is the comes before after how many are there a".split()
        counts = tuple(str(i) for i in range(world.num_objects[1] + 1))
        answers = ("yes", "no", *counts, *colors, *words)
        return tuple(dict.fromkeys((*asked, *colors, *words))), tuple(dict.fromkeys(answers))
    between = ("a", "of", "left", "right", "above", "below") if form == "relations" else ()
    return (), tuple(dict.fromkeys([*between, *(() if form == "read" else colors), *words]))
