"""Where the time and the memory of a training go: a short training of a config, measured and traced.

compiling     seconds of the first step; later runs read the result from the compilation cache
batches       number of shapes, each of which is compiled, and shares of their positions that are not padding
a step        milliseconds, and the part of it in which the program waits for the batch
validation    seconds of one, as train.eval_every asks for
memory        of a step on one device: arguments, results and what lives in between
operations    those that take most of a step, by the module that they belong to
"""

import collections
import gzip
import json
import pathlib
import re
import statistics
import tempfile
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.runs.checks import best_metric
from attn_jax.runs.options import RunOptions
from attn_jax.runs.run import Run, params_of_seeds
from attn_jax.runs.training import first_state, open_run
from attn_jax.training.loop import ahead

SHOWN, TRACED = 10, 3  # operations; steps in the trace
SECONDS, MOST = 5.0, 50  # of the measured steps; number of them
CONTAINERS = ("while", "call", "conditional")  # their times contain those of other operations
WORDS = {
    "dot_general": "product",
    "reduce_sum": "sum",
    "reduce_max": "maximum",
    "scatter-add": "sum of rows",
    "gather": "lookup",
    "transpose": "reordering",
    "select_n": "choice",
    "random_bits": "random numbers",
}
NOISE = re.compile(r"^(jit|jvp|vmap|transpose|checkpoint|rematted_computation)\b|^(while|body|cond|closed_call)$")


class Operation(NamedTuple):
    """An operation of a step."""

    name: str
    milliseconds: float  # of one step, summed over the threads
    share: float  # of all operations


