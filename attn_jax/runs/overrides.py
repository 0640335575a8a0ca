"""Overrides as written on a command line: --config.a.b=value. The option of a key reads the text of its value."""

from collections.abc import Iterable, Sequence

from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.runs.options import change
from attn_jax.runs.tree import Bare, Notes, Text


def override(config: ConfigDict, overrides: Sequence[str], notes: list[Notes] | None = None) -> ConfigDict:
    """Returns a config with overrides, given as written on the command line; for `notes` see `change`.

    Raises:
        UserError: a key does not apply, or a value has the wrong type or is out of range.
    """
    return change(config, dict(map(_change_of, overrides)), notes)


def _change_of(argument: str) -> tuple[str, Text]:
    """Returns (key, value) of an override."""
    name, value = split(argument)
    key = name.removeprefix("config.")
    if not all(key.split(".")):
        raise UserError(f"{argument}: expected a key and a value, such as --config.model.hidden_size=64")
    if argument.lstrip("-").startswith("noconfig."):
        return key, Text("false")
    return key, Text(value) if "=" in argument else Bare("true")


def overridden_keys(overrides: Iterable[str]) -> list[str]:
    """Returns the keys, with dots, of overrides as written on the command line."""
    return [split(override)[0].removeprefix("config.") for override in overrides]


def split(argument: str) -> tuple[str, str]:
    """Splits --config.a.b=v into ("config.a.b", "v"); returns ("", "") for other arguments."""
    if not argument.startswith("-"):
        return "", ""
    name, _, value = argument.lstrip("-").partition("=")
    return (name[2:] if name.startswith("noconfig.") else name), value
