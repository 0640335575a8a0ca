"""Fields that describe options, and what is read from a section: any part, without the package's own."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from attn_jax.errors import UserError
from attn_jax.parts import (
    Options,
    Recipe,
    Where,
    choice,
    fields_of,
    option,
    options_of,
    read,
    recipe_of,
    repeat,
    section,
)
from attn_jax.runs.tree import flatten, resolve_tree


class Scale(nn.Module, kw_only=True):
    """A part with an option and a fact."""

    features: int  # a fact
    factor: float = option(2.0, "factor", at_least=0)

    def __post_init__(self):
        if self.factor > 100:
            raise ValueError(f"factor is {self.factor}; expected at most 100")
        super().__post_init__()

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.features)(self.factor * x)


def plain(x):
    """A part without options: a function."""
    return x


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Options):
    """Options with a build of their own."""

    size: int = option(3, "size", at_least=1, at_most=9)
    scale: Recipe = choice({"scale": Scale, "plain": plain}, "scale", "scale")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Empty(Options):
    """A part without options."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root(Options):
    """The root of a tree."""

    seeds: tuple = option((), "seeds", each=int)
    inner: Options = choice({"inner": Inner, "none": Empty}, "inner", "a slot")
    steps: tuple = repeat({"scale": Scale, "plain": plain}, ("scale",), "a sequence")
    only: int = option(1, "exists with an inner part", where=Where(lambda chosen: chosen["inner"] is Inner, "an inner"))
    of: Inner = section(Inner, "a section")


def test_a_tree_is_read_into_objects_of_the_chosen_classes():
    tree, _ = resolve_tree(Root, None, {"inner.size": 4, "steps": ("scale", "plain", "scale")})
    root = read(Root, tree)
    assert root == Root(inner=Inner(size=4), steps=root.steps) and root.only == 1
    assert [step.kind for step in root.steps] == [Scale, plain, Scale] and isinstance(root.inner.scale, Recipe)


def test_a_recipe_is_built_with_facts_and_each_place_has_parameters_of_its_own():
    root = read(Root, resolve_tree(Root, None, {"steps": ("scale", "scale"), "steps.parts.scale.factor": 3})[0])
    first, second = (step.build(features=2, unknown=5) for step in root.steps)
    assert (first.features, first.factor) == (2, 3.0) and first is not second

    class Both(nn.Module):
        parts: tuple

        def __call__(self, x):
            return sum(part(x) for part in self.parts)

    params = Both((first, second)).init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    assert params.keys() == {"parts_0", "parts_1"}


def test_what_does_not_exist_has_no_key_and_its_default_in_the_object():
    tree, _ = resolve_tree(Root, None, {"inner": "none"})
    assert "only" not in tree and read(Root, tree).only == 1
    with pytest.raises(UserError, match=r"^unknown config key only; it is for an inner$"):
        resolve_tree(Root, None, {"inner": "none", "only": 2})


def test_defaults_in_code_are_those_of_a_config():
    assert Root() == read(Root, resolve_tree(Root)[0])
    assert recipe_of(Scale, factor=5.0).build(features=1).factor == 5.0
    assert fields_of(plain) == {} and recipe_of(plain).build(anything=1) is plain


def test_options_have_keys_with_the_names_of_slots():
    tree, _ = resolve_tree(Root)
    assert set(options_of(Root, tree)) == set(flatten(tree))
    assert options_of(Root, tree)["inner.name"].choices == ("inner", "none")


def test_a_part_that_refuses_its_arguments_is_told_with_its_key():
    root = read(Root, resolve_tree(Root, None, {"inner.scale.factor": 101})[0])
    with pytest.raises(UserError, match=r"^inner\.scale: factor is 101\.0; expected at most 100$"):
        root.inner.scale.build(features=1)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("of.size", "4", "of.size is '4'; expected an integer, such as 3"),
        ("of.size", True, "of.size is True; expected an integer, such as 3"),
        ("of.size", 10, "of.size is 10; expected 1 to 9"),
        ("of.size", 2**40, "of.size is 1099511627776; expected integers of at most 2,147,483,647"),
        ("inner.scale.factor", float("nan"), "inner.scale.factor is nan; expected a finite number"),
        ("seeds", (1, "2"), "seeds has '2'; expected an integer for each of its parts"),
        ("seeds", 1, "seeds is 1; expected a tuple, such as (0, 1)"),
    ],
)
def test_wrong_values_are_told_in_one_line(key, value, message):
    with pytest.raises(UserError) as error:
        resolve_tree(Root, None, {key: value})
    assert str(error.value) == message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Small(Options):
    """One of two parts with options of equal names."""

    same: int = option(3, "size", at_least=1)
    default: int = option(3, "size", at_least=1)
    range: int = option(3, "size", at_least=1)
    kind: int = option(3, "size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Large(Options):
    """The other: only one of the options means the same."""

    same: int = option(3, "how large", at_least=1)
    default: int = option(4, "size", at_least=1)
    range: int = option(3, "size", at_least=2)
    kind: float = option(3.0, "size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Either(Options):
    """A root with the two."""

    part: Options = choice({"small": Small, "large": Large}, "small", "a slot")


def test_only_options_of_equal_type_default_and_range_are_kept():
    values = {f"part.{key}": 7 for key in ("same", "default", "range", "kind")}
    tree, _ = resolve_tree(Either, None, values)
    changed, notes = resolve_tree(Either, tree, {"part": "large"})
    assert dict(changed.part) == {"name": "large", "same": 7, "default": 4, "range": 3, "kind": 3.0}
    assert notes.kept == ["part.same"] and sorted(notes.dropped) == ["part.default", "part.kind", "part.range"]
