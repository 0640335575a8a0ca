"""The flip-flop language: every read by a scan of the text, and the entropy by enumeration of all texts."""

import itertools
import re
from functools import partial

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.tasks.synthetic.flip_flop import WORDS, entropy, is_read, sample

build = partial(make, "flip_flop", num_instructions=12, ignored=0.5, test_ignored=0.9, num_examples=60, valid_size=20)


def test_what_is_read_was_written_last_and_texts_have_the_form():
    task = build()
    texts = [text for split in task.splits.values() for text in split.target]
    for text in texts:
        assert re.fullmatch("w [01]( [wir] [01])* r [01]", text) and len(text.split()) == 24
        for read in re.finditer(r"r ([01])", text):
            *_, written = re.findall(r"w ([01])", text[: read.start()])
            assert read[1] == written
    assert {text for split in task.splits.values() for text in split.source} == {""}
    assert build().splits == task.splits


def test_the_entropy_is_that_of_all_texts():
    share = {"w": 0.2, "i": 0.6, "r": 0.2}
    total = mass = 0.0
    for middle in itertools.product("wir", repeat=2):
        order = ("w", *middle, "r")
        free = sum(letter != "r" for letter in order)  # bits that are random
        p = share[middle[0]] * share[middle[1]] / 2**free
        total, mass = total - 2**free * p * np.log(p), mass + 2**free * p
    np.testing.assert_allclose([entropy(4, 0.6), 1], [total, mass])


def test_the_shares_are_those_of_the_options():
    instructions, _ = sample(400, 50, 0.9, np.random.default_rng(0))
    shares = [(instructions[:, 1:-1] == i).mean() for i in range(3)]
    np.testing.assert_allclose(shares, [0.05, 0.9, 0.05], atol=0.01)


def test_reads_are_found_in_batches():
    task = build()
    text = task.splits["train"].target[0]
    tokens = np.array([task.target_vocabulary.encode(text)])
    found = is_read(tokens, task.target_vocabulary)[0]
    words = text.split()
    assert [words[i - 1] for i in np.flatnonzero(found)] == ["r"] * words.count("r")
    assert task.stats["lowest possible perplexity"] == pytest.approx(np.exp(entropy(12, 0.9) / 25), abs=1e-4)
    assert len(task.target_vocabulary) == len(WORDS) + 4
