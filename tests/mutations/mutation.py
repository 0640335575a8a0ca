"""The description of a fault."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One fault."""

    file: str  # below attn_jax
    before: str  # a text that occurs once
    after: str
    test: str  # below tests, as pytest takes it
