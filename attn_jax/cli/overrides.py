"""The config of a command line: --config=FILE --config.a.b=value ...

Without --config it is the stored config of the work directory. The values are read by tree.py, in the type of their
options.
"""

import importlib
import importlib.util
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from attn_jax.cli.modes import MODES, OF_MODES, modes_with
from attn_jax.cli.options import change
from attn_jax.cli.sweep_folder import is_sweep
from attn_jax.cli.tree import Bare, Notes, Text
from attn_jax.cli.workdir import load_config
from attn_jax.errors import UserError, nearest
from attn_jax.parts import KINDS
from attn_jax.paths import user_path

OF_PART = re.compile(r"Could not override field '(\w+)' \(reference\)\. (.*) is of original type .*\.ConfigDict'>$")
FOLDER_MODES = ("report",)  # which take the folder of a sweep as a work directory, too
SWEEP_OPTIONS = ("at_once", "engine", "engine_options", "address")


def parse(argv: list[str]) -> tuple[ConfigDict | None, list[str], list[Notes]]:
    """Parses a command line.

    Returns:
        (config with its overrides, or None without --config and --workdir; overrides as written; what the overrides
        did with other options, see `change`).

    Raises:
        UserError: an unknown flag, key or file, a value of the wrong type, or a stray argument.
    """
    argv = [argv[0], *_last(_join(_with_files(argv[1:])))]
    given = {name: value for name, value in map(_split, argv[1:]) if name}
    if given.get("config") == "":
        raise UserError("--config= names no file; expected a config such as --config=configs/quickstart.py")
    overrides = [argument for argument in argv[1:] if _split(argument)[0].startswith("config.")]
    known = [name for name in flags.FLAGS if _is_own(name)]
    for name in given:  # options that absl defines for its log, which would do nothing here
        if {name, name.removeprefix("no")} & set(flags.FLAGS) - set(known):
            raise UserError(f"unknown option --{name}; {nearest(name, known)}")
    try:
        rest = flags.FLAGS([argument for argument in argv if argument not in overrides])[1:]
    except flags.UnrecognizedFlagError as error:
        raise UserError(f"unknown option --{error.flagname}; {nearest(error.flagname, known)}") from None
    except (flags.Error, TypeError, ValueError) as error:
        raise UserError(_explain_flag(str(error), given)) from None
    if overrides and given.get("mode") == "compare":
        raise UserError(f"{overrides[0]}: --mode=compare reads results, which no option of a config changes")
    if rest:
        raise UserError(f"unexpected argument {rest[0]!r}; options look like --mode=eval")
    given |= {name: flags.FLAGS[name].value for name in given if name in flags.FLAGS}
    _check_options({name: value for name, value in given.items() if name in known})
    if "config" in given:
        config = load_config_file(given["config"])
    elif given.get("mode") in FOLDER_MODES and is_sweep(pathlib.Path(given.get("workdir", ""))):
        if wrong := [name for name in given if name in ("source", "target", "split") or name.startswith("config.")]:
            raise UserError(f"--{wrong[0]} is for a single run; give --workdir=DIR of one of {given['workdir']}")
        return None, overrides, []
    elif given.get("workdir") and "sweep" not in given:
        if is_sweep(pathlib.Path(given["workdir"])):
            raise UserError(
                f"{given['workdir']} is the folder of a sweep, which --mode={given.get('mode', 'train')} does not "
                "take; give --workdir=DIR of one of its runs"
            )
        config = load_config(pathlib.Path(given["workdir"]))
    elif overrides and "sweep" not in given:
        raise UserError(f"{overrides[0]}: there is no config that it could change; give --config=FILE or --workdir=DIR")
    else:
        return None, overrides, []
    if "sweep" in given:  # the overrides are for the runs of the sweep, which have configs of their own
        return None, overrides, []
    notes: list[Notes] = []
    return override(config, overrides, notes), overrides, notes


def override(config: ConfigDict, overrides: Sequence[str], notes: list[Notes] | None = None) -> ConfigDict:
    """Returns a config with overrides, given as written on the command line; for `notes` see `change`.

    Raises:
        UserError: a key does not apply, or a value has the wrong type or is out of range.
    """
    return change(config, dict(map(_change_of, overrides)), notes)


def _change_of(argument: str) -> tuple[str, Text]:
    """Returns (key, value) of an override."""
    name, value = _split(argument)
    key = name.removeprefix("config.")
    if not all(key.split(".")):
        raise UserError(f"{argument}: expected a key and a value, such as --config.model.hidden_size=64")
    if argument.lstrip("-").startswith("noconfig."):
        return key, Text("false")
    return key, Text(value) if "=" in argument else Bare("true")


