"""Places of attention in a model: the paths of its modules, and what queries and keys are there."""

import re
from typing import NamedTuple


class Place(NamedTuple):
    """The name of a place of attention, and what its queries and keys are: keys of `labels_of`."""

    name: str
    rows: str
    columns: str


# Path of a module in a model, without the number of the layer -> what it reads. Recurrent decoders run in a loop over
# time; their weights come from `Model.attention_weights`.
PLACES = {
    "decoder/source_attention": Place("attention to the source", "target", "source"),
    "encoder/self_attention": Place("encoder self-attention", "source", "source"),
    "decoder/self_attention": Place("decoder self-attention", "target_in", "target_in"),
    "stack/self_attention": Place("self-attention", "both", "both"),
}
READS_SOURCE = ("decoder/source_attention", "stack/self_attention")
LAYER = re.compile(r"/layers_(\d+)")
MEMBER = re.compile(r"(\d+)/")  # before the paths of the models of an ensemble of different ones
OF_RUN = re.compile(r"run \d+: ")  # before the names of their places; the first one is the run itself


def place_of(name: str) -> str:
    """Returns the name of a place without that of its run."""
    return OF_RUN.sub("", name, count=1)


def run_and_place(path: str) -> tuple[int, str]:
    """Returns (number of the run in an ensemble of different models, from 1, else 0; the place in PLACES)."""
    found = MEMBER.match(path)
    return (int(found[1]) + 1, LAYER.sub("", path[found.end() :])) if found else (0, LAYER.sub("", path))


def layer_of(path: str) -> int:
    """Returns the number of the layer in a path, from 0; 0 without one."""
    found = LAYER.search(path)
    return int(found.group(1)) if found else 0
