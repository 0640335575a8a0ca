"""Configs as trees of chosen parts: the one place where command line, sweep, Python, files and stored runs meet.

    config.model.encoder            name: lstm, num_layers: 1, bidirectional: true
    config.model.attention          score: {name: additive, features: 64}, normalize: {name: softmax}, ...

`resolve_tree` completes a config. It reads names first, outermost first, so the order of changes never matters. Where a
name changes, options that both parts have, equal in type, default and range, keep their values. All others take their
defaults. `Notes` lists the options that were kept and dropped.
"""

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from attn_jax.errors import UserError, check_known, nearest
from attn_jax.parts import (
    NAME,
    PARTS,
    PATTERN,
    Choice,
    Chosen,
    Field,
    Option,
    Options,
    Repeat,
    Section,
    fields_of,
    present,
)

SHOWN = 4  # keys or names that a message or a note lists
MISSING = object()  # the value of a key that is not set
WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Text(str):
    """A value as written on a command line, to be read in the type of its option."""


class Bare(Text):
    """A key without a value, such as --config.model.tie_embeddings; only a boolean option can have one."""


class Notes(NamedTuple):
    """Options with non-default values that a change of names kept or dropped, and unknown keys."""

    kept: list[str]
    dropped: list[str]
    unknown: list[str]  # keys of a stored run that this version does not know; they are left out

    def __str__(self) -> str:
        """Describes the notes in one line; "" if there are none."""
        parts = {"kept": self.kept, "dropped": self.dropped}
        return "; ".join(f"{what} {_some(keys)}" for what, keys in parts.items() if keys)


class Side(NamedTuple):
    """A section before or after a change: its class, its values, and the parts chosen above it."""

    kind: Any
    values: Mapping[str, Any]
    chosen: Chosen


def part(name: str, **values: Any) -> ConfigDict:
    """Makes a section of a config file: config.model.encoder = part("lstm", num_layers=2)."""
    return ConfigDict({NAME: name, **values})


def sequence(*names: str, **options: Mapping[str, Any]) -> ConfigDict:
    """Makes a sequence of slots of a config file, with options by name: sequence("top_keys", top_keys={"count": 4})."""
    return ConfigDict({PATTERN: names, PARTS: {name: dict(values) for name, values in options.items()}})


def resolve_tree(
    kind: type, config: Any = None, changes: Mapping[str, Any] | None = None, *, lenient: bool = False
) -> tuple[ConfigDict, Notes]:
    """Returns the whole, locked config of a part: every key of the chosen tree, and no other.

    Args:
        kind: the root, a dataclass.
        config: values so far, whole or in part; None: all defaults.
        changes: values by key with dots; "a.b" of a slot means "a.b.name". A `Text` is read in the type of its option.
        lenient: leave out unknown keys of `config`, and name them in the notes.

    Raises:
        UserError: an unknown key or name, or a value of the wrong type or out of range.
    """
    old, new = {} if config is None else plain(config), nest(changes or {})
    resolver = Resolver(kind, Notes([], [], []), lenient, (old, new))
    tree = resolver.part(Side(kind, old, {}), Side(kind, new, {}), "")
    return ConfigDict(tree, sort_keys=False).lock(), resolver.notes


