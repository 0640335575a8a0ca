"""Weights in a notebook: a cell for each weight, names that cannot be HTML, and what is left out is said."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn_jax
from attn_jax.attention.notebook import MOST, heat_map

X = jax.random.normal(jax.random.key(0), (2, 5, 3))


def test_attended_draws_its_weights():
    attended = attn_jax.attend(X[0], X[1], X[1])
    shown = [float(value) for value in re.findall(r': (-?[0-9.]+)"', attended._repr_html_())]
    np.testing.assert_allclose(shown, np.ravel(attended.weights), atol=5e-4)
    assert "weights [5, 5]<" in attended._repr_html_()


def test_names_are_escaped_and_negative_weights_have_another_colour():
    drawn = heat_map(jnp.array([[0.5, -1.0]]), queries=["<eos>"], keys=["a", "b"])
    assert "&lt;eos&gt; → b: -1.000" in drawn and "<eos>" not in drawn
    assert "(23, 78, 166, 0.500)" in drawn and "(194, 65, 12, 1.000)" in drawn


def test_what_is_left_out_is_said():
    drawn = heat_map(jnp.ones((2, 3, 70)))
    assert "weights [2, 3, 70], of which the first map, the first 64 keys" in drawn and drawn.count("<td") == 3 * MOST


def test_there_is_nothing_to_draw_inside_of_jit():
    assert jax.jit(lambda x: x if attn_jax.attend(x, x)._repr_html_() is None else 0 * x)(X).any()


@pytest.mark.parametrize(
    ("weights", "names", "words"),
    [(jnp.ones(3), {}, "expected at least two axes"), (jnp.ones((2, 3)), {"keys": ["a"]}, "1 names of keys")],
)
def test_wrong_shapes_are_told(weights, names, words):
    with pytest.raises(ValueError, match=words):
        heat_map(weights, **names)
