"""Which score translates best, when all else is equal?

    python launch.py --sweep=experiments/scores.py --config.data_dir=data/enja
    python experiments/scores.py

English to Japanese with the recurrent model of configs/enja_luong.py at a quarter of its width on 20,000 sentences:
dot, scaled dot, general, additive, concat and the Gaussian kernel, three seeds each in one vmapped program. The first
command trains, the second writes experiments/results/scores.json and .md: BLEU and perplexity with 95 % confidence
intervals of the mean (Student's t; for three seeds half the interval is 2.5 times the standard deviation).
"""

import argparse
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.statistics import t_interval  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

SCORES = ("dot", "scaled_dot", "general", "additive", "concat", "gaussian")
METRICS = {"bleu": 1, "perplexity": 3, "accuracy": 1, "attention_entropy": 2}  # and digits


def sweep():
    for score in SCORES:
        yield {
            "config": "configs/enja_luong.py",
            "model.attention.score": score,
            "model.hidden_size": 128,
            "model.embedding_size": 128,
            "model.decoder.readout_size": 128,
            **({"model.attention.score.features": 128} if score in ("additive", "concat") else {}),
            "model.decoder.input_feeding": False,
            "task.num_examples": 20_000,
            "seeds": (0, 1, 2),
            "train.num_epochs": 8.0,
            "train.eval_every": 400,
            "train.average": 1,
            "train.keep": 1,
            "eval.metrics": ("bleu", "perplexity", "accuracy", "attention_entropy"),
            "eval.num_pictures": 2,
        }


def report(results: dict[str, dict[str, dict]]) -> str:
    """Formats a Markdown table with a row per score, from {score: metrics of result.json}."""
    names = [name for name in METRICS if all(name in metrics for metrics in results.values())]
    lines = ["| score | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 1)]
    for score, metrics in results.items():
        intervals = {name: t_interval(metrics[name]["seeds"]) for name in names}
        cells = [raw.interval(found, METRICS[name]) for name, found in intervals.items()]
        lines.append(f"| {score} | " + " | ".join(cells) + " |")
    lines += ["", "Each seed, BLEU / perplexity:", ""]
    for score, metrics in results.items():
        pairs = zip(metrics["bleu"]["seeds"], metrics["perplexity"]["seeds"], strict=True)
        lines.append(f"- {score}: " + ", ".join(f"{bleu:.1f} / {perplexity:.3f}" for bleu, perplexity in pairs))
    return "\n".join(lines)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    commands = "    " + "\n    ".join(line.strip() for line in __doc__.splitlines() if line.startswith("    python"))
    return f"""# {__doc__.splitlines()[0]}

{commands}

{raw.circumstances(record)}

Dev set, mean ± half the 95 % confidence interval of the mean over three seeds:

{report({score: result["metrics"] for score, result in record["results"]["runs"].items()})}
"""


PAGES = (raw.Page("scores", page),)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "scores")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / "scores.json"
    begun = raw.begin(path)
    folders = of_sweep.finished(pathlib.Path(__file__), SCORES, args.runs)
    results = {score: load_json(folder / "result.json") for score, folder in folders.items()}
    command = "python experiments/scores.py"
    record = raw.write(path, {"runs": results}, command=command, begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("scores.py"):
        main()
