"""Training in gpu_speed.py: our LSTM with attention beside torch.nn.LSTM (cuDNN): same parameters, one batch.

The model of translation_speed.py, without dropout and padding: 16 tokens a side, batches of several sizes.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import optax
import torch

from attn_jax.data.sizes import TextSizes
from attn_jax.models.base import Model
from attn_jax.runs.options import change, resolve
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.types import Params
from experiments.benchmarks import translation_speed
from experiments.benchmarks.gpu_attention import DEVICE
from experiments.benchmarks.gpu_run import Run, Sizes
from experiments.benchmarks.gpu_training import (
    BASELINE,
    GRAPH,
    compare,
    note_losses,
    our_losses,
    random_batch,
    torch_losses,
)
from experiments.benchmarks.torch_seq2seq import TorchSeq2Seq

OURS, TOKENS, BATCHES = "ours", 16, (32, 128, 512)
PARAMETERS = "parameters of the LSTM"


def groups(sizes: Sizes) -> Iterator[tuple[int, str]]:
    """Yields (pairs of a batch, type) of each measurement."""
    for pairs in BATCHES if sizes.pairs > min(BATCHES) else (sizes.pairs,):
        for dtype in ("bfloat16", "float32"):
            yield pairs, dtype


def name_of(pairs: int, dtype: str) -> str:
    """Returns the name of our step among all programs."""
    return f"LSTM, {pairs} pairs, {dtype}"


def of_batch(pairs: int, sizes: Sizes) -> Sizes:
    """Returns the sizes with so many pairs of at most TOKENS tokens a side."""
    return sizes._replace(pairs=pairs, tokens=min(TOKENS, sizes.tokens))


def build(dtype: str, sizes: Sizes) -> tuple[Model, optax.GradientTransformation]:
    """Builds our LSTM with dot attention, and Adam."""
    options = resolve(change(translation_speed.get_config(dtype, sizes.size), {"model.dropout": 0.0}))
    return options.build_model(TextSizes(sizes.vocab_size, sizes.vocab_size)), options.optimizer.build(1)


def start(sizes: Sizes, run: Run) -> None:
    """Begins to compile our steps, and the program that samples the parameters."""
    model, first = build("float32", sizes)[0], random_batch(of_batch(next(groups(sizes))[0], sizes))
    run.compile(PARAMETERS, jax.jit(model.init), jax.random.key(0), first)
    shapes = jax.eval_shape(model.init, jax.random.key(0), first)
    for pairs, dtype in groups(sizes):
        model, tx = build(dtype, sizes)
        batch = random_batch(of_batch(pairs, sizes))
        state = jax.eval_shape(partial(TrainState.create, tx=tx, rng=jax.random.key(1)), shapes)
        step = jax.jit(make_train_step(model.loss_fn, tx), donate_argnums=0)
        run.compile(name_of(pairs, dtype), step, state, batch)
    run.say("traced the steps of the LSTM")


class Ready(NamedTuple):
    """All that a measurement needs."""

    sizes: Sizes
    steps: dict[str, Callable]  # ours, compiled, by number of pairs and type
    params: Params  # from which all programs start, in the memory of the CPU


def prepare(sizes: Sizes, run: Run) -> Ready:
    """Waits until our steps are compiled, then samples the parameters."""
    steps = run.compiled([PARAMETERS, *(name_of(pairs, dtype) for pairs, dtype in groups(sizes))])
    batch = random_batch(of_batch(next(groups(sizes))[0], sizes))
    return Ready(sizes, steps, jax.device_get(steps.pop(PARAMETERS)(jax.random.key(0), batch)))


class Unpadded(TorchSeq2Seq):
    """The same for batches without padding: the last state is at the last position; nothing waits for the device."""

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, _ = self.encoder(self.source_embedding(source))
        return states, states[:, -1]


def make_torch(params: Params, sizes: Sizes) -> tuple[Unpadded, list[torch.Tensor]]:
    """Makes the model of PyTorch with our parameters, and its batch."""
    model = Unpadded((sizes.vocab_size, sizes.vocab_size), sizes.size, 0.0, packed=False, real_only=False)
    model.load(params)
    return model.to(DEVICE), [torch.from_numpy(x).long().to(DEVICE) for x in random_batch(sizes).values()]


def measure(pairs: int, dtype: str, ready: Ready, seconds: float, run: Run) -> dict[str, Any] | None:
    """Measures the programs for one batch, in windows of so many seconds; None if all of them fail."""
    sizes, params = of_batch(pairs, ready.sizes), ready.params
    step = ready.steps.get(name_of(pairs, dtype))
    losses = {} if step is None else {OURS: our_losses(step, build(dtype, sizes)[1], params, sizes)}
    losses[BASELINE] = torch_losses(*make_torch(params, sizes), dtype)
    if DEVICE == "cuda":
        losses[GRAPH] = torch_losses(*make_torch(params, sizes), dtype, graph=True)
    table = compare(f"{dtype}, LSTM, {pairs} pairs of {sizes.tokens} tokens", losses, sizes, seconds, run)
    if table is not None:
        note_losses(name_of(pairs, dtype), table["rows"], run)
    return table
