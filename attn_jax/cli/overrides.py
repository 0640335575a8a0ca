"""The config of a command line, with errors a person can act on: --config=FILE --config.a.b=value ...

Parsing is that of ml_collections.config_flags; here is what it leaves out: unknown keys are named with the
nearest known one, numbers that make no sense are refused, and a work directory alone brings the config it was
trained with. Nothing here needs jax, so that a slip is told at once.
"""

import importlib.util
import math
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from attn_jax.errors import UserError, nearest

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
KINDS = {bool: "true or false", int: "an integer", float: "a number", tuple: "a tuple", str: "a text"}
LARGEST = 2**31 - 1  # what an int32 holds
MODES = {"source": ("eval", "predict", "score", "visualize"), "target": ("eval", "score")}  # that take these options

# key -> (smallest, largest) number that makes sense
RANGES = {
    "task.num_examples": (0, None),
    "task.valid_size": (1, None),
    "task.source_buckets": (1, None),
    "task.batch_size": (1, None),
    "task.min_count": (0, None),
    "model.embedding_size": (1, None),
    "model.hidden_size": (1, None),
    "model.readout_size": (1, None),
    "model.num_layers": (1, 1000),
    "model.dropout": (0, 0.999),
    "model.recurrent_dropout": (0, 0.999),
    "model.kernel_size": (1, None),
    "model.num_heads": (1, None),
    "model.num_kv_heads": (0, None),
    "model.feed_forward_size": (1, None),
    "model.num_decoder_layers": (0, 1000),
    "model.max_length": (1, None),
    "model.num_queries": (1, None),
    "model.penalty": (0, None),
    "model.stories.memory_size": (1, None),
    "model.stories.shortest": (1, None),
    "model.stories.num_hops": (1, 1000),
    "model.stories.noise": (0, 1),
    "model.stories.linear_steps": (0, None),
    "model.stories.margin": (0, None),
    "model.stories.num_grams": (0, None),
    "model.stories.gate_weight": (0, None),
    "model.stories.gate_steps": (0, None),
    "model.stories.fact_dropout": (0, 0.999),
    "model.stories.sentence_size": (1, None),
    "model.stories.num_slots": (1, None),
    "model.stories.threshold": (0, 1),
    "model.stories.ponder_weight": (0, None),
    "model.num_widths": (1, None),
    "model.projection_size": (0, None),
    "model.chunk": (1, None),
    "model.attention.alpha": (1, None),
    "model.attention.fusion": (0, None),
    "model.attention.num_samples": (1, None),
    "model.attention.temperature": (1e-6, None),
    "model.attention.k_max": (0, None),
    "model.attention.jump_size": (1, None),
    "model.attention.dropout": (0, 0.999),
    "model.attention.features": (1, None),
    "model.attention.max_length": (1, None),
    "model.attention.window_size": (1, None),
    "train.num_steps": (0, None),
    "train.num_epochs": (0, None),
    "train.label_smoothing": (0, 0.999),
    "train.microbatches": (1, None),
    "train.log_every": (1, None),
    "train.eval_every": (0, None),
    "train.checkpoint_every": (0, None),
    "train.keep": (1, None),
    "train.patience": (0, None),
    "train.average": (0, None),
    "optimizer.b1": (0, 0.999999),
    "optimizer.b2": (0, 0.999999),
    "optimizer.eps": (0, None),
    "decode.beam_size": (1, 10_000),
    "decode.max_length": (1, 100_000),
    "decode.batch_size": (1, None),
    "decode.seed": (0, 2**32 - 1),
    "eval.num_pictures": (0, None),
}
# key -> what a tuple consists of
PARTS = {
    "seeds": int,
    "task.train": str,
    "task.valid": str,
    "task.test": str,
    "task.labels": str,
    "task.inputs": str,
    "task.vocab_size": int,
    "eval.metrics": str,
}


