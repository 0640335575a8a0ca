"""What launch.py can be asked to do: train, eval, predict, score, visualize. Results go to standard output.

Each command takes (config, workdir, files) and, `train` aside, needs nothing but a work directory with a checkpoint.
"""

import pathlib
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from attn_jax.cli import build, runs
from attn_jax.cli.kinds import AnyEvaluator, AnySplit, AnyTask, kind_of
from attn_jax.cli.options import resolve, schema_of
from attn_jax.cli.overrides import overridden_keys
from attn_jax.cli.unread import check_read
from attn_jax.cli.workdir import check_model
from attn_jax.errors import Interrupted, UserError, printable
from attn_jax.evaluation import plots
from attn_jax.evaluation.provenance import provenance
from attn_jax.tasks import Pairs
from attn_jax.tasks.files import check_links, load_json, save_json, short
from attn_jax.tasks.text import read_parallel
from attn_jax.training.model_size import num_parameters
from attn_jax.training.progress import notice
from attn_jax.types import Params

UNITS = {"exact_match": " %", "accuracy": " %"}


class Files(NamedTuple):
    """Files named on the command line; empty where not given. Without `source`, predict reads standard input.

    Beside them the overrides of the config, as written there, which result.json keeps.
    """

    source: str = ""
    target: str = ""
    overrides: tuple[str, ...] = ()


class Trained(NamedTuple):
    """A run as its work directory keeps it."""

    evaluator: AnyEvaluator
    params: list[Params]  # one set per seed
    used: str  # which checkpoint
    place: int = 0  # of the seed to predict with

    @property
    def chosen(self) -> Params:
        """The parameters to predict with."""
        return self.params[self.place]


def train(config: ConfigDict, workdir: pathlib.Path, files: Files) -> None:
    """Trains to the end (going on from where it was), measures, and draws.

    Raises:
        Interrupted: a signal came, and the training is saved.
    """
    path = workdir / "result.json"
    if (steps := runs.finished_before(config, workdir)) is not None:
        say(header(config, workdir, files.overrides))
        say(f"{'finished':<14}{steps} steps are done already; the result is in {path}")
        try:
            say(table(load_json(path), path))
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            raise UserError(f"cannot read {path}: expected the result of a run; --mode=eval measures again") from None
        return
    run = runs.open_run(config, workdir)
    with run.checkpoints:
        say(header(config, workdir, files.overrides))
        for what, count in run.task.note.items():
            notice(f"{'data':<14}{what}: {count:,}")
        if how := build.describe(resolve(config)):
            notice(f"{'attention':<14}{how}")
        if run.batches.dropped:
            notice(
                f"{'data':<14}{run.batches.dropped:,} of {len(run.task.splits['train']):,} training pairs are longer "
                f"than any bucket and left out; see task.buckets"
            )
        fitted = runs.train(run)
        if fitted.reason == "interrupted":
            say(f"{'interrupted':<14}at step {fitted.step}, saved; the same command goes on from there")
            raise Interrupted(fitted.signal)
        params, used = runs.final_params(config, run.checkpoints, run.evaluator)
        trained = Trained(run.evaluator, params, used, runs.choose_seed(config, run.evaluator, params, run.task))
        split, pairs = own_split(run.task)
        result = measure(config, trained, pairs, split, files.overrides)
        result |= {"steps": fitted.step, "train_seconds": round(run.trained_seconds, 1)}
        if jax.process_index() == 0:
            say(table(result, path))  # first of all: a full disk must not cost the numbers
            save_json(path, result)
            draw(config, workdir, run, trained.chosen, pairs)
    example, where = run.task.examples[0], shlex.quote(str(workdir))
    # A tab in an argument of echo would not survive being copied from the terminal.
    if "\t" in example:
        command = f"printf {shlex.quote(example.replace(chr(9), chr(92) + 't') + chr(92) + 'n')}"
    else:
        command = f"echo {shlex.quote(example)}"
    say(f"{'try':<14}{command} | python launch.py --mode=predict --workdir={where}")


def draw(config: ConfigDict, workdir: pathlib.Path, run: runs.Run, params: Params, pairs: AnySplit) -> None:
    """The pictures of a finished run: loss curves, and alignments of the first test sentences."""
    curves, count = workdir / "curves.png", config.eval.num_pictures
    drawn = [str(curves)] if plots.curves(workdir / "metrics.jsonl", curves, run.evaluator.loss_unit) else []
    if resolve(config).model.has_weights and count > 0:
        paths = run.evaluator.overview(params, run.task, pairs, workdir, count)
        drawn.insert(0, f"{paths[0]} ... {paths[-1].name}")
    if drawn:
        say(f"{'pictures':<14}{', '.join(drawn)}")


