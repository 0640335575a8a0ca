"""Input and output containers of attention (pytrees)."""

from flax import struct

from attn_jax.types import Array, Bool, Float, Int, PyTree


@struct.dataclass
class Memory:
    """Keys, values and a mask of the keys, which attention reads: built once by `Attention.prepare`, read many times.

    For example the states of an encoder, the sentences of a memory network, the key/value cache of a Transformer, or
    the training set of a Nadaraya-Watson regression.
    """

    keys: PyTree  # what the map keeps of them, such as what the score projects: arrays [..., k, c]
    values: Float[Array, "... k dv"]
    key_mask: Bool[Array, "... k"]  # True where a key may be attended to
    positions: Int[Array, "... k"] | None = None  # of the keys, or one for all heads; None: 0, 1, 2, ...

    @property
    def num_keys(self) -> int:
        """Number of keys, masked ones included."""
        return self.key_mask.shape[-1]


@struct.dataclass
class Attended:
    """Result of reading a memory."""

    context: Float[Array, "... q dv"]  # weights times values, times a gate if there is one
    weights: Float[Array, "... q k"]  # attention weights; for a sampled reading, the distribution sampled from
    log_prob: Float[Array, "... q"]  # log weight of the sampled key; 0 where none was sampled
