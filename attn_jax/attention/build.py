"""Attention built from names of parts and options, in the usual order of wrappers."""

from collections.abc import Callable
from numbers import Integral

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.core import Attention
from attn_jax.attention.forgetting import Forgetting
from attn_jax.attention.hard.readings import READINGS, Reading
from attn_jax.attention.maps import Difference, Fitted, Hopfield, Map
from attn_jax.attention.names import from_name
from attn_jax.attention.normalizers import NORMALIZERS, softmax
from attn_jax.attention.normalizing import Monotonic, Normalize, TopKeys, Windowed
from attn_jax.attention.parts import Part, check_kind, describe
from attn_jax.attention.reads import Dropped, Gated, Read
from attn_jax.attention.rotary import Rotary
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score
from attn_jax.attention.selective import Selective
from attn_jax.types import Dtype


def build_attention(
    *,
    score: Score | str,
    normalize: Callable | str = softmax,
    read: Reading | str = "expectation",
    window: nn.Module | None = None,
    monotonic: nn.Module | None = None,
    dropout: float = 0.0,
    block_size: int = 0,
    top_keys: int = 0,
    keys_per_block: int = 1,
    iterations: int = 1,
    gate: bool = False,
    fit: nn.Module | None = None,
    difference: nn.Module | None = None,
    forget_heads: int = 0,
    rotary: bool = False,
    selective: bool = False,
    dtype: Dtype = jnp.float32,
) -> Attention:
    """Builds an Attention from names of parts and the options of the wrappers around them; `attn_jax.attention`.

        >>> attention = build_attention(score="scaled_dot", normalize="sparsemax", top_keys=3)
        >>> attention.apply({}, query, keys, values).context.shape
        (5, 8)

    The wrappers of the normalizer are, from the inside, `top_keys` and the window; those of the map are `difference`,
    forget gates, `iterations`, `fit`, `rotary` and `selective`; those of the read are dropout and the gate. What is to
    be wrapped in another order is built from the parts themselves: Attention(map=..., read=...).

    Args:
        score: an object, or a name of SCORES that needs no options.
        normalize: a function, a module, or a name of NORMALIZERS.
        read: a reading of one row, or a name of READINGS.
        window: restricts attention to keys near a centre; see local.py.
        monotonic: in place of `normalize`: the weights depend on those of the step before; see hard/monotonic.py.
        dropout: rate at which weights are dropped in training.
        block_size: number of keys whose scores are in memory at a time; 0: all.
        top_keys: number of keys (or blocks) with the largest scores that may be read; 0: all.
        keys_per_block: number of keys that `top_keys` selects together.
        iterations: number of reads; after each, the mean of the keys is the next query.
        gate: whether to multiply the context by a sigmoid of the query.
        fit: LocalLine or Parallax of signed.py: a local linear fit to the values, at the query.
        difference: Subtract of signed.py: subtract a second map, each of half of the columns.
        forget_heads: number of heads of keys that have forget gates; 0: nothing is forgotten.
        rotary: whether to rotate queries and keys by their positions.
        selective: whether the first head selects keys that later queries attend to less.
        dtype: of the projection of forget gates.

    Raises:
        ValueError: an unknown name; a number out of range; parts that do not promise what another one needs.
        TypeError: a part of the wrong kind.
    """
    part: Part = Normalize(function=from_name("normalize", normalize, NORMALIZERS))
    check_kind("top_keys", top_keys, Integral, "a whole number")
    if top_keys:
        part = TopKeys(of=part, count=top_keys, keys_per_block=keys_per_block)
    elif keys_per_block != 1:
        raise ValueError(
            f"keys_per_block={keys_per_block} needs top_keys of at least 1; with top_keys=0 all keys are read"
        )
    part = part if window is None else Windowed(of=part, window=window)
    if monotonic is not None:
        if not isinstance(part, Normalize) or not part.is_softmax:
            raise ValueError(f"monotonic already computes the weights; do not combine it with {describe(part)}")
        part = Monotonic(selection=monotonic)
    part = Map(score=from_name("score", score, SCORES), normalize=part)
    part = part if difference is None else Difference(of=part, subtract=difference)
    part = Forgetting(of=part, num_heads=forget_heads, dtype=dtype) if forget_heads else part
    part = part if iterations == 1 else Hopfield(of=part, iterations=iterations)
    part = part if fit is None else Fitted(of=part, fit=fit)
    part = Rotary(of=part) if rotary else part
    part = Selective(of=part) if selective else part
    reading: Part = Read(reading=from_name("read", read, READINGS))
    reading = Dropped(of=reading, rate=dropout) if dropout else reading
    reading = Gated(of=reading) if gate else reading
    return Attention(map=part, read=reading, block_size=block_size)
