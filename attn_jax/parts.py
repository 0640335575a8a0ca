"""Options: fields of parts (modules and option classes). A config is a tree of chosen parts.

    class Additive(Score, kw_only=True):                       # a module: fields without option() are set by `build`
        features: int = option(256, "hidden width", at_least=1)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class MapOptions(Options):
        score: Recipe = choice(SCORES, "general", "score function of queries and keys")

A slot is a field that holds another part: the key `name` below it chooses the class of that part from a table, and only
the options of the chosen class have keys. `read` turns a section of a config into objects; attn_jax/runs/tree.py makes
whole configs. This file imports only the standard library, so that every part can use it.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from attn_jax.errors import UserError, check_known
from attn_jax.paths import expanded

LARGEST = 2**31 - 1  # the largest int32
KINDS = {bool: "true or false", int: "an integer", float: "a number", tuple: "a tuple", str: "a text"}
EXAMPLES = {int: (0, 1), float: (0.5, 1.0), str: ("a", "b")}  # example values of tuples whose default is ()
AFFECTS = ("training", "results", "nothing")
NAME, PATTERN, PARTS = "name", "pattern", "parts"  # keys of slots

Tree = Any  # a section: a mapping of values and sections, such as a ConfigDict
Chosen = Mapping[str, Any]  # slot -> chosen part, for all slots above and before


class Where(NamedTuple):
    """A condition on chosen parts for a field to exist."""

    test: Callable[[Chosen], bool]
    text: str  # completes "it is for ..."


class Option(NamedTuple):
    """Description of one option.

    Attributes:
        default: value when the option is not set; its type is the type of the option.
        meaning: one line about its effect.
        at_least, at_most: range of a number; None: no limit.
        choices: allowed names; (): any text.
        each: type of the elements of a tuple; None: any.
        affects: "training": changes the trained parameters; "results": changes only measurements and predictions;
            "nothing": changes no number.
        large: allows integers up to 2^32 - 1, for seeds.
        file: names a file in data_dir, which is read with the data and not by the model.
        path: names a file or a folder, or several; see `expanded`.
        afterwards: whether the option is also read after training; None: as the other options of its section.
        where: condition for the option to exist; None: it always does.
    """

    default: Any
    meaning: str
    at_least: int | float | None = None
    at_most: int | float | None = None
    choices: tuple[str, ...] = ()
    each: type | None = None
    affects: str = "training"
    large: bool = False
    file: bool = False
    path: bool = False
    afterwards: bool | None = None
    where: Where | None = None

    @property
    def kind(self) -> type:
        """Type of the value."""
        return type(self.default)

    @property
    def expected(self) -> str:
        """The type, in words, with an example."""
        example = EXAMPLES.get(self.each, ()) if self.default == () else self.default
        return f"{KINDS[self.kind]}, such as {example!r}"

    @property
    def range(self) -> str:
        """Allowed values, in words; "" if all values of the type are allowed."""
        if self.choices:
            return ", ".join(name or '""' for name in self.choices)
        if self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        return "" if self.at_least is None else f"at least {self.at_least}"

    @property
    def values(self) -> tuple:
        """Type, default and range; an option with equal ones may inherit the value of another option."""
        return self.kind, self.default, self.at_least, self.at_most, self.choices, self.each

    def check(self, key: str, value: Any) -> None:
        """Checks a value.

        Raises:
            UserError: the value has another type than the default, is out of range, or is not one of the choices.
        """
        number = (int, float) if self.kind is float else self.kind
        if not isinstance(value, number) or isinstance(value, bool) != (self.kind is bool):
            raise UserError(f"{key} is {_shown(value)}; expected {self.expected}")
        for part in _numbers(value):
            if isinstance(part, float) and not math.isfinite(part):
                raise UserError(f"{key} is {value}; expected a finite number")
            largest = 2 * LARGEST + 1 if self.large else LARGEST
            if isinstance(part, int) and abs(part) > largest:
                raise UserError(f"{key} is {_shown(value)}; expected integers of at most {largest:,}")
        names_files = self.file or key.startswith(("data_dir", "task."))
        texts = "".join(part for part in (value if self.kind is tuple else (value,)) if isinstance(part, str))
        if names_files and "\0" in texts:
            raise UserError(f"{key} is {_shown(value)}; expected no NUL in a name")
        if any("\ud800" <= letter <= "\udfff" for letter in texts):
            raise UserError(f"{key} is {_shown(value)}; expected a text of valid UTF-8")
        if self.choices:
            check_known(value, self.choices, key)
        if self.kind in (int, float) and self.at_least is not None:
            highest = sys.float_info.max if self.at_most is None else self.at_most
            if not self.at_least <= value <= highest:
                raise UserError(f"{key} is {value}; expected {self.range}")
        kinds = (int, float) if self.each is float else (self.each,)
        if self.each and (wrong := [part for part in value if type(part) not in kinds]):
            raise UserError(f"{key} has {wrong[0]!r}; expected {KINDS[self.each]} for each of its parts")

    def of_text(self, key: str, value: Any) -> Any:
        """Converts a checked value for the code: numbers to floats, ~ in paths to the home folder."""
        self.check(key, value)
        if self.path:
            return tuple(map(expanded, value)) if self.kind is tuple else expanded(value)
        return float(value) if self.kind is float else value


class Choice(NamedTuple):
    """A slot: the key `name` selects one part of a table."""

    table: Mapping[str, Any]
    default: str
    meaning: str
    affects: str = "training"
    afterwards: bool | None = None
    where: Where | None = None

    @property
    def option(self) -> Option:
        """The key `name` as an option."""
        names = tuple(self.table)
        return Option(self.default, self.meaning, choices=names, affects=self.affects, afterwards=self.afterwards)

    @property
    def values(self) -> tuple:
        """Names and default; a slot with equal ones may inherit the part of another slot."""
        return tuple(self.table), self.default


class Repeat(NamedTuple):
    """A sequence of slots: `pattern` names the part at each position, `parts` has the options of each name."""

    table: Mapping[str, Any]
    default: tuple[str, ...]
    meaning: str
    where: Where | None = None

    @property
    def option(self) -> Option:
        """The key `pattern` as an option."""
        return Option(self.default, f"{self.meaning}; of {', '.join(self.table)}", each=str)

    @property
    def values(self) -> tuple:
        """Names and default; a sequence with equal ones may inherit the parts of another sequence."""
        return tuple(self.table), self.default


class Section(NamedTuple):
    """A part whose class is fixed, or determined by earlier choices."""

    kind: type | Callable[[Chosen], type]
    meaning: str
    where: Where | None = None

    @property
    def values(self) -> tuple:
        """The class; a section with an equal one may inherit the values of another section."""
        return (self.kind,)

    def of(self, chosen: Chosen) -> type:
        """Returns the class."""
        return self.kind if isinstance(self.kind, type) else self.kind(chosen)


Field = Option | Choice | Repeat | Section


def option(
    default: Any,
    meaning: str,
    *,
    at_least: int | float | None = None,
    at_most: int | float | None = None,
    choices: Iterable[str] = (),
    each: type | None = None,
    affects: str = "training",
    large: bool = False,
    file: bool = False,
    path: bool = False,
    afterwards: bool | None = None,
    where: Where | None = None,
) -> Any:
    """Makes a field whose value is set by a config.

    Args:
        default, meaning, at_least, at_most, each, affects, large, file, path, afterwards, where: see `Option`.
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
        large=large,
        file=file,
        path=path or file,
        afterwards=afterwards,
        where=where,
    )
    return dataclasses.field(default=default, metadata={"option": about})