def evaluation(config: ConfigDict, workdir: pathlib.Path, files: Files) -> None:
    """Measures the checkpoint on the run's own test (or validation) split, or on files it never saw: eval.json.

    What training measured at its end stays in result.json.
    """
    kind_of(config).check_metrics(config)
    trained, path = restore(config, workdir), workdir / "result.json"
    if files.source or files.target:
        split = ", ".join(filter(None, (files.source, files.target)))
        pairs = trained.evaluator.read(files.source, files.target)
    else:
        split, pairs = own_split(build.build_task(config, kind_of(config).load(workdir)))
    before = load_json(path) if path.exists() else {}
    result = measure(config, trained, pairs, split, files.overrides)
    result |= {name: before[name] for name in ("chosen_seed", "steps", "train_seconds") if name in before}
    say(table(result, workdir / "eval.json"))
    save_json(workdir / "eval.json", result)


def predict(config: ConfigDict, workdir: pathlib.Path, files: Files) -> None:
    """Translates lines of standard input (or of --source) to standard output; an empty line stays empty.

    decode.n_best > 1 gives so many lines per sentence, the best ones of a beam or so many samples; of an empty line the
    first has the score 0 and the others, as where there are fewer sentences than beams, -inf. decode.with_scores puts
    "score TAB" before each.
    """
    lines = lines_of(files)
    trained = restore(config, workdir)
    # On a terminal each line by itself, so that a person gets an answer at once.
    at_once = 1 if not files.source and sys.stdin.isatty() else config.decode.batch_size
    sources: list[str] = []
    # Predictions are data: a pipe gets them as they are, a terminal gets nothing that would act on it.
    shown = printable if sys.stdout.isatty() else str
    for texts, printed in trained.evaluator.predict(trained.chosen, lines, at_once):
        print("".join(f"{shown(line)}\n" for line in printed), end="", flush=True)
        sources += texts
    trained.evaluator.report(sources)


def score(config: ConfigDict, workdir: pathlib.Path, files: Files) -> None:
    """log p(target | source) of each pair of --source and --target, or of lines "source TAB target"."""
    if "method" not in config.decode:
        raise UserError("--mode=score is for models of text; --mode=eval measures a regression")
    if files.source and files.target:
        pairs = Pairs(*read_parallel(files.source, files.target))
    elif files.source or files.target:
        raise UserError("--mode=score takes --source=FILE and --target=FILE together, or tab-separated standard input")
    else:
        rows = [line.rsplit("\t", 1) for line in lines_of(files)]  # a source may have columns of its own
        for number, row in enumerate(rows, 1):
            if len(row) != 2:
                raise UserError(f"standard input, line {number}: expected source TAB target, but there is no tab")
        pairs = Pairs([row[0] for row in rows], [row[1] for row in rows])
    trained = restore(config, workdir)
    pairs = trained.evaluator.parse(pairs)
    for value in trained.evaluator.log_probs(trained.chosen, pairs) if len(pairs) else ():
        print(f"{value:.6f}")
    trained.evaluator.report(pairs.source)


def visualize(config: ConfigDict, workdir: pathlib.Path, files: Files) -> None:
    """Draws where the model looks when it translates each line of standard input (or of --source).

    Beside each picture a JSON file has the same weights as numbers.
    """
    if not resolve(config).model.has_weights:
        raise UserError(f"{workdir}: model.decoder is 'none': there is no attention to draw")
    lines = lines_of(files)
    trained = restore(config, workdir)
    texts = trained.evaluator.sources(lines)
    if not texts:
        raise UserError(f"--mode=visualize got no sentence from {files.source or 'standard input'}")
    folder = workdir / "visualize"
    paths = [folder / f"{i:03d}.png" for i in range(len(texts))]
    trained.evaluator.draw(trained.chosen, Pairs(texts, [""] * len(texts)), paths)
    for path in paths:
        print(path)
    more = " ..." if len(paths) > 1 else ""
    notice(f"{'weights':<14}as numbers in {paths[0].with_suffix('.json')}{more}")
    trained.evaluator.report(texts)


COMMANDS = {"train": train, "eval": evaluation, "predict": predict, "score": score, "visualize": visualize}


def check_overrides(config: ConfigDict, overrides: Sequence[str]) -> None:
    """Checks that the run reads every option set on the command line, as `overrides` has them.

    Raises:
        UserError: for one that it does not read, and for whatever else is wrong with the config.
    """
    if overrides:
        runs.check(config)
        check_read(config, overridden_keys(overrides))


def join(coordinator: str, num_processes: int, process_id: int) -> None:
    """Takes part in the training of several processes; to be called before anything else of jax is used."""
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"cannot reach the other processes through {coordinator}: {error}") from error


def say(line: str) -> None:
    """A line on standard output, what is not printable escaped; of several processes only the first speaks."""
    if jax.process_index() == 0:
        print(printable(line), flush=True)


def own_split(task: AnyTask) -> tuple[str, AnySplit]:
    """What a run is measured on: its test split, or its validation split if there is none."""
    split = "test" if "test" in task.splits else "valid"
    return split, task.splits[split]


