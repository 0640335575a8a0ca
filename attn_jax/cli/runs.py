"""A training run: opened from a config (see build.py), trained, saved, resumed."""

import contextlib
import dataclasses
import pathlib
import time
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attn_jax.attention import READINGS
from attn_jax.cli.build import build_evaluator, build_task
from attn_jax.cli.kinds import AnyBatches, AnyEvaluator, AnyTask, kind_of
from attn_jax.cli.options import Options, resolve
from attn_jax.cli.workdir import check_checkpoint, claim, holds, plain, save_config
from attn_jax.errors import UserError, lookup
from attn_jax.tasks.data_files import data_checksums, has_checksums
from attn_jax.tasks.files import check_links
from attn_jax.training import model_size
from attn_jax.training.checkpoints import Checkpoints
from attn_jax.training.loop import Diverged, Fitted, Meter, Outcome, TrainState, fit, make_train_step, stop_on_signals
from attn_jax.training.metrics_writer import MetricsWriter
from attn_jax.training.optimizers import SinceBest, halve, plateau_scale
from attn_jax.training.parallel import PARALLEL, choose
from attn_jax.training.progress import Progress, notice
from attn_jax.types import Params, PyTree


@dataclasses.dataclass
class Run:
    """A training run: everything that `train` puts together, and what its callbacks keep between calls."""

    config: ConfigDict
    workdir: pathlib.Path
    evaluator: AnyEvaluator
    task: AnyTask
    batches: AnyBatches
    checkpoints: Checkpoints
    seeds: tuple[int, ...]
    num_steps: int
    lock: Any = None
    parallel: Any = None
    writer: MetricsWriter | None = None
    progress: Progress | None = None

    def __post_init__(self):
        self.meter, self.seconds, self.started = Meter(), 0.0, None
        self.schedule = resolve(self.config).optimizer.build_schedule(self.num_steps)
        self.scale = np.ones((), np.float32)  # of the plateau
        _, mode = best_metric(self.config)
        self.best, self.plateau, self.finished = SinceBest(mode), SinceBest("min"), False
        self.data = data_checksums(self.workdir)

    @property
    def trained_seconds(self) -> float:
        """Time spent in training, validation included, over all the processes that worked on this run."""
        return self.seconds + (0.0 if self.started is None else time.monotonic() - self.started)

    @property
    def extra(self) -> dict:
        """What the host has to remember besides the state."""
        return {
            "meter": self.meter.state,
            "best": self.best.state,
            "plateau": self.plateau.state,
            "seconds": self.trained_seconds,
            "finished": self.finished,
            "data": self.data,
        }

    def remember(self, extra: dict) -> None:
        """Goes on from the `extra` of a checkpoint."""
        self.meter.state, self.best.state, self.plateau.state = extra["meter"], extra["best"], extra["plateau"]
        self.seconds, self.finished = extra["seconds"], extra["finished"]

    def save(self, step: int, state: PyTree, metrics: dict | None = None) -> None:
        """A checkpoint of the state on the devices."""
        with self.progress.pause():
            host = self.parallel.get_state(state)
            self.checkpoints.save(step, host, config=plain(self.config), extra=self.extra, metrics=metrics)

    def on_step(self, step: int, metrics: dict) -> None:
        """Logs the mean over the last log_every steps, at the very end over what there is since the last time."""
        self.meter.add(metrics)
        tokens = float(np.sum(metrics["loss"].count))
        loss = float(np.mean(metrics["loss"].compute()))
        self.progress.update(step, tokens, loss=loss)
        if step % self.config.train.log_every == 0 or step == self.num_steps:
            means = {f"train/{name}": mean.compute() for name, mean in self.meter.take().items()}
            means["train/learning_rate"] = self.learning_rate(step)
            times = {"seconds": round(self.trained_seconds, 3), "tokens_per_second": round(self.progress.lap(), 1)}
            self.write(step, means | times)

    def learning_rate(self, step: int) -> np.ndarray:
        """That of the update which made it `step` steps, one for each seed."""
        rate = np.asarray(self.schedule(step - 1) * self.scale, np.float32)
        rate = np.broadcast_to(rate, np.shape(self.seeds) if len(self.seeds) > 1 else ())
        return np.array([float(str(x)) for x in rate.flat]).reshape(rate.shape)  # as float32 is printed: 0.001

    def write(self, step: int, metrics: dict) -> None:
        """A line of metrics.jsonl; of several processes only the first writes."""
        if self.writer is not None:
            self.writer.write(step, metrics)

    def on_evaluation(self, step: int, state: PyTree) -> Outcome:
        """Measures the validation split, saves, halves the learning rate, stops early."""
        with self.progress.pause():
            return self._evaluate(step, state)

    def _evaluate(self, step: int, state: PyTree) -> Outcome:
        host = self.parallel.get_state(state)
        name, _ = best_metric(self.config)
        names = [name] if name != "loss" else []
        params = params_of_seeds(host.params, self.seeds)
        tokenize = self.config.eval.get("tokenize", "none")
        results, _ = self.evaluator.measure(params, self.task.splits["valid"], names, tokenize)
        values = {metric: np.array(result["seeds"]) for metric, result in results.items()}
        if len(self.seeds) == 1:
            values = {metric: value[0] for metric, value in values.items()}
        self.write(step, {f"valid/{metric}": value for metric, value in values.items()})
        shown = "  ".join(f"{metric} {result['mean']:.4g}" for metric, result in results.items())
        self.progress.clear()
        notice(f"{'valid':<14}step {step}  {shown}")
        self.best.update(results[name]["mean"])
        outcome = Outcome()
        if self.config.optimizer.schedule == "plateau":
            self.plateau.update(values["loss"])
            spent = self.plateau.spent(self.config.optimizer.plateau_patience)
            if np.any(spent):
                host = host.replace(opt_state=halve(host.opt_state, spent))
                self.scale = plateau_scale(host.opt_state)
                outcome = Outcome(state=self.parallel.put_state(host))
        patience = self.config.train.patience
        stop = bool(patience and self.best.count >= patience) or reached(self.config, results[name]["seeds"])
        self.finished = stop or step == self.num_steps
        metrics = {metric: result["mean"] for metric, result in results.items()}
        self.checkpoints.save(step, host, config=plain(self.config), extra=self.extra, metrics=metrics)
        return outcome._replace(stop=stop)


