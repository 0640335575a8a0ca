"""How much does attention improve a small recurrent translator with less dropout? English to Japanese, six seeds.

    python launch.py --sweep=experiments/attention_dropout.py --config.data_dir=data/enja
    python experiments/attention_dropout.py --data_dir=data/enja --split=dev

As experiments/attention.py, with dropout 0.1 in place of 0.3, and with the last checkpoint in place of the mean of the
last four. Both were chosen with one seed of attention (0) and its numbers on dev, to be as good as JoeyNMT
(experiments/translation_peer.py), so dev is development data here. Writes experiments/results/attention_dropout.json
and .md.
"""

import pathlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import attention, raw, translation  # noqa: E402

CHANGES = {"model.dropout": 0.1, "train.average": 1}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for overrides in attention.sweep():
        yield overrides | CHANGES


text = partial(attention.text, name="attention_dropout", title=__doc__.splitlines()[0])
PAGES = (raw.Page("attention_dropout", text),)

if __name__ == "__main__":
    with one_line("attention_dropout.py"):
        translation.main(results=PAGES[0], configs=attention.CONFIGS, usage=__doc__)