def parse(argv: list[str], config_flag: flags.FlagHolder) -> tuple[ConfigDict | None, list[str]]:
    """(the config with its overrides, or None without --config and --workdir; the overrides as written).

    Raises:
        UserError: unknown flag, key, file; a value of the wrong type; a stray argument.
    """
    argv = [argv[0], *_last(_join(argv[1:]))]
    given = {name: value for name, value in map(_split, argv[1:]) if name}
    if given.get("config") == "":
        raise UserError("--config= names no file; expected a config such as --config=configs/quickstart.py")
    if "config" not in given and given.get("workdir") and "sweep" not in given:
        given["config"] = f"{CONFIGS / 'of_workdir.py'}:{given['workdir']}"
        argv.insert(1, f"--config={given['config']}")
    overrides = [argument for argument in argv[1:] if _split(argument)[0].startswith("config.")]
    if "sweep" in given:  # they are for the runs of the sweep, each of which has its own config
        argv = [argument for argument in argv if argument not in overrides]
    config = _load_config(given["config"]) if "config" in given else None
    overridden = [name.removeprefix("config.") for name in given if name.startswith("config.")]
    for key in overridden if config is not None else ():
        if key not in (known := keys(config)):
            if inside := [name.removeprefix(f"{key}.") for name in known if name.startswith(f"{key}.")]:
                raise UserError(f"{key} is a section of the config; set one of its keys: {', '.join(inside)}")
            raise UserError(f"unknown config key {key}; {nearest(key, known)}")
        if isinstance(config[key], tuple) and given[f"config.{key}"].lstrip().startswith(
            "{"
        ):  # its keys would be taken
            raise UserError(f"--config.{key}={given[f'config.{key}']}: expected a tuple, such as {config[key]!r}")
    sys.argv = argv  # config_flags looks for the overrides there
    try:
        rest = flags.FLAGS(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        known = [name for name in flags.FLAGS if _is_own(name)]
        raise UserError(f"unknown option --{error.flagname}; {nearest(error.flagname, known)}") from None
    except (flags.Error, TypeError, ValueError) as error:
        raise UserError(_explain(str(error), given, config)) from None
    if rest:
        raise UserError(f"unexpected argument {rest[0]!r}; options look like --mode=eval")
    _check_options({name: flags.FLAGS[name].value for name in given if name in flags.FLAGS and _is_own(name)})
    if config is not None:
        check_ranges(config_flag.value)
    return config_flag.value, overrides


def overridden_keys(overrides: Iterable[str]) -> list[str]:
    """The keys, with dots, of overrides as they are written on the command line."""
    return [_split(override)[0].removeprefix("config.") for override in overrides]


def _check_options(given: dict[str, Any]) -> None:
    """UserError for options on the command line that do not go together."""
    mode, number = given.get("mode", "train"), given.get("num_processes", 1)
    for name, modes in MODES.items():
        if given.get(name) and mode not in modes:
            raise UserError(f"--mode={mode} takes no --{name}; it is for --mode={' or --mode='.join(modes)}")
    if number < 1:
        raise UserError(f"--num_processes={number}: expected at least 1")
    coordinator, place = given.get("coordinator", ""), given.get("process_id", 0)
    if number > 1 and (not coordinator or not 0 <= place < number):
        raise UserError(
            f"--num_processes={number} needs --coordinator=HOST:PORT (of process 0) and --process_id, 0 to "
            f"{number - 1}; got {coordinator!r} and {place}"
        )
    if number == 1 and (coordinator or place):
        name = "coordinator" if coordinator else "process_id"
        raise UserError(f"--{name}={given[name]} is for several processes; say how many: --num_processes=2 or more")


def _is_own(name: str) -> bool:
    """Whether it is an option of launch.py, not one that comes with a library, nor a key of the config."""
    module = flags.FLAGS.find_module_defining_flag
    return "." not in name and (name == "config" or module(name) == module("mode"))


def _split(argument: str) -> tuple[str, str]:
    """("config.a.b", "v") of --config.a.b=v; ("", "") of what is no option."""
    if not argument.startswith("-"):
        return "", ""
    name, _, value = argument.lstrip("-").partition("=")
    return (name[2:] if name.startswith("noconfig.") else name), value


def _join(arguments: list[str]) -> list[str]:
    """--name value -> --name=value."""
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
    """Of a key of the config given twice only the last value; config_flags would join two tuples."""
    last = {name: i for i, (name, _) in enumerate(map(_split, arguments)) if name.startswith("config.")}
    return [argument for i, argument in enumerate(arguments) if last.get(_split(argument)[0], i) == i]


def _explain(message: str, given: dict[str, str], config: ConfigDict | None) -> str:
    """One line for a value that an option does not take."""
    for name, value in given.items():
        if not message.startswith(f"flag --{name}={value}:"):
            continue
        if name.startswith("config."):
            default = config[name.removeprefix("config.")]
            kind = KINDS.get(type(default), type(default).__name__)
            return f"--{name}={value}: expected {kind}, such as {default!r}"
        parser = flags.FLAGS[name].parser
        if isinstance(parser, flags.EnumParser):
            return f"unknown --{name}={value}; {nearest(value, parser.enum_values)}"
        if isinstance(parser, flags.IntegerParser):
            return f"--{name}={value}: expected {KINDS[int]}"
    return " ".join(message.split())


def check_ranges(config: ConfigDict) -> None:
    """UserError for a number of the config that makes no sense."""
    check_types(config)
    for key, (low, high) in RANGES.items():
        if not low <= config[key] <= (sys.float_info.max if high is None else high):
            expected = f"at least {low}" if high is None else f"{low} to {high}"
            raise UserError(f"{key} is {config[key]}; expected {expected}")
    if not config.train.num_steps and not config.train.num_epochs:
        raise UserError("train.num_steps and train.num_epochs are both 0; expected one of them to be more")
    for key, kind in PARTS.items():
        if wrong := [part for part in config[key] if type(part) is not kind]:
            raise UserError(f"{key} has {wrong[0]!r}; expected {KINDS[kind]} for each of its parts")
    if len(config.task.vocab_size) != 2:
        raise UserError(f"task.vocab_size is {config.task.vocab_size}; expected two sizes, of source and target")


def check_types(config: ConfigDict) -> None:
    """UserError for a value of another type than in configs/base.py, and for a number that no computation can take."""
    base = load_file(CONFIGS / "base.py", "get_config")
    for key in keys(config):
        value, kind = config[key], type(base[key])
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (kind is bool):
            raise UserError(f"{key} is {value!r}; expected {KINDS[kind]}, such as {base[key]!r}")
        if key.startswith(("data_dir", "task.")) and "\0" in "".join(map(str, value if kind is tuple else [value])):
            raise UserError(f"{key} is {value!r}; expected no NUL in a name")
        for number in _numbers(value):
            if isinstance(number, float) and not math.isfinite(number):
                raise UserError(f"{key} is {value}; expected a finite number")
            # Seeds may be twice as large, and are compared with that where they are used.
            largest = 2 * LARGEST + 1 if key in ("seed", "seeds") else LARGEST
            if isinstance(number, int) and abs(number) > largest:
                raise UserError(f"{key} is {_shown(value)}; expected integers of at most {largest:,}")


def _shown(value: Any) -> str:
    """The beginning of a value that may have thousands of digits, more than Python is willing to print."""
    try:
        text = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]} ..."