def best_metric(config: ConfigDict) -> tuple[str, str]:
    """(train.best_metric, whether "min" or "max" of it is best)."""
    name = config.train.best_metric
    return name, lookup(kind_of(config).metrics, name, "train.best_metric")


def reached(config: ConfigDict, values: list[float]) -> bool:
    """Whether train.best_metric of every seed is as good as train.goal, if there is a goal."""
    goal, (_, order) = config.train.goal, best_metric(config)
    return bool(goal) and (max(values) <= goal if order == "min" else min(values) >= goal)


def seeds_of(config: ConfigDict) -> tuple[int, ...]:
    """config.seeds, or the one config.seed."""
    return resolve(config).run.all_seeds


def params_of_seeds(params: Params, seeds: tuple[int, ...]) -> list[Params]:
    """One set of parameters per seed, from the state's leading seed axis if there is one."""
    if len(seeds) == 1:
        return [params]
    return [jax.tree.map(itemgetter(i), params) for i in range(len(seeds))]


def choose_seed(config: ConfigDict, evaluator: AnyEvaluator, params: list[Params], task: AnyTask) -> int:
    """The place of the seed to predict with, by train.choose_seed.

    "": the first. "train": the lowest loss in training. "valid": the best train.best_metric in validation, and of
    those that are as good the lowest loss.
    """
    split = config.train.get("choose_seed", "")
    if not split or len(params) == 1:
        return 0
    name, order = best_metric(config) if split == "valid" else ("loss", "min")
    names, tokenize = [] if name == "loss" else [name], config.eval.get("tokenize", "none")
    results, _ = evaluator.measure(params, task.splits[split], names, tokenize)
    values = np.array(results[name]["seeds"]) * (1 if order == "min" else -1)
    return int(np.lexsort((results["loss"]["seeds"], values))[0])


