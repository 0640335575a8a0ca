"""How fast do our models translate on the CPU, compared with PyTorch and CTranslate2?

The LSTM model of translation_speed.py and the Transformer of transformer_speed.py, random parameters, the same on both
sides; eos has no probability, so that each sentence gets as many tokens as its reference has and all sides do the same
work. The script stops if the sides find different words. All programs take turns (turns.py).

- LSTM: one sentence at a time, as in a teaching notebook; batches of 100 sentences of similar length, greedy and with
  five beams. PyTorch runs its loop in Python; ours is one compiled program.
- Transformer: the same, beside CTranslate2, a C++ engine that caches keys and values as ours does.

    pip install -r requirements-oracles.txt ctranslate2
    python -m experiments.benchmarks.decoding_speed

Writes experiments/results/speed/decoding_speed.json.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import jax
import numpy as np
import torch

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.batching import EncodedPairs
from attn_jax.data.sizes import TextSizes
from attn_jax.decoding.beam_search import beam_search
from attn_jax.decoding.decode import greedy
from attn_jax.decoding.translate import begin
from attn_jax.models.base import Model
from attn_jax.runs.options import resolve
from attn_jax.token_ids import BOS, EOS, PAD
from attn_jax.types import Params
from experiments.benchmarks import torch_decoding
from experiments.benchmarks.torch_seq2seq import TorchSeq2Seq
from experiments.benchmarks.transformer_speed import HEADS, LAYERS
from experiments.benchmarks.transformer_speed import get_config as transformer_config
from experiments.benchmarks.translation_speed import SIZE, VOCAB_SIZES, synthetic_pairs
from experiments.benchmarks.translation_speed import get_config as lstm_config
from experiments.benchmarks.turns import Program, summary, take_turns, write

NUM_SENTENCES, BATCH, BEAMS = 500, 100, 5
Batch = tuple[np.ndarray, np.ndarray]  # source [b, s], number of target tokens [b]


def make_batches(pairs: EncodedPairs, size: int) -> list[Batch]:
    """Cuts the pairs, sorted by the length of the source, into batches; sources are padded to a multiple of 4 words."""
    order = np.lexsort((pairs.target.lengths, pairs.source.lengths))
    found = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        longest = -(-int(pairs.source.lengths[rows].max()) // 4) * 4
        source = pairs.source.gather(rows, longest)[0].astype(np.int32)
        found.append((source, pairs.target.lengths[rows].astype(np.int32)))
    return found


def without_eos(params: Params) -> Params:
    """Returns the parameters with a bias of eos that makes it impossible, and those of pad and bos."""
    bias = params["output"]["dense"]["bias"].at[np.array([PAD, BOS, EOS])].set(-1e9)
    return {**params, "output": {"dense": {**params["output"]["dense"], "bias": bias}}}


def make_search(model: Model, beams: int, max_length: int) -> Callable[[Params, np.ndarray, np.ndarray], jax.Array]:
    """Returns a compiled function from parameters, sources and numbers of target tokens to the tokens found."""
    search = greedy if beams == 1 else partial(beam_search, beam_size=beams)
    size = 0 if beams == 1 else beams

    @jax.jit
    def run(params, source, limits):
        given = begin(model, params, source, max_length, size)
        return search(**given, max_length=max_length, limits=limits, bos=BOS, eos=EOS, pad=PAD).tokens

    return run


def our_search(model: Model, params: Params, beams: int, max_length: int) -> Callable[[Batch], np.ndarray]:
    """Returns a function from a batch to its tokens, compiled once for each shape."""
    run = make_search(model, beams, max_length)

    def translate(batch: Batch) -> np.ndarray:
        tokens = np.asarray(run(params, *batch))
        return tokens if beams == 1 else tokens[:, 0]

    return translate


def torch_search(model: TorchSeq2Seq, beams: int) -> Callable[[Batch], np.ndarray]:
    """Returns the same for PyTorch; a single sentence comes without padding."""

    def translate(batch: Batch) -> np.ndarray:
        source, limits = torch.from_numpy(batch[0]).long(), torch.from_numpy(batch[1]).long()
        source = source[:, : int((source != PAD).sum(dim=1).max())]
        if beams == 1:
            return torch_decoding.greedy(model, source, limits).numpy()
        return torch_decoding.beam_search(model, source, limits, beams).numpy()

    return translate


def ctranslate2_search(folder: str, beams: int) -> Callable[[Batch], np.ndarray]:
    """Returns the same for the Transformer in CTranslate2; all sentences of a batch get the longest limit."""
    import ctranslate2

    from experiments.benchmarks.ctranslate2_model import SPECIAL

    engine = ctranslate2.Translator(folder, device="cpu", inter_threads=1, intra_threads=os.cpu_count())

    def translate(batch: Batch) -> np.ndarray:
        sentences = [[SPECIAL.get(i, f"w{i}") for i in row if i != PAD] for row in batch[0].tolist()]
        longest = int(batch[1].max())
        options = dict(max_decoding_length=longest, min_decoding_length=longest, beam_size=beams)
        found = engine.translate_batch(sentences, length_penalty=0, **options)
        return np.array([[int(word[1:]) for word in result.hypotheses[0]] for result in found])

    return translate


def check(ours: Callable, theirs: Callable, batches: list[Batch], least: float) -> float:
    """Returns the share of equal words; stops where it is below `least`: one tie turns the rest of a sentence."""
    equal = total = 0
    for batch in batches:
        a, b = ours(batch), theirs(batch)
        for row, limit in enumerate(batch[1]):
            equal += int(np.sum(a[row, :limit] == b[row, :limit]))
            total += int(limit)
    if equal < least * total:
        raise SystemExit(f"the two sides do not find the same words: {equal:,} of {total:,} are equal")
    return equal / total


def steps_of(translate: Callable, batches: list[Batch]) -> Iterator[float]:
    """Yields the number of target tokens of each batch."""
    for batch in batches:  # compiles
        translate(batch)
    for batch in itertools.cycle(batches):
        translate(batch)
        yield float(batch[1].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=2, help="each has two windows of every program")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(os.cpu_count())
    pairs = synthetic_pairs(NUM_SENTENCES)
    longest = int(pairs.target.lengths.max())
    one, many = make_batches(pairs, 1), make_batches(pairs, BATCH)
    even = [(source, np.full_like(limits, limits.max())) for source, limits in many]  # as CTranslate2 decodes
    shuffled = [one[i] for i in np.random.default_rng(0).permutation(len(one))]
    groups, notes = [], []

    def compare(title: str, ours: Callable, theirs: dict[str, Callable], batches: list[Batch], least: float) -> None:
        for name, translate in theirs.items():
            share = check(ours, translate, batches, least)
            notes.append(f"{title}: {share:.2%} of the words are those of {name}")
            print(notes[-1], file=sys.stderr)
        programs = [Program(name, steps_of(f, batches)) for name, f in {**theirs, "ours": ours}.items()]
        take_turns(programs, args.rounds, args.seconds)
        groups.append({"title": title, "rows": summary(programs, programs[0].name)})

    config = lstm_config("float32")
    model = resolve(config).build_model(TextSizes(*VOCAB_SIZES))
    example = {"source": one[0][0], "target_in": one[0][0], "target_out": one[0][0]}
    params = without_eos(jax.jit(model.init)(jax.random.key(0), example))
    other = TorchSeq2Seq(VOCAB_SIZES, SIZE, 0.0, packed=False, real_only=False).eval()
    other.load(params)
    for title, beams, batches in (
        ("LSTM, one sentence at a time, greedy", 1, shuffled),
        (f"LSTM, batches of {BATCH}, greedy", 1, many),
        (f"LSTM, batches of {BATCH}, {BEAMS} beams", BEAMS, many),
    ):
        theirs = {"PyTorch": torch_search(other, beams)}
        compare(title, our_search(model, params, beams, longest), theirs, batches, 0.98 if beams == 1 else 0.9)

    from experiments.benchmarks.ctranslate2_model import write_model

    config = transformer_config("float32", 0.0, 0.0)
    model = resolve(config).build_model(TextSizes(*VOCAB_SIZES))
    params = without_eos(jax.jit(model.init)(jax.random.key(0), example))
    with write_model(params, LAYERS, HEADS) as folder:
        for title, beams, batches in (
            ("Transformer, one sentence at a time, greedy", 1, shuffled),
            (f"Transformer, batches of {BATCH}, greedy", 1, even),
            (f"Transformer, batches of {BATCH}, {BEAMS} beams", BEAMS, even),
        ):
            theirs = {"CTranslate2": ctranslate2_search(folder, beams)}
            compare(title, our_search(model, params, beams, longest), theirs, batches, 0.98 if beams == 1 else 0.9)

    measured = {"unit": "target tokens", "groups": groups, "notes": notes}
    write("decoding_speed", measured, ("torch", "ctranslate2"), load)


if __name__ == "__main__":
    keep_memory()
    main()