def _numbers(value: Any) -> list[int | float]:
    """The numbers in a value, also in the tuples of a tuple."""
    if isinstance(value, tuple):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, int | float) else []


def _load_config(spec: str) -> ConfigDict:
    """The config of --config=FILE or FILE:ARGUMENT; UserError if it has not the keys of configs/base.py."""
    name, _, argument = spec.partition(":")
    path = pathlib.Path(name)
    config = load_file(path, "get_config", *([argument] if argument else []))
    if not isinstance(config, ConfigDict):
        raise UserError(f"{path}: get_config() gave a {type(config).__name__}; expected a ConfigDict")
    own, known = set(keys(config)), set(keys(defaults()))
    if unknown := sorted(own - known):
        raise UserError(f"{path}: unknown config key {unknown[0]}; {nearest(unknown[0], known)}")
    if missing := sorted(known - own):
        raise UserError(f"{path}: there is no config key {missing[0]}; start from configs/base.py, which has them all")
    return config


def defaults() -> ConfigDict:
    """Every option with its default, which means what was before the option was there: configs/base.py."""
    return load_file(CONFIGS / "base.py", "get_config")


def keys(config: ConfigDict, prefix: str = "") -> list[str]:
    """All keys that hold a value, with dots."""
    found = []
    for key, value in config.items():
        found += keys(value, f"{prefix}{key}.") if isinstance(value, ConfigDict) else [prefix + key]
    return found


def load_file(path: pathlib.Path, function: str, *arguments: str) -> Any:
    """What `function`(*arguments) of a Python file returns; of a generator the list."""
    if not path.is_file():
        folder = path.parent if path.parent.is_dir() else CONFIGS
        raise UserError(f"there is no file {path}; {nearest(path.name, [p.name for p in folder.glob('*.py')])}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise UserError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        # Not exec_module, which takes the bytecode of another version of as many characters, saved in the same second.
        exec(spec.loader.source_to_code(path.read_bytes(), str(path)), module.__dict__)
        if not hasattr(module, function):
            raise UserError(f"{path} has no function {function}()")
        made = getattr(module, function)(*arguments)
        return list(made) if isinstance(made, Iterator) else made
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # it is a person's own code: whatever is wrong with it
        # ml_collections tells all it knows, on many lines; the first sentence is enough, and the nearest key.
        lines = str(error).replace("\\n", "\n").splitlines()
        nearest_key = lines[-1].strip("\"'") if lines and "Did you mean" in lines[-1] else ""
        reason = lines[0].split(" Other fields")[0].strip() if lines else ""
        if isinstance(error, SystemExit):
            reason = f"it ends the process, with {error.code!r}; expected a value from {function}()"
        elif isinstance(error, OSError) and error.strerror:
            reason = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
        elif not reason or (isinstance(error, LookupError | AssertionError) and not nearest_key):
            reason = f"{type(error).__name__} {reason}"  # whose text alone, such as 'x', tells nothing
        raise UserError(f"cannot load {path}: {reason} {nearest_key}".rstrip()) from error
