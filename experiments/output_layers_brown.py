"""Which output layer learns most in the same time from a real text, and at all?

    python launch.py --sweep=experiments/output_layers_brown.py --config.data_dir=data/brown
    python experiments/output_layers_brown.py --time --config.data_dir=data/brown
    python experiments/output_layers_brown.py

The language model of configs/brown_full.py with every output layer, three seeds in one program, until the validation
loss is no longer better for two evaluations. Layers are compared as in output_layers.py; the best perplexity of each is
that at convergence. Writes experiments/results/output_layers_brown.md, .json and .png.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments.output_layers import BY_ROWS, SEEDS, report  # noqa: E402

LAYERS = ("full", "chunked", "adaptive", "sampled", "nce", "hierarchical")


def sweep() -> Iterator[dict[str, Any]]:
    for name in LAYERS:
        yield {
            "config": "configs/brown_full.py",
            "model.output.name": name,
            "seeds": SEEDS,
            "train.keep": 1,
            **({"train.lazy_rows": True} if name in BY_ROWS else {}),
        }


def main(argv: list[str] | None = None) -> None:
    report(pathlib.Path(__file__), "Which output layer learns most from the Brown corpus?", argv)


if __name__ == "__main__":
    with one_line("output_layers_brown.py"):
        main()
