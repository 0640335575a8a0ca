"""Commands: train, eval, compare, predict, score, visualize, analyze, report, export. Results go to standard output.

Each command takes (options, workdir, files). All but `train` need only a work directory with a checkpoint.
"""

import pathlib
import re
import shlex
import sys
from collections.abc import Sequence

import jax

from attn_jax.cli import program
from attn_jax.cli.analyze import MEASURES, analysis_of, analysis_table, measures_of
from attn_jax.cli.compare import compare_runs, comparison_lines
from attn_jax.cli.modes import MODES
from attn_jax.cli.report import write_report
from attn_jax.data.files import check_links, load_json, save_json, short
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import Interrupted, UserError, printable
from attn_jax.evaluation.base import Split
from attn_jax.evaluation.files import float32_text
from attn_jax.evaluation.paired import MEASURED
from attn_jax.evaluation.provenance import provenance
from attn_jax.figures import plots
from attn_jax.notices import notice
from attn_jax.runs import build, sentences, training
from attn_jax.runs.checks import check, check_metrics, check_weights
from attn_jax.runs.export import READ_AS_TEXT, export_model, left_behind, source_length_of
from attn_jax.runs.inputs import Files, lines_of
from attn_jax.runs.lines import header, label, say, say_examples, table
from attn_jax.runs.options import RunOptions, schema_of
from attn_jax.runs.overrides import overridden_keys
from attn_jax.runs.results import read_finished
from attn_jax.runs.run import Run
from attn_jax.runs.snapshot import Snapshot, check_other_run, ensembled, kept_of, measure, own_split, restore, split_of
from attn_jax.runs.tree import flatten
from attn_jax.runs.workdir import load_config, measured_otherwise
from attn_jax.tasks import Pairs
from attn_jax.token_ids import EOS, UNK
from attn_jax.training.loggers import show_result
from attn_jax.training.loop import Reason
from attn_jax.types import Params

ECHOED = re.compile(r"[^-\\][^\\]*")  # texts that every echo prints as they are


