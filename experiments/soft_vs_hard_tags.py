"""Does the order of the estimators stay when the alignment runs over the lemma alone?

    python launch.py --sweep=experiments/soft_vs_hard_tags.py --config.data_dir=data/sigmorphon2017
    python experiments/soft_vs_hard_tags.py

The model is that of configs/inflection_tags.py: tags enter every step of the decoder, and are no keys. German, 1,000
forms, three seeds. The second command collects what is finished, and writes experiments/results/soft_vs_hard_tags.json
and .md.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.tables import differences_table  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from experiments import of_sweep, raw, soft_vs_hard  # noqa: E402

LANGUAGE = "german"
COMPARED = ("exact_match", "loss")


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every variant."""
    for variant in soft_vs_hard.VARIANTS:
        yield soft_vs_hard.overrides(LANGUAGE, variant) | {"config": "configs/inflection_tags.py"}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    found = record["results"]
    results = {(LANGUAGE, run["variant"]): run["result"]["metrics"] for run in found["runs"]}
    trained = raw.training([run["result"] for run in found["runs"]])
    head = f"# {__doc__.splitlines()[0]}\n\n{raw.circumstances(record)}\n{trained}\n\n"
    return f"{head}{soft_vs_hard.report(results, {}, found['evaluations'])}\n{differences(found['runs'])}\n"


def differences(runs: list[dict[str, Any]]) -> str:
    """Formats the differences in exact match and nll to soft attention, paired by seed."""
    results = {
        run["variant"]: run["result"] | {"metrics": {name: run["result"]["metrics"][name] for name in COMPARED}}
        for run in runs
    }
    return f"Paired differences:\n\n{differences_table(results)}"


PAGES = (raw.Page("soft_vs_hard_tags", page),)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "soft_vs_hard_tags")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / "soft_vs_hard_tags.json"
    begun = raw.begin(path)
    folders = of_sweep.finished(pathlib.Path(__file__), soft_vs_hard.VARIANTS, args.runs)
    runs = []
    for variant, folder in folders.items():
        result = load_json(folder / "result.json")
        runs.append({"variant": variant, "result": {key: result[key] for key in of_sweep.KEPT}})
    counts = {
        variant: soft_vs_hard.evaluations(soft_vs_hard.config_of(LANGUAGE, variant, ""))
        for variant in soft_vs_hard.VARIANTS
    }
    found = {"runs": runs, "evaluations": counts}
    command = "python experiments/soft_vs_hard_tags.py"
    record = raw.write(path, found, command=command, begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("soft_vs_hard_tags.py"):
        main()
