"""Small models built from configs/base.py, and sentences to feed them."""

import jax
import numpy as np
from arrays import fill

from attn_jax.cli.options import resolve
from attn_jax.tasks.sizes import TextSizes
from configs.base import get_config

PAD, BOS, EOS, SOURCE_VOCAB, TARGET_VOCAB = 0, 2, 3, 13, 11
COUNTS = np.array([0, 2, 0, 9, 4, 1, 30, 2, 2, 8, 5])  # of the target words
SMALL = dict(embedding_size=5, hidden_size=6, readout_size=4, dropout=0.0)
SMALL_ATTENTION = dict(features=3, max_length=12, window_size=2)


def build(attention=(), label_smoothing=0.0, dtype="float32", source_vocab=SOURCE_VOCAB, **model):
    """A model from changes to config.model and config.model.attention."""
    config = get_config(model=model.pop("name", "seq2seq"))
    config.dtype, config.train.label_smoothing = dtype, label_smoothing
    given = config.model.get("attention", {})
    small_attention = {key: value for key, value in SMALL_ATTENTION.items() if key in given}
    for section, changes in [
        (config.model, {key: value for key, value in SMALL.items() if key in config.model} | model),
        (given, small_attention | dict(attention)),
    ]:
        assert changes.keys() <= set(section), changes
        section.update(changes)
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
