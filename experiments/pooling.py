"""Which states of a word say what language it is from: all of them, those with large weights, or those of large norm?

    python launch.py --sweep=experiments/pooling.py --config.data_dir=data/sigmorphon2017
    python experiments/pooling.py

Language identification of words (configs/language_id_conv.py) with one encoder, three seeds in one vmapped program, and
five ways to read its states: their mean, attention with a learned query (Lin 2017, arXiv 1703.03130, with one row),
attention by the norm of the states alone, and the four states, or the single state, of largest norm (Malinowski 2018,
arXiv 1808.00300: hard attention without sampling or a query). The first command trains, the second writes
experiments/results/pooling.json and .md. Validation selects the checkpoint, and test nothing.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

ONE_ROW = {"model.pooling": "structured", "model.pooling.num_queries": 1, "model.pooling.penalty": 0.0}
LEARNED = ONE_ROW | {"model.attention.score": "tanh_key", "model.attention.score.features": 64}
NORM = ONE_ROW | {"model.attention.score": "norm"}
TOP = NORM | {"model.attention.read": "top"}
POOLING = {
    "mean": {},
    "learned query": LEARNED,
    "norm": NORM,
    "4 of largest norm": TOP | {"model.attention.read.num_samples": 4},
    "largest norm": TOP | {"model.attention.read.num_samples": 1},
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for changes in POOLING.values():
        yield {"config": "configs/language_id_conv.py", "seeds": (0, 1, 2), "eval.num_pictures": 0, **changes}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/pooling.py --config.data_dir=data/sigmorphon2017
    python experiments/pooling.py

{raw.circumstances(record)}

Test lemmas of CoNLL-SIGMORPHON 2017, configs/language_id_conv.py; {of_sweep.tables(record["results"])}
"""


PAGES = (raw.Page("pooling", page),)


if __name__ == "__main__":
    with one_line("pooling.py"):
        of_sweep.main(PAGES[0], list(POOLING), __doc__)
