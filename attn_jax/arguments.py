"""The config of a command line, with errors a person can act on: --config=FILE --config.a.b=value ...

Parsing is that of ml_collections.config_flags; here is what it leaves out: unknown keys are named with the
nearest known one, and a work directory alone brings the config it was trained with.
"""

import importlib.util
import pathlib
import sys
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from attn_jax.errors import UserError, nearest

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"


def parse(argv: list[str], config_flag: flags.FlagHolder) -> tuple[ConfigDict | None, list[str]]:
    """(the config with its overrides, or None without --config and --workdir; the overrides as written).

    Raises:
        UserError: unknown flag, key, file; a value of the wrong type; a stray argument.
    """
    argv = list(argv)
    given = {name: value for name, value in map(_split, argv[1:]) if name}
    if "config" not in given and given.get("workdir") and "sweep" not in given:
        argv.insert(1, f"--config={CONFIGS / 'of_workdir.py'}:{given['workdir']}")
    for argument in argv[1:]:
        name, value = _split(argument)
        if name == "config":
            _check_keys(value, [key.removeprefix("config.") for key in given if key.startswith("config.")])
    sys.argv = argv  # config_flags looks for the overrides there
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        known = [name for name in flags.FLAGS if not name.startswith("config.")]
        raise UserError(f"unknown option --{error.flagname}; {nearest(error.flagname, known)}") from None
    except (flags.Error, TypeError, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from None
    if rest:
        raise UserError(f"unexpected argument {rest[0]!r}; options look like --mode=eval")
    return config_flag.value, [argument for argument in argv[1:] if argument.startswith("--config.")]


def _split(argument: str) -> tuple[str, str]:
    """("config.a.b", "v") of --config.a.b=v; ("", "") of what is no option."""
    if not argument.startswith("-"):
        return "", ""
    name, _, value = argument.lstrip("-").partition("=")
    return (name[2:] if name.startswith("noconfig.") else name), value


def _check_keys(spec: str, overridden: list[str]) -> None:
    path, _, argument = spec.partition(":")
    config = load_file(pathlib.Path(path), "get_config", *([argument] if argument else []))
    known = keys(config)
    for key in overridden:
        if key not in known:
            raise UserError(f"unknown config key {key}; {nearest(key, known)}")


def keys(config: ConfigDict, prefix: str = "") -> list[str]:
    """All keys that hold a value, with dots."""
    found = []
    for key, value in config.items():
        found += keys(value, f"{prefix}{key}.") if isinstance(value, ConfigDict) else [prefix + key]
    return found


def load_file(path: pathlib.Path, function: str, *arguments: str) -> Any:
    """What `function`(*arguments) of a Python file returns."""
    if not path.is_file():
        folder = path.parent if path.parent.is_dir() else CONFIGS
        raise UserError(f"there is no file {path}; {nearest(path.name, [p.name for p in folder.glob('*.py')])}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise UserError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise UserError(f"cannot load {path}: {error}") from error
    if not hasattr(module, function):
        raise UserError(f"{path} has no function {function}()")
    return getattr(module, function)(*arguments)
