"""Which output layer learns most in the same time from a real text, and at all?

    python launch.py --sweep=experiments/output_layers_brown.py --config.data_dir=data/brown
    python experiments/output_layers_brown.py --time --config.data_dir=data/brown
    python experiments/output_layers_brown.py

The language model of configs/brown_full.py with width 128 and every output layer, three seeds in one program. The last
1,000 lines of train.txt are held out: on them the layers are compared while they train, and training ends after two
epochs that do not improve on the best one. valid.txt is measured once, at the end, with the parameters that were best
on the held-out lines. The exact softmax is too slow for convergence on two CPU cores: in chunks it trains a quarter of
an epoch. In one piece it computes the same numbers (tests/outputs/test_chunked.py) at another speed, so its curve is
that of the chunks with its own time per step. Layers are compared with the chunked softmax as in output_layers.py; the
last value of one that has ended before it (sampled and nce, after four epochs) stands for the time of its end.
Writes experiments/results/output_layers_brown.md, .json and .png.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments.output_layers import BY_ROWS, SEEDS, page_of, report  # noqa: E402

# Epochs at most.
NUM_EPOCHS = {"chunked": 0.25, "adaptive": 4.0, "sampled": 4.0, "nce": 4.0, "hierarchical": 4.0}
CONVERGED = ("adaptive", "sampled", "nce", "hierarchical")
SAME = {"full": "chunked"}  # computes what the other one does, at another speed


def sweep() -> Iterator[dict[str, Any]]:
    for name, epochs in NUM_EPOCHS.items():
        yield {
            "config": "configs/brown_full.py",
            "model.output.name": name,
            "model.embedding_size": 128,
            "model.hidden_size": 128,
            "task.valid": ("", ""),
            "task.valid_size": 1000,
            "task.test": ("valid.txt", ""),
            "seeds": SEEDS,
            "train.num_epochs": epochs,
            "train.eval_every": 88 if name == "chunked" else 1401,
            "train.keep": 1,
            **({"train.lazy_rows": True} if name in BY_ROWS else {}),
        }


TITLE = "Which output layer learns most from the Brown corpus?"
PAGES = (page_of("output_layers_brown", TITLE, "chunked"),)


def main(argv: list[str] | None = None) -> None:
    report(pathlib.Path(__file__), TITLE, argv, baseline="chunked", converged=CONVERGED, same=SAME)


if __name__ == "__main__":
    with one_line("output_layers_brown.py"):
        main()
