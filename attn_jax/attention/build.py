"""Builds Attention from names of parts and options, with wrappers in the usual order."""

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.core import Attention
from attn_jax.attention.forgetting import Forgetting
from attn_jax.attention.hard.readings import READINGS, Reading
from attn_jax.attention.maps import Difference, Fitted, Hopfield, Map, MapWrapper
from attn_jax.attention.names import from_name
from attn_jax.attention.normalizers import NORMALIZERS, softmax
from attn_jax.attention.normalizing import Monotonic, Normalize, NormalizerWrapper, TopKeys, Windowed
from attn_jax.attention.parts import Part, check_kind
from attn_jax.attention.reads import Dropped, Gated, Read, ReadWrapper
from attn_jax.attention.rotary import Rotary
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score
from attn_jax.attention.selective import Selective
from attn_jax.types import Array, Dtype


def build_attention(
    *,
    score: Score | str,
    normalize: Callable[..., Array] | str = softmax,
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

    The normalizer is wrapped, from the inside, by `top_keys` and the window; the map by `difference`, forget gates,
    `iterations`, `fit`, `rotary` and `selective`; the read by dropout and the gate. For another order, build the parts
    yourself: Attention(map=..., read=...).

    Args:
        score: an object, or a name from SCORES that needs no options.
        normalize: a function, a module, or a name from NORMALIZERS.
        read: a reading of one row, or a name from READINGS.
        window: restricts attention to keys near a centre; see local.py.
        monotonic: replaces `normalize` by weights that depend on the weights of the step before; see hard/monotonic.py.
        dropout: rate at which weights are dropped in training.
        block_size: number of keys whose scores are in memory at a time; 0: all.
        top_keys: number of keys (or blocks) with the largest scores that may be read; 0: all.
        keys_per_block: number of keys that `top_keys` selects together.
        iterations: number of reads; after each, the weighted mean of the keys is the next query.
        gate: whether to multiply the context by a sigmoid of the query.
        fit: LocalLine or Parallax from signed.py: a local linear fit to the values, at the query.
        difference: Subtract from signed.py: subtracts a second map; each map uses half of the columns.
        forget_heads: number of key heads with forget gates; 0: no forgetting.
        rotary: whether to rotate queries and keys by their positions.
        selective: whether the first head selects keys that later queries attend to less.
        dtype: type of the projection of the forget gates.

    Raises:
        ValueError: an unknown name; a number out of range; a part lacks a property that another part needs.
        TypeError: a part of the wrong kind.
    """
    check_kind("top_keys", top_keys, Integral, "a whole number")
    if not top_keys and keys_per_block != 1:
        raise ValueError(
            f"keys_per_block={keys_per_block} needs top_keys of at least 1; with top_keys=0 all keys are read"
        )
    part: Part = Normalize(function=from_name("normalize", normalize, NORMALIZERS))
    if monotonic is not None:
        if top_keys or window is not None or not part.is_softmax:
            others = {"top_keys": top_keys, "window": window is not None, part.label: not part.is_softmax}
            given = next(name for name, value in others.items() if value)
            raise ValueError(f"monotonic already computes the weights; do not combine it with {given}")
        part = Monotonic(selection=monotonic)
    wrappers: dict[type, Callable | None] = {
        TopKeys: partial(TopKeys, count=top_keys, keys_per_block=keys_per_block) if top_keys else None,
        Windowed: None if window is None else partial(Windowed, window=window),
        Difference: None if difference is None else partial(Difference, subtract=difference),
        Hopfield: None if iterations == 1 else partial(Hopfield, iterations=iterations),
        Fitted: None if fit is None else partial(Fitted, fit=fit),
        Selective: Selective if selective else None,
        Dropped: partial(Dropped, rate=dropout) if dropout else None,
        Gated: Gated if gate else None,
    }
    return compose(
        score=from_name("score", score, SCORES),
        normalize=part,
        read=Read(reading=from_name("read", read, READINGS)),
        wrappers=[(kind, wrap) for kind, wrap in wrappers.items() if wrap is not None],
        forget=partial(Forgetting, num_heads=forget_heads, dtype=dtype) if forget_heads else None,
        rotary=rotary,
        block_size=block_size,
    )


def compose(
    *,
    score: Score,
    normalize: Part,
    read: Part,
    wrappers: Sequence[tuple[type, Callable[..., Part]]] = (),
    forget: Callable[..., Part] | None = None,
    rotary: bool = False,
    block_size: int = 0,
) -> Attention:
    """Builds an Attention from a score, a normalizer, a read and the wrappers around them.

    Args:
        score: a module.
        normalize: Normalize(...) or Monotonic(...).
        read: Read(...).
        wrappers: (class of the wrapper, function from the wrapped part to the wrapper), from the inside; the class
            determines whether the normalizer, the map or the read is wrapped.
        forget: wraps a map in forget gates, inside of every other wrapper of the map except a difference.
        rotary: whether to rotate queries and keys, outside of every wrapper of the map except selection.
        block_size: number of keys whose scores are in memory at a time; 0: all.

    Raises:
        ValueError: a part lacks a property that another part needs.
    """

    def around(part: Part, *kinds: type) -> Part:
        for kind, wrap in wrappers:
            part = wrap(of=part) if issubclass(kind, kinds) else part
        return part

    normalize = around(normalize, NormalizerWrapper)
    part: Part = around(Map(score=score, normalize=normalize), Difference)
    part = part if forget is None else forget(of=part)
    for kind, wrap in wrappers:
        if issubclass(kind, MapWrapper) and not issubclass(kind, Difference | Selective):
            part = wrap(of=part)
    part = Rotary(of=part) if rotary else part
    return Attention(map=around(part, Selective), read=around(read, ReadWrapper), block_size=block_size)
