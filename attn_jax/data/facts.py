"""Facts about the data that a run stores, to build a model from: two vocabularies, and facts of stories or images."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError, lookup


class Stories(NamedTuple):
    """Lengths of training stories.

    Attributes:
        longest: number of statements of the longest story; a memory needs no more slots.
        shortest: number of tokens of the shortest statement, its period included.
    """

    longest: int = sys.maxsize
    shortest: int = 1

    @classmethod
    def of(cls, stories: Iterable[Sequence[str]]) -> "Stories":
        """Measures stories, each given by its tokens."""
        longest, shortest = 0, sys.maxsize
        for tokens in stories:
            ends = [i for i, token in enumerate(tokens) if token == "."]
            longest = max(longest, len(ends))
            shortest = min(shortest, *(end - start for start, end in zip([-1, *ends], ends, strict=False)), sys.maxsize)
        return cls(longest, shortest if longest else 1)

    @classmethod
    def of_json(cls, longest: Any, shortest: Any) -> "Stories":
        """Makes the facts from values of a file; raises a UserError if they are none."""
        for name, value in (("longest", longest), ("shortest", shortest)):
            if type(value) is not int or not 0 <= value <= sys.maxsize:
                raise UserError(f"{name} is {str(value)[:60]!r}; expected an integer, at least 0")
        return cls(longest, shortest)


class Images(NamedTuple):
    """Shape of the images, and options that generate them from their names; see attn_jax.tasks.images.pictures.

    Attributes:
        shape: height, width and channels.
        world: options of the generator of scenes; {} for images in files.
    """

    shape: tuple[int, int, int]
    world: Mapping[str, Any]

    @classmethod
    def of_json(cls, shape: Any, world: Any) -> "Images":
        """Makes the facts from values of a file; raises a UserError if they are none."""
        sides = shape if isinstance(shape, list) else []
        if len(sides) != 3 or not all(type(n) is int and n > 0 for n in sides) or not isinstance(world, dict):
            raise UserError(f"images of {str(shape)[:60]}; expected height, width and channels")
        return cls(tuple(sides), world)


Facts = Stories | Images
FACTS = {"stories": Stories, "images": Images}


class Kept(NamedTuple):
    """Facts about sentence pairs that a run stores.

    Attributes:
        source, target: vocabularies.
        facts: facts of stories or images; None: the sources are texts.
    """

    source: Vocabulary
    target: Vocabulary
    facts: Facts | None = None


def to_json(facts: Facts) -> dict[str, Any]:
    """Returns a dict for `from_json`."""
    kind = next(name for name, one in FACTS.items() if isinstance(facts, one))
    return {"kind": kind, **facts._asdict()}


def from_json(data: Mapping[str, Any]) -> Facts:
    """Makes facts from the result of `to_json`.

    Raises:
        UserError: the dict is no such result.
    """
    kind = lookup(FACTS, data.get("kind"), "kind of facts")
    if missing := [name for name in kind._fields if name not in data]:
        raise UserError(f"no {missing[0]!r}; expected those of {data['kind']}")
    return kind.of_json(**{name: data[name] for name in kind._fields})
