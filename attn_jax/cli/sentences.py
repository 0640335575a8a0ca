"""sentences.json of a work directory: the statistics of each sentence, from which the metrics of a run are computed.

A run writes it beside result.json, and --mode=eval writes eval_sentences.json; see attn_jax.evaluation.paired.
"""

import pathlib
from collections.abc import Iterable

from attn_jax.errors import UserError
from attn_jax.evaluation.paired import LAYOUT, Sentences
from attn_jax.tasks.files import is_finite, load_json, save_json

FILE, EVAL_FILE = "sentences.json", "eval_sentences.json"


def save_sentences(path: pathlib.Path, sentences: Sentences | None) -> None:
    """Writes the statistics of each sentence, if there are any."""
    if sentences:
        save_json(path, sentences, indent=None)


def read_sentences(path: pathlib.Path) -> Sentences:
    """Reads a sentences.json.

    Raises:
        UserError: it is damaged, or something else.
    """
    found = load_json(path)
    tables, seeds = found.get("statistics"), found.get("seeds")
    sound = found.get("layout") == LAYOUT and isinstance(tables, dict) and isinstance(seeds, list)
    sound = sound and isinstance(found.get("checksum"), int)
    shapes = set()
    for of_seeds in tables.values() if sound else ():
        sound &= isinstance(of_seeds, list) and all(isinstance(one, list) and one for one in of_seeds)
        for one in of_seeds if sound else ():
            sound &= all(isinstance(row, list) and len(row) == len(one[0]) for row in one)
            sound = sound and all(is_finite(x) for row in one for x in row)
            shapes.add(len(one))
    if not sound or len(shapes) > 1:
        raise UserError(f"cannot read {path}: expected the statistics of sentences that a run writes")
    return found


def sentences_in(folder: pathlib.Path, names: Iterable[str]) -> dict[str, Sentences]:
    """Reads the sentences.json of the runs of a sweep that have one.

    Raises:
        UserError: one is damaged.
    """
    paths = {name: folder / name / FILE for name in names}
    return {name: read_sentences(path) for name, path in paths.items() if path.exists()}
