"""How does a recurrent decoder look at the source, and does it help to look at its own past too?

    python launch.py --sweep=experiments/decoders.py
    python experiments/decoders.py

Dates, with three seeds in one vmapped program and a quarter of the training steps of quickstart: no attention
(Sutskever 2014), attend and then step (Bahdanau 2015), step and then attend (Luong 2015) without and with input
feeding, and attention to the source and to the decoder's own past states (Paulus 2018). The first command trains, the
second writes experiments/results/decoders.json and .md.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.cli.sweep import jobs  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.tables import differences_table, results_table  # noqa: E402
from attn_jax.tasks.files import load_json  # noqa: E402
from experiments import raw  # noqa: E402

DECODERS = {
    "none": {"model.decoder": "none"},
    "bahdanau": {"model.decoder": "bahdanau"},
    "source": {"model.decoder": "luong", "model.input_feeding": False},
    "source, fed": {"model.decoder": "luong", "model.input_feeding": True},
    "source and target": {"model.decoder": "luong", "model.input_feeding": False, "model.self_attention": True},
}
KEPT = ("seeds", "steps", "metrics", "train_seconds", "commit")


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for changes in DECODERS.values():
        yield {
            "config": "configs/quickstart.py",
            **changes,
            "seeds": (0, 1, 2),
            "train.num_steps": 500,
            "train.eval_every": 500,
        }


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    runs = record["results"]
    minutes = sum(run["train_seconds"] for run in runs.values()) / 60
    commits = ", ".join(sorted({run["commit"][:7] for run in runs.values()}))
    attending = {name: run for name, run in runs.items() if name != "none"}
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/decoders.py
    python experiments/decoders.py

{raw.circumstances(record)}

Test dates of configs/quickstart.py after 500 steps; mean ± standard deviation over the seeds. Trained at commit
{commits}, {minutes:.1f} minutes in all.

{results_table(runs)}

{differences_table(runs)}

Among the decoders with attention:

{differences_table(attending)}
"""


PAGES = (raw.Page("decoders", page),)


def main(argv: list[str] | None = None) -> None:
    """Collects the finished runs of the sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "decoders")
    parser.add_argument("--out", type=pathlib.Path, default=raw.RESULTS, help="directory")
    args, begun = parser.parse_args(argv), raw.Begun.now()
    paths = [args.runs / job.name / "result.json" for job in jobs(pathlib.Path(__file__))]
    runs = {
        name: {key: result[key] for key in KEPT}
        for name, path in zip(DECODERS, paths, strict=True)
        if path.exists()
        for result in [load_json(path)]
    }
    if len(runs) < len(DECODERS):
        lost = ", ".join(name for name in DECODERS if name not in runs)
        parser.exit(1, f"decoders.py: {args.runs} has no finished run of {lost}; train with launch.py --sweep\n")
    record = raw.write(args.out / "decoders.json", runs, command="python experiments/decoders.py", begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("decoders.py"):
        main()
