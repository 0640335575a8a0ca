"""Trains, evaluates and applies attention models.

python launch.py --config=new > mine.py
python launch.py --config=configs/quickstart.py [--workdir=runs/quickstart] [--config.model.hidden_size=64 ...]
python launch.py --mode=eval|predict|score|visualize|analyze|report|export --workdir=DIR [--config.KEY=VALUE ...]
python launch.py --mode=profile --config=configs/quickstart.py
python launch.py --mode=compare --workdir=DIR --baseline=DIR
python launch.py --sweep=experiments/X.py
python launch.py --config=configs/quickstart.py --sweep="model.attention.normalize=softmax,sparsemax" --seeds=0..5
"""

import os
import pathlib
import sys

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "attn_jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import flags, logging
from ml_collections import ConfigDict

from attn_jax import version
from attn_jax.cli import program
from attn_jax.cli.command_line import parse
from attn_jax.cli.modes import MODES, modes_with
from attn_jax.cli.noise import silence
from attn_jax.errors import Interrupted, Lost, UserError, printable
from attn_jax.paths import expanded
from attn_jax.runs.config_files import described_configs, find_config
from attn_jax.sweeps.grid import grid, is_grid

NEW = "new"  # name of the config that is printed


class _PathParser(flags.ArgumentParser):
    """Parser of a path, see attn_jax.paths.expanded."""

    def parse(self, argument: str) -> str:
        return expanded(argument)


def _of(flag: str) -> str:
    """Names the modes that take a flag."""
    return ", ".join(modes_with(flag))


def _path(name: str, meaning: str) -> flags.FlagHolder:
    """Defines an option that is a path; "" by default."""
    return flags.DEFINE(_PathParser(), name, "", meaning)


MODE = flags.DEFINE_enum("mode", "train", list(MODES), "Command to run.")
WORKDIR = _path("workdir", "Work directory of the run; by default runs/<name of the config>.")
SOURCE = _path("source", f"UTF-8 text file of source sentences ({_of('source')}).")
TARGET = _path("target", f"UTF-8 text file of target sentences ({_of('target')}).")
SPLIT = flags.DEFINE_string("split", "", f"Split of the run's data: train, valid or test ({_of('split')}).")
GOLD = _path("gold", "File of the true word alignments of the pairs in Talp format (analyze).")
NUM_EXAMPLES = flags.DEFINE_integer("num_examples", 50, "Number of examples whose attention a report shows (report).")
BASELINE = _path("baseline", "Work directory that --workdir is compared with (compare).")
MEASURED = flags.DEFINE_enum("measured", "result", ["result", "eval"], "Numbers of the training or of eval (compare).")
OPTIONS = flags.DEFINE_string(
    "options", None, "Print the options of the config with their meanings and exit; =TEXT: those that have the text."
)
CONFIGS = flags.DEFINE_boolean("configs", False, "Print the names of the configs, what each trains, and exit.")
VERSION = flags.DEFINE_boolean("version", False, "Print the version and exit.")
TRUST = flags.DEFINE_boolean("trust", False, "Execute the plugins that the run in --workdir was trained with.")
SWEEP = flags.DEFINE_multi(
    _PathParser(),
    flags.ArgumentSerializer(),
    "sweep",
    [],
    'File whose sweep() yields dicts of overrides, each a run; or "KEY=VALUE,VALUE; KEY=..." for all combinations.',
)
SEEDS = flags.DEFINE_string("seeds", "", "Seeds, short for --config.seeds: 0..5 for six, or 0,2,7.")
AT_ONCE = flags.DEFINE_integer("at_once", 1, "Number of runs of a sweep at the same time.")
COMMANDS = flags.DEFINE_boolean("commands", False, "Print the command of each run of a sweep, and run none.")
COORDINATOR = flags.DEFINE_string("coordinator", "", "host:port of process 0, for training with several processes.")
NUM_PROCESSES = flags.DEFINE_integer("num_processes", 1, "Number of processes that train together.")
PROCESS_ID = flags.DEFINE_integer("process_id", 0, "Index of this process, from 0.")
CONFIG = _path("config", "Config file, or name of a config, or new; override with --config.key=value.")


