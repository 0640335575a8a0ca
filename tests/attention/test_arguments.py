"""What attention cannot be made of or read is refused in one line that says what was expected.

The functions are called by themselves: within attention the annotations, which tests check, refuse most of these first.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention import MultiHead, build_attention
from attn_jax.attention.arguments import check_array, check_bias, check_memory, check_query, check_rng
from attn_jax.attention.blockwise import blockwise_attention
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.local import LocalM
from attn_jax.attention.masks import check_boolean
from attn_jax.attention.normalizers import entmax, softmax, takes_mask
from attn_jax.attention.parts import check_kind
from attn_jax.attention.scores import Gaussian
from attn_jax.models.memory_networks.options import ALL_NORMALIZERS

QUERY, KEYS, VALUES = jnp.ones((5, 8)), jnp.ones((7, 8)), jnp.ones((7, 3))


@pytest.mark.parametrize(
    ("check", "arguments", "message"),
    [
        (check_array, ("query", [[1.0]], "queries, features"), "query: expected an array .*queries, features.* a list"),
        (check_query, (jnp.ones(8), KEYS), r"query: expected \[..., queries, features\], got the shape \(8,\)"),
        (check_query, (jnp.ones((2, 5, 8)), jnp.ones((3, 7, 8))), r"\(2, 5, 8\) and keys of shape \(3, 7, 8\)"),
        (
            check_memory,
            (jnp.ones((2, 7, 8)), jnp.ones((3, 7, 3)), None),
            r"values of shape \(3, 7, 3\) and keys of shape",
        ),
        (check_memory, (KEYS, VALUES[:1], None), "1 values, 7 keys; expected one value for each key"),
        (check_memory, (KEYS, VALUES[:6], None), "6 values, 7 keys; expected one value for each key"),
        (check_memory, (KEYS, VALUES, jnp.ones(3, bool)), r"key_mask of shape \(3,\) does not fit keys"),
        (check_memory, (KEYS, VALUES, [True] * 7), r"key_mask: expected a boolean array, .* got \[True"),
        (check_bias, (jnp.ones((3, 7)), QUERY, KEYS), r"bias of shape \(3, 7\) does not broadcast .*\(5, 7\)"),
        (check_kind, ("window", 3, nn.Module, "a module"), r"window is 3; expected a module"),
        (check_kind, ("window", LocalM(size=1), nn.Module, "a module"), None),
        (check_kind, ("top_keys", 1.5, int, "a whole number"), r"top_keys is 1\.5; expected a whole number"),
        (check_rng, (0,), r"rng is 0; expected a key, such as jax\.random\.key\(0\)"),
        (check_rng, (np.uint32(3),), "rng is .*3.*; expected a key"),
        (check_rng, (jax.random.key(0),), None),
        (check_rng, (jax.random.PRNGKey(0),), None),
        (check_bias, (jnp.ones((5, 1, 7)), QUERY[None], KEYS[None]), None),
        (check_bias, (jnp.ones((5, 7)), jnp.ones((2, 5, 8)), jnp.ones((2, 7, 8))), None),
        (check_memory, (KEYS, VALUES, jnp.ones((4, 7), bool)), r"key_mask of shape \(4, 7\) does not fit keys"),
        (check_memory, (KEYS[None], VALUES[None], jnp.ones(7, bool)), None),
    ],
)
def test_what_does_not_fit_is_told(check, arguments, message):
    if message is None:
        check(*arguments)
        return
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("block_size", [0, 2])
def test_a_mask_is_no_bias(block_size):
    message = "bias is boolean; expected numbers that are added .* mask=..."
    with pytest.raises(ValueError, match=message):
        check_bias(jnp.ones((5, 7), bool), QUERY, KEYS)
    causal = lambda query, key: key <= query  # noqa: E731
    with pytest.raises(ValueError, match=message):
        build_attention(score="dot", block_size=block_size).apply({}, QUERY, KEYS, VALUES, bias=causal)
    with pytest.raises(ValueError, match=message):
        blockwise_attention(lambda query, keys: query @ keys.T, QUERY, KEYS, VALUES, bias=causal)


def test_sampling_in_training_needs_an_rng():
    attention = build_attention(score="dot", read="straight_through")
    with pytest.raises(ValueError, match="read=straight_through samples keys in training, and needs an rng"):
        attention.apply({}, QUERY, KEYS, VALUES, train=True)
    context = attention.apply({}, QUERY, KEYS, VALUES).context  # the most probable key
    assert context.shape == (5, 3) and attention.needs_rng and not build_attention(score="dot").needs_rng


def test_the_context_has_the_type_of_the_values():
    half = VALUES.astype(jnp.bfloat16)
    for options in ({"score": Gaussian(width=(1.0,))}, {"score": "dot", "block_size": 2}, {"score": "scaled_dot"}):
        context = jax.eval_shape(lambda o=options: build_attention(**o).apply({}, QUERY, KEYS, half).context)
        assert context.dtype == jnp.bfloat16, options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(features=0), "features is 0; expected at least 1"),
        (dict(attention=build_attention(score="dot", monotonic=MonotonicSelection())), "expected monotonic=None"),
    ],
)
def test_heads_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHead(**{"attention": build_attention(score="dot"), "num_heads": 2, "features": 8} | options)


def test_functions_of_scores_and_mask_are_normalizers():
    functions = [functools.partial(entmax, alpha=1.3), jax.jit(softmax), lambda *arguments: softmax(*arguments)]
    for normalize in (*functions, *(x for x in ALL_NORMALIZERS.values() if not isinstance(x, type))):
        assert takes_mask(normalize), normalize


def test_a_name_is_no_mask():
    with pytest.raises(TypeError, match=r"mask: expected a boolean array, .* got 'causal'"):
        check_boolean("causal")
