"""Detection of options without effect: setting one is an error, since the user expects it to do something.

Options of tasks, decoding and evaluation declare the choices for which they are read (`Option.only`). For a model and
an optimizer it is found by trial: they are built again with the option at another value, and if the results are equal,
the option has no effect.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from attn_jax.cli.options import Options, change, resolve, schema_of
from attn_jax.errors import UserError
from attn_jax.options import Option, flatten

BUILT = ("model", "optimizer")  # sections that are tested by trial
ALSO_BUILT = ("dtype", "train.label_smoothing")


def check_read(config: ConfigDict, keys: Iterable[str]) -> None:
    """Checks that each of the options set by the user has an effect.

    Args:
        config: valid config of the run.
        keys: keys of the options to check, with dots.

    Raises:
        UserError: an option without effect is not at its default.
    """
    options = schema_of(config)
    for key in keys:
        if config[key] == options[key].default or key.endswith(".name"):
            continue
        if reason := why_unread(config, key):
            raise UserError(f"{reason}; leave it out")


def why_unread(config: ConfigDict, key: str) -> str:
    """Returns why an option has no effect with the choices of a config; "" if it has one."""
    section, _, _ = key.partition(".")
    if only := schema_of(config)[key].only:
        selector, names = ".".join(filter(None, (key.rpartition(".")[0], only[0]))), only[1]
        chosen = config[selector]
        several = isinstance(chosen, tuple) and () not in names
        if not (set(chosen) & set(names) if several else chosen in names):
            readers = " or ".join(str(name) for name in names)
            return f"{key} is read by {selector} {readers}, not by {selector} {chosen}"
    is_tested = section in BUILT or key in ALSO_BUILT
    if is_tested and not schema_of(config)[key].file and is_unread(config, key):
        what = _optimizer_in_words(config) if section == "optimizer" else _model_in_words(config, key)
        return f"nothing reads {key} with {what}"
    return ""


def is_unread(config: ConfigDict, key: str) -> bool:
    """Returns whether the model and the optimizer are the same for all values of the option."""
    built, others = _built(resolve(config), key), _others(config[key], schema_of(config)[key])
    for value in others:
        try:
            if not same(built, _built(resolve(change(config, {key: value})), key)):
                return False
        except (UserError, LookupError):  # another value is refused, so the option is read
            return False
    return bool(others)  # an option with one value has nothing to tell


def _others(value: Any, option: Option) -> list:
    """Returns other values of an option; several, since a number, None or "default" may mean the same as the value."""
    others: list = [other for other in option.choices if other != value]
    if option.kind is bool:
        others = [not value]
    elif option.kind is float and option.at_most is not None:
        others = [(value or 0) / 2 + option.at_most / 4]
    elif option.kind in (int, float):
        others = [(value or option.at_least or 0) + 1]
    elif option.kind is tuple:
        others = [(1.0,), ()]
    return [other for other in (option.default, *others) if other != value]


def _built(options: Options, key: str) -> Any:
    return options.optimizer.build(1000) if key.startswith("optimizer.") else options.build_model()


def _optimizer_in_words(config: ConfigDict) -> str:
    optimizer = config.optimizer
    return f"optimizer.name {optimizer.name}, schedule {optimizer.schedule}, clip_norm {optimizer.clip_norm}"


def _model_in_words(config: ConfigDict, unread: str) -> str:
    """Lists the choices that decide which options a model reads."""
    flat, options = flatten(config), schema_of(config)
    shown = [key for key, option in options.items() if key.startswith("model.") and option.choices and flat[key]]
    chosen = [key for key in shown if flat[key] != options[key].default and key != unread]
    named = dict.fromkeys(["model.name", *(key for key in DECIDING if key in flat), *chosen])
    return ", ".join(f"{key} {flat[key]}" for key in named)


DECIDING = ("model.encoder", "model.decoder", "model.objective", "model.attention.score", "model.attention.normalize")


def same(a: Any, b: Any) -> bool:
    """Compares two objects part by part: modules by their fields, functions by their code and closures."""
    if a is b:
        return True
    if isinstance(a, type) and isinstance(b, type):  # a transformed module is a new class each time
        return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)
    if isinstance(a, functools.partial) and isinstance(b, functools.partial):
        if any(map(_is_options, (*a.args, *a.keywords.values()))):
            return same(a(), b())  # the partial holds all options, read or not
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if isinstance(a, types.FunctionType) and isinstance(b, types.FunctionType):
        a, b = inspect.unwrap(a), inspect.unwrap(b)
        return a.__code__ is b.__code__ and same(_held(a), _held(b))
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


def _is_options(value: Any) -> bool:
    """Returns whether a value is a dataclass of options."""
    return dataclasses.is_dataclass(value) and any("option" in field.metadata for field in dataclasses.fields(value))


def _held(function: types.FunctionType) -> tuple:
    """Returns the defaults and closure values of a function."""
    cells = function.__closure__ or ()
    return function.__defaults__, function.__kwdefaults__, tuple(cell.cell_contents for cell in cells)
