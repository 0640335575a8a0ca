"""Options: frozen dataclasses; a field gives name, type, default, meaning and range in one line.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class EncoderOptions:
        cell: str = option("lstm", "recurrent cell", choices=CELLS)
        num_layers: int = option(1, "layers of the encoder and of the decoder", at_least=1, at_most=1000)
        attention: AttentionOptions = section(AttentionOptions)

Each class lives next to the code that it configures. Everything else is derived from it: the keys and defaults of a
config (`defaults`), the checked values as an object (`read`), and the reference page (attn_jax/cli/reference.py).
"""

import dataclasses
import functools
import math
import os
import pathlib
import sys
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, NamedTuple

from ml_collections import ConfigDict, config_dict

from attn_jax.errors import UserError, check_known

LARGEST = 2**31 - 1  # the largest int32
KINDS = {bool: "true or false", int: "an integer", float: "a number", tuple: "a tuple", str: "a text"}
EXAMPLES = {int: (0, 1), float: (0.5, 1.0), str: ("a", "b")}  # of tuples that are () by default
AFFECTS = ("training", "results", "nothing")


class Option(NamedTuple):
    """Description of one option.

    Attributes:
        default: value when the option is not set.
        meaning: one line about its effect.
        at_least, at_most: range of a number; None: no limit.
        choices: allowed names; (): any text.
        each: type of the elements of a tuple; None: any.
        affects: "training": changes the trained parameters; "results": changes only measurements and predictions;
            "nothing": changes no number.
        kind: type of the value. None is allowed as well if `default` is None (not set).
        large: allows integers up to 2^32 - 1, for seeds.
        only: (other option of the section, its values for which this option is read); (): always read.
        file: names a file in data_dir, which is read with the data and not by the model.
        path: names a file or a folder, or several; see `expanded`.
        afterwards: read after the training, too; None: as the other options of its section are.
    """

    default: Any
    meaning: str
    at_least: Real | None = None
    at_most: Real | None = None
    choices: tuple[str, ...] = ()
    each: type | None = None
    affects: str = "training"
    kind: type = str
    large: bool = False
    only: tuple = ()
    file: bool = False
    path: bool = False
    afterwards: bool | None = None

    @property
    def range(self) -> str:
        """Allowed values, in words; "" if all values of the type are allowed."""
        if self.choices:
            return ", ".join(name or '""' for name in self.choices)
        if self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        return "" if self.at_least is None else f"at least {self.at_least}"

    def check(self, key: str, value: Any) -> None:
        """Checks a value.

        Raises:
            UserError: it has another type than the default, is out of range, or is not one of the choices.
        """
        if value is None and self.default is None:
            return
        number = (int, float) if self.kind is float else self.kind
        if not isinstance(value, number) or isinstance(value, bool) != (self.kind is bool):
            example = EXAMPLES.get(self.each, ()) if self.default == () else self.default
            raise UserError(f"{key} is {value!r}; expected {KINDS[self.kind]}, such as {example!r}")
        for part in _numbers(value):
            if isinstance(part, float) and not math.isfinite(part):
                raise UserError(f"{key} is {value}; expected a finite number")
            largest = 2 * LARGEST + 1 if self.large else LARGEST
            if isinstance(part, int) and abs(part) > largest:
                raise UserError(f"{key} is {_shown(value)}; expected integers of at most {largest:,}")
        names_files = self.file or key.startswith(("data_dir", "task."))
        if names_files and "\0" in "".join(
            part for part in (value if self.kind is tuple else (value,)) if isinstance(part, str)
        ):
            raise UserError(f"{key} is {value!r}; expected no NUL in a name")
        if self.choices:
            check_known(value, self.choices, key)
        if self.kind in (int, float) and self.at_least is not None:
            highest = sys.float_info.max if self.at_most is None else self.at_most
            if not self.at_least <= value <= highest:
                raise UserError(f"{key} is {value}; expected {self.range}")
        kinds = (int, float) if self.each is float else (self.each,)
        if self.each and (wrong := [part for part in value if type(part) not in kinds]):
            raise UserError(f"{key} has {wrong[0]!r}; expected {KINDS[self.each]} for each of its parts")


def option(
    default: Any,
    meaning: str,
    *,
    at_least: Real | None = None,
    at_most: Real | None = None,
    choices: Iterable[str] = (),
    each: type | None = None,
    affects: str = "training",
    large: bool = False,
    only: tuple[str, Iterable] | tuple[()] = (),
    file: bool = False,
    path: bool = False,
    afterwards: bool | None = None,
) -> Any:
    """Makes a field of a dataclass of options.

    Args:
        default, meaning, at_least, at_most, each, affects, large, only, file, path, afterwards: see `Option`.
        choices: allowed names; may be a table with these keys.
    """
    assert affects in AFFECTS
    about = Option(
        default=default,
        meaning=meaning,
        at_least=at_least,
        at_most=at_most,
        choices=tuple(choices),
        each=each,
        affects=affects,
        kind=type(default),
        large=large,
        only=(only[0], tuple(only[1])) if only else (),
        file=file,
        path=path or file,
        afterwards=afterwards,
    )
    return dataclasses.field(default=default, metadata={"option": about})


def section(kind: type, meaning: str = "") -> Any:
    """Makes a field that holds another dataclass of options; its keys follow a dot."""
    return dataclasses.field(default_factory=kind, metadata={"section": kind, "meaning": meaning})


