"""sentences.json of a work directory: the statistics of each sentence, from which metrics are computed.

A run writes it beside result.json, and --mode=eval writes eval_sentences.json; see attn_jax.evaluation.paired.
"""

import pathlib

from attn_jax.data.files import is_finite, load_json, save_json, text_checksum
from attn_jax.errors import UserError
from attn_jax.evaluation.paired import LAYOUT, Result, Sentences

FILE, EVAL_FILE = "sentences.json", "eval_sentences.json"


def save_sentences(path: pathlib.Path, sentences: Sentences | None) -> None:
    """Writes the statistics of each sentence; for None, removes the file of an earlier measurement."""
    if sentences:
        save_json(path, sentences, indent=None)
    else:
        path.unlink(missing_ok=True)


def read_sentences(path: pathlib.Path, result: Result | None = None) -> Sentences:
    """Reads a sentences.json.

    Args:
        path: path of the file.
        result: result of the same measurement, which has the checksum of the file; None: no check.

    Raises:
        UserError: the file is damaged, of another measurement, or of another kind.
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
    if "checksums" in (result or {}) and result["checksums"].get("statistics") != text_checksum(found):
        raise UserError(
            f"{path} is of another measurement than the result beside it (wrong checksum): one was interrupted, or a "
            "file was changed; measure again"
        )
    return found