def open_checkpoints(config: ConfigDict, workdir: pathlib.Path, read_only: bool = False) -> Checkpoints:
    """The checkpoints of a run."""
    options = dict(keep=config.train.keep, average=config.train.average, best_metric=best_metric(config))

    def check(step: int, trained: dict, extra: dict) -> None:
        check_checkpoint(workdir, step, trained, extra.get("data", {}))

    return Checkpoints(workdir / "checkpoints", read_only=read_only, check=check, **options)


def check(config: ConfigDict) -> Options:
    """Checks a config as far as it can be known to be wrong before the data is read, and returns its options."""
    options = resolve(config)
    options.build_model()
    kind_of(config).check(config)
    options.optimizer.build(1)
    best_metric(config)
    choose(config.parallel)
    return options


def check_num_samples(config: ConfigDict, longest: int) -> None:
    """UserError if more different keys are to be drawn than the longest source has."""
    attention = config.model.get("attention", {})
    reading = READINGS.get(attention.get("read"))
    if reading is not None and reading.distinct and attention.num_samples > longest:
        raise UserError(
            f"model.attention.num_samples is {attention.num_samples}, but {reading.name} draws different "
            f"keys and the longest source has {longest}; expected at most that many"
        )


def open_run(config: ConfigDict, workdir: pathlib.Path) -> Run:
    """Task, vocabularies, model and batches of a run, whose work directory this becomes."""
    check(config)
    seeds = seeds_of(config)
    kind = kind_of(config)
    first = jax.process_index() == 0
    # Before the data, which may take long: whether anything can be written there.
    with claim(workdir) if first else contextlib.nullcontext() as locked:
        stored = kind.load(workdir) if holds(workdir, config) else None
        if stored is not None:
            with open_checkpoints(config, workdir, read_only=True) as checkpoints:
                checkpoints.newest()  # a UserError if it is of other files
        task = build_task(config, stored)
        evaluator = build_evaluator(config, task.kept)
        devices = 1 if choose(config.parallel) == "single" else len(jax.devices())
        batches = evaluator.batches(task.splits["train"], config.task, seeds, devices)
        check_num_samples(config, batches.longest)
        num_steps = config.train.num_steps or max(1, round(config.train.num_epochs * batches.steps_per_epoch))
        if first:
            if stored is None or not has_checksums(workdir):
                kind.save(workdir, task.kept)
            save_config(workdir, config)
        checkpoints = open_checkpoints(config, workdir)
        return Run(config, workdir, evaluator, task, batches, checkpoints, seeds, num_steps, locked)


def finished_before(config: ConfigDict, workdir: pathlib.Path) -> int | None:
    """The number of steps of the run in a work directory if it is finished and measured, else None.

    Neither data nor parameters are read. UserError for what is wrong with the config or the work directory.
    """
    check(config)
    check_links(workdir)
    if not (workdir / "result.json").exists() or not holds(workdir, config):
        return None
    with open_checkpoints(config, workdir, read_only=True) as checkpoints:
        newest = checkpoints.newest()
    return newest[0] if newest and newest[1].get("finished") else None


