"""A training run and its callbacks between steps: log, evaluate, save."""

import dataclasses
import pathlib
import time
from operator import itemgetter
from typing import TextIO

import jax
import numpy as np
import optax

from attn_jax.data.batching import Batches
from attn_jax.data.data_files import data_checksums
from attn_jax.data.files import text_checksum
from attn_jax.data.point_batches import PointBatches
from attn_jax.data.streaming import StreamedBatches
from attn_jax.errors import UserError
from attn_jax.notices import Progress, notice
from attn_jax.runs.build import Setup
from attn_jax.runs.checks import best_metric
from attn_jax.runs.options import RunOptions
from attn_jax.runs.start import Source
from attn_jax.runs.workdir import plain
from attn_jax.tasks import PointsTask, Task
from attn_jax.training.checkpoints import Checkpoints
from attn_jax.training.loop import CallbackResult, Meter
from attn_jax.training.metrics_writer import MetricsWriter
from attn_jax.training.optimizers import SinceBest, halve, plateau_scale
from attn_jax.training.parallel import Parallel
from attn_jax.types import Batch, Params, PyTree


def check_processes(task: Task | PointsTask) -> None:
    """Checks that every process has read the same data; each reads its own files.

    Raises:
        UserError: the data of a process differs from the first one's. All processes raise it.
    """
    if jax.process_count() == 1:
        return
    from jax.experimental import multihost_utils

    sums = multihost_utils.process_allgather(np.uint32(text_checksum(task.checksums())))
    if len(others := np.flatnonzero(sums != sums[0])):
        raise UserError(
            f"process {others[0]} reads other data than process 0 (wrong checksum); give all the same files"
        )


@dataclasses.dataclass(kw_only=True)
class Run:
    """A training run: its objects, and the numbers that the host stores between steps."""

    options: RunOptions
    workdir: pathlib.Path
    setup: Setup
    task: Task | PointsTask
    batches: Batches | StreamedBatches | PointBatches
    tx: optax.GradientTransformation
    parallel: Parallel
    checkpoints: Checkpoints
    seeds: tuple[int, ...]
    num_steps: int
    lock: TextIO | None  # lock of the work directory; None in all processes but the first
    source: Source | None = None  # the run that a new run starts from, train.start.workdir

    def __post_init__(self):
        self.seconds, self.started = 0.0, None
        self.schedule = self.options.optimizer.build_schedule(self.num_steps)
        self.begin_again()
        self.data = data_checksums(self.workdir)
        self.splits = self.task.checksums()
        self.skipped: set[int] = set()  # steps whose batches are left out, since their loss was not finite

    @property
    def trained_seconds(self) -> float:
        """Seconds of training, including validation and the time before a resumption."""
        return self.seconds + (0.0 if self.started is None else time.monotonic() - self.started)

    def start_clock(self) -> None:
        """Starts counting the seconds of training."""
        self.started = time.monotonic()

    def stop_clock(self) -> None:
        """Stops counting the seconds of training."""
        self.seconds, self.started = self.trained_seconds, None

    @property
    def extra(self) -> dict:
        """Numbers that a checkpoint stores besides the state, as JSON."""
        return {
            "meter": self.meter.state,
            "best": self.best.state,
            "plateau": self.plateau.state,
            "seconds": self.trained_seconds,
            "finished": self.finished,
            "num_steps": self.num_steps,
            "data": self.data,
            "splits": self.splits,
            "skipped": sorted(self.skipped),
        }

    def remember(self, extra: dict, step: int) -> None:
        """Restores the numbers from the `extra` of the checkpoint of a step.

        A run that ended at its last step, and has become longer, is not finished.

        Raises:
            UserError: the checkpoint was trained on other sentences.
        """
        for name, before in extra.get("splits", {}).items():  # earlier versions stored no checksums of splits
            if self.splits.get(name, before) != before:
                raise UserError(
                    f"{self.workdir} was trained with other {name} data than is there now (wrong checksum): put the "
                    "files back as they were, or choose another --workdir"
                )
        self.splits = extra.get("splits", {}) | self.splits  # has the splits that a run reads only at its beginning
        self.meter.state, self.best.state, self.plateau.state = extra["meter"], extra["best"], extra["plateau"]
        before = extra.get("num_steps", self.num_steps)  # earlier versions could not make a run longer
        self.seconds, self.finished = extra["seconds"], extra["finished"] and not step == before < self.num_steps
        self.skipped |= set(extra.get("skipped", ()))  # earlier versions never left out a batch

    def begin_again(self) -> None:
        """Resets the numbers of a run without a checkpoint to their values before the first step."""
        self.meter = Meter()
        self.scale = np.ones((), np.float32)  # factor of the learning rate after plateaus
        _, mode = best_metric(self.options)
        self.best, self.plateau, self.finished = SinceBest(mode), SinceBest("min"), False

    def learning_rate(self, step: int) -> np.ndarray:
        """Returns the learning rate of a step, one per seed. Skipped steps do not count as updates."""
        updates = step - 1 - sum(skipped < step for skipped in self.skipped)
        rate = np.asarray(self.schedule(updates) * self.scale, np.float32)
        rate = np.broadcast_to(rate, np.shape(self.seeds) if len(self.seeds) > 1 else ())
        return np.array([float(str(x)) for x in rate.flat]).reshape(rate.shape)  # as float32 is printed: 0.001


