"""Losses of a target against sampled words, from logits s and the proposal q of the samples.

With k sampled words w_j,

    importance sampling     -s_y + log(exp(s_y) + sum_{j: w_j != y} exp(s_j) / (k q_j))
    noise contrastive       -log sigmoid(s_y - log k q_y) - sum_j log sigmoid(-(s_j - log k q_j))
    negative sampling       -log sigmoid(s_y)             - sum_j log sigmoid(-s_j)
    BlackOut                -log p_y - sum_{j: w_j != y} log(1 - p_j),      p = softmax(s - log q) over y and the w_j

The first one estimates the loss of the full softmax: the sum is an unbiased estimate of its normalizer, for every q
that is nowhere zero. Its logarithm is too small on average, by about half of the relative variance of the estimate;
this bias falls as 1 / k, and is large if q is far from p.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Bool, Float

ALMOST_ONE = -1e-6  # largest log-probability in BlackOut, where log(1 - p) has a pole


class Scored(NamedTuple):
    """Logits of the targets and of the sampled words, and the expected count k q of each among k samples."""

    target: Float[Array, "n"]
    words: Float[Array, "n k"]
    log_count_of_target: Float[Array, "n"]  # log(k q)
    log_count: Float[Array, "k"]
    is_target: Bool[Array, "n k"]  # the sampled word is the target


def importance_sampling(scored: Scored) -> Float[Array, "n"]:
    """Softmax over the target and the sampled words, each weighted by 1 / (k q) (Bengio & Senecal 2003, 2008).

    Sampled words that are the target are left out. Jean 2015 (arXiv 1412.2007) applies it to translation.
    """
    words = jnp.where(scored.is_target, -jnp.inf, scored.words - scored.log_count[None])
    return jax.nn.logsumexp(jnp.concatenate([scored.target[:, None], words], axis=1), axis=1) - scored.target


def noise_contrastive(scored: Scored) -> Float[Array, "n"]:
    """Logistic regression between the target and k words of noise (Gutmann & Hyvarinen 2010; Mnih & Teh 2012)."""
    return negative_sampling(
        scored._replace(target=scored.target - scored.log_count_of_target, words=scored.words - scored.log_count[None])
    )


def negative_sampling(scored: Scored) -> Float[Array, "n"]:
    """Noise-contrastive estimation without the noise probabilities (Mikolov 2013, arXiv 1310.4546, equation 4).

    It learns s = log(p(y | context) / (k q(y))), so the softmax of s is not the distribution of the words.
    """
    return -jax.nn.log_sigmoid(scored.target) - jnp.sum(jax.nn.log_sigmoid(-scored.words), axis=1)


def blackout(scored: Scored) -> Float[Array, "n"]:
    """BlackOut with its weights 1 / q (Ji 2016, arXiv 1511.06909, equations 5 and 6)."""
    log_p = blackout_log_probs(scored)
    others = jnp.where(scored.is_target, 0.0, log1m_exp(jnp.minimum(log_p[:, 1:], ALMOST_ONE)))
    return -log_p[:, 0] - jnp.sum(others, axis=1)


def blackout_log_probs(scored: Scored) -> Float[Array, "n m"]:
    """log p of the target and of the sampled words; -inf for sampled words that are the target."""
    words = jnp.where(scored.is_target, -jnp.inf, scored.words - scored.log_count[None])
    target = scored.target - scored.log_count_of_target
    return jax.nn.log_softmax(jnp.concatenate([target[:, None], words], axis=1))


def log1m_exp(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(1 - exp(x)) for x < 0, without cancellation."""
    far = x < -0.6931472
    near = jnp.where(far, -1.0, x)
    return jnp.where(far, jnp.log1p(-jnp.exp(jnp.where(far, x, -1.0))), jnp.log(-jnp.expm1(near)))
