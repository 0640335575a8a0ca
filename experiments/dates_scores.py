"""Which score learns the alignment of dates fastest?

    python launch.py --sweep=experiments/dates_scores.py
    python experiments/dates_scores.py

Every score with three seeds in one vmapped program and a quarter of the training steps of quickstart, so few that not
every score reaches 100 % and differences show. The first command trains, and prints a table; the second writes
experiments/results/dates_scores.json and .md.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

SCORES = ("dot", "scaled_dot", "general", "concat", "additive", "location")


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for score in SCORES:
        yield {
            "config": "configs/quickstart.py",
            "model.attention.score": score,
            "seeds": (0, 1, 2),
            "train.num_steps": 500,
            "train.eval_every": 500,
        }


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/dates_scores.py
    python experiments/dates_scores.py

{raw.circumstances(record)}

Test dates of configs/quickstart.py; {of_sweep.tables(record["results"])}
"""


PAGES = (raw.Page("dates_scores", page),)

if __name__ == "__main__":
    with one_line("dates_scores.py"):
        of_sweep.main(PAGES[0], SCORES, __doc__)