def choice(
    table: Mapping[str, Any],
    default: str,
    meaning: str,
    *,
    affects: str = "training",
    afterwards: bool | None = None,
    where: Where | None = None,
) -> Any:
    """Makes a slot, a field that holds a part from a table: an `Options` object, or a `Recipe` of a module.

    In code its default is the default part with default options, or None with `where`. (A module in two slots would
    share its parameters; a recipe builds one module for each.)
    """
    return _slot(Choice(table, default, meaning, affects, afterwards, where))


def repeat(table: Mapping[str, Any], default: tuple[str, ...], meaning: str, *, where: Where | None = None) -> Any:
    """Makes a field that holds a tuple of parts, one for each name in a pattern."""
    return _slot(Repeat(table, default, meaning, where))


def section(kind: type | Callable[[Chosen], type], meaning: str = "", *, where: Where | None = None) -> Any:
    """Makes a field that holds a part of a fixed class, or of the class that a function of earlier choices returns."""
    return _slot(Section(kind, meaning, where))


def _slot(field: Choice | Repeat | Section) -> Any:
    if field.where is not None:
        default: dict[str, Any] = {"default": () if isinstance(field, Repeat) else None}
    else:
        default = {"default_factory": functools.partial(_default_of, field)}
    return dataclasses.field(**default, metadata={"option": field})


def _default_of(field: Choice | Repeat | Section) -> Any:
    """Returns the default of a slot: its default parts with default options."""
    if isinstance(field, Repeat):
        return tuple(recipe_of(field.table[name]) for name in field.default)
    if isinstance(field, Section):
        assert isinstance(field.kind, type), "the class of this section follows from choices"
        return recipe_of(field.kind)
    return recipe_of(field.table[field.default])


def recipe_of(kind: Any, **values: Any) -> Any:
    """Returns a part as `read`, with these values of its options and the defaults of the others."""
    if _has_fields(kind) and issubclass(kind, Options):
        return kind(**values)
    given = {}
    for name, field in fields_of(kind).items():
        given[name] = field.default if isinstance(field, Option) else _default_of(field)
    return Recipe(kind, given | values)


