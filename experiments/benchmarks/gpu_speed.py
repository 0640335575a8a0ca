"""Does our code compute the right thing on a GPU, and how fast is it there, compared with PyTorch on the same GPU?

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.gpu_speed

Three parts, the most important first; `--limit` ends them after that many seconds, and what is measured so far is
written after each part:

    checks      attention and memories that are written, with gradients, beside the same formula in float64 on the CPU
    training    a step of a Transformer beside torch.nn.Transformer, from the same parameters, on one batch
    attention   causal self-attention alone, forward and backward, for up to 16,384 positions

JAX and CUDA run behind the program that calls them, so a window ends when the device has finished, and several steps
are dispatched without waiting in between. An error of one row is noted in its place. Programs are compiled at the
same time, and none is timed meanwhile. On a machine without a GPU, `--small` runs all of it in tiny shapes.
Writes gpu_speed.json into experiments/results/speed/, or into the folder of `--results`.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "attn_jax"))
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.65")  # of the GPU's memory; PyTorch needs some of the rest

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attn_jax.attention import Attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.masks import causal
from attn_jax.attention.scores.base import unit
from attn_jax.attention.written import FEATURE_MAPS, Delta, Linear, chunked, make_writes, recurrent
from attn_jax.cli.options import resolve
from attn_jax.models.base import Model
from attn_jax.tasks.sizes import TextSizes
from attn_jax.tasks.token_ids import BOS, EOS
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.types import Array, Batch, Params
from configs import base
from experiments.benchmarks import turns
from experiments.benchmarks.turns import Program, spread, summary

try:
    import torch
    import torch.nn.functional as F

    from experiments.benchmarks.torch_transformer import TorchTransformer
except ImportError:  # our side runs alone
    torch = None

WINDOWS = 3
LIMITS = {"float32": 1e-5, "default": 2e-2, "bfloat16": 2e-2}  # of a relative error, by precision
LOSS_LIMITS = {"bfloat16": 2e-2, "float32": 1e-3}  # of the relative difference of the first loss
WRITTEN = ("linear attention", "delta rule", "gated delta rule")
FUSED, FORMULA, BLOCKS = "fused attention", "attention as written", "attention by blocks"
DENSE_LENGTH = 8192  # beyond this the matrix of all weights is not made
PACKAGES = ("torch", "nvidia-cudnn-cu13")


class Sizes(NamedTuple):
    """Shapes of all parts."""

    check: tuple[int, int, int, int] = (2, 4, 256, 64)  # batch, heads, length, width of a head
    layers: int = 6  # of the encoder, and as many of the decoder
    size: int = 512
    heads: int = 8
    inner: int = 2048
    vocab_size: int = 8000  # of each side
    pairs: int = 128  # of a batch
    tokens: int = 64  # of a source, and of a target
    steps: int = 10  # of training, dispatched before waiting
    matrix: int = 8192  # rows and columns of the product whose rate is the peak
    attention: tuple[int, int, int] = (4, 16, 64)  # batch, heads, width of a head
    lengths: tuple[int, ...] = (1024, 4096, 16_384)
    block: int = 512  # keys of a block
    chunk: int = 64  # positions of a chunk of a written memory


SMALL = Sizes(
    check=(2, 2, 16, 8),
    layers=2,
    size=32,
    heads=2,
    inner=64,
    vocab_size=50,
    pairs=4,
    tokens=8,
    steps=2,
    matrix=128,
    attention=(1, 2, 8),
    lengths=(32, 64),
    block=16,
    chunk=8,
)


class Progress:
    """Time since the start, what is left of it, and notes on all that did not go as planned."""

    def __init__(self, limit: float):
        self.start, self.limit, self.notes = time.perf_counter(), limit, []

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(0.0, self.start + self.limit - time.perf_counter())

    def say(self, text: str) -> None:
        """Prints a line with the seconds since the start."""
        print(f"{time.perf_counter() - self.start:6.1f} s  {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Keeps a line for the results, and prints it."""
        self.notes.append(text)
        self.say(text)

    def has_time(self, name: str) -> bool:
        """Tells whether there is time for a row; notes a row for which there is none."""
        if self.left > 0:
            return True
        self.note(f"{name}: left out, no time was left")
        return False

    @contextlib.contextmanager
    def row(self, name: str) -> Iterator[None]:
        """A context in which an error is noted, as one line, and does not end the program."""
        try:
            yield
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            self.note(f"{name}: {type(error).__name__}: {lines[0][:200]}")


