"""Positive random features: an unbiased estimator of the softmax kernel, exp(query . key).

    phi(x)_i = exp(w_i . x - |x|^2 / 2) / sqrt(m), w_i ~ N(0, I)          E[phi(query) . phi(key)] = exp(query . key)

Choromanski 2020 (arXiv 2009.14794), lemma 1 and theorem 2. Since the estimate is a product, the contexts of all queries
need no array [q, k]: sum_k phi(k) values_k is computed once, in time linear in the number of keys. The features are
positive, so the estimated weights are a distribution. As ratios of estimates, the weights are biased. For the scaled
dot product, divide keys and queries by d^(1/4) first.

Leading axes broadcast; `directions` [m, d] are the w_i.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.masks import check_key_mask, checked_masks
from attn_jax.types import Array, Bool, Float, PRNGKeyArray, wide


def random_directions(rng: PRNGKeyArray, number: int, features: int) -> Float[Array, "m d"]:
    """Samples independent normal directions."""
    return jax.random.normal(rng, (number, features), jnp.float32)


def orthogonal_directions(rng: PRNGKeyArray, number: int, features: int) -> Float[Array, "m d"]:
    """Samples normal directions; within each block of `features` directions they are orthogonal.

    Each direction has the same distribution as an independent one, so the estimator stays unbiased; its variance is
    lower (Choromanski 2020, theorem 2).
    """
    blocks = -(-number // features)
    turn_rng, length_rng = jax.random.split(rng)
    turns = jax.random.orthogonal(turn_rng, features, (blocks,), dtype=jnp.float32).reshape(-1, features)[:number]
    lengths = jnp.linalg.norm(random_directions(length_rng, number, features), axis=-1)
    return turns * lengths[:, None]


def log_features(x: Float[Array, "... n d"], directions: Float[Array, "m d"]) -> Float[Array, "... n m"]:
    """Computes log phi(x)_i = w_i . x - |x|^2 / 2 - log(m) / 2."""
    x = wide(x)
    square = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    return x @ directions.T.astype(x.dtype) - square / 2 - jnp.log(jnp.asarray(len(directions), x.dtype)) / 2


def kernel_estimate(
    query: Float[Array, "... q d"], keys: Float[Array, "... k d"], directions: Float[Array, "m d"]
) -> Float[Array, "... q k"]:
    """Estimates exp(query . key) by phi(query) . phi(key), without bias."""
    return jnp.einsum("...qm,...km->...qk", *(jnp.exp(log_features(x, directions)) for x in (query, keys)))


def kernel_variance(
    query: Float[Array, "... q d"], keys: Float[Array, "... k d"], number: int
) -> Float[Array, "... q k"]:
    """Computes the variance of `kernel_estimate` with `number` independent directions.

        exp(2 query . key) (exp(|query + key|^2) - 1) / number

    Choromanski 2020, lemma 2. It is small if query and key point in opposite directions, where the kernel is small too.
    """
    query, keys = wide(query), wide(keys)
    product = jnp.einsum("...qd,...kd->...qk", query, keys)
    squares = [jnp.sum(jnp.square(x), axis=-1) for x in (query, keys)]
    apart = squares[0][..., :, None] + squares[1][..., None, :] + 2 * product
    return jnp.exp(2 * product) * jnp.expm1(apart) / number


@checked_masks
def random_feature_attention(
    query: Float[Array, "... q d"],
    keys: Float[Array, "... k d"],
    values: Float[Array, "... k dv"],
    directions: Float[Array, "m d"],
    *,
    key_mask: Bool[Array, "..."] | None = None,
) -> Float[Array, "... q dv"]:
    """Computes context_q = phi(q) . sum_k phi(k) values_k / (phi(q) . sum_k phi(k)), in time linear in the keys.

    Equal to attention with the weights `kernel_estimate` divided by its sum over the keys, which are the weights of the
    score RandomFeatures under softmax. Keys where `key_mask` [..., k] is False are ignored; without any key the context
    is zero.

    Raises:
        ValueError: the mask is not boolean, or does not fit the keys.
    """
    if key_mask is not None:
        check_key_mask(key_mask, keys)
    there = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])[..., None]
    of_query, of_keys = log_features(query, directions), log_features(keys, directions)
    of_keys = jnp.where(there, of_keys, -jnp.inf)
    # One factor per query and one per feature cancel in the ratio; they keep the exponentials within range.
    per_feature = jax.lax.stop_gradient(jnp.max(of_keys, axis=-2, keepdims=True))
    per_feature = jnp.where(per_feature > -jnp.inf, per_feature, 0.0)
    of_query = of_query + per_feature
    of_query = jnp.exp(of_query - jax.lax.stop_gradient(jnp.max(of_query, axis=-1, keepdims=True)))
    of_keys = jnp.where(there, jnp.exp(jnp.where(there, of_keys - per_feature, 0.0)), 0.0)
    read = jnp.einsum("...qm,...md->...qd", of_query, jnp.einsum("...km,...kd->...md", of_keys, values))
    total = jnp.einsum("...qm,...m->...q", of_query, jnp.sum(of_keys, axis=-2))[..., None]
    return jnp.where(total > 0, read / jnp.where(total > 0, total, 1.0), 0.0).astype(values.dtype)
