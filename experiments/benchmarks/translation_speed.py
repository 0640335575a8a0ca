"""How fast does our translation model train on the CPU, compared with the same model in PyTorch?

The model: LSTM encoder and decoder, embedding = hidden = 512, dot attention, 8000 pieces a side, dropout 0.2, Adam
at 1e-4, batches of 32 sentence pairs: 17.3 million parameters. Both sides start from the same parameters, and the
script stops if their loss or their gradient differs. The speed counts real target tokens (with eos, without padding).
All programs run in one process and take turns (turns.py). Tokens per CPU second (of all threads) depend less on other
work of the machine. Batches for PyTorch are made beforehand, ours during training. The process keeps its
memory, as launch.py arranges it for its users.

    pip install -r requirements-oracles.txt
    python -m experiments.benchmarks.translation_speed

In bfloat16 both sides round the operands of products (PyTorch by autocast); parameters and Adam stay in float32.

The pairs have random tokens and the lengths of a real corpus; --data_dir uses a real one, train.ja and train.en.
Writes experiments/results/speed/translation_speed.json.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from functools import partial

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "attn_jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import numpy as np
import torch
from ml_collections import ConfigDict

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.batching import Batches, EncodedPairs, Ragged, encode
from attn_jax.data.buckets import choose_buckets
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.sizes import TextSizes
from attn_jax.data.text import read_parallel
from attn_jax.models.base import Model, RowLoss
from attn_jax.paths import user_path
from attn_jax.runs.options import change, resolve
from attn_jax.token_ids import EOS
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.model_size import num_parameters
from attn_jax.types import Batch, Params
from configs import base
from experiments.benchmarks.machine import gflops
from experiments.benchmarks.torch_seq2seq import TorchSeq2Seq, make_torch_step
from experiments.benchmarks.turns import Program, summary, take_turns, write

VOCAB_SIZES = (8000, 8000)
SIZE = 512
TUNED = "fused Adam, logits at real positions, similar lengths"
FLOPS_PER_TOKEN = 57.8e6  # forward and backward, for the mean lengths of these pairs, without Adam
POOL = 100  # batches that are sorted by length together, where PyTorch gets pairs of similar length


def get_config(dtype: str, size: int = SIZE) -> ConfigDict:
    """Returns the config of our model, in the sizes of the lecture notes."""
    changes = {
        "dtype": dtype,
        "model.embedding_size": size,
        "model.hidden_size": size,
        "model.encoder.bidirectional": False,
        "model.decoder.bridge": "hidden",
        "model.decoder.input_feeding": False,
        "model.decoder.readout_size": size,
        "model.attention.score": "dot",
        "optimizer.learning_rate": 1e-4,
        "optimizer.clip": "none",
    }
    return change(base.get_config(), changes)


def synthetic_pairs(num_pairs: int) -> EncodedPairs:
    """Samples tokens; lengths as in 50,000 short Japanese-English pairs: source 12.4 (5 to 23), target 9 (5 to 20)."""
    rng = np.random.default_rng(0)
    lengths = rng.multivariate_normal(
        (12.43, 9.03), ((2.7**2, 0.48 * 2.7 * 2.1), (0.48 * 2.7 * 2.1, 2.1**2)), num_pairs
    )
    sides = []
    for side, longest in zip(np.rint(lengths).astype(int).T, (23, 20), strict=True):
        offsets = np.cumsum([0, *np.clip(side, 5, longest)])
        tokens = rng.integers(EOS + 1, VOCAB_SIZES[0], offsets[-1], dtype=np.int32)
        tokens[offsets[1:] - 1] = EOS
        sides.append(Ragged(tokens, offsets))
    return EncodedPairs(*sides)


def real_pairs(data_dir: pathlib.Path) -> EncodedPairs:
    """Reads train.ja and train.en, with 8000 BPE pieces each."""
    sides = read_parallel(data_dir / "train.ja", data_dir / "train.en")
    vocabularies = [
        SentencePiece.train(lines, vocab_size=size, min_count=1, model_type="bpe")
        for lines, size in zip(sides, VOCAB_SIZES, strict=True)
    ]
    return EncodedPairs(*(encode(lines, vocabulary) for lines, vocabulary in zip(sides, vocabularies, strict=True)))


def random_batches(pairs: EncodedPairs, batch_size: int, multiple: int, pool: int = 1) -> list[Batch]:
    """Makes an epoch in random order; a batch is padded to its longest sentence, rounded up to a multiple of
    `multiple`.

    With `pool` > 1 the pairs of that many batches are sorted by length before they are cut into batches.
    """
    rng = np.random.default_rng(1)
    order = rng.permutation(len(pairs))[: len(pairs) // batch_size * batch_size]
    source, target = pairs.source.lengths, pairs.target.lengths
    if pool > 1:
        parts = [order[start : start + pool * batch_size] for start in range(0, len(order), pool * batch_size)]
        order = np.concatenate([part[np.lexsort((source[part], target[part]))] for part in parts])
    rows = rng.permutation(order.reshape(-1, batch_size))
    shapes = [[-(-int(side[row].max()) // multiple) * multiple for side in (source, target)] for row in rows]
    return [pairs.batch(row, tuple(shape)) for row, shape in zip(rows, shapes, strict=True)]


def real_share(batches: list[Batch]) -> dict[str, float]:
    """Returns the shares of source and target positions that are not padding."""
    of = {"real_source": "source", "real": "target_out"}
    count = {key: sum(np.count_nonzero(batch[name]) for batch in batches) for key, name in of.items()}
    return {key: float(count[key] / sum(batch[name].size for batch in batches)) for key, name in of.items()}


def num_tokens(batch: Batch) -> int:
    """Returns the number of real target tokens."""
    return int(np.count_nonzero(batch["target_out"]))


def train_torch(model: TorchSeq2Seq, batches: list[Batch], options: dict) -> Iterator[float]:
    """Yields the number of real target tokens after each update."""
    step = make_torch_step(model, **options)
    counts = [num_tokens(batch) for batch in batches]
    tensors = [tuple(torch.from_numpy(batch[name]).long() for name in batch) for batch in batches]
    while True:
        for count, tensor in zip(counts, tensors, strict=True):
            step(*tensor)
            yield count


def train_ours(
    model: Model, config: ConfigDict, params: Params, batch_at: Callable, shapes: list[Batch], by_rows: bool = False
) -> Iterator[float]:
    """Yields the same for ours; compiles a program for each of `shapes` first. One step is always in progress.

    With `by_rows` Adam changes the rows of the embeddings that a batch reads alone.
    """
    tx, loss = resolve(config).optimizer.build(1), RowLoss(model) if by_rows else model.loss_fn
    step = jax.jit(make_train_step(loss, tx, by_rows=by_rows), donate_argnums=0)
    state = TrainState.create(jax.tree.map(lambda x: x.copy(), params), tx, jax.random.key(1))
    for batch in shapes:
        state, metrics = step(state, batch)
    number = 0
    while True:
        batch = batch_at(number)
        before = metrics
        state, metrics = step(state, batch)
        float(before["loss"].total)
        number += 1
        yield num_tokens(batch)


def one_per_shape(batches: list[Batch]) -> list[Batch]:
    """Returns the first batch of each shape."""
    return list({(batch["source"].shape, batch["target_out"].shape): batch for batch in reversed(batches)}.values())


def check_parity(config: ConfigDict, params: Params, batch: Batch) -> str:
    """Checks that loss and gradient norm are the same on both sides, without dropout, for all PyTorch variants."""
    config = config.copy_and_resolve_references()
    config.dtype, config.model.dropout = "float32", 0.0
    model = build(config)
    (_, metrics), grads = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(params, batch, jax.random.key(0))
    count = float(metrics["loss"].count)
    norms = [float(np.linalg.norm(np.ravel(grad))) / count for grad in jax.tree.leaves(grads)]
    values = {"ours": (float(metrics["loss"].compute()), float(np.linalg.norm(norms)))}
    for packed in (False, True):
        other = TorchSeq2Seq(VOCAB_SIZES, SIZE, 0.0, packed=packed, real_only=packed)
        other.load(params)
        loss = other(*(torch.from_numpy(batch[name]).long() for name in batch))
        loss.backward()
        # Ours has one bias where torch's LSTM has two with the same gradient: count it once.
        grads = [p.grad for name, p in other.named_parameters() if "bias_hh" not in name]
        name = "PyTorch, packed" if packed else "PyTorch"
        values[name] = (loss.item(), float(torch.stack([grad.norm() for grad in grads]).norm()))
    (loss, norm), *others = values.values()
    report = "; ".join(f"{name} {value[0]:.6f}, {value[1]:.5f}" for name, value in values.items())
    if any(abs(value[0] - loss) > 1e-4 or abs(value[1] - norm) > 1e-3 * norm for value in others):
        raise SystemExit(f"the two sides do not compute the same: loss, gradient norm = {report}")
    sizes = num_parameters(params), sum(p.numel() for p in other.parameters())
    return f"same parameters, no dropout: loss, gradient norm = {report}; {sizes[0]:,} and {sizes[1]:,} parameters"


def build(config: ConfigDict) -> Model:
    """Builds the model of a config."""
    return resolve(config).build_model(TextSizes(*VOCAB_SIZES))


def three_losses(model: Model, config: ConfigDict, params: Params, batch: Batch) -> list[float]:
    """Returns the losses of three steps on one batch."""
    tx = resolve(config).optimizer.build(1)
    step, losses = jax.jit(make_train_step(model.loss_fn, tx)), []
    state = TrainState.create(params, tx, jax.random.key(1))
    for _ in range(3):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"].compute()))
    return losses


def losses_of_both(configs: dict[str, ConfigDict], params: Params, batch: Batch, make_other: Callable) -> str:
    """Returns the losses of three steps in each type, of ours and of PyTorch, without dropout, in words."""
    tensors, found = [torch.from_numpy(batch[name]).long() for name in batch], []
    for dtype, config in configs.items():
        other = make_other()
        other.load(params)
        step = make_torch_step(other, fused=True, bfloat16=dtype == "bfloat16", compiled=False)
        sides = {
            "ours": three_losses(build(config), config, params, batch),
            "PyTorch": [step(*tensors) for _ in range(3)],
        }
        found += [f"{dtype}, {side} {', '.join(f'{loss:.6f}' for loss in losses)}" for side, losses in sides.items()]
    return "losses of three steps, no dropout: " + "; ".join(found)


def make_programs(args: argparse.Namespace, pairs: EncodedPairs, dtype: str) -> tuple[list[Program], list[str]]:
    """Returns the programs of a type, and reports of the checks."""
    config = get_config(dtype)
    model = build(config)
    longest = random_batches(pairs, args.batch_size, multiple=1)
    similar = random_batches(pairs, args.batch_size, multiple=1, pool=POOL)
    params = jax.jit(model.init)(jax.random.key(0), longest[0])
    reports = [check_parity(config, params, longest[0])]
    if dtype != "float32":
        configs = {name: change(get_config(name), {"model.dropout": 0.0}) for name in ("float32", dtype)}
        plain = partial(TorchSeq2Seq, VOCAB_SIZES, SIZE, 0.0, packed=False, real_only=True)
        reports = [losses_of_both(configs, params, longest[0], plain)]

    def theirs(name, batches, fused=True, packed=False, real_only=True, sparse=False, compiled=False):
        options = dict(packed=packed, real_only=real_only, sparse=sparse)
        other = TorchSeq2Seq(VOCAB_SIZES, SIZE, config.model.dropout, **options)
        other.load(params)
        options = dict(fused=fused, bfloat16=dtype == "bfloat16", compiled=compiled)
        return Program(f"PyTorch, {name}", train_torch(other, batches, options), real_share(batches))

    def ours(name, batch_at, batches, by_rows=False):
        steps = train_ours(model, config, params, batch_at, one_per_shape(batches), by_rows)
        return Program(f"ours, {name}", steps, real_share(batches))

    rounded = random_batches(pairs, args.batch_size, multiple=4)
    chosen = choose_buckets(pairs.source.lengths, pairs.target.lengths, num_target=9, num_source=3)
    buckets = Batches(pairs, chosen, args.batch_size)
    every = [buckets.batch_at(step) for step in range(buckets.steps_per_epoch)]
    programs = [
        theirs("as in the notebook", longest, fused=False, real_only=False),
        theirs("fused Adam, logits at real positions", longest),
        theirs(TUNED, similar),
        theirs("the same, PackedSequence", similar, packed=True),
        ours("the notebook's batches, sides in fours", lambda n: rounded[n % len(rounded)], rounded),
        ours(f"{len(buckets.shapes)} buckets", buckets.batch_at, every),
        theirs("tuned, embeddings by rows (SparseAdam)", similar, sparse=True),
        ours(f"{len(buckets.shapes)} buckets, embeddings by rows", buckets.batch_at, every, by_rows=True),
    ]
    if args.compile:
        programs.insert(4, theirs("the same, torch.compile", similar, compiled=True))
    if dtype != "float32":
        programs = [program for program in programs if TUNED in program.name or "buckets" in program.name]
    return programs, reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=3, help="each has two windows of every program")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--dtypes", default="float32,bfloat16", help="of the computation, one after the other")
    parser.add_argument("--data_dir", type=user_path, help="folder of train.ja and train.en")
    parser.add_argument("--num_pairs", type=int, default=50_000, help="how many random pairs to make")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of PyTorch")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes minutes to compile")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    load = os.getloadavg()[0]
    pairs = synthetic_pairs(args.num_pairs) if args.data_dir is None else real_pairs(args.data_dir)
    groups, notes, peak = [], [], gflops()
    for dtype in args.dtypes.split(","):
        programs, reports = make_programs(args, pairs, dtype)
        print(*reports, sep="\n", file=sys.stderr)
        take_turns(programs, args.rounds, args.seconds)
        rows = summary(programs, f"PyTorch, {TUNED}")
        for row in rows if dtype == "float32" else ():
            row["of_peak"] = row["per_second"]["median"] * FLOPS_PER_TOKEN / 1e9 / peak
        groups.append({"title": dtype, "rows": rows})
        notes += reports
    measured = {"unit": "target tokens", "baseline": f"PyTorch, {TUNED}", "groups": groups, "peak_gflops": peak}
    write("translation_speed", measured | {"notes": notes}, ("torch",), load)


if __name__ == "__main__":
    keep_memory()
    main()
