"""Does little precision do, for a recurrent network and for a Transformer?

    python launch.py --sweep=experiments/precision.py
    python experiments/precision.py

Dates, with half the width of quickstart, batches of 32 and 400 steps, so few that most dates are wrong and differences
show; three seeds in one vmapped program, in float32 and in bfloat16, whose activations have 8 bits of mantissa while
parameters and losses stay float32. The first command trains, the second writes experiments/results/precision.json and
.md.
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

MODELS = {  # name -> config, and the changes that halve its width
    "LSTM": ("quickstart", {"model.embedding_size": 32, "model.hidden_size": 64}),
    "Transformer": (
        "quickstart_transformer",
        {
            "model.hidden_size": 64,
            "model.encoder.feed_forward_size": 128,
            "model.encoder.num_layers": 1,
            "model.decoder.feed_forward_size": 128,
            "model.decoder.num_layers": 1,
        },
    ),
}
TYPES = ("float32", "bfloat16")
VARIANTS = [f"{model}, {dtype}" for model in MODELS for dtype in TYPES]


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for config, changes in MODELS.values():
        for dtype in TYPES:
            yield {
                "config": f"configs/{config}.py",
                **changes,
                "dtype": dtype,
                "task.batch_size": 32,
                "seeds": (0, 1, 2),
                "train.num_steps": 400,
                "train.eval_every": 400,
                "eval.num_pictures": 0,
            }


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    runs = record["results"]
    pairs = [{name: run for name, run in runs.items() if name.startswith(model)} for model in MODELS]
    differences = "\n\n".join(differences_table(pair) for pair in pairs if len(pair) > 1)
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/precision.py
    python experiments/precision.py

{raw.circumstances(record)}

Test dates of configs/quickstart.py; {of_sweep.described(runs)}

{differences}
"""


PAGES = (raw.Page("precision", page),)

if __name__ == "__main__":
    with one_line("precision.py"):
        of_sweep.main(PAGES[0], VARIANTS, __doc__)
