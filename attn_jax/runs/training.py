"""Training runs: open a run, train or resume it, and read its final parameters."""

import contextlib
import pathlib
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.data.data_files import has_checksums
from attn_jax.data.files import check_links, checksum
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Evaluator
from attn_jax.models.base import RowLoss
from attn_jax.notices import Progress, notice
from attn_jax.runs.build import Setup, build_setup, build_task
from attn_jax.runs.checks import best_metric, check, check_num_samples, start_of
from attn_jax.runs.locks import claim
from attn_jax.runs.options import RunOptions, resolve
from attn_jax.runs.results import remove_results
from attn_jax.runs.run import Callbacks, Run, check_processes, params_of_seeds
from attn_jax.runs.start import Source, announcement, check_seeds, check_tokens, take
from attn_jax.runs.tree import flatten
from attn_jax.runs.vectors import vectors_of, with_vectors
from attn_jax.runs.workdir import check_checkpoint, holds, length_before, load_config, save_config
from attn_jax.tasks import PointsTask, Task
from attn_jax.training import model_size
from attn_jax.training.checkpoints import Checkpoints
from attn_jax.training.loop import (
    Diverged,
    FitResult,
    Reason,
    TrainState,
    check_rows,
    fit,
    make_train_step,
    stop_on_signals,
)
from attn_jax.training.metrics_writer import MetricsWriter
from attn_jax.training.optimizers import check_groups, plateau_scale
from attn_jax.training.options import ON_NAN
from attn_jax.training.parallel import group_size, part_size
from attn_jax.training.pytrees import to_numpy
from attn_jax.types import Batch, Params, PyTree


def choose_seed(options: RunOptions, evaluator: Evaluator, params: list[Params], task: Task | PointsTask) -> int:
    """Returns the index of the seed to predict with, by train.choose_seed.

    "": the first seed. "train": the lowest training loss. "valid": the best train.best_metric in validation; the
    validation loss breaks ties.
    """
    split = options.train.choose_seed
    if not split or len(params) == 1:
        return 0
    name, order = best_metric(options) if split == "valid" else ("loss", "min")
    results = evaluator.measure(params, task.splits[split], [] if name == "loss" else [name]).values
    values = np.array(results[name]["seeds"]) * (1 if order == "min" else -1)
    return int(np.lexsort((results["loss"]["seeds"], values))[0])


def open_checkpoints(options: RunOptions, workdir: pathlib.Path, read_only: bool = False) -> Checkpoints:
    """Opens the checkpoints of a run."""

    def check(step: int, trained: dict, extra: dict) -> None:
        check_checkpoint(workdir, step, trained, extra.get("data", {}))

    return Checkpoints(
        workdir / "checkpoints",
        keep=options.train.keep,
        average=options.train.average,
        best_metric=best_metric(options),
        read_only=read_only,
        check=check,
    )