class Compiler:
    """Compiles traced programs in threads, all that are waiting at the same time."""

    def __init__(self, progress: Progress):
        self.progress, self.pool, self.futures = progress, ThreadPoolExecutor(max_workers=8), {}

    def start(self, name: str, lowered: Any) -> None:
        """Begins to compile a program."""
        self.futures[name] = self.pool.submit(lowered.compile)

    def take(self, names: Iterable[str]) -> dict[str, Callable]:
        """Waits for programs, at most until the limit; notes those that fail or are not ready then."""
        futures = {name: self.futures.pop(name) for name in names if name in self.futures}
        wait(futures.values(), timeout=self.progress.left)
        compiled = {}
        for name, future in futures.items():
            if future.done():
                with self.progress.row(name):
                    compiled[name] = future.result()
            else:
                future.cancel()
                self.progress.note(f"{name}: left out, it was not compiled in time")
        self.progress.say(f"compiled {len(compiled)} of {len(futures)} programs")
        return compiled


def with_gradients(function: Callable) -> Callable:
    """Returns (cotangent, arrays) -> (result, gradient with respect to each array)."""

    def both(cotangent: Array, *arrays: Array) -> tuple[Array, ...]:
        result, backward = jax.vjp(function, *arrays)
        return result, *backward(cotangent.astype(result.dtype))

    return both


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """A context in which attention is traced as the formula is written, without the fused kernel."""
    with mock.patch.object(Attention, "fusible", False):
        yield


def attend(mask: Any, block_size: int = 0) -> Callable:
    """Returns (query, keys, values) -> context of our attention, fused where it can be and block_size is 0."""
    attention = Attention(score="scaled_dot", block_size=block_size)
    return lambda *arrays: attention.apply({}, *arrays, mask=mask).context


def attend_in_float64(mask: Any) -> Callable:
    """Returns the same as a formula, softmax(query . key / sqrt(d)) values over the unmasked keys."""

    def context(query: Array, keys: Array, values: Array) -> Array:
        scores = jnp.where(mask, query @ keys.mT / query.shape[-1] ** 0.5, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ values

    return context


def written_memory(name: str, form: Callable) -> Callable:
    """Returns (query, keys, values, rates, log decay) -> context of a memory that is written, as in WrittenHeads.

    `form` is `recurrent`, or `chunked` with its chunk size. Linear attention ignores the rates, and the rules without
    a gate the log decay.
    """
    linear, gated = name == "linear attention", name == "gated delta rule"
    rule = Linear(normalized=True) if linear else Delta()
    features = FEATURE_MAPS["elu_plus_one"].apply if linear else unit

    def context(query: Array, keys: Array, values: Array, rates: Array, log_decay: Array) -> Array:
        query, keys = (features(x.astype(jnp.promote_types(x.dtype, jnp.float32))) for x in (query, keys))
        given = {} if linear else {"rates": rates}
        given |= {"log_decay": log_decay} if gated else {}
        return form(rule, query, make_writes(keys, values, **given))[1].astype(values.dtype)

    return context


def in_chunks(size: int) -> Callable:
    """Returns `chunked` with this chunk size."""
    return lambda rule, query, writes: chunked(rule, query, writes, size)


def random_arrays(lead: tuple[int, ...], length: int, width: int) -> list[np.ndarray]:
    """Samples cotangent, query, keys, values [*lead, n, d], rates [*lead, n] in (0, 1), log decay [*lead, n, 1] < 0.

    All of them are numbers of bfloat16, so that rounding the input is no part of an error.
    """
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((*lead, length, width)) for _ in range(4)]
    arrays += [rng.uniform(0.1, 0.9, (*lead, length)), -rng.exponential(0.1, (*lead, length, 1))]
    return [np.asarray(x, jnp.bfloat16).astype(np.float32) for x in arrays]


# Checks


def relative_error(found: Array, reference: np.ndarray) -> float:
    """Computes |found - reference| / |reference|."""
    difference = np.asarray(found, np.float64) - reference
    return float(np.linalg.norm(difference) / np.linalg.norm(reference))


