"""Normalizers as functions of one score and one number per row, tau, so that they can be computed block by block.

    weights_i = f(scores_i, tau)          sum_i f(scores_i, tau) = 1

For softmax f = exp(scores - tau), and tau is the logsumexp of the row. For entmax f is a power of max(scores - tau, 0),
and tau is the threshold. Normalizers that do not sum to one, such as rela, have no tau. Softmax with a sink is softmax
times a function of tau, `share`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Float, PyTree

Scores = Float[Array, "... q k"]
# Sums a function of the scores over all keys; masked scores are -inf.
Reduce = Callable[[Callable[[Scores], PyTree]], PyTree]


def unchanged(scores: Scores) -> Scores:
    """Returns the scores."""
    return scores


class Form(NamedTuple):
    """A normalizer as a function of one score and of tau, one number per row."""

    weigh: Callable[..., Scores]  # (scores, tau [..., q, 1], *parameters) -> weights
    solve: Callable[..., Array] | None = None  # (reduce, largest [..., q, 1], keys, *parameters) -> tau; None: no tau
    parameters: tuple[Array, ...] = ()  # arrays that have a gradient
    transform: Callable[[Scores], Scores] = unchanged  # applied to the scores first
    is_softmax: bool = False  # weigh = exp(scores - tau): context and tau are found in one scan
    of_mask: bool = False  # tau depends only on the mask, not on the scores
    share: Callable[..., Array] | None = None  # (tau, *parameters) -> factor of all weights of a row; None: 1


def _exponential(scores: Scores, tau: Array, *parameters: Array) -> Scores:
    return jnp.exp(scores - tau)


SOFTMAX = Form(_exponential, is_softmax=True)
SIGMOID = SOFTMAX._replace(transform=jax.nn.log_sigmoid)
RELU = Form(lambda scores, tau: jax.nn.relu(scores))
LINEAR = Form(lambda scores, tau: scores)


def share_of_keys(tau: Float[Array, "..."], sink: Float[Array, "..."] | float = 0.0) -> Float[Array, "..."]:
    """Computes the fraction of softmax that a sink with this score leaves to the keys."""
    return jax.nn.sigmoid(tau - sink)


def _log_number(reduce: Reduce, largest: Float[Array, "... 1"], num_keys: int) -> Float[Array, "... 1"]:
    return jnp.log(jnp.maximum(reduce(lambda scores: (scores > -jnp.inf).astype(largest.dtype)), 1))


SOFTMAX_ONE = SOFTMAX._replace(share=share_of_keys)
SHIFTED_SIGMOID = Form(lambda scores, tau: jax.nn.sigmoid(scores - tau), _log_number, of_mask=True)