def overridden_keys(overrides: Iterable[str]) -> list[str]:
    """Returns the keys, with dots, of overrides as written on the command line."""
    return [_split(override)[0].removeprefix("config.") for override in overrides]


def _check_options(given: dict[str, Any]) -> None:
    """Raises a UserError for command-line options that do not fit each other."""
    mode, number = given.get("mode", "train"), given.get("num_processes", 1)
    for name in SWEEP_OPTIONS:
        if name in given and not given.get("sweep"):
            raise UserError(f"--{name}={given[name]} is for --sweep=FILE, a single run has nothing beside it")
    if "sweep" in given:
        _check_sweep(given)
    if given.get("at_once", 0) < 0:
        raise UserError(f"--at_once={given['at_once']}: expected at least 1, or 0: as the engine does")
    if given.get("num_examples", 1) < 1:
        raise UserError(f"--num_examples={given['num_examples']}: expected at least 1")
    for name in OF_MODES:
        if given.get(name) and name not in MODES[mode].flags:
            raise UserError(f"--mode={mode} takes no --{name}; it is for --mode={' or --mode='.join(modes_with(name))}")
    if mode == "compare":
        if not given.get("baseline"):
            raise UserError(
                "--mode=compare needs --baseline=DIR, the work directory that --workdir=DIR is compared with"
            )
        if "config" in given:
            raise UserError(f"--mode=compare takes no --config={given['config']}: it reads the results of two runs")
    if number < 1:
        raise UserError(f"--num_processes={number}: expected at least 1")
    coordinator, place = given.get("coordinator", ""), given.get("process_id", 0)
    if number > 1 and (not coordinator or not 0 <= place < number):
        raise UserError(
            f"--num_processes={number} needs --coordinator=HOST:PORT (of process 0) and --process_id, 0 to "
            f"{number - 1}; got {coordinator!r} and {place}"
        )
    port = coordinator.rpartition(":")[2]
    if number > 1 and not (":" in coordinator and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(f"--coordinator={coordinator}: expected HOST:PORT, such as node1:1234 (a port is 1 to 65535)")
    if number == 1 and (coordinator or place):
        name = "coordinator" if coordinator else "process_id"
        raise UserError(f"--{name}={given[name]} is for several processes; say how many: --num_processes=2 or more")


def _check_sweep(given: dict[str, Any]) -> None:
    """Raises a UserError for an option that a sweep does not read."""
    if not given["sweep"]:
        raise UserError("--sweep is empty; expected a file such as experiments/scores.py")
    for name, unset in {"mode": "train", "config": None, "options": False, "num_processes": 1}.items():
        if name in given and given[name] != unset:
            raise UserError(
                f"--sweep={given['sweep']} takes no --{name}={given[name]}: it trains the runs that the file names"
            )


def _is_own(name: str) -> bool:
    """Returns whether a flag belongs to launch.py, not to a library or to the config."""
    module = flags.FLAGS.find_module_defining_flag
    return "." not in name and (name == "config" or module(name) == module("mode"))


def _split(argument: str) -> tuple[str, str]:
    """Splits --config.a.b=v into ("config.a.b", "v"); returns ("", "") for other arguments."""
    if not argument.startswith("-"):
        return "", ""
    name, _, value = argument.lstrip("-").partition("=")
    return (name[2:] if name.startswith("noconfig.") else name), value


def _with_files(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with the lines of a file for each --flagfile=FILE, as absl reads it: an option a line."""
    if "--flagfile=" in arguments:  # which absl leaves out
        raise UserError("--flagfile= names no file; expected a text file of options, one a line")
    try:
        return flags.FLAGS.read_flags_from_files(arguments)
    except flags.Error as error:
        reason = error.__context__
        told = f"{reason.filename}: {(reason.strerror or '').lower()}" if isinstance(reason, OSError) else str(error)
        raise UserError(f"--flagfile: {told}") from None
    except UnicodeDecodeError:
        raise UserError("--flagfile: not valid UTF-8; expected a text file of options, one a line") from None


def _join(arguments: list[str]) -> list[str]:
    """Joins `--name value` to `--name=value`."""
    joined: list[str] = []
    for argument in arguments:
        before = joined[-1] if joined else ""
        name, _ = _split(before)
        takes_value = name.startswith("config.") or (name in flags.FLAGS and not flags.FLAGS[name].boolean)
        if takes_value and "=" not in before and "noconfig." not in before and not argument.startswith("--"):
            joined[-1] = f"{before}={argument}"
        else:
            joined.append(argument)
    return joined


def _last(arguments: list[str]) -> list[str]:
    """Keeps only the last value of a config key; config_flags would join two tuples."""
    last = {name: i for i, (name, _) in enumerate(map(_split, arguments)) if name.startswith("config.")}
    return [argument for i, argument in enumerate(arguments) if last.get(_split(argument)[0], i) == i]


def _explain_flag(message: str, given: dict[str, str]) -> str:
    """Returns a one-line error for a wrong value of a command-line option."""
    for name, value in given.items():
        if name not in flags.FLAGS or not message.startswith(f"flag --{name}={value}:"):
            continue
        parser = flags.FLAGS[name].parser
        if isinstance(parser, flags.EnumParser):
            return f"unknown --{name}={value}; {nearest(value, parser.enum_values)}"
        if isinstance(parser, flags.IntegerParser):
            return f"--{name}={value}: expected {KINDS[int]}"
    return " ".join(message.split())


def load_config_file(spec: str) -> ConfigDict:
    """Loads a config.

    Args:
        spec: path of a file, or name of a config in the package, such as "quickstart".

    Raises:
        UserError: the file cannot be loaded, or has a key that its parts do not have.
    """
    path = find_config(spec)
    config = load_file(path, "get_config")
    if not isinstance(config, ConfigDict):
        raise UserError(f"{path}: get_config() gave a {type(config).__name__}; expected a ConfigDict")
    try:
        return change(config, {})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def find_config(spec: str) -> pathlib.Path:
    """Returns the path of a config: the file itself or, for a bare name, the config in the package."""
    path = user_path(spec)
    packaged = config_folder() / f"{spec}.py"
    return packaged if not path.is_file() and path.name == spec and packaged.is_file() else path


def config_folder() -> pathlib.Path:
    """Returns the folder of configs: in the checkout if it can be imported, else inside the package."""
    for name in ("configs", "attn_jax.configs"):
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (pathlib.Path(place) / "base.py").is_file():
                return pathlib.Path(place)
    return pathlib.Path("configs")


def load_file(path: pathlib.Path, function: str, *arguments: str) -> Any:
    """Runs a Python file and returns the result of `function`(*arguments) in it; a generator becomes a list."""
    if not path.is_file():
        folders = (path.parent, config_folder()) if path.name == str(path) else (path.parent,)
        files = [file for folder in folders for file in folder.glob("*.py")] or list(config_folder().glob("*.py"))
        names = {file.name if path.suffix else file.stem for file in files}
        raise UserError(f"there is no file {path}; {nearest(path.name, names)}")
    if "configs" not in sys.modules and importlib.util.find_spec("configs") is None:
        # Configs import each other ("from configs import base"); an installed package contains them.
        sys.modules["configs"] = importlib.import_module("attn_jax.configs")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise UserError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        # exec_module could use stale bytecode, of a version with the same size saved in the same second.
        exec(spec.loader.source_to_code(path.read_bytes(), str(path)), module.__dict__)
        if not hasattr(module, function):
            raise UserError(f"{path} has no function {function}()")
        made = getattr(module, function)(*arguments)
        return list(made) if isinstance(made, Iterator) else made
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # any fault in the user's own code
        # Messages of ml_collections have many lines; the first sentence and the nearest key are enough.
        lines = str(error).replace("\\n", "\n").splitlines()
        nearest_key = lines[-1].strip("\"'") if lines and "Did you mean" in lines[-1] else ""
        reason = lines[0].split(" Other fields")[0].strip() if lines else ""
        if found := OF_PART.match(reason):
            reason = (
                f"{found[1]} holds a part, got {found[2]}; expected part(NAME), or sequence(NAME, ...) of several, of "
                "attn_jax.cli.tree"
            )
        elif isinstance(error, SystemExit):
            reason = f"it ends the process, with {error.code!r}; expected a value from {function}()"
        elif isinstance(error, OSError) and error.strerror:
            reason = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
        elif not reason or (isinstance(error, LookupError | AssertionError) and not nearest_key):
            reason = f"{type(error).__name__} {reason}"  # the text alone, such as 'x', does not explain the error
        raise UserError(f"cannot load {path}: {reason} {nearest_key}".rstrip()) from error