def train(run: Run) -> Fitted:
    """Trains a run to its end, from the newest checkpoint if there is one."""
    config, seeds = run.config, run.seeds
    tx = resolve(config).optimizer.build(run.num_steps)
    model = run.evaluator.model
    several = len(seeds) > 1

    def create(rng: jax.Array) -> TrainState:
        init_rng, train_rng = jax.random.split(rng)
        first = jax.tree.map(lambda x: x[0], example) if several else example
        return TrainState.create(model.init(init_rng, first), tx, train_rng)

    example = jax.tree.map(jnp.asarray, run.batches.batch_at(0))
    rngs = jnp.stack([jax.random.key(seed) for seed in seeds])
    shapes = jax.eval_shape(jax.vmap(create), rngs) if several else jax.eval_shape(create, rngs[0])
    run.parallel = PARALLEL[choose(config.parallel)](
        lambda axis_name: make_train_step(
            model.loss_fn, tx, axis_name=axis_name, microbatches=config.train.get("microbatches", 1)
        ),
        seeds=several,
    )
    restored = run.checkpoints.restore(shapes)
    start = 0
    if restored is not None:
        start, state = restored.step, restored.state
        run.remember(restored.extra)
        run.scale = plateau_scale(state.opt_state)
        if run.finished:
            return Fitted(run.parallel.put_state(state), start, "finished before")
    check_size(run, shapes, example)
    if start:
        notice(f"{'resuming':<14}from step {start} of {run.num_steps}")
    writer = MetricsWriter(run.workdir, start) if jax.process_index() == 0 else contextlib.nullcontext()
    with writer as run.writer, Progress("training", run.num_steps, start=start) as run.progress:
        run.progress.say("compiling ...")
        if restored is None:
            # One seed after the other: the batched QR of orthogonal initializers can deadlock on a CPU with few cores.
            states = [jax.jit(create)(rng) for rng in rngs]
            state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states) if several else states[0]
        return _fit(run, run.parallel.put_state(state), start)


def _fit(run: Run, state: PyTree, start: int) -> Fitted:
    """The steps from `start` on, with what happens every so many of them."""
    config = run.config
    every = [(config.train.eval_every or run.batches.steps_per_epoch, run.on_evaluation)]
    if config.train.checkpoint_every:
        every.append((config.train.checkpoint_every, lambda step, state: run.save(step, state)))
    with stop_on_signals() as should_stop:
        run.started = time.monotonic()
        try:
            fitted = fit(
                run.parallel,
                state,
                run.batches.batch_at,
                start=start,
                num_steps=run.num_steps,
                every=every,
                on_step=run.on_step,
                should_stop=should_stop,
            )
        except Diverged as error:
            step = run.checkpoints.latest_step()
            raise UserError(f"{error}; last good checkpoint: {f'step {step}' if step else 'none'}") from error
        if fitted.reason == "interrupted":
            run.save(fitted.step, fitted.state)
        run.checkpoints.wait()
    run.seconds, run.started = run.trained_seconds, None
    return fitted


def check_size(run: Run, state: PyTree, batch: PyTree) -> None:
    """Says how large the model is; UserError if it cannot fit into the memory. `state` and `batch` may be shapes."""
    devices = 1 if choose(run.config.parallel) == "single" else jax.device_count()  # each holds the whole state
    logits = 0
    if "target_out" in batch:  # else it predicts no words
        positions = batch["target_out"].size // run.config.train.get("microbatches", 1) // devices
        logits = positions * len(run.evaluator.target_vocabulary) * jnp.dtype(run.config.dtype).itemsize
    size = model_size.measure(state.params, state.opt_state, num_seeds=len(run.seeds), logits=logits)
    notice(f"{'model':<14}{size}{f' on each of {devices} devices' if devices > 1 else ''}")
    device = jax.local_devices()[0]
    copies = min(devices, jax.local_device_count()) if device.platform == "cpu" else 1  # in one memory
    model_size.check_memory(size, model_size.memory_of(device), copies)


def final_params(config: ConfigDict, checkpoints: Checkpoints, evaluator: AnyEvaluator) -> tuple[list[Params], str]:
    """The parameters to use, one set per seed, and where they come from: the average asked for, or the best."""
    seeds = seeds_of(config)

    def init(rng: jax.Array) -> Params:
        return evaluator.model.init(rng, jax.tree.map(jnp.asarray, evaluator.example))

    rngs = jnp.stack([jax.random.key(seed) for seed in seeds])
    target = jax.eval_shape(jax.vmap(init), rngs) if len(seeds) > 1 else jax.eval_shape(init, rngs[0])
    if config.train.average:
        params, steps = checkpoints.average(target, config.train.average)
        used = f"mean of the last {len(steps)} checkpoints"
    else:
        params, steps = checkpoints.restore_params(target)
        used = f"best checkpoint (step {steps[0]})"
    # Of several devices the first is enough to evaluate.
    params = jax.device_put(params, jax.local_devices()[0])
    return params_of_seeds(params, seeds), used