def main(argv: list[str]) -> int:
    """Runs a command line; returns the exit status.

    The status is 0 on success, 1 after a user error (one line on standard error), and 128 + signal after an
    interruption.
    """
    logging.set_verbosity(logging.ERROR)
    silence()
    try:
        _run_command(argv)
        sys.stdout.flush()
    except UserError as error:
        print(f"{program.name()}: {printable(' '.join(str(error).split()))}", file=sys.stderr, flush=True)
        if isinstance(error, Lost):  # an orderly exit of jax would wait for the other process, then abort
            os._exit(1)
        return 1
    except Interrupted as error:
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output, such as `head`, has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # for instance a full disk
        reason = (error.strerror or str(error)).lower()
        print(printable(f"{program.name()}: {error.filename or 'cannot write'}: {reason}"), file=sys.stderr)
        return 1
    return 0


def _run_command(argv: list[str]) -> None:
    """Executes a command line. The modules of a command are imported here, so that --help is quick."""
    if {"-h", "--help"} & set(argv):
        print(__doc__, flags.FLAGS.module_help(flags.FLAGS.find_module_defining_flag("mode")), sep="\n", flush=True)
        return
    config, overrides, notes = parse(argv)
    if VERSION.value:
        print(f"attn_jax {version.VERSION}", flush=True)
    elif CONFIGS.value:
        print("\n".join(f"{name:<32}{what}" for name, what in described_configs().items()), flush=True)
    elif SWEEP.value:
        _sweep(overrides)
    elif config is None and WORKDIR.value:
        _report_of_a_sweep(pathlib.Path(WORKDIR.value))
    elif config is None:
        raise UserError("nothing to do: give --config=configs/X.py to train, or --mode and --workdir")
    elif CONFIG.value == NEW:
        if overrides:
            raise UserError(f"--config={NEW} prints a config to begin with; leave {overrides[0]} out")
        print(find_config(NEW).read_text(encoding="utf-8"), end="", flush=True)
    elif OPTIONS.value is not None:
        from attn_jax.cli.reference import describe

        print(describe(config, OPTIONS.value), flush=True)
    else:
        _run_mode(config, overrides, str(notes[0]))


def _sweep(overrides: list[str]) -> None:
    from attn_jax.sweeps.sweep import run_sweep

    path, rows = pathlib.Path(SWEEP.value[-1]), None
    if is_grid(SWEEP.value):
        path, rows = pathlib.Path(f"{pathlib.Path(CONFIG.value).stem}_sweep"), grid(CONFIG.value, SWEEP.value)
    run_sweep(path, WORKDIR.value, overrides, AT_ONCE.value, COMMANDS.value, rows)


def _report_of_a_sweep(folder: pathlib.Path) -> None:
    from attn_jax.cli import commands
    from attn_jax.cli.report import write_sweep_report
    from attn_jax.runs import lines
    from attn_jax.runs.failures import user_errors

    with user_errors():
        files = commands.Files(num_examples=NUM_EXAMPLES.value)
        refresh = flags.FLAGS["num_examples"].present > 0  # the user asked for another number of examples
        written = write_sweep_report(folder, lambda *run: commands.report(*run, files), refresh)
    lines.say(f"{'report':<14}{written.path}")


def _run_mode(config: ConfigDict, overrides: list[str], notes: str) -> None:
    """Runs the command of --mode on one run."""
    if MODE.value not in ("train", "profile") and not WORKDIR.value:
        raise UserError(f"--mode={MODE.value} needs --workdir=DIR, the work directory of a trained run")
    workdir = pathlib.Path(WORKDIR.value or pathlib.Path("runs") / config.name)
    from attn_jax.cli import commands
    from attn_jax.runs.failures import user_errors
    from attn_jax.runs.options import resolve

    with user_errors(NUM_PROCESSES.value):
        if NUM_PROCESSES.value > 1:
            commands.join(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value)
        options = resolve(config)
        commands.check_overrides(options, overrides, MODE.value, workdir)
        files = commands.Files(
            source=SOURCE.value,
            target=TARGET.value,
            split=SPLIT.value,
            overrides=tuple(overrides),
            gold=GOLD.value,
            num_examples=NUM_EXAMPLES.value,
            baseline=BASELINE.value,
            measured=MEASURED.value,
            notes=notes,
        )
        getattr(commands, MODES[MODE.value].command)(options, workdir, files)


def run() -> None:
    """Runs the command line of this process and exits."""
    if sys.stdout is None:  # closed, as a daemon may start a program
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")  # all text is UTF-8, in every locale
    sys.exit(main(sys.argv))
