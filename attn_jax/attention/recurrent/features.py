"""Feature maps of linear attention: score(query, key) = phi(query) . phi(key)."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from attn_jax.types import Array, Float


class FeatureMap(NamedTuple):
    """phi, and whether its values are non-negative, which division by the sum of the weights needs."""

    apply: Callable[[Float[Array, "..."]], Float[Array, "..."]]
    non_negative: bool


def elu_plus_one(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """elu(x) + 1: exp(x) below 0 and x + 1 above, always positive. Katharopoulos 2020 (2006.16236), equation 7."""
    return jax.nn.elu(x) + 1


FEATURE_MAPS = {
    "elu_plus_one": FeatureMap(elu_plus_one, non_negative=True),
    "relu": FeatureMap(jax.nn.relu, non_negative=True),
    "identity": FeatureMap(lambda x: x, non_negative=False),
}


def check_feature_map(feature_map: FeatureMap, normalized: bool) -> None:
    """Checks that the weights of a feature map can be divided by their sum.

    Raises:
        ValueError: its values may be negative, so the sum may be negative or zero.
    """
    if normalized and not feature_map.non_negative:
        good = " or ".join(name for name, other in FEATURE_MAPS.items() if other.non_negative)
        raise ValueError(
            f"a feature map with negative values cannot be normalized by the sum of its weights; take feature_map "
            f"{good}, or normalized False"
        )
