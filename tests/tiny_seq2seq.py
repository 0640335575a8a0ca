"""Small models built from configs/base.py, and sentences to feed them."""

import jax
import numpy as np
from arrays import fill
from tiny_run import fitted

from attn_jax.data.sizes import TextSizes
from attn_jax.runs.options import resolve
from configs.base import get_config

PAD, BOS, EOS, SOURCE_VOCAB, TARGET_VOCAB = 0, 2, 3, 13, 11
COUNTS = np.array([0, 2, 0, 9, 4, 1, 30, 2, 2, 8, 5])  # of the target words
SMALL = {
    "embedding_size": 5,
    "hidden_size": 6,
    "readout_size": 4,
    "decoder.readout_size": 4,
    "dropout": 0.0,
    "attention.score.features": 3,
    "attention.score.max_length": 12,
    "objective.baseline.features": 3,
    "objective.baseline.max_length": 12,
}
SMALL_WINDOWS = {"local_m": {"size": 2}, "local_p": {"size": 2, "features": 3}}


def build(attention=(), label_smoothing=0.0, dtype="float32", source_vocab=SOURCE_VOCAB, **model):
    """A model from changes to config.model and config.model.attention, "__" for the dot.

    Windows among the wrappers are small.
    """
    attention = {f"attention.{key}": value for key, value in dict(attention).items()}
    for name in attention.get("attention.wrappers", ()):
        if name in SMALL_WINDOWS:
            attention |= {f"attention.wrappers.parts.{name}": SMALL_WINDOWS[name]}
    changes = {key.replace("__", "."): value for key, value in (model | attention).items()}
    name = changes.pop("name", "seq2seq")
    changes = {f"model.{key}": value for key, value in changes.items()}
    config = get_config(model=name)
    small = {f"model.{key}": value for key, value in SMALL.items()}
    config = fitted(config, small, changes | {"dtype": dtype})
    if label_smoothing:
        config.model.output.label_smoothing = label_smoothing
    return resolve(config).build_model(TextSizes(source_vocab, TARGET_VOCAB, target_counts=COUNTS, has_tags=True))


def random_params(model, batch, seed=0, scale=0.7):
    """In the shapes of `model.init`, far enough from zero for every part to matter."""
    return fill(jax.eval_shape(model.init, jax.random.key(0), batch), seed, scale)


def sentences(lengths, source_size, target_size, seed=0):
    """A batch of random sentences: (source tokens, target tokens) of each, eos included; (0, 0) is a row of padding.

    No target token occurs twice in a sentence, so the rows of the embedding tell the positions apart.
    """
    rng = np.random.default_rng(seed)
    source, target_in, target_out = (
        np.full((len(lengths), n), PAD, np.int32) for n in (source_size,) + (target_size,) * 2
    )
    for row, (source_length, target_length) in enumerate(lengths):
        if source_length == 0:
            continue
        words = rng.permutation(np.arange(EOS + 1, TARGET_VOCAB))[: target_length - 1]
        source[row, :source_length] = [*rng.integers(EOS + 1, SOURCE_VOCAB, source_length - 1), EOS]
        target_in[row, :target_length] = [BOS, *words]
        target_out[row, :target_length] = [*words, EOS]
    return {"source": source, "target_in": target_in, "target_out": target_out}