def union(name: str, table: Mapping[str, type], *, default: str, meaning: str) -> type:
    """Makes a class of options that chooses one of several classes by the option `name`.

    It has the options of all of them, each of which is read for those that have it. `chosen` returns the options of the
    class that `name` chooses. An option of several classes must be the same in all of them.

    Args:
        name: name of the new class.
        table: classes of options by name.
        default: name that is chosen by default.
        meaning: one line about the choice.
    """
    fields: dict[str, Any] = {"name": option(default, meaning, choices=table)}
    for kind in table.values():
        for key, about in _options_of(kind).items():
            readers = [other for other, options in table.items() if key in _options_of(options)]
            assert all(_options_of(table[other])[key] == about for other in readers), key
            given = about._replace(only=("name", tuple(readers)) if len(readers) < len(table) else ())
            fields[key] = dataclasses.field(default=about.default, metadata={"option": given})

    def chosen(self) -> Any:
        kind = table[self.name]
        return kind(**{key: getattr(self, key) for key in _options_of(kind)})

    made = dataclasses.make_dataclass(
        name,
        [(key, type(field.default), field) for key, field in fields.items()],
        namespace={"chosen": property(chosen), "__doc__": f"Options: {meaning}."},
        frozen=True,
        kw_only=True,
    )
    return made


def overrides(name: str, kind: type, meaning: str, *, without: Collection[str] = ()) -> type:
    """Makes a class with the options of another one, each None (not set) by default.

    `over(options)` returns `options` with the values that are set.

    Args:
        name: name of the new class.
        kind: class of options.
        meaning: one line about the new class.
        without: names of options that it does not have; nor has it sections.
    """
    fields = [
        (key, about.kind | None, dataclasses.field(default=None, metadata={"option": about._replace(default=None)}))
        for key, about in _options_of(kind).items()
        if key not in without and "." not in key
    ]

    def over(self, options: Any) -> Any:
        set_here = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(options, **set_here)

    return dataclasses.make_dataclass(
        name, fields, namespace={"over": over, "__doc__": meaning}, frozen=True, kw_only=True
    )


def options_of(kind: type, prefix: str = "") -> dict[str, Option]:
    """Returns every option of a class by key; the keys of sections contain dots."""
    return {prefix + key: about for key, about in _options_of(kind).items()}


@functools.cache
def _options_of(kind: type) -> dict[str, Option]:
    found: dict[str, Option] = {}
    for field in dataclasses.fields(kind):
        if inner := field.metadata.get("section"):
            found |= options_of(inner, f"{field.name}.")
        elif about := field.metadata.get("option"):
            found[field.name] = about._replace(kind=_type_of(kind, field, about))
    return found


def _type_of(kind: type, field: dataclasses.Field, about: Option) -> type:
    """Returns the type of an option: the type of its default or, if that is None, the annotated type without None."""
    if about.default is not None:
        return type(about.default)
    hint = typing.get_type_hints(kind)[field.name]
    (known,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
    return typing.get_origin(known) or known


def defaults(kind: type, **values: Any) -> ConfigDict:
    """Returns a config with every option of a class at its default, or at its value in `values`."""
    config = ConfigDict()
    for field in dataclasses.fields(kind):
        if inner := field.metadata.get("section"):
            config[field.name] = defaults(inner)
        elif about := field.metadata.get("option"):
            default = values.get(field.name, about.default)
            missing = default is None  # a placeholder keeps its type
            config[field.name] = config_dict.placeholder(_type_of(kind, field, about)) if missing else default
    return config


def read(kind: type, config: ConfigDict | Mapping[str, Any], prefix: str = "") -> Any:
    """Reads the options of a class from a config.

    Args:
        kind: dataclass of options.
        config: config with the keys of `kind`.
        prefix: beginning of the keys in messages, such as "model.".

    Raises:
        UserError: a value has the wrong type, is out of range, or is not one of the choices.
    """
    values = {}
    for field in dataclasses.fields(kind):
        if inner := field.metadata.get("section"):
            values[field.name] = read(inner, config[field.name], f"{prefix}{field.name}.")
        elif field.metadata.get("option"):
            about = _options_of(kind)[field.name]
            about.check(prefix + field.name, config[field.name])
            value = config[field.name]
            if about.path and value is not None:
                value = tuple(map(expanded, value)) if about.kind is tuple else expanded(value)
            values[field.name] = float(value) if about.kind is float and value is not None else value
    return kind(**values)


def expanded(path: str) -> str:
    """Returns a path that a user gave, with the home folder for ~ or ~NAME, which a shell leaves alone after "="."""
    return os.path.expanduser(path)


def user_path(path: str | os.PathLike) -> pathlib.Path:
    """Returns a path that a user gave, see `expanded`."""
    return pathlib.Path(expanded(os.fspath(path)))


def keys(config: ConfigDict, prefix: str = "") -> list[str]:
    """Returns all keys of a config that hold a value, with dots."""
    found = []
    for key, value in config.items():
        found += keys(value, f"{prefix}{key}.") if isinstance(value, ConfigDict) else [prefix + key]
    return found


def flatten(config: ConfigDict | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a nested config: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat = {}
    for key, value in config.items():
        is_section = isinstance(value, Mapping | ConfigDict)
        flat |= flatten(value, f"{prefix}{key}.") if is_section else {prefix + key: value}
    return flat


def _numbers(value: Any) -> Iterator[int | float]:
    """Yields the numbers in a value, including those in nested tuples."""
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float):
        yield value


def _shown(value: Any) -> str:
    """Returns the beginning of a value, which may have more digits than Python prints."""
    try:
        text = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]} ..."
