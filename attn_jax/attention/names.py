"""Names of scores, normalizers and readings, as Attention and attend accept them in place of objects."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from attn_jax.errors import nearest


def from_name(argument: str, value: Any, table: Mapping[str, Any]) -> Any:
    """Returns table[value] where the value is a name, constructed if it is a class; other values unchanged.

    Args:
        argument: name of the argument, for the error messages.
        value: a name, or an object.
        table: objects, and classes of modules, by name.

    Raises:
        ValueError: the name is unknown, or stands for a class that has no default for some option.
        TypeError: the value is a class, not an object of it.
    """
    if isinstance(value, type):
        raise TypeError(f"{argument} is the class {value.__name__}; give an object, {construction(value)}")
    if not isinstance(value, str):
        return value
    if value not in table:
        raise ValueError(f"unknown {argument} {value!r}; {nearest(value, table)}")
    entry = table[value]
    if not isinstance(entry, type):
        return entry
    if required_options(entry):
        raise ValueError(f"{argument} {value!r} needs options; give an object instead, {construction(entry)}")
    return entry(parent=None)  # so that the module it is a field of becomes its parent


def required_options(kind: type) -> list[str]:
    """Lists the fields of a module class that have no default."""
    fields = [field for field in dataclasses.fields(kind) if field.init and field.name not in ("parent", "name")]
    return [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


def construction(kind: type) -> str:
    """Writes down how a class is constructed, with its required options: "General(query_features=...)"."""
    options = required_options(kind) if dataclasses.is_dataclass(kind) else []
    return f"{kind.__name__}({', '.join(f'{name}=...' for name in options)})"
