"""The query and key sequences of each attention map, by the name of the map."""

from typing import NamedTuple

from attn_jax.models.module import BOTH, DECODER, ENCODER, TO_SOURCE


class Place(NamedTuple):
    """Names of the query sequence (rows) and the key sequence (columns) of a map, as in `labels_of`."""

    rows: str
    columns: str


PLACES = {
    TO_SOURCE: Place("target", "source"),
    ENCODER: Place("source", "source"),
    DECODER: Place("target_in", "target_in"),
    BOTH: Place("both", "both"),
}
READS_SOURCE = (TO_SOURCE, BOTH)