@dataclasses.dataclass(kw_only=True)
class Callbacks:
    """Callbacks of a run for attn_jax.training.loop.fit."""

    run: Run
    writer: MetricsWriter | None  # None in all processes but the first
    progress: Progress

    def __post_init__(self):
        self.shapes: set[tuple] = set()  # of batches, each of which is compiled once

    def batch_at(self, step: int) -> Batch:
        """Returns the batch of a step, and tells the progress line if its step has to be compiled first."""
        batch = self.run.batches.batch_at(step)
        shape = tuple(np.shape(x) for x in jax.tree.leaves(batch))
        if shape not in self.shapes:
            self.shapes.add(shape)
            self.progress.compiles()
        return batch

    def save(self, step: int, state: PyTree, metrics: dict | None = None) -> None:
        """Saves a checkpoint of the state on the devices."""
        with self.progress.pause():
            copy = self.run.parallel.copy_state(state)
            config, extra = plain(self.run.options.config), self.run.extra
            self.run.checkpoints.save(step, copy, config=config, extra=extra, metrics=metrics)

    def on_step(self, step: int, metrics: dict) -> None:
        """Logs the means of the metrics since the last log, every log_every steps and after the last step.

        A skipped step has no metrics.
        """
        if metrics:
            self.run.meter.add(metrics)
            tokens = float(np.sum(metrics["loss"].count))
            loss = float(np.mean(metrics["loss"].compute()))
            self.progress.update(step, tokens, loss=loss)
        due = step % self.run.options.train.log_every == 0 or step == self.run.num_steps
        if due and (taken := self.run.meter.take()):
            means = {f"train/{name}": mean.compute() for name, mean in taken.items()}
            means["tokens"] = float(np.sum(taken["loss"].count))
            means["train/learning_rate"] = self.run.learning_rate(step)
            times = {"seconds": round(self.run.trained_seconds, 3), "tokens_per_second": round(self.progress.lap(), 1)}
            self.write(step, means | times)

    def write(self, step: int, metrics: dict) -> None:
        """Writes a line of metrics.jsonl."""
        if self.writer is not None:
            self.writer.write(step, metrics)

    def on_evaluation(self, step: int, state: PyTree) -> CallbackResult:
        """Evaluates the validation split and saves; halves the learning rate or stops if the config says so."""
        with self.progress.pause():
            return self._evaluate(step, state)

    def _evaluate(self, step: int, state: PyTree) -> CallbackResult:
        run, options = self.run, self.run.options
        copy = run.parallel.copy_state(state)
        name, _ = best_metric(options)
        params = params_of_seeds(run.parallel.get_state(copy.params), run.seeds)
        names = [name] if name != "loss" else []
        results = run.setup.evaluator.measure(params, run.task.splits["valid"], names).values
        values = {metric: np.array(result["seeds"]) for metric, result in results.items()}
        if len(run.seeds) == 1:
            values = {metric: value[0] for metric, value in values.items()}
        self.write(step, {f"valid/{metric}": value for metric, value in values.items()})
        means = "  ".join(f"{metric} {result['mean']:.4g}" for metric, result in results.items())
        self.progress.clear()
        notice(f"{'valid':<14}step {step}  {means}")
        run.best.update(results[name]["mean"])
        asked = CallbackResult()
        if patience := options.optimizer.schedule.patience:
            run.plateau.update(values["loss"])
            spent = run.plateau.spent(patience)
            if np.any(spent):
                copy = copy.replace(opt_state=halve(copy.opt_state, spent))
                run.scale = plateau_scale(copy.opt_state)
                asked = CallbackResult(state=run.parallel.put_state(copy))
        patience = options.train.patience
        stop = bool(patience and run.best.count >= patience) or reached(options, results[name]["seeds"])
        run.finished = stop or step == run.num_steps
        metrics = {metric: result["mean"] for metric, result in results.items()}
        run.checkpoints.save(step, copy, config=plain(options.config), extra=run.extra, metrics=metrics)
        return asked._replace(stop=stop)


def reached(options: RunOptions, values: list[float]) -> bool:
    """Tells whether train.best_metric has reached train.goal for every seed; False without a goal."""
    goal, (_, order) = options.train.goal, best_metric(options)
    return bool(goal) and all(value <= goal if order == "min" else value >= goal for value in values)


def params_of_seeds(params: Params, seeds: tuple[int, ...]) -> list[Params]:
    """Splits parameters into one set per seed; with several seeds they have a leading seed axis."""
    if len(seeds) == 1:
        return [params]
    return [jax.tree.map(itemgetter(i), params) for i in range(len(seeds))]
