"""How much does attention improve a recurrent translator? English to Japanese, a small model, six seeds.

    python launch.py --sweep=experiments/attention.py --config.data_dir=data/enja
    python experiments/attention.py --data_dir=data/enja --split=dev

Trains four decoders on 20,000 pairs with all else equal, six seeds in one program each: no attention, the mean of all
states (a constant score), attention before the step (Bahdanau 2015) and after it (Luong 2015). The mean of the last
four checkpoints is measured, so that no sentence selects anything, and no unknown word is replaced, which attention
alone could do. experiments/translation.py has the same at the size of the configs. Writes
experiments/results/attention.json and .md.
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

CONFIGS = ("enja_none", "enja_constant", "enja_bahdanau", "enja_soft")


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for overrides in translation.sweep():
        name = pathlib.Path(overrides["config"]).stem
        if name in CONFIGS:
            width = {"model.attention.score.features": 128} if name == "enja_bahdanau" else {}
            yield overrides | width | {"model.hidden_size": 128, "task.num_examples": 20_000, "train.num_epochs": 8.0}


text = partial(translation.page, name="attention", title=__doc__.splitlines()[0], configs=CONFIGS)
PAGES = (raw.Page("attention", text),)

if __name__ == "__main__":
    with one_line("attention.py"):
        translation.main(results=PAGES[0], configs=CONFIGS, usage=__doc__)
