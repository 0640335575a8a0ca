"""What every score is: a module in two parts, so that what does not depend on the query is computed once.

    projected_keys = score.project_keys(keys [..., k, dk])
    scores [..., q, k] = score(query [..., q, dq], projected_keys)

Leading axes (batch, heads, beams) are arbitrary and broadcast; a score knows nothing of them.
"""

from typing import ClassVar

import flax.linen as nn

from attn_jax.errors import UserError
from attn_jax.types import Array, Float

Query = Float[Array, "... q dq"]
Keys = Float[Array, "... k dk"]
Scores = Float[Array, "... q k"]


class Score(nn.Module):
    """score(query [..., q, dq], keys [..., k, dk]) -> [..., q, k]."""

    own_width: ClassVar[bool] = False  # projected keys, and so queries, have `features` columns

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        """The part of the score that needs no query."""
        return keys

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        raise NotImplementedError


def same_width(score: Score, query: Array, keys: Array) -> None:
    """UserError where a query and a key that are compared column by column differ in width."""
    if query.shape[-1] != keys.shape[-1]:
        raise UserError(
            f"the {type(score).__name__} score needs queries and keys of one width, "
            f"got {query.shape[-1]} and {keys.shape[-1]}; the general score takes different ones"
        )
