"""Counts the keys of configs, and those that nothing reads: python tests/unread.py [--out=FILE] [NAME ...]

A key of the model or the optimizer is read if another value makes another model or optimizer, or is refused: both are
built again with the key at another value, and compared part by part.
"""

import dataclasses
import functools
import inspect
import json
import pathlib
import statistics
import sys
import types
from collections.abc import Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import jax
import numpy as np

from attn_jax.cli.options import change, resolve, schema_of
from attn_jax.cli.overrides import load_config_file
from attn_jax.cli.tree import keys
from attn_jax.errors import UserError
from attn_jax.parts import Option, Options

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILT = ("model.", "optimizer.")


def others(value: Any, option: Option) -> list:
    """Returns other values of an option."""
    found: list = [other for other in option.choices if other != value]
    if option.kind is bool:
        found = [not value]
    elif option.kind is float and option.at_most is not None:
        found = [(value or 0) / 2 + option.at_most / 4]
    elif option.kind in (int, float):
        found = [(value or option.at_least or 0) + 1]
    elif option.kind is tuple:
        found = [(1.0,), (), ((".*", 0.5),)]
    return [other for other in (option.default, *found) if other != value]


def is_unread(config: Any, key: str) -> bool:
    """Tells whether the model and the optimizer are the same for all values of a key."""
    option = schema_of(config)[key]
    if not key.startswith(BUILT) or option.file or key.endswith((".name", ".pattern")):
        return False
    before = built(config, key)
    values = others(config[key], option)
    for value in values:
        try:
            if not same(before, built(change(config, {key: value}), key)):
                return False
        except (UserError, LookupError, ValueError):  # another value is refused, so the option is read
            return False
    return bool(values)


def built(config: Any, key: str) -> Any:
    """Builds what a key may change."""
    options = resolve(config)
    if key.startswith("optimizer."):
        return options.optimizer.build(1000)
    sizes = options.kind.any_sizes
    if hasattr(sizes, "target_vocab_size"):  # as many words as an option may tell apart
        sizes = sizes._replace(source_vocab_size=1000, target_vocab_size=1000)
    return options.build_model(sizes)


def same(a: Any, b: Any) -> bool:
    """Compares two objects part by part: modules by their fields, functions by their code and what they hold."""
    if a is b:
        return True
    if isinstance(a, type) and isinstance(b, type):
        return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)
    if isinstance(a, functools.partial) and isinstance(b, functools.partial):
        if isinstance(getattr(a.func, "__self__", None), Options):  # it holds all options, read or not
            return same(a(), b())
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if isinstance(a, types.MethodType) and isinstance(b, types.MethodType):
        return a.__func__ is b.__func__ and same(a.__self__, b.__self__)
    if isinstance(a, types.FunctionType) and isinstance(b, types.FunctionType):
        a, b = inspect.unwrap(a), inspect.unwrap(b)
        return a.__code__ is b.__code__ and same(held(a), held(b))
    if type(a) is not type(b):
        return False
    if dataclasses.is_dataclass(a):
        names = [field.name for field in dataclasses.fields(a) if field.name not in ("parent", "name")]
        return all(same(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | jax.Array):
        return np.array_equal(a, b)
    return bool(a == b)


def held(function: types.FunctionType) -> tuple:
    """Returns the defaults and closure values of a function."""
    cells = function.__closure__ or ()
    return function.__defaults__, function.__kwdefaults__, tuple(cell.cell_contents for cell in cells)


def main(arguments: list[str]) -> None:
    """Prints and writes the counts."""
    out = [a.removeprefix("--out=") for a in arguments if a.startswith("--out=")]
    names = [a for a in arguments if not a.startswith("--")]
    names = names or sorted(path.stem for path in (ROOT / "configs").glob("*.py") if path.stem != "base")
    found = {}
    for name in names:
        config = load_config_file(name)
        unread = [key for key in keys(config) if is_unread(config, key)]
        found[name] = {"keys": len(keys(config)), "unread": unread}
        print(f"{name:<32}{len(keys(config)):>4} keys  unread: {', '.join(unread) or 'none'}", flush=True)
    sizes = [one["keys"] for one in found.values()]
    unread = sum(len(one["unread"]) for one in found.values())
    print(f"{len(found)} configs: median {statistics.median(sizes)}, at most {max(sizes)} keys; {unread} unread")
    if out:
        pathlib.Path(out[0]).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
