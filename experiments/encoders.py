"""Which encoder tells best what language a word is from: an LSTM with self-attention, convolutions or a Transformer?

    python launch.py --sweep=experiments/encoders.py --config.data_dir=data/sigmorphon2017
    python experiments/encoders.py

Three configs of language identification of words as they are, three seeds each in one vmapped program. Their sizes were
not made equal: two layers of 128 of the convolutions and of the Transformer, both read by their mean, and one LSTM of
64 in each direction that is read by four learned queries (Lin 2017, arXiv 1703.03130). The first command trains, the
second writes experiments/results/encoders.json and .md. Validation selects the checkpoint, and test nothing.

The LSTM has 94.1 % right, the convolutions 0.6 [-1.4, 2.7] points fewer and the Transformer 0.9 [0.2, 1.7] fewer.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

ENCODERS = {
    "LSTM, self-attention": "language_id_selfattentive",
    "convolutions": "language_id_conv",
    "Transformer": "language_id_transformer",
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for config in ENCODERS.values():
        yield {"config": f"configs/{config}.py", "seeds": (0, 1, 2), "eval.num_pictures": 0}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/encoders.py --config.data_dir=data/sigmorphon2017
    python experiments/encoders.py

{raw.circumstances(record)}

Test lemmas of CoNLL-SIGMORPHON 2017; {of_sweep.tables(record["results"])}
"""


PAGES = (raw.Page("encoders", page),)


if __name__ == "__main__":
    with one_line("encoders.py"):
        of_sweep.main(PAGES[0], list(ENCODERS), __doc__)
