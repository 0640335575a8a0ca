"""Names of scores, normalizers and readings, which Attention and attend accept instead of objects."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from attn_jax.errors import nearest


def from_name(argument: str, value: Any, table: Mapping[str, Any]) -> Any:
    """Returns table[value] for a name, constructed if the entry is a class; returns other values unchanged.

    Args:
        argument: name of the argument, for the error messages.
        value: a name, or an object.
        table: maps names to objects, or to classes of modules.

    Raises:
        ValueError: the name is unknown, or its class has an option without a default.
        TypeError: the value is a class instead of an object.
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
    return entry(parent=None)  # without a parent, so that the module with this field becomes its parent


def required_options(kind: type) -> list[str]:
    """Lists the fields of a module class that have no default."""
    fields = [field for field in dataclasses.fields(kind) if field.init and field.name not in ("parent", "name")]
    return [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


def construction(kind: type) -> str:
    """Writes the constructor call of a class with its required options: "General(query_features=...)"."""
    options = required_options(kind) if dataclasses.is_dataclass(kind) else []
    return f"{kind.__name__}({', '.join(f'{name}=...' for name in options)})"