class Options:
    """Base of option classes that build their part themselves: `read` returns an instance.

    For any other class (a module) or a function, `read` returns a `Recipe`, which is built when the facts are known.
    """

    @classmethod
    def check_chosen(cls, chosen: Chosen) -> None:
        """Raises a UserError if chosen parts do not fit each other; called before their options are read."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A chosen part with the values of its options, not yet built; `build` sets the other fields."""

    kind: Any  # a class; or a function or other object, which is the part itself
    values: Mapping[str, Any]
    key: str = dataclasses.field(default="", compare=False)  # key of its slot, for messages

    def build(self, **facts: Any) -> Any:
        """Builds the part, and the parts in its slots.

        Args:
            facts: values that are not options (width, number of heads); passed to every part with a field of that name.

        Raises:
            UserError: a part rejects its arguments; the message begins with its key.
        """
        if not _has_fields(self.kind):
            return self.kind
        names = {field.name for field in dataclasses.fields(self.kind)} - self.values.keys()
        given = {name: value for name, value in facts.items() if name in names}
        try:
            return self.kind(**given, **{name: _built(value, facts) for name, value in self.values.items()})
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{self.key}: {error}") from error


def _built(value: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(value, Recipe):
        return value.build(**facts)
    return tuple(_built(part, facts) for part in value) if isinstance(value, tuple) else value


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


@functools.cache
def _fields_of(kind: type) -> dict[str, Field]:
    return {x.name: x.metadata["option"] for x in dataclasses.fields(kind) if "option" in x.metadata}


def fields_of(kind: Any) -> Mapping[str, Field]:
    """Returns the options and slots of a class, by key; {} for a function or another object."""
    return _fields_of(kind) if _has_fields(kind) else {}


def present(kind: Any, names: Callable[[str, Choice], str], chosen: Chosen) -> Iterator[tuple[str, Field, dict]]:
    """Yields (key, field, parts chosen so far) for each field of a class whose condition holds.

    Args:
        kind: the class.
        names: (key, slot) -> name of the part in a slot.
        chosen: parts in the slots above.
    """
    chosen = dict(chosen)
    for key, field in fields_of(kind).items():
        if field.where is not None and not field.where.test(chosen):
            continue
        if isinstance(field, Choice):
            chosen[key] = field.table.get(names(key, field))
        elif isinstance(field, Section):
            chosen[key] = field.of(chosen)
        yield key, field, chosen


def read(kind: Any, tree: Tree, key: str = "", chosen: Chosen | None = None) -> Any:
    """Reads a whole section; returns an instance of a subclass of `Options`, and a `Recipe` of any other class.

    Args:
        kind: class of the part.
        tree: its section, a mapping or a ConfigDict with every key, such as `attn_jax.runs.tree.resolve_tree` returns.
        key: key of the section, with a dot, for messages.
        chosen: parts in the slots above.

    Raises:
        UserError: a value has the wrong type or is out of range, or options do not fit each other.
    """
    values = {}
    fields = list(present(kind, lambda slot, _: tree[slot][NAME], chosen or {}))
    for name, field, above in fields:
        inside, path = tree[name], key + name
        if isinstance(field, Option):
            values[name] = field.of_text(path, inside)
        elif isinstance(field, Choice):
            values[name] = read(above[name], inside, f"{path}.", above)
        elif isinstance(field, Section):
            values[name] = read(above[name], inside, f"{path}.", above)
        else:
            values[name] = tuple(
                read(field.table[part], inside[PARTS][part], f"{path}.{PARTS}.{part}.", above)
                for part in inside[PATTERN]
            )
    if _has_fields(kind) and issubclass(kind, Options):
        return kind(**values)
    return Recipe(kind, values, key.rstrip("."))


def options_of(kind: Any, tree: Tree, prefix: str = "", chosen: Chosen | None = None) -> dict[str, Option]:
    """Returns every option of a section by key; slots have the keys `name` or `pattern`."""
    found: dict[str, Option] = {}
    for name, field, above in list(present(kind, lambda slot, _: tree[slot][NAME], chosen or {})):
        inside, path = tree[name], prefix + name
        if isinstance(field, Option):
            found[path] = field
            continue
        if isinstance(field, Choice):
            found[f"{path}.{NAME}"] = field.option
        if isinstance(field, Repeat):
            found[f"{path}.{PATTERN}"] = field.option
            for part in dict.fromkeys(inside[PATTERN]):
                found |= options_of(field.table[part], inside[PARTS][part], f"{path}.{PARTS}.{part}.", above)
        else:
            found |= options_of(above[name], inside, f"{path}.", above)
    return found


def _numbers(value: Any) -> Iterator[int | float]:
    """Yields the numbers in a value, including those in nested tuples."""
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float):
        yield value


def _shown(value: Any) -> str:
    """Formats the beginning of a value; an integer may have more digits than Python prints."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]} ..."