def train(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Trains to the end, from the newest checkpoint if there is one; then evaluates and plots.

    Raises:
        Interrupted: a signal arrived, and the training was saved.
    """
    path = workdir / "result.json"
    if (steps := training.finished_before(options, workdir)) is not None:
        result = read_finished(path)
        say(header(options, workdir, files.overrides))
        say(f"{'finished':<14}{steps} steps are done already; the result is in {path}")
        say(table(result, path))
        if other := measured_otherwise(workdir, options.config):
            key, before, now = other
            how = f"with {key} {short(before)}, not {short(now)}"
            say(f"{'measured':<14}{how}; measure with --mode=eval --workdir={workdir}")
        return
    run = training.open_run(options, workdir)
    with run.checkpoints:
        check_members(options, run, workdir)
        say(header(options, workdir, files.overrides))
        if files.notes:
            notice(f"{'options':<14}{files.notes}")
        for what, count in run.task.stats.items():
            notice(f"{'data':<14}{what}: {count:,}")
        if how := build.describe(options):
            notice(f"{'attention':<14}{how}")
        for what, message in run.batches.messages:
            notice(f"{what:<14}{message}")
        ended = training.train(run)
        if ended.reason is Reason.INTERRUPTED:
            say(f"{'interrupted':<14}at step {ended.step}, saved; the same command goes on from there")
            raise Interrupted(ended.signal)
        params, used = training.final_params(options, run.checkpoints, run.setup)
        index = training.choose_seed(options, run.setup.evaluator, params, run.task)
        snapshot = ensembled(Snapshot(options, run.setup, params, used, index), run.task.kept, workdir)
        name, split = own_split(run.task)
        result, of_each = measure(snapshot, split, name, files.overrides)
        result["checksums"] |= run.splits
        result |= {"steps": ended.step, "train_seconds": round(run.trained_seconds, 1)}
        if run.skipped:
            result["skipped_steps"] = sorted(run.skipped)  # their loss was not finite
        if jax.process_index() == 0:
            say_examples(result)
            say(table(result, path))  # printed before anything is saved, in case the disk is full
            sentences.save_sentences(workdir / sentences.FILE, of_each)
            save_json(path, result)
            picture = plot(options, workdir, run, snapshot.chosen, split)
            metrics = {f"{name}/{metric}": values["mean"] for metric, values in result["metrics"].items()}
            show_result(options.train.log_to, workdir, ended.step, flatten(options.config), metrics, picture)
    command = (
        f"{printing(run.task.examples[0])} | {program.command()} --mode=predict --workdir={shlex.quote(str(workdir))}"
    )
    say(f"{'try':<14}{command}")


def check_members(options: RunOptions, run: Run, workdir: pathlib.Path) -> None:
    """Checks before a long training the ensemble, if any, that is evaluated after it.

    Raises:
        UserError: a run of decode.ensemble.workdirs cannot be a member.
    """
    for path in options.decode.ensemble.workdirs:
        check_other_run(path, options, run.task.kept, workdir)


def printing(text: str) -> str:
    """Returns a command of any shell that prints a line of text."""
    fields = text.split("\t")
    if len(fields) == 1 and ECHOED.fullmatch(text):
        return f"echo {shlex.quote(text)}"
    # A tab in an argument is lost when it is copied from a terminal.
    pattern = "\\t".join(["%s"] * len(fields)) + "\\n"
    return f"printf '{pattern}' {' '.join(map(shlex.quote, fields))}"


def plot(options: RunOptions, workdir: pathlib.Path, run: Run, params: Params, split: Split) -> Sequence[pathlib.Path]:
    """Plots the loss curves of a finished run, and the attention of examples of a split; returns the first of these."""
    curves, count = workdir / "curves.png", options.eval.num_pictures
    loss_unit = run.setup.evaluator.loss_unit
    pictures, paths = [str(curves)] if plots.plot_curves(workdir / "metrics.jsonl", curves, loss_unit) else [], []
    if options.model.has_weights and count > 0:
        paths = run.setup.predictor.plot_overview(params, run.task, split, workdir, count)
        pictures.insert(0, f"{paths[0]} ... {paths[-1].name}")
    if pictures:
        say(f"{'pictures':<14}{', '.join(pictures)}")
    return paths[:1]


def evaluation(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Evaluates the checkpoint on the test (or validation) split of the run or on other files; writes eval.json.

    The results at the end of training remain in result.json.
    """
    check_metrics(options)
    options.kind.check(options)
    snapshot, path = restore(options, workdir), workdir / "result.json"
    name, split = split_of(workdir, files, snapshot)
    before = load_json(path) if path.exists() else {}
    result, of_each = measure(snapshot, split, name, files.overrides)
    result |= {key: before[key] for key in ("chosen_seed", "steps", "train_seconds") if key in before}
    if isinstance(trained := before.get("checksums"), dict):
        result["checksums"] |= {key: value for key, value in trained.items() if key not in MEASURED}
    say_examples(result)
    say(table(result, workdir / "eval.json"))
    sentences.save_sentences(workdir / sentences.EVAL_FILE, of_each)
    save_json(workdir / "eval.json", result)


def compare(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Prints the paired differences of the run to a baseline and writes comparison.json; see attn_jax.cli.compare."""
    check_links(workdir)
    found = compare_runs(workdir, pathlib.Path(files.baseline), files.measured)
    save_json(workdir / "comparison.json", found | provenance())
    for line in comparison_lines(found):
        say(line)


def predict(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Predicts from lines of standard input (or of --source) to standard output; an empty line stays empty.

    Each sentence gives decode.n_best lines: the best of a beam, or samples. Missing ones are empty lines with score
    -inf; the first prediction of an empty line has score 0. decode.with_scores prefixes each line with "score TAB".
    """
    lines = lines_of(files)
    snapshot = restore(options, workdir)
    if cost := build.describe_decoding(options, snapshot.predictor):
        notice(f"{'decoding':<14}{cost}")
    # One line at a time on a terminal, so that each answer appears at once.
    chunk = 1 if not files.source and sys.stdin.isatty() else options.decode.batch_size
    sources: list[str] = []
    # A pipe gets predictions unchanged; a terminal gets escapes for control characters.
    shown = printable if sys.stdout.isatty() else str
    for texts, printed in snapshot.predictor.predict(snapshot.chosen, lines, chunk):
        print("".join(f"{shown(line)}\n" for line in printed), end="", flush=True)
        sources += texts
    snapshot.predictor.report(sources)


def score(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Prints log p(target | source) for each pair of --source and --target, or for lines "source TAB target"."""
    if not options.task.of_pairs:
        raise UserError("--mode=score is for models of text; --mode=eval measures a regression")
    if files.source and files.target:
        snapshot = restore(options, workdir)
        pairs = snapshot.predictor.read_files(files.source, files.target)
    elif files.source or files.target:
        raise UserError("--mode=score takes --source=FILE and --target=FILE together, or tab-separated standard input")
    else:
        rows = [line.rsplit("\t", 1) for line in lines_of(files)]  # a source may contain tabs
        for number, row in enumerate(rows, 1):
            if len(row) != 2:
                raise UserError(f"standard input, line {number}: expected source TAB target, but there is no tab")
        snapshot = restore(options, workdir)
        pairs = snapshot.predictor.read_pairs(Pairs([row[0] for row in rows], [row[1] for row in rows]))
        pairs = snapshot.predictor.accept(pairs, "standard input")
    for value in snapshot.predictor.log_probs(snapshot.chosen, pairs) if len(pairs) else ():
        print(float32_text(value))


def visualize(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Plots the attention weights of the model for each line of standard input (or of --source).

    A JSON file next to each picture contains the weights as numbers.
    """
    check_weights(options)
    lines = lines_of(files)
    snapshot = restore(options, workdir)
    texts = snapshot.predictor.read_lines(lines)
    if not texts:
        raise UserError(f"--mode=visualize got no sentence from {files.source or 'standard input'}")
    folder = workdir / "visualize"
    paths = [folder / f"{i:03d}.png" for i in range(len(texts))]
    snapshot.predictor.plot(snapshot.chosen, Pairs(texts, [""] * len(texts)), paths)
    for path in paths:
        print(path)
    more = " ..." if len(paths) > 1 else ""
    notice(f"{'weights':<14}as numbers in {paths[0].with_suffix('.json')}{more}")
    snapshot.predictor.report(texts)


def analyze(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Prints measures of the attention weights and writes them to analysis.json; see attn_jax.cli.analyze.

    The examples are those of --source and --target, or of the split that the run is evaluated on.
    """
    check_weights(options)
    if files.gold and not options.kind.reads_text:
        raise UserError(f"--gold={files.gold} is for models of text")
    snapshot = restore(options, workdir)
    name, split = split_of(workdir, files, snapshot)
    notice(f"{label(name):<14}analyzing {len(split):,} {snapshot.evaluator.unit} ...")
    collector, task = snapshot.setup.collector, options.task
    found = analysis_of(collector, snapshot.params, split, task=task, gold_file=files.gold)
    result = {
        "name": options.name,
        "split": name,
        snapshot.evaluator.unit: len(split),
        "seeds": list(options.all_seeds),
        "checkpoint": snapshot.used,
        **found,
        "overrides": list(files.overrides),
        **provenance(),
    }
    save_json(workdir / "analysis.json", result)
    for line in analysis_table(result["rows"]).splitlines():
        say(line)
    for name in measures_of(result["rows"]):
        notice(f"{name:<14}{MEASURES[name]}")


def report(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Writes report.html, a page about the run with the attention in examples; see attn_jax.cli.report.

    The examples are those of --source and --target, or of the split that the run is evaluated on.
    """
    snapshot = restore(options, workdir)
    name, split = split_of(workdir, files, snapshot)
    written = write_report(
        options,
        workdir,
        evaluator=snapshot.evaluator,
        collector=snapshot.setup.collector,
        params=snapshot.params,
        split=split,
        split_name=name,
        count=files.num_examples,
        used=snapshot.used,
        together=snapshot.together,
    )
    say(f"{'report':<14}{written.path}: {written.num_examples} examples, {written.size / 1e6:.1f} MB")


def export(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Writes the model to DIR/export for programs without this package; see attn_jax.runs.export."""
    if not options.kind.reads_text:
        raise UserError("--mode=export is for models of text")
    if options.decode.ensemble.workdirs:
        raise UserError("--mode=export writes one run; expected decode.ensemble none, or seeds, all those of the run")
    snapshot, folder = restore(options, workdir), workdir / "export"
    check_links(folder)
    source_length = source_length_of(options, snapshot.setup, kept_of(options, workdir))
    export_model(
        snapshot.model,
        snapshot.chosen,
        folder,
        vocabularies=workdir / "vocabularies.json",
        source_vocab_size=len(snapshot.predictor.translator.source_vocabulary),
        batch_size=options.decode.batch_size,
        source_length=source_length,
        max_length=options.decode.max_length,
        forbidden=options.decode.forbidden,
    )
    what = "prompts" if snapshot.model.continues_source else "sources"
    say(f"{'exported':<14}{folder}: {options.decode.batch_size} {what} of at most {source_length} tokens")
    if left := left_behind(options):
        say(f"{'left behind':<14}{', '.join(left)}: decode.py takes the most probable token at each step")
    translator, script = snapshot.predictor.translator, folder / "decode.py"
    command = decoding(translator.source_vocabulary, translator.target_vocabulary, script, source_length)
    say(f"{'try':<14}{command}")


def profile(options: RunOptions, workdir: pathlib.Path, files: Files) -> None:
    """Measures a short training of the config, and says where time and memory go; a run keeps the page."""
    from attn_jax.runs.profile import profile as measure

    page = measure(options).page()
    say(header(options, workdir, files.overrides))
    for line in page.splitlines():
        say(line)
    if workdir.is_dir():
        (workdir / "profile.txt").write_text(page, encoding="utf-8")
        say(f"{'profile':<14}{workdir / 'profile.txt'}")


def decoding(source: Vocabulary, target: Vocabulary, script: pathlib.Path, source_length: int) -> str:
    """Returns a command that decodes a short source with decode.py: a text, or token ids where it reads no text."""
    command = f"python {shlex.quote(str(script))}"
    ids = list(range(UNK + 3, min(UNK + 6, len(source))))[: source_length - 1]
    if {source.kind, target.kind} <= set(READ_AS_TEXT):
        return f"{printing(source.decode(ids))} | {command}"
    return f"echo '{' '.join(map(str, [*ids, EOS]))}' | {command} --ids"


def check_overrides(options: RunOptions, overrides: Sequence[str], mode: str, workdir: pathlib.Path) -> None:
    """Checks that the mode reads every option on the command line, or that its value is the trained run's.

    Raises:
        UserError: an override has no effect, or the config is wrong.
    """
    if overrides:
        check(options)
        known = schema_of(options.config)
        whole = {form: key for key in known for form in (key, key.removesuffix(".name").removesuffix(".pattern"))}
        keys = {key: whole[key] for key in overridden_keys(overrides)}
        late = [key for key, option in keys.items() if not known[option].afterwards]
        unread = [key for key, option in keys.items() if option.startswith(MODES[mode].unread)]
        if (late or unread) and mode != "train" and (workdir / "config.json").exists():
            trained, given = flatten(load_config(workdir)), flatten(options.config)
            if other := [key for key in late if given[keys[key]] != trained.get(keys[key])]:
                raise UserError(
                    f"--mode={mode} trains nothing, and --config.{other[0]} has no effect there; leave it out"
                )
            if other := [key for key in unread if given[keys[key]] != trained.get(keys[key])]:
                raise UserError(f"--mode={mode} does not read --config.{other[0]}; leave it out")


SILENCE = 45  # seconds without a heartbeat after which a process counts as lost and the others end


def join(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins a training of several processes; has to be called before any other use of jax."""
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, heartbeat_timeout_seconds=SILENCE)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"cannot reach the other processes through {coordinator}: {error}") from error
