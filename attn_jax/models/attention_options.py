"""From config.model.attention, and what the loss makes of it, to objects."""

from typing import Any

import jax
from ml_collections import ConfigDict

from attn_jax.attention import NORMALIZERS, SCORES, WINDOWS, Attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.multi_head import head_width
from attn_jax.attention.normalizers import softmax, takes_infinite
from attn_jax.attention.scores.kernels import Kernel, check_width
from attn_jax.errors import UserError, lookup
from attn_jax.types import Dtype


def build_attention(
    config: ConfigDict,
    query_features: int,
    read: Reading,
    num_heads: int = 1,
    num_scaled: int = 0,
    scores: dict[str, type] = SCORES,
    normalizers: dict[str, Any] = NORMALIZERS,
    **more: Any,
) -> Attention:
    """config.model.attention as a module; `query_features` is the width of the states that ask, or of a head.

    `num_scaled` heads, the first ones, are scaled by a scalable normalizer; 0: all. What there is to choose from is in
    `scores` and `normalizers`; a field of one of them has its value from `more`, or else from the config.
    """
    score = lookup(scores, config.score, "model.attention.score")
    window = None if config.window == "global" else lookup(WINDOWS, config.window, "model.attention.window")
    monotonic = config.normalize == "monotonic"
    if monotonic and window is not None:
        raise UserError("model.attention.normalize monotonic takes no model.attention.window")
    options = config.to_dict() | {
        "query_features": query_features,
        "size": config.window_size,
        "num_heads": num_heads,
        "num_scaled": num_scaled,
        **more,
    }
    normalize = lookup(normalizers | {"monotonic": softmax}, config.normalize, "model.attention.normalize")
    if issubclass(score, Kernel):
        check_kernel(score, normalize, config, query_features)
    try:
        return Attention(
            score=construct(score, options),
            normalize=construct(normalize, options) if isinstance(normalize, type) else normalize,
            read=read,
            window=window and construct(window, options),
            monotonic=MonotonicSelection() if monotonic else None,
            dropout=config.dropout,
        )
    except ValueError as error:
        raise UserError(f"model.attention: {error}") from error


def width_of_head(features: int, num_heads: int, num_kv_heads: int = 0) -> int:
    """The width of a head, or a UserError where the numbers of the config do not divide each other."""
    try:
        return head_width(features, num_heads, num_kv_heads)
    except ValueError as error:
        raise UserError(f"model: {error}") from error


def check_kernel(score: type[Kernel], normalize: Any, config: ConfigDict, features: int) -> None:
    """UserError for a width that is none, and where a query out of the reach of all keys would have weights of NaN."""
    try:
        if config.width:
            check_width(config.width, features)
    except ValueError as error:
        raise UserError(f"model.attention.{error}") from error
    if score.compact and not takes_infinite(normalize):
        raise UserError(
            f"model.attention.score {config.score} is -inf for keys out of its reach; it needs "
            f"model.attention.normalize kernel_sum, got {config.normalize}"
        )


def describe_attention(attention: Attention, dtype: Dtype, width: int) -> str:
    """How the context is computed: by which fused kernel, or as the formula is written."""
    if not attention.fusible:
        return "as written: read(normalize(score(query, keys)), values)"
    kernel = {"cudnn": "cuDNN", "xla": f"XLA on {jax.default_backend()}"}[implementation_of(dtype, width)]
    return f"fused, {kernel}" + (
        ", but as written in training, for the dropout of weights" if attention.dropout else ""
    )


def construct(kind: type, options: dict[str, Any]) -> Any:
    """kind(...) with those options that it has a field for."""
    return kind(**{name: value for name, value in options.items() if name in kind.__dataclass_fields__})
