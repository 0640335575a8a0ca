"""The start of a run from the trained parameters of another run, train.start.

An array is copied if the other run has an array of the same path, shape and type; other arrays keep their initial
values. A row of an embedding or of an output layer belongs to a token, and arrays of equal shape could belong to
different tokens, so the vocabularies of both runs have to be equal.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.data.facts import Kept
from attn_jax.data.files import checksum, text_checksum
from attn_jax.errors import UserError
from attn_jax.runs.options import RunOptions
from attn_jax.training.pytrees import describe, flatten
from attn_jax.types import Params, PyTree

SHOWN = 4  # arrays named in a message, of each kind
# Keys of a vocabulary as JSON that determine the ids of its tokens; the others describe the data.
NUMBERING = ("kind", "tokens", "model", "texts", "tags")


class Source(NamedTuple):
    """The trained run to start from."""

    path: str  # work directory, as the user wrote it
    options: RunOptions
    kept: Kept
    params: list[Params]  # one set per seed, on the host
    used: str  # description of the checkpoints used

    @property
    def checksum(self) -> int:
        """Returns the checksum of the parameters."""
        return text_checksum([checksum(x) for one in self.params for x in jax.tree.leaves(one)])

    def of_seed(self, index: int) -> Params:
        """Returns the initial parameters of the seed with this index."""
        return self.params[index % len(self.params)]


class Match(NamedTuple):
    """Paths of the arrays of two sets of parameters, the new run's and the other run's."""

    taken: list[str]
    new: list[str]  # the other run has none
    other: list[str]  # the other run has another shape or type; both are named
    left: list[str]  # only the other run has one

    def __str__(self) -> str:
        """Describes the arrays that are not taken, in one line."""
        parts = {"new": self.new, "other shape": self.other, "left out": self.left}
        return "; ".join(f"{what}: {_some(names)}" for what, names in parts.items() if names)


def match(target: PyTree, source: Params) -> Match:
    """Compares parameters, or their shapes, with the parameters of another run."""
    here, there = _described(target), _described(source)
    both = here.keys() & there.keys()
    return Match(
        taken=[name for name in here if name in both and here[name] == there[name]],
        new=[name for name in here if name not in both],
        other=[f"{x} ({there[x]} there, {here[x]} here)" for x in here if x in both and here[x] != there[x]],
        left=[name for name in there if name not in both],
    )


def take(target: Params, source: Params) -> Params:
    """Returns `target` with copies of the arrays of `source` that have the same path, shape and type."""
    there = flatten(source)

    def choose(path: tuple[str, ...], x: jax.Array) -> jax.Array:
        found = there.get(path)
        return x if found is None or describe(found) != describe(x) else jnp.array(found)  # a copy: states are donated

    return jax.tree.unflatten(jax.tree.structure(target), [choose(path, x) for path, x in flatten(target).items()])


def announcement(source: Source, target: PyTree) -> str:
    """Returns a line that says which arrays are taken.

    Raises:
        UserError: no array can be taken.
    """
    found = match(target, source.params[0])
    total, rest = len(flatten(target)), f"; {found}" if str(found) else ""
    if not found.taken:
        raise UserError(f"train.start.workdir {source.path}: none of the {total} parameter arrays is there{rest}")
    where = f"the {source.used} of {source.path}"
    return f"{'start_from':<14}{len(found.taken)} of {total} parameter arrays taken from {where}{rest}"


def check_seeds(path: str, there: Sequence[int], here: Sequence[int]) -> None:
    """Raises a UserError unless the other run has one seed, or as many as this run: seed i starts from seed i."""
    if len(there) not in (1, len(here)):
        raise UserError(
            f"{path} has the {len(there)} seeds {tuple(there)}, and this run has {len(here)}; "
            f"expected one seed there, or as many as there: --config.seeds={str(tuple(there)).replace(' ', '')}"
        )


def check_tokens(source: Source, options: RunOptions, kept: Kept) -> None:
    """Checks that equal rows of embeddings and output layers belong to equal tokens in both runs.

    Raises:
        UserError: a vocabulary differs, or the counts or options of an output layer that orders words by their counts.
    """
    for what, there, here in zip(("source", "target"), source.kept[:2], kept[:2], strict=True):
        if difference := difference_of(there.to_json(), here.to_json()):
            raise UserError(
                f"train.start.workdir {source.path}: its {what} vocabulary is another one: {difference}; expected "
                "equal vocabularies, since each token has a row of its own"
            )
    there, here = (each.model.output for each in (source.options, options))
    if type(there) is not type(here) or here is None or not here.needs_counts:
        return
    for field in dataclasses.fields(here):
        name, before, now = field.name, getattr(there, field.name), getattr(here, field.name)
        if name != "frequencies" and before != now:  # the name of a file, whose counts are compared instead
            raise UserError(
                f"train.start.workdir {source.path}: model.output.{name} is {before!r} there and {now!r} here; "
                "expected the same, since the rows of this output layer are ordered by it"
            )
    if not np.array_equal(source.kept.target.counts, kept.target.counts):
        raise UserError(
            f"train.start.workdir {source.path}: the counts of its target words are others; expected the same, since "
            f"model.output.name {options.config.model.output.name} orders the words by them"
        )


def _described(tree: PyTree) -> dict[str, str]:
    """Returns {path: type and shape}."""
    return {"/".join(path): describe(x) for path, x in flatten(tree).items()}


def _some(names: list[str]) -> str:
    """Lists the first names."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def difference_of(there: dict[str, Any], here: dict[str, Any]) -> str:
    """Describes the first difference of two vocabularies, given as JSON; "" if tokens and ids are equal."""
    for key in NUMBERING:
        before, now = there.get(key), here.get(key)
        if before == now:
            continue
        if not (isinstance(before, list) and isinstance(now, list)):
            return f"{key} differs"
        if len(before) != len(now):
            return f"it has {len(before)} {key}, and this run has {len(now)}"
        place = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
        return f"number {place + 1} of its {key} is {before[place]!r}, and {now[place]!r} in this run"
    return ""
