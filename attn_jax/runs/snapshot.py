"""The trained model of a work directory, and the split it is measured on."""

import contextlib
import pathlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from attn_jax.data.files import check_links, load_json, short, text_checksum
from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.base import Evaluator, Predictor, Split
from attn_jax.evaluation.paired import sentences_of
from attn_jax.evaluation.provenance import provenance
from attn_jax.models.base import Model
from attn_jax.models.ensemble import MixedEnsemble, ensemble_of, stacked
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.notices import notice
from attn_jax.runs import build, training
from attn_jax.runs.checks import check_ensemble
from attn_jax.runs.inputs import Files
from attn_jax.runs.lines import label
from attn_jax.runs.options import RunOptions, change, resolve
from attn_jax.runs.start import difference_of
from attn_jax.runs.tree import flatten
from attn_jax.runs.workdir import check_cut, check_model, load_config, plain
from attn_jax.tasks import Pairs, PointsTask, Task
from attn_jax.training.model_size import num_parameters
from attn_jax.types import Params


class Snapshot(NamedTuple):
    """Parameters of a run, with its options and the evaluator and the predictor of its model."""

    options: RunOptions
    setup: build.Setup
    params: list[Params]  # one set per seed
    used: str  # description of the checkpoints used
    index: int = 0  # index of the seed to predict with
    together: bool = False  # the model is an ensemble, with one set of parameters for all its members

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of the model."""
        return self.setup.evaluator

    @property
    def predictor(self) -> Predictor:
        """The predictor of the model."""
        return self.setup.predictor

    @property
    def model(self) -> Model | KernelRegression:
        """The model as pure functions of its parameters."""
        return self.setup.model

    @property
    def chosen(self) -> Params:
        """The parameters to predict with."""
        return self.params[self.index]


def restore(options: RunOptions, workdir: pathlib.Path) -> Snapshot:
    """Restores the trained model of a work directory.

    Raises:
        UserError: there is no checkpoint, or the model has another config.
    """
    check_links(workdir)
    check_model(workdir, options.config)
    kept = kept_of(options, workdir)
    setup = build.build_setup(options, kept)
    with quiet(), training.open_checkpoints(options, workdir, read_only=True) as checkpoints:
        if checkpoints.latest_step() is None:
            raise UserError(f"{workdir} has no checkpoint yet; train it first")
        seeds, path = options.all_seeds, workdir / "result.json"
        # The chosen seed is known once a run is finished; before that the first seed is used.
        chosen = load_json(path).get("chosen_seed") if path.exists() else None
        chooses = options.train.choose_seed and path.exists()
        if chooses and (isinstance(chosen, bool) or chosen not in seeds):
            raise UserError(
                f"cannot read {path}: chosen_seed is {short(chosen)}; expected one of {seeds}; remove the file and "
                "train again, which only measures what is trained already"
            )
        index = seeds.index(chosen) if chosen in seeds else 0
        params, used = training.final_params(options, checkpoints, setup)
        return ensembled(Snapshot(options, setup, params, used, index), kept, workdir)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the warnings of orbax, which logs options that it sets itself."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def kept_of(options: RunOptions, workdir: pathlib.Path) -> Any:
    """Reads the data files of a work directory (see Task.kept) and applies the options of the task to them."""
    kept = options.kind.load(workdir)
    return options.task.renewed(kept, data_dir=options.data_dir)


def ensembled(snapshot: Snapshot, kept: Any, workdir: pathlib.Path) -> Snapshot:
    """Returns the ensemble of decode.ensemble, of the seeds or of several runs; the snapshot without the option."""
    options = snapshot.options
    paths, every_seed = options.decode.ensemble.workdirs, options.decode.ensemble.every_seed
    if not paths and not every_seed:
        return snapshot
    check_ensemble(options)
    if not paths:
        setup = build.build_setup(options, kept, wrap=ensemble_of)
        used = f"{snapshot.used}, ensemble of {len(snapshot.params)} seeds"
        return Snapshot(options, setup, [stacked(snapshot.params)], used, together=True)
    others = [other_run(path, options, kept, workdir) for path in paths]
    all_params = tuple(
        stacked(each.params if every_seed else [each.chosen])  # a leading axis, of one or of all seeds
        for each in (snapshot, *others)
    )

    def wrap(model: Model) -> Model:
        models = [ensemble_of(each) for each in (model, *(other.model for other in others))]
        return MixedEnsemble(model.module, tuple(models))

    used = "; ".join([snapshot.used, *(f"{path}: {other.used}" for path, other in zip(paths, others, strict=True))])
    setup = build.build_setup(options, kept, wrap=wrap)
    return Snapshot(options, setup, [all_params], f"ensemble of {len(paths) + 1} runs: {used}", together=True)


def other_run(path: str, options: RunOptions, kept: Any, workdir: pathlib.Path) -> Snapshot:
    """Restores a run of decode.ensemble.workdirs, with the decoding options of this run.

    Raises:
        UserError: the folder is no run with a checkpoint, or has other vocabularies.
    """
    other = check_other_run(path, options, kept, workdir)
    decoding = {key: value for key, value in flatten(options.config).items() if key.startswith("decode.")}
    alone = {key: value for key, value in decoding.items() if not key.startswith("decode.ensemble.")}
    other = change(other.config, alone | {"decode.ensemble": "none"})
    try:
        return restore(resolve(other), pathlib.Path(path))
    except UserError as error:
        raise UserError(f"decode.ensemble.workdirs {path}: {error}") from error


def check_other_run(path: str, options: RunOptions, kept: Any, workdir: pathlib.Path) -> RunOptions:
    """Checks a run of decode.ensemble.workdirs and returns its options.

    Raises:
        UserError: it is this run itself, is no run, or differs from this run in the task or the vocabularies.
    """
    try:
        folder = pathlib.Path(path)
        if folder.resolve() == workdir.resolve():
            raise UserError("it is the run itself, which is part of the ensemble already; leave it out")
        other = resolve(load_config(folder))
        if other.kind is not options.kind:
            raise UserError(f"it is of task.name {other.task.name}; expected one like {options.task.name}")
        renewed = options.task.renewed(options.kind.load(folder), data_dir=options.data_dir)
        for what, there, here in zip(("source", "target"), renewed[:2], kept[:2], strict=True):
            if difference := difference_of(there.to_json(), here.to_json()):
                raise UserError(
                    f"its {what} vocabulary is another one: {difference}; expected equal vocabularies, since "
                    "probabilities of equal tokens are averaged"
                )
        return other
    except UserError as error:
        raise UserError(f"decode.ensemble.workdirs {path}: {error}") from error


def split_of(workdir: pathlib.Path, files: Files, snapshot: Snapshot) -> tuple[str, Split]:
    """Returns (name, split): the files of the command line, else --split, else the split of the run's result.

    Raises:
        UserError: a file of sources has no targets, or cannot be read; the split does not exist; a validation split
            would be cut differently than in training.
    """
    if files.split and (given := files.source or files.target):
        raise UserError(f"--split={files.split} and --{'source' if files.source else 'target'}={given}: expected one")
    options = snapshot.options
    of_pairs = options.task.of_pairs
    if of_pairs and files.target and not files.source:
        raise UserError(f"--target={files.target} has no --source; a file of the task's own form is named by --source")
    if of_pairs and files.source and not files.target:
        pairs = options.task.read_file(pathlib.Path(files.source))
        return files.source, snapshot.predictor.accept(pairs, files.source)
    if files.source or files.target:
        name = ", ".join(filter(None, (files.source, files.target)))
        return name, snapshot.predictor.read_files(files.source, files.target)
    task = build.build_task(options, kept_of(options, workdir))
    name, split = (files.split, lookup(task.splits, files.split, "split")) if files.split else own_split(task)
    if names := options.task.cut_by.get(name):
        check_cut(workdir, options.config, names)
    for what, count in task.stats.items():
        if what.startswith(f"{name} "):  # a remark on the split, such as how much of it is also in training
            notice(f"{'data':<14}{what}: {count:,}")
    if isinstance(split, Pairs):
        snapshot.predictor.report(split.source, split.target)
    return name, split


def own_split(task: Task | PointsTask) -> tuple[str, Split]:
    """Returns (name, split) for the evaluation of a run: the test split if there is one, else validation."""
    name = "test" if "test" in task.splits else "valid"
    return name, task.splits[name]


def measure(snapshot: Snapshot, split: Split, name: str, overrides: tuple[str, ...] = ()) -> tuple[dict, dict | None]:
    """Computes eval.metrics on a split; returns the contents of result.json and of sentences.json.

    sentences.json has the statistics of each sentence; it is None for a model that does not read sentences.

    Raises:
        UserError: the loss is not finite.
    """
    begin = time.monotonic()
    options, evaluator = snapshot.options, snapshot.evaluator
    notice(f"{label(name):<14}evaluating {len(split):,} {evaluator.unit} ...")
    found = evaluator.measure(snapshot.params, split, options.eval.metrics, each=True)
    metrics = {metric: of for metric, of in found.values.items() if np.isfinite(of["seeds"]).all()}
    if "loss" not in metrics:
        raise UserError(
            f"the loss on {label(name)} is not finite: the training has diverged; start again, perhaps with a smaller "
            "optimizer.learning_rate"
        )
    for metric in [metric for metric in found.values if metric not in metrics]:
        notice(f"{label(name):<14}{metric} is not a finite number here: it is left out of the result")
    seeds = list(options.all_seeds)
    chooses = options.train.choose_seed and not snapshot.together
    sentences, checksums = None, snapshot.predictor.checksums(split)
    if found.statistics and isinstance(split, Pairs):
        statistics = {metric: of for metric, of in found.statistics.items() if metric in metrics}
        sentences = sentences_of(seeds, statistics, found.outputs, split.checksum, ensemble=snapshot.together)
        checksums["statistics"] = text_checksum(sentences)
    result = {
        "name": options.name,
        "split": name,
        evaluator.unit: len(split),
        "seeds": seeds,
        **({"chosen_seed": seeds[snapshot.index]} if chooses else {}),
        "checkpoint": snapshot.used,
        "num_parameters": num_parameters(snapshot.params[0]),
        "decode": options.config.decode.to_dict(),
        "metrics": metrics,
        "signatures": found.signatures,
        "checksums": checksums,
        "examples": [example._asdict() for example in found.examples],
        "eval_seconds": round(time.monotonic() - begin, 2),
        "overrides": list(overrides),
        "config": plain(options.config),
        **provenance(),
    }
    return result, sentences
