"""Entmax as a function of one score and of the threshold tau of its row; see forms.py."""

import functools

import jax.numpy as jnp

from attn_jax.attention.normalizers.entmax import LEAST, NEGLIGIBLE, root
from attn_jax.attention.normalizers.forms import SOFTMAX, Form, Reduce, Scores
from attn_jax.types import Array, Float

LEAST_ALPHA = 1.01  # tau grows as 1 / (alpha - 1), and so does the rounding error of scores - tau


def has_entmax_form(alpha: float) -> bool:
    """Tells whether entmax with this alpha can be computed block by block."""
    return 0 <= alpha - 1 < LEAST or LEAST_ALPHA <= alpha <= 2


def entmax_form(alpha: float | Float[Array, "..."]) -> Form:
    """Returns the form of entmax: weights = max((alpha - 1) (scores - tau), 0)^(1 / (alpha - 1)).

    Args:
        alpha: 1, which is softmax, or LEAST_ALPHA to 2; or an array that broadcasts to [..., q, 1] and is clipped to
            LEAST_ALPHA to 2. Between 1 and LEAST_ALPHA precision would be lost, and above 2 the derivative is
            unbounded.

    Raises:
        ValueError: alpha is a number outside of the range.
    """
    if not isinstance(alpha, float | int):
        return Form(_weigh, _threshold, (jnp.clip(alpha, LEAST_ALPHA, 2.0),))
    if 0 <= alpha - 1 < LEAST:
        return SOFTMAX
    if not has_entmax_form(alpha):
        raise ValueError(f"alpha of entmax is {alpha}; block by block, 1 or {LEAST_ALPHA} to 2 was expected")
    return Form(functools.partial(_weigh, alpha=alpha), functools.partial(_threshold, alpha=alpha))


def _power(x: Scores, exponent: Array | float) -> Scores:
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1.0) ** exponent, 0.0)


def _weigh(scores: Scores, tau: Array, alpha: Array | float) -> Scores:
    return _power((alpha - 1) * (scores - tau), 1 / (alpha - 1))


def _threshold(reduce: Reduce, largest: Array, num_keys: int, alpha: Array | float) -> Array:
    """Finds tau by `root`, as in entmax.py: ||max(eps (scores - max) + d, 0)||_(1 / eps) = 1."""
    eps = alpha - 1

    def norm_and_slope(d: Array) -> tuple[Array, Array]:
        x = lambda scores: eps * (scores - largest) + d  # noqa: E731
        total, lower = reduce(lambda scores: (_power(x(scores), 1 / eps), _power(x(scores), 1 / eps - 1)))
        total, lower = jnp.maximum(total, 1.0), jnp.maximum(lower, NEGLIGIBLE)
        return total**eps, lower * total ** (eps - 1)

    d, _ = root(norm_and_slope, jnp.ones_like(largest), max(num_keys, 1), eps)
    return largest - d / eps
