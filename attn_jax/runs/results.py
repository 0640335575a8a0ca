"""result.json of a work directory: the measured metrics of a run."""

import pathlib
from typing import Any

from attn_jax.data.files import is_finite, load_json
from attn_jax.errors import UserError
from attn_jax.runs import sentences

FILE, EVAL_FILE = "result.json", "eval.json"


def read_result(path: pathlib.Path) -> dict[str, Any]:
    """Reads a result.json or eval.json.

    Raises:
        UserError: the file is missing, damaged, or of another kind.
    """
    result = load_json(path)
    metrics, seeds = result.get("metrics"), result.get("seeds")
    sound = isinstance(metrics, dict) and isinstance(seeds, list)
    sound = sound and ("chosen_seed" not in result or result["chosen_seed"] in seeds)
    config = result.get("config", {})
    sound = sound and all(isinstance(x, dict) for x in (result.get("checksums", {}), config))
    sound = sound and isinstance(config.get("train", {}), dict)
    for values in metrics.values() if sound else ():
        sound &= isinstance(values, dict) and {"mean", "std", "seeds"} <= values.keys()
        sound = sound and isinstance(values["seeds"], list)
        sound = sound and all(is_finite(x) for x in (values["mean"], values["std"], *values["seeds"]))
    if not sound:
        raise UserError(f"cannot read {path}: expected the result of a run, with finite numbers in its metrics")
    return result


def read_finished(path: pathlib.Path) -> dict[str, Any]:
    """Reads the result.json of a finished run for which training was requested again.

    Raises:
        UserError: the file is damaged; the message says how to compute it again.
    """
    try:
        return read_result(path)
    except UserError as error:
        raise UserError(f"{error}; delete it, and the same command measures the finished run again") from None


def remove_results(workdir: pathlib.Path) -> None:
    """Removes the results of an earlier run from a work directory, before another run begins there."""
    for name in (FILE, EVAL_FILE, sentences.FILE, sentences.EVAL_FILE, "analysis.json"):
        (workdir / name).unlink(missing_ok=True)
