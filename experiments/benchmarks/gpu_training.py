"""Training in gpu_speed.py: our Transformer beside torch.nn.Transformer, from the same parameters, on one batch."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import torch
import torch.nn.functional as F

from attn_jax.data.sizes import TextSizes
from attn_jax.models.base import Model
from attn_jax.runs.options import resolve
from attn_jax.token_ids import BOS, EOS
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.types import Batch, Params
from experiments.benchmarks import transformer_speed
from experiments.benchmarks.gpu_attention import DEVICE
from experiments.benchmarks.gpu_functions import as_written
from experiments.benchmarks.gpu_run import WINDOWS, Run, Sizes, peak_flops
from experiments.benchmarks.torch_transformer import TorchTransformer
from experiments.benchmarks.turns import Program, summary

WRITTEN, FUSED = "ours, attention as written", "ours, fused attention"
GRAPH = "PyTorch, the whole step in a CUDA graph"
OURS = {"bfloat16": (WRITTEN, FUSED), "float32": (WRITTEN,)}
BASELINE = "PyTorch"
LOSS_LIMITS = {"bfloat16": 2e-2, "float32": 1e-3}  # of the relative difference of the first loss
PARAMETERS = "parameters"

Losses = Iterator[Callable[[], Any]]  # after each update, a function that waits for it and returns its loss


def build(dtype: str, sizes: Sizes) -> tuple[Model, optax.GradientTransformation]:
    """Builds our Transformer, that of transformer_speed.py without dropout and in these sizes, and Adam."""
    config = transformer_speed.get_config(
        dtype, 0.0, 0.0, size=sizes.size, layers=sizes.layers, heads=sizes.heads, inner=sizes.inner
    )
    options = resolve(config)
    return options.build_model(TextSizes(sizes.vocab_size, sizes.vocab_size)), options.optimizer.build(1)


def random_batch(sizes: Sizes) -> Batch:
    """Samples tokens without padding: source, target_in and target_out [b, t]."""
    rng = np.random.default_rng(0)
    shape = sizes.pairs, sizes.tokens
    source, target = (rng.integers(EOS + 1, sizes.vocab_size, shape, dtype=np.int32) for _ in range(2))
    shifted = np.concatenate([np.full((sizes.pairs, 1), BOS, np.int32), target[:, :-1]], axis=1)
    return {"source": source, "target_in": shifted, "target_out": target}


def start(sizes: Sizes, run: Run) -> None:
    """Begins to compile our steps, and the program that samples the parameters."""
    batch, key = random_batch(sizes), jax.random.key(0)
    init = build("float32", sizes)[0].init
    run.compile(PARAMETERS, jax.jit(init), key, batch)
    shapes = jax.eval_shape(init, key, batch)
    for dtype, names in OURS.items():
        model, tx = build(dtype, sizes)
        state = jax.eval_shape(partial(TrainState.create, tx=tx, rng=jax.random.key(1)), shapes)
        for name in names:
            loss = as_written(model.loss_fn) if name == WRITTEN else model.loss_fn
            run.compile(f"{name}, {dtype}", jax.jit(make_train_step(loss, tx), donate_argnums=0), state, batch)
    run.say("traced the training steps")


class Ready(NamedTuple):
    """All that a measurement of training needs."""

    sizes: Sizes
    steps: dict[str, Callable]  # ours, compiled, by name and type
    params: Params  # from which all programs start, in the memory of the CPU
    peak_flops: float | None  # rate of a large product; None if that failed
    first_loss: float | None  # by PyTorch in float32; None if that failed


def prepare(sizes: Sizes, run: Run) -> Ready:
    """Waits until our steps are compiled, then samples the parameters, and measures what rows are compared with."""
    steps = run.compiled([PARAMETERS, *(f"{name}, {dtype}" for dtype, names in OURS.items() for name in names)])
    params = jax.device_get(steps.pop(PARAMETERS)(jax.random.key(0), random_batch(sizes)))
    rate = run.attempt("rate of a large product", peak_flops, sizes.matrix)
    return Ready(sizes, steps, params, rate, run.attempt("loss by PyTorch in float32", torch_loss, params, sizes))


def our_losses(step: Callable, tx: optax.GradientTransformation, params: Params, sizes: Sizes) -> Losses:
    """Trains our model; a loss is there when the whole step has ended."""
    batch = jax.device_put(random_batch(sizes))
    state = jax.device_put(TrainState.create(params, tx, jax.random.key(1)))  # copies, which a step may overwrite
    while True:
        state, metrics = step(state, batch)
        yield metrics["loss"].compute


class Unpadded(TorchTransformer):
    """The same for batches without padding: causal flash attention, positions made once, no wait for the device."""

    def prepare(self, length: int) -> "Unpadded":
        """Makes the positions of so many tokens; returns self."""
        tokens = torch.zeros(1, length, dtype=torch.long, device=DEVICE)
        self.positions, self.later = super()._embed(lambda _: 0.0, tokens), self._later(tokens)
        return self

    def forward(self, source: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
        embedded = self._embed(self.source_embedding, source), self._embed(self.target_embedding, target_in)
        # With tgt_is_causal and no mask of keys, the mask itself is not read.
        states = self.transformer(*embedded, tgt_mask=self.later, tgt_is_causal=True)
        return F.cross_entropy(self.output(states).flatten(0, 1), target_out.flatten())

    def _embed(self, embedding: torch.nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
        return embedding(tokens) * self.size**0.5 + self.positions


def make_torch(params: Params, sizes: Sizes) -> tuple[Unpadded, list[torch.Tensor]]:
    """Makes the model of PyTorch with our parameters, and its batch."""
    vocab_sizes = sizes.vocab_size, sizes.vocab_size
    model = Unpadded(vocab_sizes, sizes.size, sizes.layers, sizes.heads, sizes.inner, 0.0)
    model.load(params)
    tensors = [torch.from_numpy(x).long().to(DEVICE) for x in random_batch(sizes).values()]
    return model.to(DEVICE).prepare(sizes.tokens), tensors


def torch_loss(params: Params, sizes: Sizes) -> float:
    """Computes the first loss by PyTorch in float32."""
    torch.set_float32_matmul_precision("highest")
    model, tensors = make_torch(params, sizes)
    with torch.no_grad():
        return model(*tensors).item()


def compile_layers(model: Unpadded) -> Unpadded:
    """Compiles each layer; returns the model."""
    for layer in (*model.transformer.encoder.layers, *model.transformer.decoder.layers):
        # Module.compile has no effect on modules that PyTorch defines: it starts in a frame that is not compiled.
        layer.forward = torch.compile(layer.forward, dynamic=False)
    return model


def torch_losses(model: torch.nn.Module, tensors: list[torch.Tensor], dtype: str, graph: bool = False) -> Losses:
    """Trains a model of PyTorch, with its fused Adam; work is done in order, a loss is read after all before.

    With `graph` the whole step is one CUDA graph, so that no time passes in Python between its kernels.
    """
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=graph)

    def step() -> torch.Tensor:
        adam.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == "bfloat16", cache_enabled=not graph):
            loss = model(*tensors)
        loss.backward()
        adam.step()
        return loss.detach()

    if not graph:
        while True:
            yield step().item
    # Three steps in a stream of their own, as PyTorch asks for, then one that is recorded and not run.
    first, stream = [], torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            first.append(step())
    torch.cuda.current_stream().wait_stream(stream)
    yield from (loss.item for loss in first)
    adam.zero_grad(set_to_none=True)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss = step()
    while True:
        recorded.replay()
        yield loss.item


def by_steps(losses: Losses, sizes: Sizes, facts: dict[str, Any]) -> Iterator[float]:
    """Yields the target tokens of `steps` updates, after a wait for the device; puts losses in `facts`."""
    facts["first_loss"] = float(next(losses)())
    while True:
        *_, last = itertools.islice(losses, sizes.steps)
        loss = float(last())
        facts.setdefault("later_loss", loss)
        yield float(sizes.steps * sizes.pairs * sizes.tokens)


def warm_up(name: str, losses: Losses, sizes: Sizes, run: Run) -> Program:
    """Returns a program that has run once."""
    facts: dict[str, Any] = {}
    program = Program(name, by_steps(losses, sizes, facts), facts)
    program.run(0.0)
    program.windows.clear()
    run.say(f"ran {name}: loss {facts['first_loss']:.5f}, later {facts['later_loss']:.5f}")
    return program


def take_turns(programs: list[Program], seconds: float, run: Run) -> list[Program]:
    """Runs windows of all programs, A B C, C B A, A B C; returns the programs that have all of theirs."""
    for number in range(WINDOWS):
        if number and not run.left:
            run.note(f"{('one window', 'two windows')[number - 1]} of each program: no time was left for more")
            break
        for program in programs[:: 1 if number % 2 == 0 else -1]:
            with run.row(program.name):
                program.run(seconds)
                window = program.windows[-1]
                run.say(f"{program.name:<50} {window.units / window.seconds:12,.0f}/s")
    most = max((len(program.windows) for program in programs), default=0)
    return [program for program in programs if most and len(program.windows) == most]


def run_in_turns(losses: dict[str, Losses], sizes: Sizes, seconds: float, run: Run) -> list[Program]:
    """Warms the programs up, and runs windows of those that work."""
    warm = [run.attempt(name, warm_up, name, each, sizes, run) for name, each in losses.items()]
    return take_turns([program for program in warm if program is not None], seconds, run)


def compare(title: str, losses: dict[str, Losses], sizes: Sizes, seconds: float, run: Run) -> dict[str, Any] | None:
    """Compares programs in windows of so many seconds: title, baseline and rows; None if all of them fail."""
    torch.set_float32_matmul_precision("high")  # TF32, as by default in JAX
    programs = run_in_turns(losses, sizes, seconds, run)
    if not programs:
        return None
    baseline = BASELINE if any(program.name == BASELINE for program in programs) else programs[0].name
    return {"title": title, "baseline": baseline, "rows": summary(programs, baseline)}


def measure(dtype: str, ready: Ready, seconds: float, run: Run) -> dict[str, Any] | None:
    """Measures the programs of one type, in windows of so many seconds; None if all of them fail."""
    sizes, params = ready.sizes, ready.params
    steps = {name: ready.steps.get(f"{name}, {dtype}") for name in OURS[dtype]}
    tx = build(dtype, sizes)[1]
    losses = {name: our_losses(step, tx, params, sizes) for name, step in steps.items() if step is not None}
    losses[BASELINE] = torch_losses(*make_torch(params, sizes), dtype)
    if dtype == "bfloat16":
        model, tensors = make_torch(params, sizes)
        losses[f"{BASELINE}, torch.compile of each layer"] = torch_losses(compile_layers(model), tensors, dtype)
    if DEVICE == "cuda":
        losses[GRAPH] = torch_losses(*make_torch(params, sizes), dtype, graph=True)
    table = compare(dtype, losses, sizes, seconds, run)
    if table is not None:
        add_facts(table["rows"], dtype, ready, run)
    return table


def add_facts(rows: list[dict[str, Any]], dtype: str, ready: Ready, run: Run) -> None:
    """Adds the share of the peak, and the difference of the first loss from that in float32; notes the losses."""
    leaves = jax.tree_util.tree_leaves_with_path(ready.params)
    weights = sum(x.size for path, x in leaves if path[-1].key != "embedding")  # a lookup is no product
    for row in rows:
        if ready.peak_flops is not None:
            row["of_peak"] = 6 * weights * row["per_second"]["median"] / ready.peak_flops
        if ready.first_loss is not None:
            row["loss_difference"] = abs(row["first_loss"] - ready.first_loss) / ready.first_loss
            row["same_loss"] = row["loss_difference"] <= LOSS_LIMITS[dtype]
    right = "" if ready.first_loss is None else f"; PyTorch in float32 {ready.first_loss:.4f}"
    note_losses(f"{dtype}{right}", rows, run)


def note_losses(name: str, rows: list[dict[str, Any]], run: Run) -> None:
    """Notes the losses of the first step and of a later one, and which of the first ones differ."""
    losses = []
    for row in rows:
        differs = "" if row.get("same_loss", True) else f" (DIFFERS by {row['loss_difference']:.1e})"
        losses.append(f"{row['name']} {row['first_loss']:.4f}, {row['later_loss']:.4f}{differs}")
    run.note(f"{name}, loss of the first step and of a later one: {'; '.join(losses)}")