@dataclasses.dataclass(frozen=True)
class Resolver:
    """Completes sections, key by key."""

    root: type
    notes: Notes
    lenient: bool
    values: tuple[Mapping[str, Any], ...]  # values of the root, old and new

    def part(self, old: Side, new: Side, path: str, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Resolves the keys of one part: values of `new`, else of `old`, else defaults.

        `others` are the parts that could have been chosen, for messages.
        """
        if isinstance(new.kind, type) and issubclass(new.kind, Options):
            new.kind.check_chosen(self.names(old, new, path))
        before, after, tree = dict(old.chosen), dict(new.chosen), {}
        fields = {}
        for key, field in fields_of(new.kind).items():
            if field.where is not None and not field.where.test(after):
                continue
            fields[key] = field
            then, now = old.values.get(key, MISSING), new.values.get(key, MISSING)
            if isinstance(field, Option):
                tree[key] = self.option(field, then, now, path + key)
            elif isinstance(field, Choice):
                tree[key], before[key], after[key] = self.choice(field, then, now, path + key, before, after)
            elif isinstance(field, Repeat):
                tree[key] = self.repeat(field, then, now, path + key, before, after)
            else:
                after[key] = field.of(after)
                was = fields_of(old.kind).get(key, field)
                before[key] = was.of(before) if before else after[key]
                tree[key] = self.section(before[key], after[key], then, now, path + key, before, after)
        self.check(fields, old, new, path, others)
        return tree

    def names(self, old: Side, new: Side, path: str) -> dict[str, Any]:
        """Returns the names chosen in the slots of a part."""
        chosen = dict(new.chosen)
        for key, field in fields_of(new.kind).items():
            if isinstance(field, Choice):
                chosen[key] = field.table[_known(_name_of(field, key, old.values, new.values), field, path + key)]
        return chosen

    def check(
        self,
        fields: Mapping[str, Field],
        old: Side,
        new: Side,
        path: str,
        others: Mapping[str, Any] | None,
    ) -> None:
        """Raises a UserError for a key that the part does not have with these choices."""
        for key in new.values:
            if key not in fields:
                raise UserError(self.unknown(path, key, new, others))
        for key in old.values:
            if key in fields:
                continue
            field = fields_of(old.kind).get(key, fields_of(new.kind).get(key))
            if field is not None:  # valid before this change or in the config file, with other choices
                self.lose(field, old.values[key], path + key)
            elif self.lenient:
                self.notes.unknown.append(path + key)
            else:
                raise UserError(self.unknown(path, key, old._replace(kind=new.kind), others))

    def option(self, field: Option, old: Any, new: Any, key: str) -> Any:
        """Resolves one value."""
        value = field.default if new is MISSING and old is MISSING else old if new is MISSING else new
        if isinstance(new, dict):
            inside = next((name for name in new if name != NAME), NAME)
            raise UserError(f"unknown config key {key}.{inside}; {key} has a value, and no keys")
        value = _read(value, field, key) if isinstance(value, Text) else value
        value = _tuples(value) if isinstance(value, list) and field.kind is tuple else value
        field.check(key, value)
        return value

    def choice(
        self, slot: Choice, old: Any, new: Any, path: str, before: Chosen, after: Chosen
    ) -> tuple[dict, Any, Any]:
        """Resolves a slot; returns (section, the part chosen before, the part chosen now)."""
        old, new = _section(old, NAME), _section(new, NAME)
        was = old.pop(NAME, slot.default)
        name = _known(new.pop(NAME, was), slot, path)
        was = _known(was, slot, path)
        then, now = slot.table[was], slot.table[name]
        inside = {path.rpartition(".")[2]: now}
        if name != was:
            old = self.carry(then, now, old, path)
        sides = Side(now, old, {**before, **inside}), Side(now, new, {**after, **inside})
        return {NAME: name, **self.part(*sides, f"{path}.", slot.table)}, then, now

    def section(
        self, then: type, now: type, old: Any, new: Any, path: str, before: Chosen, after: Chosen
    ) -> dict[str, Any]:
        """Resolves a section, whose class may depend on other choices."""
        for value in (old, new):
            if value is not MISSING and not isinstance(value, Mapping):
                inside = ", ".join(fields_of(now))
                raise UserError(f"{path} is a section of the config; set one of its keys: {inside}")
        old, new = ({} if value is MISSING else dict(value) for value in (old, new))
        old = self.carry(then, now, old, path) if then is not now else old
        return self.part(Side(now, old, before), Side(now, new, after), f"{path}.")

    def repeat(self, slot: Repeat, old: Any, new: Any, path: str, before: Chosen, after: Chosen) -> dict[str, Any]:
        """Resolves a sequence of slots."""
        old, new = _section(old, PATTERN), _section(new, PATTERN)
        for values in (old, new):
            if unknown := [key for key in values if key not in (PATTERN, PARTS)]:
                inside = f"{PARTS}.{unknown[0]}"
                known = (
                    f"did you mean {path}.{inside}?"
                    if unknown[0] in slot.table
                    else _close(unknown[0], (PATTERN, PARTS), f"{path}.")
                )
                raise UserError(f"unknown config key {path}.{unknown[0]}; {known}")
            if PARTS in values and not isinstance(values[PARTS], Mapping):
                raise UserError(f"{path}.{PARTS} is a section of the config; its keys are names in {path}.{PATTERN}")
        was, pattern = (
            self.option(slot.option, *values, f"{path}.{PATTERN}")
            for values in ((old.get(PATTERN, MISSING), MISSING), (old.get(PATTERN, MISSING), new.get(PATTERN, MISSING)))
        )
        for name in pattern:
            _known(name, slot, f"{path}.{PATTERN}")
        then, now = (dict(values.get(PARTS, {})) for values in (old, new))
        for name in (*now, *(name for name in then if name not in was and not self.lenient)):
            if name not in pattern:
                known = f"it is for {path}={name}, which is {pattern}"
                known = known if name in slot.table else _close(name, pattern or slot.table, f"{path}.{PARTS}.")
                raise UserError(f"unknown config key {path}.{PARTS}.{name}; {known}")
        for name in then:
            if name not in pattern and name in slot.table:
                self.lose(Choice(slot.table, name, ""), then[name], f"{path}.{PARTS}.{name}")
        parts = {}
        for name in dict.fromkeys(pattern):
            kind, here = slot.table[name], f"{path}.{PARTS}.{name}."
            for value in (then.get(name, {}), now.get(name, {})):
                if not isinstance(value, Mapping):
                    inside = ", ".join(fields_of(kind)) or "it has none"
                    raise UserError(f"{here[:-1]} is a section of the config; set one of its keys: {inside}")
            sides = (Side(kind, dict(of.get(name, {})), chosen) for of, chosen in ((then, before), (now, after)))
            parts[name] = self.part(*sides, here)
        return {PATTERN: pattern, PARTS: parts}

    def carry(self, then: Any, now: Any, old: dict[str, Any], path: str) -> dict[str, Any]:
        """Returns the values of options that both parts have, equal in type, default and range."""
        was, has, kept = fields_of(then), fields_of(now), {}
        for key, value in old.items():
            if key not in was:
                kept[key] = value  # an unknown key, which `check` reports together with others
            elif key in has and type(was[key]) is type(has[key]) and _alike(was[key], has[key]):
                kept[key] = value
                if _differs(was[key], value):
                    self.notes.kept.append(f"{path}.{key}")
            else:
                self.lose(was[key], value, f"{path}.{key}")
        return kept

    def lose(self, field: Field, value: Any, key: str) -> None:
        """Notes a dropped option, if its value was not the default."""
        if _differs(field, value):
            self.notes.dropped.append(key)

    def unknown(self, path: str, key: str, side: Side, others: Mapping[str, Any] | None) -> str:
        """Words the error for a key that a part does not have."""
        start, slot, known = f"unknown config key {path}{key}; ", path.rstrip("."), fields_of(side.kind)
        if key in known:
            return f"{start}it is for {known[key].where.text}"
        below = list(slots_below(side.kind, (side.values,), side.chosen, path))
        if found := [other for other, _ in below if other.endswith(f".{key}")]:
            return f"{start}did you mean {_either(found)}?"
        if having := [name for name, other in (others or {}).items() if key in fields_of(other)]:
            return f"{start}it is an option of {slot} {_either(having)}: set {slot}={having[0]}"
        for other, field in below:
            if isinstance(field, Choice | Repeat):
                inside = f"{other}.{PARTS}.{{}}.{key}" if isinstance(field, Repeat) else f"{other}.{key}"
                if having := [name for name, kind in field.table.items() if key in fields_of(kind)]:
                    return f"{start}did you mean {inside.format(having[0])}, with {other}={_either(having)}?"
                if key in field.table:
                    return f"{start}did you mean {other}={key}?"
        names = [*known, *([NAME] if others else [])]
        close = _close(key, names, path) if known else f"{slot} has no options here"
        if close.startswith("did you mean"):
            return start + close
        everywhere = slots_below(self.root, self.values, {}, "")
        same = [other for other, _ in everywhere if other.rpartition(".")[2] == key and other != f"{path}{key}"]
        return start + (f"did you mean {_either(same)}?" if same else close)


def slots_below(
    kind: Any, values: tuple[Mapping[str, Any], ...], chosen: Chosen, path: str, depth: int = 4
) -> Iterator[tuple[str, Field]]:
    """Yields the keys of a part, and of the parts in its slots, with dots; at most `depth` levels of slots.

    `values` are the old and new values of the part; later ones take precedence.
    """
    for key, field, above in present(kind, lambda slot, of: _sound_name(of, slot, *values), chosen):
        yield path + key, field
        if depth and isinstance(field, Choice | Section):
            inside = tuple(_section(of.get(key, MISSING), NAME) for of in values)
            yield from slots_below(above[key], inside, above, f"{path}{key}.", depth - 1)


def _close(key: str, known: Iterable[str], path: str) -> str:
    """Returns the suggestion of `nearest`, as a whole key."""
    return nearest(key, known).replace("did you mean ", f"did you mean {path}")


def keys(config: Mapping[str, Any] | ConfigDict, prefix: str = "") -> list[str]:
    """Returns all keys of a config that hold a value, with dots."""
    return list(flatten(config, prefix))


def flatten(config: Mapping[str, Any] | ConfigDict, prefix: str = "") -> dict[str, Any]:
    """Flattens a nested config: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat = {}
    for key, value in config.items():
        is_section = isinstance(value, Mapping | ConfigDict)
        flat |= flatten(value, f"{prefix}{key}.") if is_section else {prefix + key: value}
    return flat


def plain(config: Any) -> Any:
    """Copies a config into dicts, so that no section is shared and nothing is locked."""
    is_section = isinstance(config, Mapping | ConfigDict)
    return {key: plain(value) for key, value in config.items()} if is_section else config


def nest(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nests keys with dots. A slot with both a name and keys below it gets both.

    "a.b", "a.b.name" and "a.b.pattern" mean the same; if several are given, the last one counts.
    """
    last_of = {_slot_of(key): key for key in changes}
    tree: dict[str, Any] = {}
    for key, value in sorted(changes.items(), key=lambda item: item[0].count(".")):
        if last_of[_slot_of(key)] != key:
            continue
        *above, last = key.split(".")
        inside = tree
        for name in above:
            inside[name] = inside = _section(inside.get(name, MISSING), NAME)
        inside[last] = plain(value)
    return tree


def _slot_of(key: str) -> str:
    return key.removesuffix(f".{NAME}").removesuffix(f".{PATTERN}")


def _section(value: Any, first: str) -> dict[str, Any]:
    """Returns a section as a new dict; a bare value becomes the value of its first key."""
    section = dict(value) if isinstance(value, Mapping) else {} if value is MISSING else {first: value}
    if first == PATTERN and NAME in section:  # a bare value of a sequence, which `nest` took for the name of a slot
        section[PATTERN] = section.pop(NAME)
    return section


def _name_of(slot: Choice, key: str, *values: Mapping[str, Any]) -> Any:
    """Returns the name of the part in a slot, from the last of `values` that has one, else the default."""
    names = [_section(of.get(key, MISSING), NAME).get(NAME, MISSING) for of in values]
    return next((name for name in reversed(names) if name is not MISSING), slot.default)


def _sound_name(slot: Choice, key: str, *values: Mapping[str, Any]) -> str:
    """Returns the name as `_name_of`, but the default for an unknown name; used for messages."""
    name = _name_of(slot, key, *values)
    return str(name) if isinstance(name, str) and name in slot.table else slot.default


def _known(name: Any, slot: Choice | Repeat, key: str) -> str:
    if isinstance(name, Mapping):
        raise UserError(
            f"unknown config key {key}.{NAME}.{next(iter(name), '')}; {key}.{NAME} has a value, and no keys"
        )
    if isinstance(name, Bare):
        raise UserError(f"--config.{key} has no value; expected one of {', '.join(slot.table)}")
    if not isinstance(name, str):
        raise UserError(f"{key} is {name!r}; expected one of {', '.join(slot.table)}")
    check_known(str(name), slot.table, key)
    return str(name)


def _alike(a: Field, b: Field) -> bool:
    """Tells whether the value of one field is valid for another field of the same key, with the same meaning."""
    return a.values == b.values


def _differs(field: Field, value: Any) -> bool:
    """Tells whether a value differs from the default of its option; for a section, whether any value does."""
    if isinstance(field, Option):
        return value != field.default
    if isinstance(field, Repeat):
        section = _section(value, PATTERN)
        return tuple(section.get(PATTERN, field.default)) != tuple(field.default) or bool(section.get(PARTS))
    if isinstance(field, Choice):
        section = _section(value, NAME)
        name = section.pop(NAME, field.default)
        inside = fields_of(field.table.get(name))
        return name != field.default or any(key in inside and _differs(inside[key], x) for key, x in section.items())
    inside = fields_of(field.kind)
    return any(key in inside and _differs(inside[key], x) for key, x in dict(value or {}).items())


def _read(text: str, option: Option, key: str) -> Any:
    """Reads the text of a command line in the type of an option."""
    if isinstance(text, Bare) and option.kind is not bool:
        raise UserError(f"--config.{key} has no value; expected {option.expected}")
    if option.kind is str:
        return str(text)
    try:
        if option.kind is bool:
            return WORDS[text.lower()]
        if option.kind is float:
            return float(text)
        if option.kind is int:
            return int(text)
        return _tuple(text, option.each)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise UserError(f"--config.{key}={text}: expected {option.expected}") from None


def _tuple(text: str, each: type | None) -> tuple:
    """Reads a tuple: a literal, or words between commas."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        words = [word.strip() for word in text.strip().strip("()[]").split(",")]
        if each not in (None, str) or not all(word and set("{}:'\"(").isdisjoint(word) for word in words):
            raise
        return tuple(words)
    if isinstance(value, dict | set):
        raise ValueError
    return tuple(_tuples(value)) if isinstance(value, list | tuple) else (value,)


def as_tuple(value: Any) -> tuple[str, ...]:
    """Returns the words of a tuple that has not been read or checked yet; () if it is something else."""
    try:
        value = _tuple(value, str) if isinstance(value, Text) else value
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    return tuple(x for x in value if isinstance(x, str)) if isinstance(value, list | tuple) else ()


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _either(names: list[str]) -> str:
    """Joins names as "a, b or c"; shows only the first ones of many."""
    if len(names) > SHOWN:
        return f"{', '.join(names[: SHOWN - 1])} or {len(names) - SHOWN + 1} more"
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more
