"""Does looking at a few places save computation, compared with reading the whole image?

    python experiments/glimpse_operations.py

Counts the multiply-adds of the matrix products and convolutions of one forward pass, an image and its answer, in the
programs that jax traces; nothing is trained or timed. The models are those of configs/scenes_glimpses.py (six crops of
12 x 12 pixels at three scales), the same model with one glimpse that is the whole image, and the convolutional network
of configs/scenes_soft.py with one attended word. "Pixels" are those that the crops cover, each as often as it is read.

Answer (experiments/results/glimpse_operations.md): hardly at the 48 x 48 pixels of scenes_glimpses, 4.8 million
against 5.5 of the network and 2.2 of one look at everything. The crops cost the same whatever the size of the image,
the others grow with its area: at 96 pixels a side glimpses need less than both, at 384 a 24th and a 70th. Hard
attention over the cells of a network, as in scenes_hard, saves none of this: all cells are computed before one is
chosen.
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.sizes import TextSizes  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from attn_jax.types import Picture  # noqa: E402
from configs import scenes_glimpses, scenes_soft  # noqa: E402
from experiments import raw  # noqa: E402
from experiments.complexity import count_products  # noqa: E402

SIDES = (48, 96, 192, 384)
WORDS = 14  # ten digits and the four special tokens
GLIMPSES, WHOLE, NETWORK = "glimpses", "one look at all of it", "convolutions and attention"


def products(config: Any, side: int) -> int:
    """Counts the multiply-adds for one image of side x side pixels, from the pixels to log p(word)."""
    model = resolve(change(config, {})).build_model(TextSizes(4, WORDS, image=(side, side, 3)))
    source = Picture(jnp.zeros((1, side, side, 3), jnp.uint8), jnp.zeros((1, 0), jnp.int32))
    token = jnp.zeros(1, jnp.int32)
    batch = {"source": source, "target_in": token[None], "target_out": token[None]}
    params = jax.eval_shape(model.init, jax.random.key(0), batch)

    def forward(params, source):
        memory, state = model.start(params, source)
        return model.step(params, memory, state, token)[1]

    return count_products(forward, params, source)


def pixels(config: Any) -> int:
    """Returns the number of pixels that all crops of an image cover."""
    model = config.model
    return model.num_glimpses * sum((model.glimpse_size * 2**scale) ** 2 for scale in range(model.num_scales))


def measure(sides: Sequence[int] = SIDES) -> dict[str, Any]:
    """Counts for every model and side of an image."""
    few = scenes_glimpses.get_config()
    found = {GLIMPSES: [products(few, side) for side in sides], WHOLE: []}
    for side in sides:
        one = {"model.num_glimpses": 1, "model.num_scales": 1, "model.glimpse_size": side}
        found[WHOLE].append(products(change(few, one), side))
    found[NETWORK] = [products(scenes_soft.get_config(), side) for side in sides]
    return {"sides": list(sides), "products": found, "pixels": pixels(few)}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    results = record["results"]
    rows = [
        [name, *(f"{count / 1e6:.1f}" for count in counts), f"{counts[-1] / counts[0]:.1f}"]
        for name, counts in results["products"].items()
    ]
    sides = results["sides"]
    head = ["million multiply-adds", *(f"{side} x {side}" for side in sides), f"{sides[-1]} over {sides[0]}"]
    return f"""# {__doc__.splitlines()[0]}

{raw.circumstances(record)}

{raw.table(head, rows)}

The crops cover {results["pixels"]:,} pixels; an image has {", ".join(f"{side * side:,}" for side in sides)}.

One forward pass of an image: `scenes_glimpses`; the same model with one crop, the image; `scenes_soft` with one word.
"""


PAGES = (raw.Page("glimpse_operations", page),)

if __name__ == "__main__":
    with one_line("glimpse_operations.py"):
        raw.main(PAGES[0], measure)
