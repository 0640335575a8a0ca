"""Input and output containers of attention (pytrees)."""

from flax import struct

from attn_jax.attention.notebook import of_attended
from attn_jax.types import Array, Bool, Float, Int, PyTree


class Memory(struct.PyTreeNode):
    """Keys, values and the mask of the keys: the memory that attention reads, built once by `Attention.prepare`.

    For example the states of an encoder, the sentences of a memory network, the key/value cache of a Transformer, or
    the training set of a Nadaraya-Watson regression.

    Attributes:
        keys: stored form of the keys, see Map.prepare: arrays [..., k, c].
        values: [..., k, dv].
        key_mask: True where a key may be attended to.
        positions: positions of the keys, per head or for all heads; None: 0, 1, 2, ...
    """

    keys: PyTree
    values: Float[Array, "... k dv"]
    key_mask: Bool[Array, "... k"]
    positions: Int[Array, "... k"] | None = None

    @property
    def num_keys(self) -> int:
        """Number of keys, including masked keys."""
        return self.key_mask.shape[-1]


class Attended(struct.PyTreeNode):
    """Result of reading a memory.

    Attributes:
        context: weights times values, times a gate if there is one.
        weights: attention weights; for a sampled reading, the distribution of the samples.
        log_prob: log weight of the sampled key; 0 if no key was sampled.
    """

    context: Float[Array, "... q dv"]
    weights: Float[Array, "... q k"]
    log_prob: Float[Array, "... q"]

    def _repr_html_(self) -> str | None:
        """Draws the weights in a notebook; see notebook.py."""
        return of_attended(self.weights)
