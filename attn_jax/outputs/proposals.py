"""Proposals: distributions q over words from which a sampled loss draws words, for all positions of a batch together.

All positions of a batch share the sampled words, so that their logits are one matrix product.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.hard.estimators import gradient_only
from attn_jax.attention.loops import lookup
from attn_jax.outputs.frequencies import alias_table
from attn_jax.token_ids import PAD
from attn_jax.types import Array, Float, Int, PRNGKeyArray, wide


class Proposed(NamedTuple):
    """Sampled words, with log q of these words and of the targets."""

    words: Int[Array, "k"]
    log_q: Float[Array, "k"]
    log_q_of_targets: Float[Array, "n"]
    loss: Float[Array, "n"] | float = 0.0  # trains the proposal; its value is zero


class Fixed(nn.Module, kw_only=True):
    """A fixed distribution over words."""

    probs: "Distribution"

    def __call__(
        self, rng: PRNGKeyArray, num_samples: int, hidden: Float[Array, "n d"], targets: Int[Array, "n"]
    ) -> Proposed:
        """Samples words with replacement."""
        log_q = jnp.asarray(self.probs.log_probs)
        words = self.probs.sample(rng, num_samples)
        return Proposed(words, log_q[words], lookup(log_q, targets))


class Learned(nn.Module, kw_only=True):
    """q(w) = mean_n sum_c p(c | hidden_n) p(w | c): predicts the classes of the next words from the hidden states.

    The words, ordered by probability, are divided into `num_classes` classes of about equal total `probs`; p(w | c) is
    `probs` within the class. p(c | hidden) is a small softmax, trained jointly by maximum likelihood on the targets
    without a gradient to the hidden states. q is the mean over the positions of the batch that are not padding, so that
    the sampled words can be shared.
    """

    probs: "Distribution"
    num_classes: int = 64

    @nn.compact
    def __call__(
        self, rng: PRNGKeyArray, num_samples: int, hidden: Float[Array, "n d"], targets: Int[Array, "n"]
    ) -> Proposed:
        """Samples words with replacement."""
        classes = self.probs.classes(self.num_classes)
        logits = nn.Dense(len(classes.size), name="classes")(jax.lax.stop_gradient(wide(hidden)))
        log_probs = jax.nn.log_softmax(logits)
        class_of = jnp.asarray(classes.of_word)
        own = -jnp.take_along_axis(log_probs, lookup(class_of, targets)[:, None], axis=1)[:, 0]
        real = (targets != PAD) | jnp.all(targets == PAD)  # a batch of padding only: any q will do
        log_sum = jax.nn.logsumexp(log_probs, axis=0, where=real[:, None])
        log_mean = jax.lax.stop_gradient(log_sum - jnp.log(jnp.sum(real)))
        rng, within = jax.random.split(rng)
        chosen = jax.random.categorical(rng, log_mean, shape=(num_samples,))
        words = classes.sample(within, chosen)
        log_q = lambda words: lookup(log_mean, lookup(class_of, words)) + lookup(classes.log_within, words)  # noqa: E731
        return Proposed(words, log_q(words), log_q(targets), gradient_only(own))


class Distribution:
    """Probabilities of the words, prepared for sampling in constant time per word."""

    def __init__(self, probs: np.ndarray):
        self.probs = np.asarray(probs, np.float64)
        self.log_probs = np.log(self.probs).astype(np.float32)
        self.threshold, self.alias = alias_table(self.probs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and np.array_equal(self.probs, other.probs)

    def __hash__(self) -> int:
        return hash(self.probs.tobytes())

    def sample(self, rng: PRNGKeyArray, num_samples: int) -> Int[Array, "k"]:
        """Samples words with replacement."""
        entry_rng, rng = jax.random.split(rng)
        entry = jax.random.randint(entry_rng, (num_samples,), 0, len(self.probs))
        keep = jax.random.uniform(rng, (num_samples,), jnp.float32) < jnp.asarray(self.threshold)[entry]
        return jnp.where(keep, entry, jnp.asarray(self.alias)[entry])

    def classes(self, num_classes: int) -> "Classes":
        """Divides the words, most probable first, into classes of about the same probability."""
        return Classes(self.probs, num_classes)


class Classes:
    """Groups of words, with the distribution within each group."""

    def __init__(self, probs: np.ndarray, num_classes: int):
        order = np.argsort(-probs, kind="stable")
        before = np.cumsum(probs[order]) - probs[order]
        _, index = np.unique(np.minimum(before * num_classes, num_classes - 1).astype(np.int64), return_inverse=True)
        self.size = np.bincount(index)
        self.start = np.cumsum(self.size) - self.size
        self.order = order.astype(np.int32)
        self.of_word = np.empty(len(probs), np.int32)
        self.of_word[order] = index
        total = np.bincount(index, probs[order])
        within = np.empty(len(probs))
        within[order] = probs[order] / total[index]
        self.log_within = np.log(within).astype(np.float32)
        tables = [alias_table(within[part]) for part in np.split(order, self.start[1:])]
        self.threshold = np.concatenate([threshold for threshold, _ in tables])
        self.alias = np.concatenate(
            [alias + start for (_, alias), start in zip(tables, self.start, strict=True)]
        ).astype(np.int32)

    def sample(self, rng: PRNGKeyArray, classes: Int[Array, "k"]) -> Int[Array, "k"]:
        """Samples one word from each of these classes."""
        entry_rng, rng = jax.random.split(rng)
        start, size = jnp.asarray(self.start)[classes], jnp.asarray(self.size)[classes]
        entry = start + jax.random.randint(entry_rng, classes.shape, 0, size)
        keep = jax.random.uniform(rng, classes.shape, jnp.float32) < jnp.asarray(self.threshold)[entry]
        return jnp.asarray(self.order)[jnp.where(keep, entry, jnp.asarray(self.alias)[entry])]