def open_run(options: RunOptions, workdir: pathlib.Path) -> Run:
    """Builds all objects of a run and locks its work directory.

    Raises:
        UserError: the config or the data is wrong, or the work directory belongs to another run or is in use.
    """
    check(options)
    seeds = options.all_seeds
    first = jax.process_index() == 0
    # Check that the folder is writable before reading the data, which may take long.
    with claim(workdir) if first else contextlib.nullcontext() as locked:
        stored = options.kind.load(workdir) if holds(workdir, options.config) else None
        if stored is not None:
            with open_checkpoints(options, workdir, read_only=True) as checkpoints:
                checkpoints.newest()  # raises a UserError if it belongs to other files
        source = None
        if stored is None and (path := start_of(options).workdir):
            source = read_source(path, seeds)
        task = build_task(options, stored)
        check_processes(task)
        if options.model.learns_from_facts:
            check_facts(task, options.model.learns_from_facts)
        if source is not None:
            check_tokens(source, options, task.kept)
        setup = build_setup(options, task.kept)
        strategy = options.parallel.strategy
        devices = len(jax.devices()) if strategy.across_devices else 1
        batches = task.batches(**setup.batch_options, seeds=seeds, row_multiple=devices)
        check_num_samples(options, batches.longest, cells=setup.cells)
        if options.train.microbatches > 1:
            for rows, *_ in batches.shapes:
                check_rows(rows // devices, options.train.microbatches)
        num_steps = options.train.steps(batches.steps_per_epoch)
        if stored is not None:
            check_length(options, workdir, num_steps, batches.steps_per_epoch)
        tx = options.optimizer.build(num_steps)
        lazy = options.train.lazy_rows
        if lazy:
            check_reads_rows(setup)
        make_step = partial(
            make_train_step,
            RowLoss(setup.model) if lazy else setup.model.loss_fn,
            tx,
            microbatches=options.train.microbatches,
            by_rows=lazy,
        )
        groups = {"replicas": options.parallel.replicas} if strategy.divides_state else {}
        parallel = strategy.make(lambda axis_name: make_step(axis_name=axis_name), seeds=len(seeds) > 1, **groups)
        checkpoints = open_checkpoints(options, workdir)  # first, so that a failure here removes nothing
        if first:
            if stored is None or length_before(workdir, options.config):
                remove_results(workdir)
            if stored is None or not has_checksums(workdir):
                task.save(workdir)
            save_config(workdir, options.config)
        return Run(
            options=options,
            workdir=workdir,
            setup=setup,
            task=task,
            batches=batches,
            tx=tx,
            parallel=parallel,
            checkpoints=checkpoints,
            seeds=seeds,
            num_steps=num_steps,
            lock=locked,
            source=source,
        )


def check_length(options: RunOptions, workdir: pathlib.Path, num_steps: int, steps_per_epoch: int) -> None:
    """Checks that a run whose length was changed goes on as one that had this length from the start.

    Raises:
        UserError: it has become shorter, its learning rate would have been another one, or the evaluation at its end
            has counted for the schedule or for stopping.
    """
    if not (different := length_before(workdir, options.config)):
        return
    key, before, now = different
    train, schedule = options.train, options.config.optimizer.schedule.name
    old_steps = resolve(load_config(workdir)).train.steps(steps_per_epoch)
    rates = [options.optimizer.build_schedule(steps)(np.arange(old_steps)) for steps in (old_steps, num_steps)]
    counted = "optimizer.schedule plateau" if options.optimizer.schedule.patience else ""
    counted = "train.patience" if train.patience else counted or ("train.goal" if train.goal else "")
    why = ""
    if num_steps < old_steps:
        why = "a run can be made longer, not shorter"
    elif not np.array_equal(*rates):
        why = f"optimizer.schedule {schedule} of {num_steps} steps has other learning rates before step {old_steps}"
    elif counted and old_steps % (train.eval_every or steps_per_epoch):
        why = f"{counted} counts evaluations, and a longer run has none at step {old_steps}"
    if why:
        raise UserError(
            f"{workdir}: {key} cannot become {now!r} from {before!r}: {why}; with another --workdir, "
            f"--config.train.start=run --config.train.start.workdir={workdir} begins with its parameters"
        )
    notice(f"{'longer':<14}{num_steps} steps instead of {old_steps}; optimizer.schedule {schedule} is the same before")


def read_source(path: str, seeds: tuple[int, ...]) -> Source:
    """Reads the trained run at a path, from which `seeds` start.

    Raises:
        UserError: there is no such run, it has no readable checkpoint, or its number of seeds does not fit.
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise UserError(f"train.start.workdir {path}: there is no such folder; expected the work directory of a run")
    try:
        options = resolve(load_config(folder))
        if not options.task.of_pairs:
            raise UserError(
                f"{path} has a regression of task.name {options.task.name}; expected a run with vocabularies"
            )
        check_seeds(path, options.all_seeds, seeds)
        kept = Task.load(folder)
        with open_checkpoints(options, folder, read_only=True) as checkpoints:
            if checkpoints.latest_step() is None:
                raise UserError(f"{path} has no checkpoint yet; train it first")
            params, used = final_params(options, checkpoints, build_setup(options, kept))
    except UserError as error:
        raise UserError(f"train.start.workdir: {error}") from error
    return Source(path, options, kept, [jax.tree.map(to_numpy, one) for one in params], used)


def tables_of(setup: Setup) -> set[tuple[str, ...]]:
    """Returns the paths of the tables from which a step with train.lazy_rows reads only some rows."""
    rng = jax.random.key(0)
    tables, _ = RowLoss(setup.model).tables(jax.eval_shape(setup.model.init, rng, setup.example), setup.example, rng)
    return set(tables)


def check_reads_rows(setup: Setup) -> None:
    """Raises a UserError if the model has no table that is read only by rows."""
    if not tables_of(setup):
        raise UserError(
            "nothing reads train.lazy_rows: the model has no table of which a step reads some rows; leave it out"
        )


def check_facts(task: Task, option: str) -> None:
    """Raises a UserError if no training question has supporting facts, which `option` of the model needs."""
    if not any(task.splits["train"].evidence or ()):
        raise UserError(
            f"model.{option} learns from supporting facts, and no training question has any; expected questions "
            "such as 3 Where is Mary? TAB bathroom TAB 1"
        )


def finished_before(options: RunOptions, workdir: pathlib.Path) -> int | None:
    """Returns the number of steps of a finished and evaluated run, None for any other work directory.

    Reads neither data nor parameters.

    Raises:
        UserError: the config is wrong, or the work directory belongs to another run.
    """
    check(options)
    check_links(workdir)
    if not (workdir / "result.json").exists() or not holds(workdir, options.config):
        return None
    if length_before(workdir, options.config):
        return None
    with open_checkpoints(options, workdir, read_only=True) as checkpoints:
        newest = checkpoints.newest()
    return newest[0] if newest and newest[1].get("finished") else None


def train(run: Run) -> FitResult:
    """Trains a run to its end, starting from the newest checkpoint if there is one.

    With train.on_nan=rewind, a step with a non-finite loss or gradient sends the run back to its newest checkpoint,
    and training continues from there without the batch of that step.

    Raises:
        UserError: the model does not fit into memory, the loss is not finite, or the disk is full.
    """
    with stop_on_signals() as should_stop:  # around all attempts, so that a signal before a rewind is not lost
        while True:
            try:
                ended = _train(run, should_stop)
                break
            except Diverged as error:
                _rewind(run, error)
        if ended.reason is not Reason.INTERRUPTED and (number := should_stop(ended.step)):
            # The run is saved, but its evaluation, which comes next, may take long.
            return ended._replace(reason=Reason.INTERRUPTED, signal=number)
        return ended


def _rewind(run: Run, error: Diverged) -> None:
    """Sends a run back to its newest checkpoint.

    Raises:
        UserError: train.on_nan is not rewind, or too many batches have been skipped.
    """
    saved = run.checkpoints.latest_step()
    from_step = f"step {saved}" if saved else "none"
    if not ON_NAN[run.options.train.on_nan]:
        raise UserError(f"{error}; last good checkpoint: {from_step}") from error
    if len(run.skipped) >= ON_NAN[run.options.train.on_nan]:
        raise UserError(f"{error}; {len(run.skipped)} batches were left out before it; no more are") from error
    run.skipped.add(error.step)
    notice(
        f"{'rewind':<14}the loss or the gradient of step {error.step} is not finite: going back to "
        f"{from_step if saved else 'the beginning'}, without the batch of that step"
    )
    run.begin_again()


def _train(run: Run, should_stop: Callable[[int], int]) -> FitResult:
    """Trains from the newest checkpoint or from initial parameters, without the skipped batches.

    The initial parameters are random or, with train.start run, copied from another run; the optimizer state is new.
    """
    several = len(run.seeds) > 1
    example, create, rngs = beginning(run)
    shapes = jax.eval_shape(jax.vmap(create), rngs) if several else jax.eval_shape(create, rngs[0])
    restored = run.checkpoints.restore(run.parallel.placed(shapes))
    start = 0
    if restored is not None:
        start, state = restored.step, restored.state
        run.remember(restored.extra, start)
        run.scale = plateau_scale(state.opt_state)
        if run.finished:
            return FitResult(run.parallel.put_state(state), start, Reason.FINISHED_BEFORE)
    check_size(run, shapes, example)
    check_groups(run.options.optimizer.groups, jax.eval_shape(create, rngs[0]).params)
    begins = restored is None and run.source is not None
    if begins:
        notice(announcement(run.source, jax.eval_shape(create, rngs[0]).params))
        run.splits["start_from"] = run.source.checksum
    vectors = {} if restored is not None else vectors_of(run.options, run.task.kept)
    for side, found in vectors.items():
        run.splits[f"{side}_vectors"] = checksum(found.rows)
        notice(f"{'word vectors':<14}{found} of the {side} from {start_of(run.options).vectors[side]}")
    if vectors:  # check that they fit before anything is compiled
        jax.eval_shape(lambda rng: with_vectors(create(rng).params, vectors), rngs[0])
    if start:
        notice(f"{'resuming':<14}from step {start} of {run.num_steps}")
    opened = contextlib.nullcontext()
    if jax.process_index() == 0:
        opened = MetricsWriter(run.workdir, start, run.options.train.log_to, flatten(run.options.config))
    with opened as writer, Progress("training", run.num_steps, start=start) as progress:
        progress.say("compiling ...")
        if restored is None:
            states = created(create, rngs)
            if begins or vectors:
                params = [state.params for state in states]
                if begins:
                    params = [take(x, run.source.of_seed(i)) for i, x in enumerate(params)]
                params = [with_vectors(x, vectors) for x in params]
                states = [TrainState.create(x, run.tx, state.rng) for x, state in zip(params, states, strict=True)]
            state = joined(states)
        callbacks = Callbacks(run=run, writer=writer, progress=progress)
        return _fit(run, callbacks, run.parallel.put_state(state), start, should_stop)


def beginning(run: Run) -> tuple[Batch, Callable[[jax.Array], TrainState], jax.Array]:
    """Returns (the first batch, rng of a seed -> its state before the first step, the rngs of all seeds)."""
    example = jax.tree.map(jnp.asarray, run.batches.batch_at(0))
    first = jax.tree.map(lambda x: x[0], example) if len(run.seeds) > 1 else example

    def create(rng: jax.Array) -> TrainState:
        init_rng, train_rng = jax.random.split(rng)
        return TrainState.create(run.setup.model.init(init_rng, first), run.tx, train_rng)

    return example, create, jnp.stack([jax.random.key(seed) for seed in run.seeds])


def created(create: Callable[[jax.Array], TrainState], rngs: jax.Array) -> list[TrainState]:
    """Creates the state of each seed, one after the other."""
    # The batched QR of orthogonal initializers can deadlock on a CPU with few cores.
    return [jax.jit(create)(rng) for rng in rngs]


def joined(states: list[TrainState]) -> TrainState:
    """Joins the states of several seeds along a first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states) if len(states) > 1 else states[0]


