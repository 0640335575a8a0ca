"""How good do the small configs get, and how long does that take from the command to the result?

    python experiments/quickstarts.py

Starts each config as a user would, with nothing compiled before: one seed, with compilation, evaluation and pictures.
Times need a machine without other work. Writes experiments/results/quickstarts.json and .md.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.notices import notice  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from experiments import raw  # noqa: E402

CONFIGS = ("quickstart", "scenes_quickstart", "babi_quickstart")
KEPT = ("split", "seeds", "metrics", "steps", "train_seconds", "num_parameters")


def run(config: str, folder: pathlib.Path) -> dict[str, Any]:
    """Trains a config with an empty cache of compiled programs; returns its result and the seconds of the process.

    Raises:
        UserError: it failed.
    """
    notice(f"{'quickstarts':<14}{config} ...")
    workdir, begin = folder / config, time.monotonic()
    done = subprocess.run(
        [sys.executable, "launch.py", f"--config=configs/{config}.py", f"--workdir={workdir}"],
        cwd=ROOT,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / f"{config} cache")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise UserError(f"{config}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    result = load_json(workdir / "result.json")
    return {"process_seconds": time.monotonic() - begin} | {name: result[name] for name in KEPT}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    rows = []
    for config, found in record["results"].items():
        name = "exact_match" if "exact_match" in found["metrics"] else "accuracy"
        value = f"{found['metrics'][name]['mean']:.1f} %"
        seconds = [f"{found[key]:.0f}" for key in ("process_seconds", "train_seconds")]
        rows.append([config, name.replace("_", " "), value, *seconds, f"{found['num_parameters']:,}"])
    head = ["config", "metric", "test", "seconds in all", "of them training", "parameters"]
    return f"""# {__doc__.splitlines()[0]}

{raw.circumstances(record)}

{raw.table(head, rows, left=2)}
"""


PAGES = (raw.Page("quickstarts", page),)


def measure(configs: Iterable[str]) -> dict[str, Any]:
    """Runs every config, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        return {config: run(config, pathlib.Path(folder)) for config in configs}


def main(argv: list[str] | None = None) -> None:
    """Runs all configs and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=CONFIGS)
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / "quickstarts.json"
    begun = raw.begin(path)
    found = measure(args.configs)
    command = "python experiments/quickstarts.py"
    print(PAGES[0].save(raw.write(path, found, command=command, begun=begun), args.out))


if __name__ == "__main__":
    with one_line("quickstarts.py"):
        main()
