"""The loss of a glimpse model: the word is trained by its likelihood, the places by their cost.

A path is the places x_1 ... x_T of the glimpses at an image, f its loss, the negative log-likelihood of the word, and c
its cost: f again, or 1 where the word is wrong (Mnih 2014, arXiv 1406.6247, section 3.2). The exact loss sums over all
paths,

    sum_x p(x) f(x), with the gradient   sum_x p(x) grad f(x) + c(x) grad p(x),

which is the gradient of E[f] if c = f. A sampled path has the surrogate
f + sum_t (c - b_t) log p(x_t | x_1 ... x_{t-1}) with baselines b_t.
"""

import dataclasses

import jax
import jax.numpy as jnp

from attn_jax.attention.hard.estimators import gradient_only
from attn_jax.types import Array, Float


@dataclasses.dataclass(frozen=True)
class PathObjective:
    """Computes the loss of an image from several of its paths.

    Attributes:
        of_likelihood: the cost is the loss itself; False: 1 for a wrong word.
        exact: all paths are given, each once; False: paths are samples.
        num_samples: number of sampled paths.
        leave_one_out: b is the mean cost of the other sampled paths.
        entropy: weight of the entropy bonus of the places.
    """

    of_likelihood: bool = False
    exact: bool = False
    num_samples: int = 1
    leave_one_out: bool = False
    entropy: float = 0.0

    def __call__(
        self,
        loss: Float[Array, "b n"],
        cost: Float[Array, "b n"],
        log_prob: Float[Array, "b n t"],
        entropy: Float[Array, "b n t"],
        baseline: Float[Array, "b n t"] | None = None,
    ) -> Float[Array, "b"]:
        """Returns the loss of each image; its gradient trains the network and the policy."""
        cost = jax.lax.stop_gradient(loss if self.of_likelihood else cost)
        if self.exact:
            p = jnp.exp(jnp.sum(log_prob, axis=-1))
            uncertain = self.entropy * jnp.sum(p * jnp.sum(entropy, axis=-1), axis=-1)
            fixed = jax.lax.stop_gradient(p)
            return jnp.sum(fixed * loss, axis=-1) + gradient_only(jnp.sum(p * cost, axis=-1) - uncertain)
        advantage = cost[..., None] - self.entropy * later(entropy)
        if self.leave_one_out:
            total = jnp.sum(advantage, axis=-2, keepdims=True)
            advantage = advantage - (total - advantage) / (loss.shape[-1] - 1)
        elif baseline is not None:
            advantage = advantage - jax.lax.stop_gradient(baseline)
        policy = jnp.sum(jax.lax.stop_gradient(advantage) * log_prob - self.entropy * entropy, axis=-1)
        return jnp.mean(loss + gradient_only(policy), axis=-1)

    def targets(self, loss: Float[Array, "b n"], cost: Float[Array, "b n"], entropy: Float[Array, "b n t"]):
        """Returns the regression target of a baseline at each glimpse [b, n, t], without a gradient."""
        cost = jax.lax.stop_gradient(loss if self.of_likelihood else cost)
        return jax.lax.stop_gradient(cost[..., None] - self.entropy * later(entropy))


def later(x: Float[Array, "... t"]) -> Float[Array, "... t"]:
    """Computes sum_{t' > t} x_t', the part of a sum over time that place t affects."""
    return jnp.cumsum(x[..., ::-1], axis=-1)[..., ::-1] - x