def first_state(run: Run) -> TrainState:
    """Returns the state of all seeds before the first step, with random parameters."""
    _, create, rngs = beginning(run)
    return joined(created(create, rngs))


def _fit(run: Run, callbacks: Callbacks, state: PyTree, start: int, should_stop: Callable[[int], int]) -> FitResult:
    """Trains from step `start`, with evaluations and checkpoints between the steps."""
    train = run.options.train
    every = [(train.eval_every or run.batches.steps_per_epoch, callbacks.on_evaluation)]
    if train.checkpoint_every:
        every.append((train.checkpoint_every, lambda step, state: callbacks.save(step, state)))
    run.start_clock()
    result = fit(
        run.parallel,
        state,
        callbacks.batch_at,
        start=start,
        num_steps=run.num_steps,
        every=every,
        on_step=callbacks.on_step,
        should_stop=should_stop,
        skip=run.skipped,
    )
    if result.reason is Reason.INTERRUPTED:
        callbacks.save(result.step, result.state)
    run.checkpoints.wait()
    run.stop_clock()
    return result


def check_size(run: Run, state: PyTree, batch: PyTree) -> None:
    """Prints a notice of the model size; `state` and `batch` may be shapes.

    Raises:
        UserError: the model cannot fit into memory.
    """
    options, strategy = run.options, run.options.parallel.strategy
    devices = jax.device_count() if strategy.across_devices else 1
    parts = group_size(devices, options.parallel.replicas) if strategy.divides_state else 1
    logits = 0
    if "target_out" in batch:  # a model that predicts words
        positions = batch["target_out"].size // options.train.microbatches // devices
        output, vocab_size = options.model.output, len(run.task.target_vocabulary)
        width = vocab_size if output is None else output.stored_logits(vocab_size)
        logits = positions * width * jnp.dtype(run.options.dtype).itemsize
    several = len(run.seeds) > 1
    size = model_size.measure(
        state.params,
        state.opt_state,
        num_seeds=len(run.seeds),
        logits=logits,
        by_rows=tables_of(run.setup) if options.train.lazy_rows else (),
        held=lambda x: part_size(x, parts, first=int(several)),
    )
    notice(f"{'model':<14}{size}{f' on each of {devices} devices' if devices > 1 else ''}")
    device = jax.local_devices()[0]
    copies = min(devices, jax.local_device_count()) if device.platform == "cpu" else 1  # CPU devices share memory
    model_size.check_memory(size, model_size.memory_of(device), copies)


def final_params(options: RunOptions, checkpoints: Checkpoints, setup: Setup) -> tuple[list[Params], str]:
    """Reads the best parameters (the newest ones if none were evaluated), or an average with train.average.

    Returns:
        (parameters, one set per seed; description of the checkpoints used).
    """
    seeds = options.all_seeds

    def init(rng: jax.Array) -> Params:
        return setup.model.init(rng, jax.tree.map(jnp.asarray, setup.example))

    rngs = jnp.stack([jax.random.key(seed) for seed in seeds])
    target = jax.eval_shape(jax.vmap(init), rngs) if len(seeds) > 1 else jax.eval_shape(init, rngs[0])
    if options.train.average:
        params, steps = checkpoints.average(target, options.train.average)
        which = ", ".join(map(str, steps))
        used = (
            f"mean of {len(steps)} checkpoints (steps {which})" if len(steps) > 1 else f"last checkpoint (step {which})"
        )
    else:
        params, steps = checkpoints.restore_params(target)
        used = f"{'best' if checkpoints.metrics(steps[0]) else 'newest'} checkpoint (step {steps[0]})"
    # Evaluation needs only the first of several devices.
    params = jax.device_put(params, jax.local_devices()[0])
    return params_of_seeds(params, seeds), used
