"""What do the models of images reach? Captions, answers and glimpses of generated scenes, three seeds.

    python launch.py --sweep=experiments/scenes.py
    python experiments/scenes.py

Every config of scenes but those of experiments/where.py: captions without relations with soft, hard and marginal
attention (configs/scenes_quickstart.py), a vision Transformer, answers to questions, and glimpses. The first command
trains, the second writes experiments/results/scenes.json and .md.
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402
from experiments.soft_vs_hard import EXACT, hard  # noqa: E402

MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> (config, changes to config.model)
    "scenes_quickstart": ("scenes_quickstart", {}),
    "scenes_quickstart, hard, learned baseline": ("scenes_quickstart", hard("reinforce", 4, "learned", 64)),
    "scenes_quickstart, marginal": ("scenes_quickstart", EXACT),
    "scenes_patches": ("scenes_patches", {}),
    "scenes_questions": ("scenes_questions", {}),
    "scenes_glimpses": ("scenes_glimpses", {}),
    "scenes_glimpses, cost and baseline of Mnih 2014": (
        "scenes_glimpses",
        {"cost": "wrong", "objective.baseline": "learned", "objective.baseline.features": 64},
    ),
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for config, changes in MODELS.values():
        model = {f"model.{key}": value for key, value in changes.items()}
        yield {"config": f"configs/{config}.py", "seeds": (0, 1, 2), "eval.num_pictures": 0, **model}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/scenes.py
    python experiments/scenes.py

{raw.circumstances(record)}

500 test scenes of each config; captions and answers that are right, and where the weight is, in percent ("uniform":
equal weights; of glimpses, the share of crops in each cell); {of_sweep.described(record["results"])}
"""


PAGES = (raw.Page("scenes", page),)

if __name__ == "__main__":
    with one_line("scenes.py"):
        of_sweep.main(PAGES[0], list(MODELS), __doc__)
