"""How much memory does a training step need on each device when the state is divided among devices?

    python experiments/sharding.py            # compiles, runs nothing: about a minute on two cores
    python experiments/sharding.py --render   # writes the table of docs/devices.md from the JSON file alone

The compiler's plan of a step of a Transformer for one device, by the number of (simulated) devices: with the whole
state on each (parallel=mesh), and with a divided one (parallel=fsdp). "State" is what a device holds between steps:
parameters, the two moments of Adam and the rows of its batch; "temporary" is what the step takes besides.

Answer: with fsdp the state of a device falls as one over the number of devices, since nearly all arrays can be divided,
and temporary memory falls with it; with mesh only the temporary memory of the rows falls.
"""

import argparse
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402

RESULT = ROOT / "experiments" / "results" / "sharding.json"
PAGE = ROOT / "docs" / "devices.md"
BLOCK = re.compile(r"(<!-- sharding -->\n).*?(<!-- end -->)", re.DOTALL)
MEASURED = (("mesh", 1), ("fsdp", 2), ("fsdp", 4), ("fsdp", 8))
ROWS, LENGTH, WORDS, WIDTH = 32, 16, 2000, 256
# Eight devices; what is never run need not be fast.
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"


def measure(name: str, count: int) -> dict[str, int]:
    """Returns the bytes that a step needs on one of the first `count` devices."""
    import jax
    import numpy as np

    from attn_jax.data.sizes import TextSizes
    from attn_jax.runs.options import change, resolve
    from attn_jax.training.loop import TrainState, make_train_step
    from attn_jax.training.parallel import PARALLEL
    from configs import quickstart_transformer

    options = resolve(change(quickstart_transformer.get_config(), {"model.hidden_size": WIDTH}))
    model = options.build_model(TextSizes(WORDS, WORDS))
    tx = options.optimizer.build(100)
    batch = {key: np.ones((ROWS, LENGTH), np.int32) for key in ("source", "target_in", "target_out")}
    parallel = PARALLEL[name].make(
        lambda axis_name: make_train_step(model.loss_fn, tx, axis_name=axis_name), jax.devices()[:count]
    )
    state = jax.eval_shape(lambda rng: TrainState.create(model.init(rng, batch), tx, rng), jax.random.key(0))
    plan = parallel.train_step.lower(state, batch).compile().memory_analysis()
    return {"state": plan.argument_size_in_bytes, "temporary": plan.temp_size_in_bytes}


def run() -> dict[str, Any]:
    """Measures all; returns the results of the JSON file."""
    rows = []
    for name, count in MEASURED:
        rows.append({"parallel": name, "devices": count, **measure(name, count)})
        print(rows[-1], flush=True)
    return {"rows": rows, "width": WIDTH, "words": WORDS, "batch": [ROWS, LENGTH]}


def table(results: dict[str, Any]) -> str:
    """Formats the rows as Markdown, in MB."""
    lines = ["| parallel | devices | state of one | temporary |", "|---|---|---|---|"]
    for row in results["rows"]:
        cells = [f"{row[what] / 1e6:.1f} MB" for what in ("state", "temporary")]
        lines.append(f"| {row['parallel']} | {row['devices']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def render(results: dict[str, Any], page: str) -> str:
    """Returns the page with the table of these results."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{table(results)}\n\n{match[2]}", page)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", action="store_true", help="write the table of docs/devices.md")
    args = parser.parse_args(argv)
    if not args.render:
        os.environ |= {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    from experiments import raw  # imports jax, which reads the flags

    if not args.render:
        begun = raw.begin(RESULT)
        raw.write(RESULT, run(), command=raw.command("sharding"), begun=begun)
    results = raw.read_any(RESULT)["results"]
    raw.rewrite(PAGE, lambda text: render(results, text))


if __name__ == "__main__":
    with one_line("sharding.py"):
        main()