def restore(config: ConfigDict, workdir: pathlib.Path) -> Trained:
    """The trained model of a work directory."""
    check_links(workdir)
    check_model(workdir, config)
    evaluator = build.build_evaluator(config, kind_of(config).load(workdir))
    with runs.open_checkpoints(config, workdir, read_only=True) as checkpoints:
        if checkpoints.latest_step() is None:
            raise UserError(f"{workdir} has no checkpoint yet; train it first")
        seeds, path = runs.seeds_of(config), workdir / "result.json"
        # Which seed was chosen is known once a run is finished; before that it is the first.
        chosen = load_json(path).get("chosen_seed") if path.exists() else None
        if config.train.get("choose_seed", "") and path.exists() and (isinstance(chosen, bool) or chosen not in seeds):
            raise UserError(
                f"cannot read {path}: chosen_seed is {short(chosen)}; expected one of {seeds}; remove the file and "
                "train again, which only measures what is trained already"
            )
        place = seeds.index(chosen) if chosen in seeds else 0
        return Trained(evaluator, *runs.final_params(config, checkpoints, evaluator), place)


def measure(config: ConfigDict, trained: Trained, pairs: AnySplit, split: str, overrides: tuple[str, ...] = ()) -> dict:
    """What result.json says."""
    begin = time.monotonic()
    notice(f"{label(split):<14}evaluating {len(pairs):,} {trained.evaluator.unit} ...")
    names, tokenize = config.eval.metrics, config.eval.get("tokenize", "none")
    metrics, signatures = trained.evaluator.measure(trained.params, pairs, names, tokenize)
    seeds = list(runs.seeds_of(config))
    return {
        "name": config.name,
        "split": split,
        trained.evaluator.unit: len(pairs),
        "seeds": seeds,
        **({"chosen_seed": seeds[trained.place]} if config.train.get("choose_seed", "") else {}),
        "checkpoint": trained.used,
        "num_parameters": num_parameters(trained.params[0]),
        "decode": config.decode.to_dict(),
        "metrics": metrics,
        "signatures": signatures,
        "eval_seconds": round(time.monotonic() - begin, 2),
        "overrides": list(overrides),
        **provenance(),
    }


def table(result: dict, path: pathlib.Path) -> str:
    """The metrics of a result, one line: mean, and the standard deviation where there are several seeds.

    Where a seed was chosen to predict with, its own value follows in parentheses.
    """
    cells = []
    for name, values in result["metrics"].items():
        several = len(values["seeds"]) > 1
        deviation = f" ± {values['std']:.3g}" if several else ""
        chosen = ""
        if several and "chosen_seed" in result:
            seed = result["chosen_seed"]
            chosen = f" (seed {seed}: {values['seeds'][result['seeds'].index(seed)]:.4g})"
        cells.append(f"{name.replace('_', ' ')} {values['mean']:.4g}{deviation}{UNITS.get(name, '')}{chosen}")
    return f"{label(result['split']):<14}{'   '.join(cells)}   ({path})"


def label(split: str) -> str:
    """The word before the metrics of a split: its name, or "files"."""
    return split if len(split) < 13 else "files"


def header(config: ConfigDict, workdir: pathlib.Path, overrides: tuple[str, ...] = ()) -> str:
    """The first line of a run: the description in its config, and the overrides that make it another run."""
    devices, seeds = jax.devices(), runs.seeds_of(config)
    where = f"{len(devices)} {devices[0].platform} device{'s' * (len(devices) > 1)}"
    seeds = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    what = f"{config.description}{changes(config, overrides)}"
    return f"{config.name:<13} {what}    {where}, {config.dtype}, {seeds}    {workdir}"


def changes(config: ConfigDict, overrides: Sequence[str]) -> str:
    """Text such as ", with model.num_layers=1": at most four of the overrides that a description knows nothing of."""
    options = schema_of(config)
    texts = [text.lstrip("-") for text in overrides]
    texts = [f"{text[2:]}=False" if text.startswith("noconfig.") else text for text in texts]
    texts = [text.removeprefix("config.") for text in (text if "=" in text else f"{text}=True" for text in texts)]
    keys = [text.partition("=")[0] for text in texts]
    texts = [
        text
        for text, key in zip(texts, keys, strict=True)
        if options[key].affects == "training" and key not in ("seed", "seeds")
    ]
    more = f" and {len(texts) - 4} more" if len(texts) > 4 else ""
    return f", with {', '.join(texts[:4])}{more}" if texts else ""


def lines_of(files: Files) -> Iterable[str]:
    """The lines of --source or of standard input as they come, empty ones too.

    Raises:
        UserError: the file is missing, unreadable or empty, or (when it gets there) a line is no UTF-8.
    """
    if not files.source:
        return decoded(sys.stdin.buffer, "standard input")
    try:
        stream = open(files.source, "rb")
    except OSError as error:
        raise UserError(f"{files.source}: {error.strerror.lower()}") from error
    if not stream.peek(1):
        raise UserError(f"{files.source}: the file is empty; expected one sentence per line")
    return decoded(stream, files.source)


def decoded(stream: Iterable[bytes], name: str) -> Iterable[str]:
    """Lines without their ends, and without a byte order mark before the first."""
    for number, raw in enumerate(stream, 1):
        try:
            text = raw.decode("utf-8").rstrip("\r\n")
            yield text.removeprefix("\ufeff") if number == 1 else text
        except UnicodeDecodeError as error:
            raise UserError(f"{name}, line {number}: not valid UTF-8 ({error.reason})") from None
