"""Blockwise attention takes a score as attend does: by its name, as an object, or as a function."""

import jax
import numpy as np
import pytest

import attn_jax

X = jax.random.normal(jax.random.key(0), (2, 3, 5, 4))


@pytest.mark.parametrize("score", ["scaled_dot", attn_jax.ScaledDot(), lambda q, k: q @ k.swapaxes(-1, -2) / 2])
def test_a_score_by_name_as_an_object_and_as_a_function_is_the_same(score):
    found = attn_jax.blockwise_attention(score, *X[:, None], X[1], mask=attn_jax.causal, block_size=2)
    expected = attn_jax.attend(X[0], X[1], X[1], mask=attn_jax.causal)
    np.testing.assert_allclose(found.context[0], expected.context, atol=1e-6)


@pytest.mark.parametrize(
    ("score", "words"), [("scaled_dott", "did you mean scaled_dot"), (attn_jax.Additive(features=3), "has parameters")]
)
def test_an_unknown_score_or_one_with_parameters_is_told(score, words):
    with pytest.raises(ValueError, match=words):
        attn_jax.blockwise_attention(score, X[0], X[1], X[1])
