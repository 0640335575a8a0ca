"""Unknown words become the source words of largest weight."""

import numpy as np
import pytest

from attn_jax.decoding.unknown_words import replace_unk


def test_replace_unk():
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.1, 0.3], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    replaced = replace_unk(["<unk>", "b", "<unk>"], weights, ["x", "y"], "<unk>")
    assert replaced == ["y", "b", "<unk>"]  # the third looked at eos only, beyond the source tokens
    assert replace_unk(["<unk>"], weights, [], "<unk>") == ["<unk>"]
    with pytest.raises(ValueError, match="expected weights of 2 tokens, got 1 rows"):
        replace_unk(["a", "<unk>"], weights[:1], ["x"], "<unk>")
