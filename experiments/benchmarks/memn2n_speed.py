"""How long does an epoch of the end-to-end memory network take, compared with PyTorch, and an epoch of ten seeds?

Three hops, width 20, batches of 32, the 900 training questions of bAbI task 1 (or generated questions), on one core.
PyTorch uses embedding gathers and fused SGD. Both sides start from the same parameters, and the script stops if their
losses differ. They take turns in one process (turns.py).

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.memn2n_speed --data_dir=data/babi

Writes experiments/results/speed/memn2n_speed.json.
"""

import argparse
import itertools
import os
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from attn_jax.data.batching import Batches
from attn_jax.data.buckets import choose_buckets
from attn_jax.models.memory_networks.base import find_sentences
from attn_jax.paths import expanded
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import change, resolve
from attn_jax.training.loop import TrainState, make_train_step
from configs import babi_memn2n
from experiments.benchmarks.turns import Program, summary, take_turns, write

THEIRS = "PyTorch, embedding gathers, fused SGD"
HOPS, RATE, CLIP = 3, 0.16, 40 / 32


class TorchMemN2N(nn.Module):
    """The same network: adjacent tying, position and temporal encoding. Statements [b, n, w], questions [b, w]."""

    def __init__(self, params: dict, words: int):
        super().__init__()
        tables = [torch.from_numpy(np.array(params[f"embedding_{i}"])) for i in range(HOPS + 1)]
        self.embeddings = nn.ModuleList([nn.Embedding.from_pretrained(t, freeze=False, padding_idx=0) for t in tables])
        self.times = nn.ParameterList([torch.from_numpy(np.array(params[f"time_{i}"])) for i in range(HOPS + 1)])
        d = tables[0].shape[1]
        self.feature = (torch.arange(1, d + 1) - (d + 1) / 2) / d
        self.place = torch.arange(1, words + 1)

    def encode(self, sentences: torch.Tensor, table: nn.Embedding) -> torch.Tensor:
        length = (sentences != 0).sum(-1, keepdim=True).clamp(min=1)
        centred = 4 * (self.place - (length + 1) / 2) / length
        return ((1 + self.feature * centred[..., None]) * (sentences != 0)[..., None] * table(sentences)).sum(-2)

    def forward(self, story, question, answer):
        real = (story != 0).any(-1)
        age = (real.sum(-1, keepdim=True) - 1 - torch.arange(story.shape[1])).clamp(min=0)
        u = self.encode(question, self.embeddings[0])
        memory = [
            self.encode(story, e) + t[age] * real[..., None] for e, t in zip(self.embeddings, self.times, strict=True)
        ]
        for hop in range(HOPS):
            scores = torch.einsum("bd,bnd->bn", u, memory[hop])  # 0 of an empty slot
            u = u + torch.einsum("bn,bnd->bd", scores.softmax(-1), memory[hop + 1])
        return nn.functional.cross_entropy(u @ self.embeddings[-1].weight.T, answer)


def padded(batch: dict, memory_size: int, words: int) -> tuple[torch.Tensor, ...]:
    """Converts our batch to padded sentences for PyTorch."""
    layout = jax.tree.map(np.asarray, find_sentences(jnp.asarray(batch["source"]), memory_size))
    sentences = np.zeros((len(batch["source"]), memory_size + 1, words), np.int64)
    for row, column in np.argwhere((layout.slot < memory_size) | layout.is_question):
        slot = memory_size if layout.is_question[row, column] else layout.slot[row, column]
        sentences[row, slot, layout.position[row, column]] = batch["source"][row, column]
    real = batch["target_out"][:, 0] != 0
    parts = sentences[:, :-1], sentences[:, -1], batch["target_out"][:, 0].astype(np.int64)
    return tuple(torch.from_numpy(part[real]) for part in parts)


def make_programs(options: argparse.Namespace) -> tuple[list[Program], str]:
    """Returns the programs, whose steps are epochs, and the report of the parity check."""
    changes = {
        "data_dir": options.data_dir,
        "task.numbers": (options.number,),
        "model.noise": 0.0,
        "model.linear_steps": 0,
        "optimizer.learning_rate": RATE,
        "optimizer.schedule": "constant",
        "optimizer.clip.norm": CLIP,
    }
    config = change(babi_memn2n.get_config(), changes)
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    model, pairs = setup.model, setup.predictor.translator.encode(task.splits["train"])
    buckets = choose_buckets(pairs.source.lengths, pairs.target.lengths)
    tx = resolve(config).optimizer.build(1)
    batches = Batches(pairs, buckets, 32)
    first = batches.batch_at(0)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0), first))
    words = max(len(s.split()) for text in task.splits["train"].source for s in text.replace("?", ".").split("."))
    other = TorchMemN2N(params, words)
    inputs = [padded(batches.batch_at(i), model.module.memory_size, words) for i in range(batches.steps_per_epoch)]
    mine = float(jax.jit(model.loss_fn)(params, first, jax.random.key(0))[1]["loss"].compute())
    theirs = other(*inputs[0]).item()
    if abs(mine - theirs) > 1e-5:
        raise SystemExit(f"the two sides do not compute the same: loss {mine:.6f} and {theirs:.6f}")
    programs = [
        Program(THEIRS, torch_epochs(other, inputs)),
        Program("ours", our_epochs(model, tx, pairs, buckets, 1)),
        Program("ours, ten seeds vmapped", our_epochs(model, tx, pairs, buckets, 10)),
    ]
    return programs, f"same parameters: loss {mine:.6f}, {theirs:.6f}"


def torch_epochs(model: TorchMemN2N, inputs: list[tuple[torch.Tensor, ...]]) -> Iterator[float]:
    """Yields 1 after each epoch, for each seed; its batches are padded before the measurement."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)
    while True:
        for batch in inputs:
            optimizer.zero_grad()
            model(*batch).backward()
            for parameter in model.parameters():
                nn.utils.clip_grad_norm_(parameter, CLIP)
            optimizer.step()
        yield 1.0


def our_epochs(model: Any, tx: Any, pairs: Any, buckets: Any, seeds: int) -> Iterator[float]:
    """Yields the number of seeds after each epoch; batches are made during the measurement."""
    batches = Batches(pairs, buckets, 32, seeds=range(seeds))
    example = jax.tree.map(lambda x: x[0] if seeds > 1 else x, batches.batch_at(0))
    create = jax.jit(lambda rng: TrainState.create(model.init(rng, example), tx, rng))
    states = [create(jax.random.key(seed)) for seed in range(seeds)]
    state = jax.tree.map(lambda *x: jnp.stack(x), *states) if seeds > 1 else states[0]
    step = make_train_step(model.loss_fn, tx)
    step = jax.jit(jax.vmap(step) if seeds > 1 else step, donate_argnums=0)
    count = itertools.count()

    while True:
        for _ in range(batches.steps_per_epoch):
            state, metrics = step(state, batches.batch_at(next(count)))
        jax.block_until_ready(metrics)
        yield float(seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data_dir", type=expanded, default="", help="of the bAbI tasks; without it the package makes the stories"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    parser.add_argument("--number", type=int, default=1, help="of the task")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of this thread and those it starts, as JAX does later
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    programs, parity = make_programs(args)
    take_turns(programs, args.rounds, args.seconds)
    rows = summary(programs, THEIRS)
    measured = {"unit": "epochs of one seed", "baseline": THEIRS, "rows": rows, "notes": ["one core", parity]}
    write("memn2n_speed", measured, ("torch",), load)


if __name__ == "__main__":
    main()
