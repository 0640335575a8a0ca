"""Options are what their classes say: keys, defaults, checks and the objects that code gets."""

import dataclasses

import pytest

from attn_jax.errors import UserError
from attn_jax.options import defaults, flatten, keys, option, options_of, overrides, read, section


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    name: str = option("a", "which", choices=("a", "b"))
    share: float = option(0.5, "share", at_least=0, at_most=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    size: int = option(3, "size", at_least=1)
    parts: tuple = option((1, 2), "parts", each=int)
    whole: bool = option(True, "whole")
    limit: int | None = option(None, "limit; None: none", at_least=2)
    shape: tuple | None = option(None, "shape")
    inner: Inner = section(Inner, "inside")
    constant = 7


def test_keys_and_defaults():
    config = defaults(Outer, size=5)
    names = ["size", "parts", "whole", "limit", "shape", "inner.name", "inner.share"]
    assert list(options_of(Outer)) == names and sorted(keys(config)) == sorted(names)
    assert flatten(config)["size"] == 5 and config.limit is None and config.inner.share == 0.5
    assert [options_of(Outer)[key].kind for key in ("limit", "shape", "inner.name")] == [int, tuple, str]


def test_code_gets_an_object():
    config = defaults(Outer)
    config.limit, config.inner.share = 4, 1
    found = read(Outer, config)
    assert (found.limit, found.inner, found.parts) == (4, Inner(name="a", share=1.0), (1, 2))
    assert isinstance(found.inner.share, float)


def test_overrides_have_the_options_of_their_class_without_a_default():
    kind = overrides("Overrides", Outer, "Some of them.", without=("limit",))
    own, before = options_of(kind), options_of(Outer)
    assert list(own) == ["size", "parts", "whole", "shape"] and kind.__doc__ == "Some of them."
    assert all(about == before[key]._replace(default=None) for key, about in own.items())
    assert read(kind, defaults(kind)) == kind()  # the config has no value, but a type
    with pytest.raises(UserError, match="expected an integer"):
        read(kind, {"size": "x", "parts": None, "whole": None, "shape": None})
    outer = Outer(size=5, whole=False)
    assert kind().over(outer) == outer
    assert kind(size=4, whole=True, parts=()).over(outer) == dataclasses.replace(outer, size=4, whole=True, parts=())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("size", 0, "^model.size is 0; expected at least 1$"),
        ("size", True, "^model.size is True; expected an integer, such as 3$"),
        ("size", 2**31, "^model.size is 2147483648; expected integers of at most 2,147,483,647$"),
        ("whole", 1, "model.whole is 1; expected true or false"),
        ("limit", 1, "model.limit is 1; expected at least 2"),
        ("parts", (1, "x"), "model.parts has 'x'; expected an integer for each of its parts"),
        ("inner.share", float("nan"), "model.inner.share is nan; expected a finite number"),
        ("inner.share", 1.5, "model.inner.share is 1.5; expected 0 to 1"),
        ("inner.name", "c", "unknown model.inner.name 'c'; known: a, b"),
    ],
)
def test_a_wrong_value_is_one_clear_line(key, value, message):
    values = flatten(defaults(Outer)) | {key: value}
    nested = {name: value for name, value in values.items() if "." not in name}
    nested["inner"] = {name.partition(".")[2]: value for name, value in values.items() if "." in name}
    with pytest.raises(UserError, match=message):
        read(Outer, nested, "model.")
