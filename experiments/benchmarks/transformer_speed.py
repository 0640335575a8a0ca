"""How fast does our Transformer train on the CPU, compared with torch.nn.Transformer?

3 + 3 layers of 256, 4 heads, feed forward 1024, norm first, dropout 0.1, 8,000 pieces a side, Adam at 1e-4, batches of
64 sentence pairs of similar length. Both sides start from the same parameters, and the script stops if their loss or
gradient differs. translation_speed.py describes the measurement.

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.transformer_speed

Writes experiments/results/speed/transformer_speed.json.
"""

import argparse
import os
import sys
import warnings
from functools import partial

import jax
import numpy as np
import torch
from ml_collections import ConfigDict

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.batching import Batches
from attn_jax.data.buckets import choose_buckets
from attn_jax.runs.options import change
from attn_jax.training.model_size import num_parameters
from configs import base
from experiments.benchmarks.torch_transformer import TorchTransformer
from experiments.benchmarks.translation_speed import (
    POOL,
    VOCAB_SIZES,
    build,
    losses_of_both,
    one_per_shape,
    random_batches,
    real_share,
    synthetic_pairs,
    train_ours,
    train_torch,
)
from experiments.benchmarks.turns import Program, summary, take_turns, write

THEIRS = "torch.nn.Transformer, fused Adam, real positions"
SIZE, LAYERS, HEADS, INNER = 256, 3, 4, 1024


def get_config(
    dtype: str,
    dropout: float,
    weights_dropout: float,
    *,
    size: int = SIZE,
    layers: int = LAYERS,
    heads: int = HEADS,
    inner: int = INNER,
) -> ConfigDict:
    """Returns the config of our model, with dropout of attention weights as in torch.nn.Transformer."""
    stack = {"num_layers": layers, "num_heads": heads, "feed_forward_size": inner}
    changes = {
        "dtype": dtype,
        "model.encoder": "transformer",
        "model.hidden_size": size,
        "model.dropout": dropout,
        "model.attention.score": "scaled_dot",
        "model.attention.dropout": weights_dropout,
        "optimizer.learning_rate": 1e-4,
        "optimizer.clip": "none",
    }
    changes |= {f"model.{side}.{key}": value for side in ("encoder", "decoder") for key, value in stack.items()}
    return change(base.get_config(model="transformer"), changes)


def check_parity(params, batch) -> str:
    """Checks that loss and gradient norm are the same on both sides, without dropout."""
    model = build(get_config("float32", 0.0, 0.0))
    (_, metrics), grads = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(params, batch, jax.random.key(0))
    count = float(metrics["loss"].count)
    norm = float(np.linalg.norm([np.linalg.norm(np.ravel(grad)) for grad in jax.tree.leaves(grads)])) / count
    other = TorchTransformer(VOCAB_SIZES, SIZE, LAYERS, HEADS, INNER, 0.0)
    other.load(params)
    loss = other(*(torch.from_numpy(batch[name]).long() for name in batch))
    loss.backward()
    theirs = float(torch.stack([p.grad.norm() for p in other.parameters()]).norm())
    ours = float(metrics["loss"].compute())
    report = f"loss, gradient norm = ours {ours:.6f}, {norm:.5f}; PyTorch {loss.item():.6f}, {theirs:.5f}"
    if abs(ours - loss.item()) > 1e-4 or abs(norm - theirs) > 1e-3 * norm:
        raise SystemExit(f"the two sides do not compute the same: {report}")
    sizes = num_parameters(params), sum(p.numel() for p in other.parameters())
    return f"same parameters, no dropout: {report}; {sizes[0]:,} and {sizes[1]:,} parameters"


def make_programs(args: argparse.Namespace, dtype: str) -> tuple[list[Program], str]:
    """Returns the programs of a type, and the report of a check."""
    pairs = synthetic_pairs(args.num_pairs)
    similar = random_batches(pairs, args.batch_size, multiple=1, pool=POOL)
    chosen = choose_buckets(pairs.source.lengths, pairs.target.lengths, num_target=9, num_source=3)
    buckets = Batches(pairs, chosen, args.batch_size)
    every = [buckets.batch_at(step) for step in range(buckets.steps_per_epoch)]
    shapes = one_per_shape(every)
    ours = f"ours, {len(shapes)} buckets"
    params = jax.jit(build(get_config("float32", 0.0, 0.0)).init)(jax.random.key(0), shapes[0])
    programs = []
    theirs = {THEIRS: False} | ({f"{THEIRS}, torch.compile": True} if args.compile else {})
    for name, compiled in theirs.items():
        other = TorchTransformer(VOCAB_SIZES, SIZE, LAYERS, HEADS, INNER, 0.1)
        other.load(params)
        options = dict(fused=True, bfloat16=dtype == "bfloat16", compiled=compiled)
        programs.append(Program(name, train_torch(other, similar, options), real_share(similar)))
    for name, rates in {
        ours: (0.1, 0.1),
        f"{ours}, fused attention (no dropout of weights)": (0.1, 0.0),
        f"{ours}, no dropout": (0.0, 0.0),
    }.items():
        config = get_config(dtype, *rates)
        steps = train_ours(build(config), config, params, buckets.batch_at, shapes)
        programs.append(Program(name, steps, real_share(every)))
    if dtype == "float32":
        return programs, check_parity(params, similar[0])
    configs = {name: get_config(name, 0.0, 0.0) for name in ("float32", dtype)}
    plain = partial(TorchTransformer, VOCAB_SIZES, SIZE, LAYERS, HEADS, INNER, 0.0)
    return programs, losses_of_both(configs, params, similar[0], plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=3, help="each has two windows of every program")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--dtypes", default="float32,bfloat16", help="of the computation, one after the other")
    parser.add_argument("--num_pairs", type=int, default=20_000, help="how many random pairs to make")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes minutes to compile")
    args = parser.parse_args()
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message=".*nested_tensor")
    load = os.getloadavg()[0]
    groups, notes = [], []
    for dtype in args.dtypes.split(","):
        programs, report = make_programs(args, dtype)
        print(report, file=sys.stderr)
        take_turns(programs, args.rounds, args.seconds)
        groups.append({"title": dtype, "rows": summary(programs, THEIRS)})
        notes.append(report)
    measured = {"unit": "target tokens", "baseline": THEIRS, "groups": groups, "notes": notes}
    write("transformer_speed", measured, ("torch",), load)


if __name__ == "__main__":
    keep_memory()
    main()
