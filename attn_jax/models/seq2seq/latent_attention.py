"""Options of soft or latent attention in a recurrent decoder."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from attn_jax.attention import NORMALIZERS, READINGS, WINDOWS
from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.normalizers import softmax
from attn_jax.errors import UserError
from attn_jax.models.attention_options import DroppedAttentionOptions, make
from attn_jax.models.seq2seq.cooling import Cooling
from attn_jax.options import option

# model.attention.transition -> (earlier keys have probability 0, the distance has a score of its own).
TRANSITIONS = {
    "independent": None,
    "monotonic": (True, False),
    "first_order": (False, True),
    "monotonic_first_order": (True, True),
}
FEEDS = ("mean", "read")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentAttentionOptions(DroppedAttentionOptions):
    """Options of soft or latent attention in a recurrent decoder."""

    normalize: str = option("softmax", "function that turns scores into weights", choices=(*NORMALIZERS, "monotonic"))
    window: str = option(
        "global", "window of visible keys: all, or the keys around a centre", choices=("global", *WINDOWS)
    )
    window_size: int = option(10, "local_m, local_p: largest distance of a visible key from the centre", at_least=1)
    read: str = option("expectation", "read-out of the values and its gradient estimator", choices=READINGS)
    num_samples: int = option(
        1, "samples, or evaluations of the loss, per target token; read top: number of keys", at_least=1
    )
    temperature: float = option(1.0, "temperature of relaxed samples (Gumbel)", at_least=1e-6)
    baseline: str = option(
        "default",
        "baseline of sampled read-outs; default: learned where possible, else none",
        choices=("default", *BASELINES),
    )
    feed: str = option(
        "mean", "context that enters the decoder state: the mean, or the sampled one (read)", choices=FEEDS
    )
    mean_probability: float = option(
        0.0,
        "feed read: probability that a sentence is trained with its mean contexts (Xu 2015: 0.5)",
        at_least=0,
        at_most=1,
    )
    soft_steps: int = option(
        0,
        "latent contexts: number of training steps over which the loss turns from that of the mean context into its "
        "own; feed read: over which the probability of mean contexts falls from 1 to mean_probability; 0: none",
        at_least=0,
    )
    cooling_steps: int = option(
        0,
        "latent contexts, relaxed samples: training steps over which temperature falls to final_temperature; 0: never",
        at_least=0,
    )
    final_temperature: float = option(0.1, "cooling_steps: temperature after them", at_least=1e-6)
    k_max: int = option(
        0,
        "latent contexts: number of most probable keys that evaluation sums over; 0: all",
        at_least=0,
        affects="results",
    )
    transition: str = option(
        "independent", "marginal: how the probability of a key depends on the previous key", choices=TRANSITIONS
    )
    jump_size: int = option(5, "first_order: jumps between keys are clipped to this distance", at_least=1)

    @property
    def cooling(self) -> Cooling | None:
        """The falling temperature; None where it stays."""
        if not self.cooling_steps:
            return None
        return Cooling(self.temperature, self.final_temperature, self.cooling_steps)

    @property
    def is_monotonic(self) -> bool:
        """True if the weights of a query depend on the weights of the previous query."""
        return self.normalize not in NORMALIZERS

    @property
    def normalizers(self) -> Mapping[str, Any]:
        return NORMALIZERS | {"monotonic": softmax}

    def arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if self.is_monotonic and self.window in WINDOWS:
            raise UserError("model.attention.normalize monotonic takes no model.attention.window")
        if self.is_monotonic and (self.top_keys or self.iterations > 1 or self.fit != "mean" or self.difference):
            raise UserError(
                "model.attention.normalize monotonic makes the weights by itself; it takes none of the options "
                "top_keys, iterations, fit and difference of model.attention"
            )
        if self.block_size and (self.is_monotonic or self.window in WINDOWS):
            other = "normalize monotonic" if self.is_monotonic else f"window {self.window}"
            raise UserError(f"model.attention.block_size does not go together with model.attention.{other}")
        window, fields = None, {"size": self.window_size, "features": self.features}
        if self.window in WINDOWS:
            window = make(WINDOWS[self.window], fields)
        monotonic = MonotonicSelection() if self.is_monotonic else None
        return super().arguments(options) | {"window": window, "monotonic": monotonic}
