"""Sequences that the maps of a model compare, by the names of the maps."""

from typing import NamedTuple

from attn_jax.models.module import BOTH, DECODER, ENCODER, TO_SOURCE


class Place(NamedTuple):
    """Sequences of the queries and the keys of a map: keys of `labels_of`."""

    rows: str
    columns: str


PLACES = {
    TO_SOURCE: Place("target", "source"),
    ENCODER: Place("source", "source"),
    DECODER: Place("target_in", "target_in"),
    BOTH: Place("both", "both"),
}
READS_SOURCE = (TO_SOURCE, BOTH)
