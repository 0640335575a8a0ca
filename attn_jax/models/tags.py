"""Tags of a source, which describe it as a whole, such as "plural" for the inflection of a lemma.

A source with tags is a row of tokens

    text eos tags eos pad ...

A model may read it as one sequence. Or it reads the text as its source, and the tags as a set: then attention is over
the text only (Wu & Cotterell 2019, arXiv 1905.06319), and the encoding of a tag depends neither on the order of the
tags nor on the length of the text.
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.types import Array, Bool, Dtype, Float, Int


class Tags(NamedTuple):
    """The tags of each source."""

    embedded: Float[Array, "b s d"]
    mask: Bool[Array, "b s"]  # True at tags


def split_tags(source: Int[Array, "b s"], *, eos: int, pad: int) -> tuple[Bool[Array, "b s"], Bool[Array, "b s"]]:
    """Returns (True at the text and its eos, True at the tags)."""
    is_eos = source == eos
    ends = jnp.cumsum(is_eos, axis=-1)
    text = (ends - is_eos == 0) & (source != pad)
    return text, (ends == 1) & ~is_eos & (source != pad)


class TypedTags(nn.Module, kw_only=True):
    """Tags as tokens of a Transformer's source: all at position 0, with a learned vector added to each.

    So positions of the text do not depend on the number of tags, and positions of tags not on the length of the text
    (feature-invariant positions: Wu, Cotterell & Hulden 2021, arXiv 2005.10213, section 3).
    """

    @nn.compact
    def __call__(self, tags: Tags) -> tuple[Float[Array, "b s d"], Int[Array, "b s"]]:
        """Returns (embedded source, position of each token)."""
        kind = self.param("embedding", nn.initializers.normal(0.02), tags.embedded.shape[-1:], jnp.float32)
        embedded = tags.embedded + jnp.where(tags.mask[..., None], kind, 0).astype(tags.embedded.dtype)
        return embedded, jnp.where(tags.mask, 0, 1 + jnp.arange(tags.mask.shape[-1]))


class MergeTags(nn.Module, kw_only=True):
    """relu(W sum_i tag_i + b): one vector for the set of tags.

    The sum includes the merging of Wu & Cotterell 2019 (arXiv 1905.06319): a table of embeddings for each kind of tag
    (number, case, ...) and a linear map of their concatenation, since a tag has only one kind.
    """

    features: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, tags: Tags) -> Float[Array, "b d"]:
        total = jnp.sum(jnp.where(tags.mask[..., None], tags.embedded, 0), axis=-2)
        return nn.relu(Dense(features=self.features, dtype=self.dtype)(total))


def check_tags(way: str, sizes: TextSizes) -> None:
    """Checks that the task has tags beside the source.

    Raises:
        UserError: the task has no tags.
    """
    if not sizes.has_tags:
        raise UserError(
            f"model.tags {way} needs a source with tags beside it: task.name inflection with task.tags apart, or "
            "task.name parallel_text with task.tag_files"
        )
