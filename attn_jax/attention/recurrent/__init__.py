"""Memories whose size does not depend on the number of keys: linear attention, the delta rule, ridge regression."""

from attn_jax.attention.recurrent.delta import Delta
from attn_jax.attention.recurrent.features import FEATURE_MAPS
from attn_jax.attention.recurrent.forms import chunked, dense, recurrent, write_all
from attn_jax.attention.recurrent.heads import RECURRENT, RecurrentHeads
from attn_jax.attention.recurrent.linear import Linear
from attn_jax.attention.recurrent.mesa import Mesa
from attn_jax.attention.recurrent.writes import Writes, make_writes

__all__ = [
    "FEATURE_MAPS",
    "RECURRENT",
    "Delta",
    "Linear",
    "Mesa",
    "RecurrentHeads",
    "Writes",
    "chunked",
    "dense",
    "make_writes",
    "recurrent",
    "write_all",
]