class Profile(NamedTuple):
    """The measurements, in seconds, milliseconds and bytes."""

    compile_seconds: float
    step_milliseconds: float
    waiting_milliseconds: float
    batch_milliseconds: float
    tokens: int
    shapes: int
    real: tuple[float, float]  # shares of source and target positions that are tokens
    validation_seconds: float
    validations: int
    num_steps: int
    memory: dict[str, int]
    operations: tuple[Operation, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the whole training."""
        steps = self.num_steps * self.step_milliseconds / 1000
        return self.compile_seconds + steps + self.validations * self.validation_seconds

    def page(self) -> str:
        """Writes the measurements as a text that a person reads."""
        share = lambda part: f"{100 * part / max(self.seconds, 1e-9):.0f} %"  # noqa: E731
        waiting = self.num_steps * self.waiting_milliseconds / 1000
        rows = [
            ("whole", f"{self.num_steps:,} steps, validations: {self.validations}, about {duration(self.seconds)}"),
            ("compiling", f"{duration(self.compile_seconds)}, {share(self.compile_seconds)} of the whole"),
            (
                "step",
                f"{self.step_milliseconds:.1f} ms, {1000 * self.tokens / self.step_milliseconds:,.0f} target tokens "
                f"a second, {share(self.num_steps * self.step_milliseconds / 1000)}",
            ),
            (
                "batches",
                f"shapes: {self.shapes}; {100 * self.real[0]:.0f} % of source and {100 * self.real[1]:.0f} % of target "
                "positions are tokens, the others padding",
            ),
            (
                "waiting",
                f"{self.waiting_milliseconds:.1f} ms of a step for its batch, {share(waiting)}; one takes "
                f"{self.batch_milliseconds:.1f} ms in a thread beside the steps",
            ),
            (
                "validation",
                f"{duration(self.validation_seconds)} each, {share(self.validations * self.validation_seconds)}",
            ),
            ("memory", ", ".join(f"{name} {size / 2**20:,.1f} MiB" for name, size in self.memory.items())),
        ]
        lines = [f"{name:<14}{text}" for name, text in rows] + ["", "ms of a step  share  operation"]
        lines += [f"{one.milliseconds:12.2f}{100 * one.share:6.0f} %  {one.name}" for one in self.operations]
        return "\n".join(lines) + "\n"


def duration(seconds: float) -> str:
    """Writes seconds as a person says them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def profile(options: RunOptions) -> Profile:
    """Trains a few steps from the beginning, in a folder that is removed afterwards.

    Raises:
        UserError: the config or the data is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(options, pathlib.Path(folder) / "run")
        with run.checkpoints:
            return _measure(run, pathlib.Path(folder) / "trace")


def _measure(run: Run, folder: pathlib.Path) -> Profile:
    state, batch_at = run.parallel.put_state(first_state(run)), run.batches.batch_at
    begun = time.perf_counter()
    first = run.parallel.put_batch(batch_at(0))
    batch_seconds = time.perf_counter() - begun
    compiled = run.parallel.train_step.lower(state, first).compile()
    state, metrics = jax.block_until_ready(compiled(state, first))
    compile_seconds = time.perf_counter() - begun - batch_seconds
    tokens = int(sum(metric.count.sum() for name, metric in metrics.items() if name == "loss"))
    seconds, waits, makes = [], [], [batch_seconds]

    def timed(step: int):
        begun = time.perf_counter()
        batch = batch_at(step)
        makes.append(time.perf_counter() - begun)
        return batch

    shapes = jax.tree.map(jnp.shape, first)
    with ahead(timed, run.num_steps + MOST) as get:
        for step in range(1, MOST + 1):
            begun = time.perf_counter()
            batch = run.parallel.put_batch(get(step))
            waits.append(time.perf_counter() - begun)
            if jax.tree.map(jnp.shape, batch) != shapes:  # another bucket would be compiled first
                continue
            state, _ = jax.block_until_ready(compiled(state, batch))
            seconds.append(time.perf_counter() - begun)
            if sum(seconds) > SECONDS and len(seconds) > TRACED:
                break
    with jax.profiler.trace(str(folder)):
        for _ in range(TRACED):
            state, _ = jax.block_until_ready(compiled(state, first))
    validation = _validation(run, state)
    every = run.options.train.eval_every or run.batches.steps_per_epoch
    return Profile(
        compile_seconds=compile_seconds,
        step_milliseconds=1000 * statistics.median(seconds or [compile_seconds]),
        waiting_milliseconds=1000 * statistics.median(waits),
        batch_milliseconds=1000 * statistics.median(makes),
        tokens=tokens,
        shapes=len(run.batches.shapes),
        real=run.batches.real,
        validation_seconds=validation,
        validations=-(-run.num_steps // every),
        num_steps=run.num_steps,
        memory=memory_of(compiled),
        operations=operations(folder, compiled.as_text(), TRACED),
    )


def _validation(run: Run, state) -> float:
    """Returns the seconds of a validation, the second one, so that nothing is compiled."""
    params = params_of_seeds(run.parallel.get_state(run.parallel.copy_state(state).params), run.seeds)
    name, _ = best_metric(run.options)
    measure = lambda: run.setup.evaluator.measure(params, run.task.splits["valid"], [] if name == "loss" else [name])  # noqa: E731
    measure()
    begun = time.perf_counter()
    measure()
    return time.perf_counter() - begun


def memory_of(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Returns the bytes that a compiled step needs on one device; empty where the device does not tell."""
    found = compiled.memory_analysis()
    if found is None:
        return {}
    kept, shared = found.argument_size_in_bytes, found.alias_size_in_bytes
    return {
        "state and batch": kept,
        "in between": found.temp_size_in_bytes,
        "at most": kept + found.output_size_in_bytes - shared + found.temp_size_in_bytes,
    }


def operations(folder: pathlib.Path, text: str, steps: int) -> tuple[Operation, ...]:
    """Reads a trace of jax.profiler: the operations with most time, by their names in the compiled `text`."""
    names = dict(re.findall(r"%([\w.-]+) = [^\n]*?op_name=\"([^\"]*)\"", text))
    total: collections.Counter = collections.Counter()
    for path in folder.rglob("*.trace.json.gz"):
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
        for event in events:
            if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
                if not event["name"].startswith(CONTAINERS):
                    total[in_words(names.get(event["args"]["hlo_op"], event["name"]))] += event["dur"]
    whole = max(sum(total.values()), 1)
    return tuple(Operation(name, time / 1000 / steps, time / whole) for name, time in total.most_common(SHOWN))


def in_words(name: str) -> str:
    """Returns the name of an operation without the steps of JAX: the module, what is computed, and in which pass.

    The layers of a stack have one name.

    >>> in_words("jit(train_step)/transpose(jvp(Transformer))/decoder.run/layers_0/layers_0.read/query/dot_general")
    'decoder.run/layers/read/query: product (backward)'
    """
    parts = [part for part in name.split("/") if not NOISE.match(part)] or [name]
    # A method stands as "module.method" behind its module or another method of it, or as "Class.method".
    modules = ["", *(part.partition(".")[0] for part in parts)]
    parts = [re.sub(rf"^([A-Z]\w*|{re.escape(x)})\.", "", part) for x, part in zip(modules, parts, strict=False)]
    *places, last = [re.sub(r"layers_\d+", "layers", re.sub(r"\.\d+$", "", part)) for part in parts]
    what = WORDS.get(last, last.replace("_", " "))
    back = " (backward)" if "transpose(" in name else ""
    return f"{'/'.join(places[-4:]) or 'outside of the model'}: {what}{back}"
