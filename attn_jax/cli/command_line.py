"""The config of a command line: --config=FILE --config.a.b=value ...

Without --config it is the stored config of the work directory. tree.py reads each value in the type of its option.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from attn_jax.cli.modes import MODES, OF_MODES, modes_with
from attn_jax.errors import UserError, nearest
from attn_jax.parts import KINDS
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.overrides import override, split
from attn_jax.runs.tree import Notes
from attn_jax.runs.workdir import load_config
from attn_jax.sweeps.grid import is_grid, read_seeds
from attn_jax.sweeps.sweep_folder import is_sweep

FOLDER_MODES = ("report",)  # modes whose --workdir may also be the folder of a sweep
SWEEP_OPTIONS = ("at_once", "commands")


def parse(argv: list[str]) -> tuple[ConfigDict | None, list[str], list[Notes]]:
    """Parses a command line.

    Returns:
        (config with its overrides, or None without --config and --workdir; overrides as written; notes on other
        options that the overrides changed, see `change`).

    Raises:
        UserError: an unknown flag, key or file, a value of the wrong type, or a stray argument.
    """
    bare = {"-options": "--options=", "--options": "--options="}  # an option whose value may be left out
    argv = [argv[0], *_last(_join([bare.get(argument, argument) for argument in _with_files(argv[1:])]))]
    given = {name: value for name, value in map(split, argv[1:]) if name}
    if given.get("config") == "":
        raise UserError("--config= names no file; expected a config such as --config=configs/quickstart.py")
    if "seeds" in given:
        argv.append(f"--config.seeds={read_seeds(given['seeds'])}")
    overrides = [argument for argument in argv[1:] if split(argument)[0].startswith("config.")]
    known = [name for name in flags.FLAGS if _is_own(name)]
    for name in given:  # options of absl's log, which have no effect here
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
        config = load_config(pathlib.Path(given["workdir"]), trust=bool(given.get("trust")))
    elif overrides and "sweep" not in given:
        raise UserError(f"{overrides[0]}: there is no config that it could change; give --config=FILE or --workdir=DIR")
    else:
        return None, overrides, []
    if "sweep" in given:  # the overrides apply to the runs of the sweep, each of which names its config
        return None, overrides, []
    notes: list[Notes] = []
    return override(config, overrides, notes), overrides, notes


def _check_options(given: dict[str, Any]) -> None:
    """Raises a UserError for command-line options that do not fit each other."""
    mode, number = given.get("mode", "train"), given.get("num_processes", 1)
    for name in SWEEP_OPTIONS:
        if name in given and not given.get("sweep"):
            raise UserError(f"--{name}={given[name]} is for --sweep=FILE, a single run has nothing beside it")
    if "sweep" in given:
        _check_sweep(given)
    if given.get("at_once", 1) < 1:
        raise UserError(f"--at_once={given['at_once']}: expected at least 1")
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
    texts = given["sweep"]
    if not all(texts):
        raise UserError("--sweep is empty; expected a file such as experiments/dates_scores.py, or KEY=VALUE,VALUE")
    if is_grid(texts):
        if "config" not in given:
            raise UserError(f"--sweep={texts[0]} needs --config=FILE, whose options it changes")
    elif len(texts) > 1 or "config" in given:
        more = f"--config={given['config']}" if "config" in given else f"--sweep={texts[1]}"
        raise UserError(f"--sweep={texts[0]} takes no {more}: it trains the runs that the file names")
    for name, unset in {"mode": "train", "options": None, "num_processes": 1}.items():
        if name in given and given[name] != unset:
            raise UserError(f"--sweep={texts[0]} takes no --{name}={given[name]}: it trains runs")


def _is_own(name: str) -> bool:
    """Returns whether a flag belongs to launch.py, not to a library or to the config."""
    module = flags.FLAGS.find_module_defining_flag
    return "." not in name and (name == "config" or module(name) == module("mode"))


def _with_files(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with the lines of a file for each --flagfile=FILE, as absl reads it: an option a line."""
    if "--flagfile=" in arguments:  # absl does not read files for unparsed arguments
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
        name, _ = split(before)
        takes_value = name.startswith("config.") or (name in flags.FLAGS and not flags.FLAGS[name].boolean)
        if takes_value and "=" not in before and "noconfig." not in before and not argument.startswith("--"):
            joined[-1] = f"{before}={argument}"
        else:
            joined.append(argument)
    return joined


def _last(arguments: list[str]) -> list[str]:
    """Keeps only the last value of a config key; config_flags would join two tuples."""
    last = {name: i for i, (name, _) in enumerate(map(split, arguments)) if name.startswith("config.")}
    return [argument for i, argument in enumerate(arguments) if last.get(split(argument)[0], i) == i]


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
