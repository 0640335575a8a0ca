"""Files of a work directory, and what can happen to them."""

import numpy as np
from tasks_by_name import make

from attn_jax.data.files import load_checked, save_json


def points(**changes):
    """A task of eight points of the curve."""
    return make("regression", seeds=(0, 1), num_examples=8, **changes)


def without_checksum(path):
    """Makes a file one of an earlier version."""
    if path.suffix == ".npz":
        with np.load(path) as stored:
            members = {name: stored[name] for name in stored.files if name != "crc32"}
        np.savez_compressed(path, **members)
    else:
        save_json(path, load_checked(path)[0])


def flips(content, count=200):
    """The content with one bit flipped, `count` times."""
    rng = np.random.default_rng(0)
    for place, bit in zip(rng.integers(len(content), size=count), rng.integers(8, size=count), strict=True):
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        yield bytes(flipped)