class Check(NamedTuple):
    """A program on the device, and the function whose values in float64 are right."""

    name: str
    precision: str  # a key of LIMITS: of the products in float32, or the type of the arrays
    reference: str
    arrays: list[Array]

    @property
    def full_name(self) -> str:
        """Its name among all programs."""
        return f"check of {self.name}, {self.precision}"


def references(sizes: Sizes) -> dict[str, tuple[Callable, int]]:
    """Returns the functions whose values in float64 are right, by name, and how many arrays each takes."""
    length, padding = sizes.check[2], padding_mask(sizes)
    found = {"causal": (attend_in_float64(np.tri(length, dtype=bool)), 3), "padded": (attend_in_float64(padding), 3)}
    return found | {name: (written_memory(name, recurrent), 5) for name in WRITTEN}


def padding_mask(sizes: Sizes) -> np.ndarray:
    """Returns a mask of keys [batch, 1, 1, keys]: row i has i + 1 parts of batch + 1 without keys at its end."""
    batch, _, length, _ = sizes.check
    real = length - length * (1 + np.arange(batch)) // (batch + 1)
    return (np.arange(length) < real[:, None])[:, None, None]


def start_checks(sizes: Sizes, compiler: Compiler, progress: Progress) -> list[Check]:
    """Begins to compile all programs that are checked."""
    batch, heads, length, width = sizes.check
    arrays = random_arrays((batch, heads), length, width)
    padding, block = jnp.asarray(padding_mask(sizes)), max(1, length // 4)
    plain = contextlib.nullcontext
    wanted = [
        (f"{FORMULA}, causal", "float32", "causal", attend(causal), as_written),
        (f"{FORMULA}, causal", "bfloat16", "causal", attend(causal), as_written),
        (f"{FUSED}, causal", "bfloat16", "causal", attend(causal), plain),
        (f"{FUSED}, padded keys", "bfloat16", "padded", attend(padding), plain),
        (f"{BLOCKS}, causal", "float32", "causal", attend(causal, block), plain),
        (f"{BLOCKS}, causal", "bfloat16", "causal", attend(causal, block), plain),
    ]
    for precision in ("float32", "default"):
        wanted += [
            (f"{name}, chunks", precision, name, written_memory(name, in_chunks(sizes.chunk)), plain)
            for name in WRITTEN
        ]
    checks = []
    for name, precision, reference, function, context in wanted:
        dtype = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
        own = [jnp.asarray(x, dtype) for x in arrays[: 1 + references(sizes)[reference][1]]]
        exact = "float32" if precision == "float32" else None
        check = Check(name, precision, reference, own)
        with progress.row(check.full_name), context(), jax.default_matmul_precision(exact):
            compiler.start(check.full_name, jax.jit(with_gradients(function)).lower(*own))
            checks.append(check)
    return checks


def in_float64(function: Callable, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Computes [result, gradients] of a function of (cotangent, arrays) in float64 on the CPU."""
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        given = [jnp.asarray(np.asarray(x, np.float64)) for x in arrays]
        return [np.asarray(x) for x in jax.jit(with_gradients(function))(*given)]


def checked(found: tuple[Array, ...], right: list[np.ndarray], precision: str) -> dict[str, Any]:
    """Returns the relative errors of a result and of its gradients, the limit, and whether both are within; NaN is not.

    A gradient that is zero everywhere, of an array that a rule ignores, is not counted.
    """
    error, *others = (relative_error(x, y) if np.any(y) else 0.0 for x, y in zip(found, right, strict=True))
    worst = float(np.max(others))  # NaN if one of them is
    limit = LIMITS[precision]
    return {
        "error": error if np.isfinite(error) else None,
        "gradient_error": worst if np.isfinite(worst) else None,
        "limit": limit,
        "passed": bool(error <= limit and worst <= limit),
    }


def check_part(checks: list[Check], sizes: Sizes, compiler: Compiler, progress: Progress) -> list[dict[str, Any]]:
    """Returns a row for each program: its errors beside float64, and whether they are small."""
    arrays = random_arrays(sizes.check[:2], *sizes.check[2:])
    right, rows = {}, []
    for name, (function, count) in references(sizes).items():
        with progress.row(f"reference of {name}"):
            right[name] = in_float64(function, arrays[: 1 + count])
    progress.say("computed the references in float64")
    compiled = compiler.take(check.full_name for check in checks)
    for check in checks:
        if check.full_name not in compiled or check.reference not in right:
            continue
        with progress.row(check.full_name):
            found = compiled[check.full_name](*check.arrays)
            row = {"name": check.name, "precision": check.precision}
            row |= checked(found, right[check.reference], check.precision)
            if FUSED in check.name:
                row["kernel"] = implementation_of(jnp.bfloat16, sizes.check[3], sizes.check[2])
            rows.append(row)
            result = "passed" if row["passed"] else "FAILED"
            progress.say(f"{result}  {check.full_name}: {row['error']}, {row['gradient_error']}")
    return rows


# Training


def get_config(dtype: str, sizes: Sizes) -> ConfigDict:
    """Returns the config of our Transformer, that of transformer_speed.py without dropout and in these sizes."""
    config = base.get_config(model="transformer")
    config.dtype = dtype
    config.model.encoder = "transformer"
    config.model.hidden_size, config.model.num_layers = sizes.size, sizes.layers
    config.model.num_heads, config.model.feed_forward_size = sizes.heads, sizes.inner
    config.model.dropout, config.model.attention.dropout = 0.0, 0.0
    config.model.attention.score = "scaled_dot"
    config.optimizer.learning_rate = 1e-4
    config.optimizer.clip_norm = 0.0
    return config


def build(config: ConfigDict, sizes: Sizes) -> Model:
    """Builds the model of a config."""
    return resolve(config).build_model(TextSizes(sizes.vocab_size, sizes.vocab_size))


def random_batch(sizes: Sizes) -> Batch:
    """Samples tokens without padding."""
    rng = np.random.default_rng(0)
    shape = sizes.pairs, sizes.tokens
    source, target = (rng.integers(EOS + 1, sizes.vocab_size, shape, dtype=np.int32) for _ in range(2))
    first = np.full((sizes.pairs, 1), BOS, np.int32)
    return {
        "source": source,
        "target_in": np.concatenate([first, target[:, :-1]], axis=1),
        "target_out": target,
    }


def random_params(model: Model, batch: Batch) -> Params:
    """Samples parameters of the shapes of a model: kernels and tables N(0, 1 / rows or columns), norms 1, biases 0.

    In numpy, since compiling an initialization for the device takes longer.
    """
    rng = np.random.default_rng(0)

    def sample(path: tuple, shape: jax.ShapeDtypeStruct) -> np.ndarray:
        kind = path[-1].key
        if kind in ("kernel", "embedding"):
            width = shape.shape[0 if kind == "kernel" else 1]
            return rng.standard_normal(shape.shape, dtype=np.float32) / width**0.5
        return np.full(shape.shape, {"scale": 1.0, "bias": 0.0}[kind], np.float32)

    return jax.tree_util.tree_map_with_path(sample, jax.eval_shape(model.init, jax.random.key(0), batch))


def first_state(params: Params, tx: Any) -> TrainState:
    """Returns the state before the first step, as TrainState.create; Adam starts from zeros."""
    opt_state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(tx.init, params))
    return jax.device_put(TrainState(np.int32(0), params, opt_state, jax.random.key(1)))


def ours(
    step: Callable, start: Callable[[], TrainState], batch: Batch, sizes: Sizes, facts: dict[str, Any]
) -> Iterator[float]:
    """Yields the target tokens of `steps` updates; puts the first loss, and that after as many updates, in `facts`."""
    state, metrics = step(start(), batch)
    facts["first_loss"] = float(metrics["loss"].compute())
    while True:
        for _ in range(sizes.steps):
            state, metrics = step(state, batch)
        jax.block_until_ready((state, metrics))
        if "later_loss" not in facts:
            facts["later_loss"] = float(metrics["loss"].compute())
        yield float(sizes.steps * sizes.pairs * sizes.tokens)


TRAINED = {  # our programs by type: whether attention is fused
    "bfloat16": {"ours, attention as written": False, "ours, fused attention": True},
    "float32": {"ours, attention as written": False},
}


def start_training(
    params: Params, batch: Batch, sizes: Sizes, compiler: Compiler, progress: Progress
) -> dict[str, Callable[[], TrainState]]:
    """Begins to compile our training steps; returns functions that make their first states, by name and type."""
    starts = {}
    for dtype, kinds in TRAINED.items():
        config = get_config(dtype, sizes)
        tx = resolve(config).optimizer.build(1)
        step = make_train_step(build(config, sizes).loss_fn, tx)
        states = jax.eval_shape(lambda x, tx=tx: TrainState.create(x, tx, jax.random.key(1)), params)
        for name, fused in kinds.items():
            full = f"{name}, {dtype}"
            with progress.row(full), contextlib.nullcontext() if fused else as_written():
                # A new function each time: jax.jit keeps the trace of the same one.
                compiler.start(full, jax.jit(partial(step), donate_argnums=0).lower(states, batch))
                starts[full] = partial(first_state, params, tx)
    progress.say(f"traced {len(starts)} training steps")
    return starts


def torch_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def torch_wait() -> None:
    """Waits until the device has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if torch is not None:

    class Unpadded(TorchTransformer):
        """The same for batches without padding: causal flash attention, positions made once, no wait for the device."""

        def prepare(self, length: int) -> "Unpadded":
            """Makes the positions of so many tokens; returns self."""
            tokens = torch.zeros(1, length, dtype=torch.long, device=self.output.weight.device)
            nothing = torch.nn.Embedding(1, self.size, device=tokens.device)
            torch.nn.init.zeros_(nothing.weight)
            with torch.no_grad():
                self.positions, self.later = super()._embed(nothing, tokens), self._later(tokens)
            return self

        def forward(self, source: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
            embedded = self._embed(self.source_embedding, source), self._embed(self.target_embedding, target_in)
            # With tgt_is_causal and no mask of keys, the mask itself is not read.
            states = self.transformer(*embedded, tgt_mask=self.later, tgt_is_causal=True)
            return F.cross_entropy(self.output(states).flatten(0, 1), target_out.flatten())

        def _embed(self, embedding: torch.nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
            return embedding(tokens) * self.size**0.5 + self.positions


def make_torch(params: Params, sizes: Sizes) -> "Unpadded":
    """Makes the model of PyTorch with our parameters."""
    vocab_sizes = sizes.vocab_size, sizes.vocab_size
    model = Unpadded(vocab_sizes, sizes.size, sizes.layers, sizes.heads, sizes.inner, 0.0)
    model.load(params)
    return model.to(torch_device()).prepare(sizes.tokens)


def theirs(model: "Unpadded", batch: Batch, sizes: Sizes, dtype: str, facts: dict[str, Any]) -> Iterator[float]:
    """Yields the same as `ours`, with PyTorch's fused Adam."""
    tensors = torch_batch(batch)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> torch.Tensor:
        adam.zero_grad(set_to_none=True)
        with torch.autocast(torch_device(), torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(*tensors)
        loss.backward()
        adam.step()
        return loss.detach()

    facts["first_loss"] = step().item()
    while True:
        for _ in range(sizes.steps):
            loss = step()
        torch_wait()
        if "later_loss" not in facts:
            facts["later_loss"] = loss.item()
        yield float(sizes.steps * sizes.pairs * sizes.tokens)


def torch_batch(batch: Batch) -> tuple["torch.Tensor", ...]:
    return tuple(torch.from_numpy(x).long().to(torch_device()) for x in batch.values())


def compile_layers(model: "Unpadded") -> "Unpadded":
    """Compiles each layer by torch.compile: layers of a stack share programs, so this takes seconds; returns it."""
    for layer in (*model.transformer.encoder.layers, *model.transformer.decoder.layers):
        # Module.compile has no effect on modules that PyTorch defines: it starts in a frame that is never compiled.
        layer.forward = torch.compile(layer.forward, dynamic=False)
    return model


def compile_whole(model: "Unpadded") -> "Unpadded":
    """Compiles the whole model by torch.compile, which takes long; returns it."""
    model.forward = torch.compile(model.forward, dynamic=False)
    return model


def compiled_graphs() -> int:
    """Returns how many programs torch.compile has made so far."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def measured_loss(params: Params, batch: Batch, sizes: Sizes) -> float:
    """Computes the first loss by PyTorch in float32."""
    with torch.no_grad():
        return make_torch(params, sizes)(*torch_batch(batch)).item()


def warm_up(name: str, make: Callable[[dict], Iterator[float]], progress: Progress) -> list[Program]:
    """Returns [a program that has run once], or [] where that fails."""
    if not progress.has_time(name):
        return []
    with progress.row(name):
        facts: dict[str, Any] = {}
        program = Program(name, make(facts), facts)
        program.run(0.0)
        program.windows.clear()
        progress.say(f"ran {name}: loss {facts['first_loss']:.5f}, later {facts['later_loss']:.5f}")
        return [program]
    return []


def measure(programs: list[Program], seconds: float, progress: Progress) -> list[Program]:
    """Runs windows of all programs, A B C, C B A, A B C; returns the programs that have all of theirs."""
    for number in range(WINDOWS):
        if number and not progress.left:
            progress.note(f"{number} windows of {programs[0].name} and others, no time was left for more")
            break
        for program in programs[:: 1 if number % 2 == 0 else -1]:
            with progress.row(program.name):
                program.run(seconds)
                window = program.windows[-1]
                progress.say(f"{program.name:<50} {window.units / window.seconds:12,.0f}/s")
    most = max((len(program.windows) for program in programs), default=0)
    return [program for program in programs if most and len(program.windows) == most]


def peak(sizes: Sizes) -> float:
    """Measures the rate of a large product of bfloat16 matrices of random numbers, in FLOP/s."""
    n = sizes.matrix
    square = jax.device_put(np.random.default_rng(0).standard_normal((n, n), np.float32).astype(jnp.bfloat16))
    product = jax.jit(jnp.matmul).lower(square, square).compile()
    times = call_times(lambda: product(square, square), jax.block_until_ready, 0.2)
    return 2 * n**3 / (times["median"] / 1e3)


def training_group(
    title: str,
    batch: Batch,
    params: Params,
    sizes: Sizes,
    steps: dict[str, Callable[[dict], Iterator[float]]],
    seconds: float,
    rate: float | None,
    whole: bool,
    progress: Progress,
) -> dict[str, Any]:
    """Measures the programs of one type: {"title", "baseline", "rows"}.

    Args:
        title: the type of the computation, float32 or bfloat16.
        batch: on which all of them train.
        params: from which all of them start.
        sizes: of the model.
        steps: makes our programs, by name.
        seconds: of a window.
        rate: of a large product, FLOP/s; None if it is not known.
        whole: also torch.compile of the whole model.
        progress: time and notes.
    """
    programs, reference = [], None
    for name, make in steps.items():
        programs += warm_up(name, make, progress)
    if torch is not None:
        with progress.row("loss by PyTorch in float32"):
            torch.set_float32_matmul_precision("highest")
            reference = measured_loss(params, batch, sizes)
        torch.set_float32_matmul_precision("high")  # TF32, as by default in JAX
        prepare = {"PyTorch": lambda model: model}
        if title == "bfloat16":
            prepare |= {"PyTorch, torch.compile of each layer": compile_layers}
            prepare |= {"PyTorch, torch.compile": compile_whole} if whole else {}
        for name, change in prepare.items():
            programs += warm_up(
                name,
                lambda facts, change=change: theirs(change(make_torch(params, sizes)), batch, sizes, title, facts),
                progress,
            )
            if change in (compile_layers, compile_whole):
                with progress.row(name):
                    progress.note(f"{name}: {compiled_graphs()} compiled programs")
    programs = measure(programs, seconds, progress)
    if not programs:
        return {"title": title, "rows": []}
    names = [program.name for program in programs]
    baseline = "PyTorch" if "PyTorch" in names else names[0]
    rows = summary(programs, baseline)
    weights = sum(x.size for path, x in jax.tree_util.tree_leaves_with_path(params) if path[-1].key != "embedding")
    for row in rows:
        if rate is not None:
            row["of_peak"] = 6 * weights * row["per_second"]["median"] / rate
        if reference is not None:
            row["loss_difference"] = abs(row["first_loss"] - reference) / reference
            row["same_loss"] = bool(row["loss_difference"] <= LOSS_LIMITS[title])
    losses = "; ".join(f"{row['name']} {row['first_loss']:.4f}, {row['later_loss']:.4f}" for row in rows)
    begin = "" if reference is None else f"PyTorch in float32 {reference:.4f}; "
    progress.note(f"{title}, loss of the first step and after {sizes.steps} more: {begin}{losses}")
    for row in rows:
        if not row.get("same_loss", True):
            progress.note(f"{title}: the loss of {row['name']} DIFFERS by {row['loss_difference']:.1e}")
    return {"title": title, "baseline": baseline, "rows": rows}


# Attention alone


def call_times(call: Callable[[], Any], finish: Callable[[Any], Any], seconds: float) -> dict[str, float]:
    """Measures milliseconds of a call: median and range of the windows.

    Calls are dispatched together for about a fifth of a window, and then waited for.
    """
    finish(call())  # the first call loads the program
    begin = time.perf_counter()
    finish(call())
    once = time.perf_counter() - begin
    together = int(min(100, max(1, seconds / 5 / max(once, 1e-6))))
    found = []
    for _ in range(WINDOWS if once < 2 * seconds else 1):
        calls, begin = 0, time.perf_counter()
        while not calls or time.perf_counter() - begin < seconds:
            for _ in range(together):
                last = call()
            finish(last)
            calls += together
        found.append(1e3 * (time.perf_counter() - begin) / calls)
    return spread(found)


def attention_programs(sizes: Sizes, length: int) -> dict[str, tuple[Callable, int, bool, Callable]]:
    """Returns (function, number of arrays, whether heads follow positions, context of tracing) by name."""
    width = sizes.attention[2]
    kernel = implementation_of(jnp.bfloat16, width, length)
    plain = contextlib.nullcontext

    def of_jax(query: Array, keys: Array, values: Array) -> Array:
        return jax.nn.dot_product_attention(query, keys, values, is_causal=True, implementation=kernel)

    found = {
        f"ours, {name}, chunks of {sizes.chunk}": (written_memory(name, in_chunks(sizes.chunk)), 5, False, plain)
        for name in WRITTEN
    }
    found[f"ours, blocks of {sizes.block} keys"] = attend(causal, sizes.block), 3, False, plain
    found[f"jax.nn.dot_product_attention, {kernel}"] = of_jax, 3, True, plain
    if length <= DENSE_LENGTH:
        found["ours, as written"] = attend(causal), 3, False, as_written
    # The last one, since with a mask as an array [batch, heads, n, n] it may need more memory than there is.
    found[f"ours, fused, {kernel}"] = attend(causal), 3, False, plain
    return found


def our_attention(
    sizes: Sizes, length: int, seconds: float, compiler: Compiler, progress: Progress
) -> dict[str, dict[str, float]]:
    """Returns milliseconds of a call of each of our programs by name."""
    batch, heads, width = sizes.attention
    arrays = [jnp.asarray(x, jnp.bfloat16) for x in random_arrays((batch, heads), length, width)]
    turned = [jnp.swapaxes(x, 1, 2) for x in arrays[:4]]  # [batch, n, heads, d]
    given, times = {}, {}
    for name, (function, count, heads_last, context) in attention_programs(sizes, length).items():
        with progress.row(f"{name}, {length:,} positions"), context():
            given[name] = (turned if heads_last else arrays)[: 1 + count]
            compiler.start(name, jax.jit(with_gradients(function)).lower(*given[name]))
    for name, call in compiler.take(given).items():
        full = f"{name}, {length:,} positions"
        if progress.has_time(full):
            with progress.row(full):
                times[name] = call_times(lambda c=call, n=name: c(*given[n]), jax.block_until_ready, seconds)
                progress.say(f"{full}: {times[name]['median']:.3f} ms")
    return times


def torch_attention(sizes: Sizes, length: int, seconds: float, progress: Progress) -> dict[str, dict[str, float]]:
    """Returns milliseconds of a call of scaled_dot_product_attention by kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, width = sizes.attention
    arrays = random_arrays((batch, heads), length, width)[:4]
    cotangent, *inputs = (torch.from_numpy(x).to(torch_device(), torch.bfloat16) for x in arrays)
    inputs = [x.requires_grad_() for x in inputs]

    def call() -> tuple["torch.Tensor", ...]:
        context = F.scaled_dot_product_attention(*inputs, is_causal=True)
        return torch.autograd.grad(context, inputs, cotangent)

    kernels = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    times = {}
    for kernel, backend in kernels.items() if torch.cuda.is_available() else [("its choice", None)]:
        name = f"PyTorch, scaled_dot_product_attention, {kernel}"
        full = f"{name}, {length:,} positions"
        if progress.has_time(full):
            with progress.row(full), contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
                times[name] = call_times(call, lambda _: torch_wait(), seconds)
                progress.say(f"{full}: {times[name]['median']:.3f} ms")
    return times


def short_table(found: dict[str, Any]) -> str:
    """Formats the results for a terminal."""
    lines = [f"checks: {sum(row['passed'] for row in found['checks'])} of {len(found['checks'])} passed"]
    lines += [
        f"  FAILED {row['name']}, {row['precision']}: {row['error']}, gradients {row['gradient_error']}"
        for row in found["checks"]
        if not row["passed"]
    ]
    for group in found["groups"]:
        lines.append(f"training, {group['title']}: target tokens/s, ratio, of the peak")
        for row in group["rows"]:
            share = f"{row['of_peak']:6.1%}" if "of_peak" in row else ""
            speed, ratio = row["per_second"]["median"], row["ratio"]["median"]
            lines.append(f"  {row['name']:<50} {speed:12,.0f} {ratio:6.2f} {share}")
    for length, times in found["attention"].items():
        lines.append(f"attention, {int(length):,} positions, forward and backward: ms")
        lines += [f"  {name:<50} {ms['median']:12.3f}" for name, ms in times.items()]
    return "\n".join([*lines, *(f"- {note}" for note in found["notes"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window of training; a fifth for attention")
    parser.add_argument("--limit", type=float, default=110.0, help="seconds after which no further row is begun")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to try the script without a GPU")
    parser.add_argument("--whole", action="store_true", help="also torch.compile of the whole model, which takes long")
    parser.add_argument("--results", type=pathlib.Path, help="folder of the results; needed with --small")
    parser.add_argument("--commit", help="of the source, to be stored where it is no git checkout")
    args = parser.parse_args()
    if args.small and args.results is None:
        parser.error("the numbers of --small are no results; expected --results=FOLDER")
    if not args.small and jax.default_backend() != "gpu":
        print("no GPU: nothing is measured, and no result is changed", file=sys.stderr)
        return
    turns.RESULTS = args.results or turns.RESULTS
    warnings.filterwarnings("ignore", message=".*nested_tensor")
    progress, load, sizes = Progress(args.limit), os.getloadavg()[0], SMALL if args.small else Sizes()
    kind, other = jax.devices()[0].device_kind, "no PyTorch" if torch is None else f"PyTorch on {torch_device()}"
    progress.note(f"JAX on {kind}, {other}")
    found: dict[str, Any] = {"unit": "target tokens", "sizes": sizes._asdict(), "device_kind": kind}
    found |= {"peak_flops": None, "checks": [], "groups": [], "attention": {}, "notes": progress.notes}
    found |= {} if args.commit is None else {"commit": args.commit}

    def save() -> None:
        with progress.row("writing"):
            turns.write("gpu_speed", found, PACKAGES, load)

    save()
    compiler, checks, starts = Compiler(progress), [], {}
    with progress.row("checks"):
        checks = start_checks(sizes, compiler, progress)
    with progress.row("training"):
        batch = random_batch(sizes)
        params = random_params(build(get_config("float32", sizes), sizes), batch)
        starts = start_training(params, batch, sizes, compiler, progress)
    with progress.row("checks"):
        found["checks"] = check_part(checks, sizes, compiler, progress)
    save()
    with progress.row("training"):
        compiled = compiler.take(starts)
        on_device = jax.device_put(batch)
        with progress.row("rate of a large product"):
            found["peak_flops"] = peak(sizes)
            progress.say(f"product of matrices: {found['peak_flops'] / 1e12:.1f} TFLOP/s")
        for title, kinds in TRAINED.items():
            steps = {
                name: partial(ours, compiled[full], starts[full], on_device, sizes)
                for name, full in ((name, f"{name}, {title}") for name in kinds)
                if full in compiled
            }
            if progress.has_time(f"training, {title}"):
                with progress.row(f"training, {title}"):
                    group = training_group(
                        title, batch, params, sizes, steps, args.seconds, found["peak_flops"], args.whole, progress
                    )
                    found["groups"] += [group] if group["rows"] else []
            save()
    for length in sizes.lengths:
        times: dict[str, Any] = {}
        if progress.has_time(f"attention, {length:,} positions"):
            found["attention"][str(length)] = times
            with progress.row(f"attention, {length:,} positions"):
                times |= {} if torch is None else torch_attention(sizes, length, args.seconds / 5, progress)
            with progress.row(f"attention, {length:,} positions"):
                times |= our_attention(sizes, length, args.seconds / 5, compiler, progress)
            save()
    progress.say("done")
    save()
    print(short_table(found), flush=True)


if __name__ == "__main__":
    main()
