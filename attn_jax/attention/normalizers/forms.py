"""Normalizers as functions of one score and one number of its row, so that they can be computed block by block.

    weights_i = f(scores_i, tau)          sum_i f(scores_i, tau) = 1

softmax has f = exp(scores - tau), where tau is the logsumexp of the row; entmax has a power of max(scores - tau, 0),
where tau is its threshold. Normalizers that do not sum to one, such as rela, have no tau. softmax with a sink is
softmax times a function of tau, its `share`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.elementwise import kernel_sum, linear, rela, sigmoid
from attn_jax.attention.normalizers.entmax import LEAST, NEGLIGIBLE, entmax15, root, sparsemax
from attn_jax.types import Array, Float, PyTree

Scores = Float[Array, "... q k"]
# Sums a function of the scores, -inf where masked, over all keys.
Reduce = Callable[[Callable[[Scores], PyTree]], PyTree]
LEAST_ALPHA = 1.01  # of entmax: tau grows as 1 / (alpha - 1), and with it the rounding of scores - tau


class Form(NamedTuple):
    """A normalizer as a function of one score and one number of the row."""

    transform: Callable[[Scores], Scores]  # of the scores, before all else
    weigh: Callable[..., Scores]  # (scores, tau [..., q, 1], *parameters) -> weights
    solve: Callable[..., Array] | None = None  # (reduce, largest [..., q, 1], keys, *parameters) -> tau; None: no tau
    parameters: tuple[Array, ...] = ()  # that have a gradient
    is_softmax: bool = False  # weigh = exp(scores - tau): context and tau are found in one scan
    of_mask: bool = False  # tau depends on the mask alone, and not on the scores
    share: Callable[..., Array] | None = None  # (tau, *parameters) -> factor of all weights of a row; None: 1


def _same(scores: Scores) -> Scores:
    return scores


def _exponential(scores: Scores, tau: Array, *parameters: Array) -> Scores:
    return jnp.exp(scores - tau)


def entmax_form(alpha: float | Float[Array, "..."]) -> Form:
    """Returns entmax: weights = max((alpha - 1) (scores - tau), 0)^(1 / (alpha - 1)).

    Args:
        alpha: 1, which is softmax, or LEAST_ALPHA to 2; or an array that broadcasts to [..., q, 1] and is clipped to
            the latter: between 1 and LEAST_ALPHA digits would be lost, and above 2 the derivative has no bound.

    Raises:
        ValueError: a number outside of the range.
    """
    if not isinstance(alpha, float | int):
        return Form(_same, _entmax, _entmax_threshold, (jnp.clip(alpha, LEAST_ALPHA, 2.0),))
    if 0 <= alpha - 1 < LEAST:
        return SOFTMAX
    if not LEAST_ALPHA <= alpha <= 2:
        raise ValueError(f"alpha of entmax is {alpha}; block by block, 1 or {LEAST_ALPHA} to 2 was expected")
    return Form(_same, functools.partial(_entmax, alpha=alpha), functools.partial(_entmax_threshold, alpha=alpha))


def _power(x: Scores, exponent: Array | float) -> Scores:
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1.0) ** exponent, 0.0)


def _entmax(scores: Scores, tau: Array, alpha: Array | float) -> Scores:
    return _power((alpha - 1) * (scores - tau), 1 / (alpha - 1))


def _entmax_threshold(reduce: Reduce, largest: Array, num_keys: int, alpha: Array | float) -> Array:
    """Finds tau by `root`, as entmax does: ||max(eps (scores - max) + d, 0)||_(1 / eps) = 1."""
    eps = alpha - 1

    def norm_and_slope(d: Array) -> tuple[Array, Array]:
        x = lambda scores: eps * (scores - largest) + d  # noqa: E731
        total, lower = reduce(lambda scores: (_power(x(scores), 1 / eps), _power(x(scores), 1 / eps - 1)))
        total, lower = jnp.maximum(total, 1.0), jnp.maximum(lower, NEGLIGIBLE)
        return total**eps, lower * total ** (eps - 1)

    d, _ = root(norm_and_slope, jnp.ones_like(largest), max(num_keys, 1), eps)
    return largest - d / eps


SOFTMAX = Form(_same, _exponential, is_softmax=True)
FORMS: dict[Callable, Form] = {
    softmax: SOFTMAX,
    kernel_sum: SOFTMAX,
    sigmoid: SOFTMAX._replace(transform=jax.nn.log_sigmoid),
    rela: Form(_same, lambda scores, tau: jax.nn.relu(scores)),
    linear: Form(_same, lambda scores, tau: scores),
    sparsemax: entmax_form(2.0),
    entmax15: entmax_form(1.5),
}


def form_of(normalize: Callable, scores: Scores | jax.ShapeDtypeStruct) -> Form:
    """Returns the form of a normalizer for scores of this shape.

    Raises:
        ValueError: it has none.
    """
    if hasattr(normalize, "form"):
        return normalize.form(scores)
    check_has_form(normalize)
    return FORMS[normalize]


def check_has_form(normalize: Callable) -> None:
    """Checks that a normalizer can be computed block by block.

    Raises:
        ValueError: it cannot, or not with its alpha.
    """
    if reason := why_no_form(normalize):
        raise ValueError(reason)


def why_no_form(normalize: Callable) -> str:
    """Returns the reason why a normalizer cannot be computed block by block; "" where it can."""
    if hasattr(normalize, "form"):
        alpha = getattr(normalize, "alpha", None)
        try:
            if isinstance(alpha, float | int):
                entmax_form(alpha)
        except ValueError as error:
            return str(error)
        return ""
    # A module with parameters has no hash.
    if not isinstance(normalize, nn.Module) and normalize in FORMS:
        return ""
    known = ", ".join(known.__name__ for known in FORMS)
    name = getattr(normalize, "__name__", type(normalize).__name__)
    return (
        f"{name} cannot be computed block by block; expected {known}, softmax_one, unnormalized_sigmoid, Entmax, "
        "LearnedEntmax or LearnedSink"
    )
