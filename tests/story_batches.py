"""Small stories as batches, for the tests of memory networks."""

import jax.numpy as jnp

from attn_jax.tasks.batching import encode_pairs
from attn_jax.tasks.task import Pairs
from attn_jax.tasks.vocabulary import Stories

VOCABULARY = Stories.train(
    ["mary john moved to the garden office kitchen got milk where is how many . ?"], vocab_size=100
)


def encode_stories(rows):
    """A batch of rows (source, answer, evidence), padded to the longest."""
    sources, answers, evidence = map(list, zip(*rows, strict=True))
    encoded = encode_pairs(Pairs(sources, answers, evidence), VOCABULARY, VOCABULARY)
    batch = encoded.batch(jnp.arange(len(rows)).__array__(), (int(encoded.source.lengths.max()), 2))
    return {name: jnp.asarray(x) for name, x in batch.items()}
