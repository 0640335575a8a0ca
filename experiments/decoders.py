"""How does a recurrent decoder look at the source, and does it help to look at its own past too?

    python launch.py --sweep=experiments/decoders.py
    python experiments/decoders.py

Dates, with three seeds in one vmapped program and a quarter of the training steps of quickstart: no attention
(Sutskever 2014), attend and then step (Bahdanau 2015), step and then attend (Luong 2015) without and with input
feeding, and attention to the source and to the decoder's own past states (Paulus 2018). The first command trains, the
second writes experiments/results/decoders.json and .md.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.tables import differences_table  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

DECODERS = {
    "none": {"model.decoder": "none"},
    "bahdanau": {"model.decoder": "bahdanau"},
    "source": {"model.decoder": "luong", "model.decoder.input_feeding": False},
    "source, fed": {"model.decoder": "luong", "model.decoder.input_feeding": True},
    "source and target": {
        "model.decoder": "luong",
        "model.decoder.input_feeding": False,
        "model.decoder.extras": ("self_attention",),
    },
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for changes in DECODERS.values():
        yield {
            "config": "configs/quickstart.py",
            **changes,
            "seeds": (0, 1, 2),
            "train.num_steps": 500,
            "train.eval_every": 500,
        }


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    runs = record["results"]
    attending = {name: run for name, run in runs.items() if name != "none"}
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/decoders.py
    python experiments/decoders.py

{raw.circumstances(record)}

Test dates of configs/quickstart.py; {of_sweep.tables(runs)}

Among the decoders with attention:

{differences_table(attending)}
"""


PAGES = (raw.Page("decoders", page),)


if __name__ == "__main__":
    with one_line("decoders.py"):
        of_sweep.main(PAGES[0], list(DECODERS), __doc__)
