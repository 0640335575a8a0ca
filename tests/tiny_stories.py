"""Stories of two people and three places, the test data of the memory networks: where is a person?"""

import jax.numpy as jnp
import numpy as np

from attn_jax.data.batching import encode_pairs
from attn_jax.data.vocabulary import StoryWords
from attn_jax.tasks.task import Pairs
from attn_jax.token_ids import EOS, PAD

WORDS = ("mary", "john", "bathroom", "kitchen", "garden", "moved", "went", "to", "the", "where", "is", "office")
MORE = ("got", "milk", "how", "many")
VOCABULARY = StoryWords([".", "?", *WORDS, *MORE])
ID = {token: VOCABULARY.encode(token)[0] for token in (".", "?", *WORDS)}
VOCAB = len(VOCABULARY)


def encode(text):
    """ "mary went to the garden . where is mary ?" as ids, with EOS."""
    return [ID[word] for word in text.split()] + [EOS]


def encode_stories(rows):
    """A batch of rows (source, answer, evidence), padded to the longest."""
    sources, answers, evidence = map(list, zip(*rows, strict=True))
    encoded = encode_pairs(Pairs(sources, answers, evidence), VOCABULARY, VOCABULARY)
    batch = encoded.batch(np.arange(len(rows)), (int(encoded.source.lengths.max()), 2))
    return {name: jnp.asarray(x) for name, x in batch.items()}


def batch_of(stories, length, evidence_size=2):
    """Rows (text, answer, evidence) as a batch with sources of this length; a row that is None fills it up."""
    rows = len(stories)
    batch = {
        "source": np.full((rows, length), PAD, np.int32),
        "target_in": np.full((rows, 2), PAD, np.int32),
        "target_out": np.full((rows, 2), PAD, np.int32),
        "evidence": np.zeros((rows, evidence_size), np.int32),
    }
    for i, story in enumerate(stories):
        if story is not None:
            text, answer, evidence = story
            ids = encode(text)
            batch["source"][i, : len(ids)] = ids
            batch["target_out"][i] = ID[answer], EOS
            batch["target_in"][i] = 2, ID[answer]
            batch["evidence"][i, : len(evidence)] = evidence
    return batch


def random_story(rng, statements=4):
    """One whose last move of the person asked for is its only evidence."""
    people, places = WORDS[:2], WORDS[2:5]
    who, where = rng.integers(2, size=statements), rng.integers(3, size=statements)
    verb = rng.integers(2, size=statements)
    asked = who[rng.integers(statements)]
    last = int(np.flatnonzero(who == asked)[-1])
    lines = [f"{people[p]} {WORDS[5 + v]} to the {places[w]} ." for p, v, w in zip(who, verb, where, strict=True)]
    return " ".join([*lines, f"where is {people[asked]} ?"]), places[where[last]], [last + 1]


def random_batch(seed, rows, statements=4):
    """Of `random_story`, with sources of one length."""
    rng = np.random.default_rng(seed)
    return batch_of([random_story(rng, statements) for _ in range(rows)], 6 * statements + 5)
