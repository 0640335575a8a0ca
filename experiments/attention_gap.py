"""How much does attention improve a recurrent translator, and does this depend on the length of the sentence?

    python launch.py --config=configs/enja_soft.py --config.data_dir=data/enja
    python launch.py --config=configs/enja_none.py --config.data_dir=data/enja
    python experiments/attention_gap.py runs/enja_soft runs/enja_none --data_dir=data/enja

Bahdanau 2015 (arXiv 1409.0473, figure 2) found that a network without attention loses more on longer sentences. This
experiment measures BLEU and perplexity on the same held-out sentences by the number of source words, with greedy
decoding. Answer: experiments/results/attention_gap.md and .png.
"""

import argparse
import pathlib
import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.data_files import load_vocabularies  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.metrics import corpus_bleu  # noqa: E402
from attn_jax.paths import expanded, user_path  # noqa: E402
from attn_jax.runs.build import build_task  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from attn_jax.runs.snapshot import own_split, restore  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from experiments import raw  # noqa: E402


def groups_by_length(lengths: np.ndarray, count: int) -> list[np.ndarray]:
    """Groups sentences by length, from short to long, in groups of about equal size; returns their indices."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, count + 1)[1:-1], method="nearest"))
    which = np.searchsorted(edges, lengths, side="left")
    return [np.flatnonzero(which == group) for group in np.unique(which)]


def measure(workdir: pathlib.Path, data_dir: str, num_groups: int) -> dict[str, list]:
    """Returns (label, sentences, BLEU, perplexity) for each group of source lengths and for all sentences."""
    config = change(load_config(workdir), {"decode.method": "greedy"} | ({"data_dir": data_dir} if data_dir else {}))
    tokenize = resolve(config).task.tokenize
    _, pairs = own_split(build_task(resolve(config), load_vocabularies(workdir)))
    trained = restore(resolve(config), workdir)
    hypotheses = [found[0].text for found in trained.predictor.translator.translate(trained.params[0], pairs.source)]
    log_probs = trained.predictor.log_probs(trained.params[0], pairs)
    tokens = trained.predictor.translator.encode(pairs).target.lengths
    lengths = np.array([len(text.split()) for text in pairs.source])
    rows: dict[str, list] = {"label": [], "sentences": [], "bleu": [], "perplexity": []}
    groups = groups_by_length(lengths, num_groups)
    for members in [*groups, np.arange(len(pairs))]:
        chosen = [hypotheses[i] for i in members], [pairs.target[i] for i in members]
        everything = len(members) == len(pairs)
        rows["label"].append("all" if everything else f"{lengths[members].min()}-{lengths[members].max()}")
        rows["sentences"].append(len(members))
        rows["bleu"].append(corpus_bleu(*chosen, tokenize=tokenize)[0])
        rows["perplexity"].append(float(np.exp(-log_probs[members].sum() / tokens[members].sum())))
    return rows


def table(results: dict[str, dict[str, list]]) -> str:
    """Formats a Markdown table: a row per length, BLEU and perplexity of each run."""
    first = next(iter(results.values()))
    head = ["source words", "sentences", *(f"{name} BLEU (perplexity)" for name in results)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for i, label in enumerate(first["label"]):
        cells = [f"{rows['bleu'][i]:.1f} ({rows['perplexity'][i]:.2f})" for rows in results.values()]
        lines.append("| " + " | ".join([label, str(first["sentences"][i]), *cells]) + " |")
    return "\n".join(lines)


def draw(results: dict[str, dict[str, list]]) -> Figure:
    """Plots BLEU by source length, a line per run."""
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in results.items():
        axes.plot(rows["label"][:-1], rows["bleu"][:-1], marker="o", label=name)
    axes.set(xlabel="source words", ylabel="BLEU")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return figure


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

{table(record["results"])}

Figure: [attention_gap.png](attention_gap.png).

{raw.circumstances(record)}
"""


PAGES = (raw.Page("attention_gap", page, {"attention_gap.png": lambda record: draw(record["results"])}),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workdirs", nargs="+", type=user_path, help="of runs on the same data")
    parser.add_argument("--data_dir", type=expanded, default="", help="where the data is now, if it has moved")
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args()
    path = args.out / "attention_gap.json"
    begun = raw.begin(path)
    results = {workdir.name: measure(workdir, args.data_dir, args.groups) for workdir in args.workdirs}
    command = raw.command("attention_gap", *(f"runs/{workdir.name}" for workdir in args.workdirs))
    record = raw.write(path, results, command=command, begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("attention_gap.py"):
        main()
