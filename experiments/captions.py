"""Does BPE dropout improve the translation of captions? Multi30k, English to German, a tiny Transformer, three seeds.

    python launch.py --sweep=experiments/captions.py --config.data_dir=data/multi30k
    python experiments/captions.py --data_dir=data/multi30k

Trains the Transformer of configs/multi30k_transformer.py for 70 epochs in place of 35, with words that are split into
pieces always in the same way, and with a tenth of the merges left out at random (Provilkov 2020, arXiv 1910.13267).
The mean of the last ten checkpoints is measured on test_2016_flickr, which selects nothing. Writes
experiments/results/captions.json and .md. Wu 2021 (arXiv 2105.14462) has 41.0 BLEU with this size from text alone.
"""

import pathlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import raw, translation  # noqa: E402

CONFIGS = ("multi30k_transformer", "multi30k_bpe_dropout")
MULTI30K = translation.Corpus("Multi30k", "multi30k", {"val": "val", "test": "test_2016_flickr"})


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of both runs."""
    for config in CONFIGS:
        yield {
            "config": f"configs/{config}.py",
            "seeds": (0, 1, 2),
            "train.num_epochs": 70.0,
            "eval.metrics": tuple(translation.METRICS),
            "eval.num_pictures": 0,
        }


text = partial(translation.page, name="captions", title=__doc__.splitlines()[0], configs=CONFIGS, corpus=MULTI30K)
PAGES = (raw.Page("captions", text),)

if __name__ == "__main__":
    with one_line("captions.py"):
        translation.main(results=PAGES[0], configs=CONFIGS, usage=__doc__, corpus=MULTI30K)
