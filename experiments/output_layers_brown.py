"""Which output layer learns most in the same time from a real text, and at all?

    python launch.py --sweep=experiments/output_layers_brown.py --config.data_dir=data/brown
    python experiments/output_layers_brown.py --time --config.data_dir=data/brown
    python experiments/output_layers_brown.py

The language model of configs/brown_full.py with width 128 and every output layer, three seeds in one program. Adaptive,
sampled and hierarchical layers train until the validation loss is no longer better for two evaluations. The exact
softmax is too slow for that on two CPU cores: in chunks it trains one epoch, and in one piece, which computes the same
numbers, a quarter. Layers are compared with the chunked softmax as in output_layers.py. Writes
experiments/results/output_layers_brown.md, .json and .png.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments.output_layers import BY_ROWS, SEEDS, report  # noqa: E402

# Epochs at most.
NUM_EPOCHS = {"full": 0.25, "chunked": 1.0, "adaptive": 8.0, "sampled": 8.0, "nce": 8.0, "hierarchical": 8.0}
CONVERGED = ("adaptive", "sampled", "nce", "hierarchical")
EVAL_EVERY = {"full": 120, "chunked": 359}  # steps; others 717, half an epoch


def sweep() -> Iterator[dict[str, Any]]:
    for name, epochs in NUM_EPOCHS.items():
        yield {
            "config": "configs/brown_full.py",
            "model.output.name": name,
            "model.embedding_size": 128,
            "model.hidden_size": 128,
            "seeds": SEEDS,
            "train.num_epochs": epochs,
            "train.eval_every": EVAL_EVERY.get(name, 717),
            "train.keep": 1,
            **({"train.lazy_rows": True} if name in BY_ROWS else {}),
        }


def main(argv: list[str] | None = None) -> None:
    title = "Which output layer learns most from the Brown corpus?"
    report(pathlib.Path(__file__), title, argv, baseline="chunked", converged=CONVERGED)


if __name__ == "__main__":
    with one_line("output_layers_brown.py"):
        main()
