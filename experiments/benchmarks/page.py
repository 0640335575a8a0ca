"""Renders docs/performance.md from experiments/results/speed/*.json.

python -m experiments.benchmarks.page
"""

import json
import pathlib
from typing import Any

from experiments.benchmarks.turns import RESULTS

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "performance.md"
INTRODUCTION = """# Performance

Every table is written by one run of one script. In a run all programs take turns in one process, A B C C B A, so that
the machine is the same for all; where both sides can, they start from the same parameters, and the script stops if they
do not compute the same. A cell has the median of the windows and, in brackets, the range. All of them again, with this
page:

    pip install -r requirements-oracles.txt ctranslate2
    python -m experiments.benchmarks
"""
SECTIONS = {
    "translation_speed": (
        "Training: LSTM with attention",
        "The translation model of the lecture notes: LSTM of 512, dot attention, 8,000 pieces a side, 17.3 million "
        "parameters, batches of 32 sentence pairs, Adam. Share of the peak: products of matrices alone, of the rate of "
        "one large product in the same process.",
    ),
    "transformer_speed": (
        "Training: Transformer",
        "3 + 3 layers of 256, 4 heads, feed forward 1,024, 8,000 pieces a side, batches of 64 pairs of similar length, "
        "Adam.",
    ),
    "decoding_speed": (
        "Decoding",
        "The models of the two tables above, 500 sentences, as many tokens for each as its reference has. A step is a "
        "batch; with one sentence at a time its percentiles are the latency of a sentence.",
    ),
    "memn2n_speed": (
        "Memory networks and several seeds",
        "Epochs of the end-to-end memory network (three hops, width 20, batches of 32) on task 1 of bAbI, with one "
        "thread.",
    ),
    "normalizers": (
        "Normalizers",
        "Forward and backward, in milliseconds; in brackets the ratio to our softmax in the same half of a round.",
    ),
}


def number(value: float) -> str:
    """Formats a number with three digits or, if it is large, all."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(values: dict[str, float]) -> str:
    return f"{number(values['median'])} [{number(values['low'])}-{number(values['high'])}]"


def ratio(values: dict[str, float]) -> str:
    digits = 1 if values["median"] >= 10 else 2
    return f"{values['median']:.{digits}f} [{values['low']:.{digits}f}-{values['high']:.{digits}f}]"


def speeds(rows: list[dict[str, Any]], unit: str) -> list[str]:
    """Returns a table of programs: speed, ratio to the baseline, what else the rows have."""
    extra = {
        "real": ("real positions", lambda x: f"{x:.1%}"),
        "of_peak": ("of the peak", lambda x: f"{x:.0%}"),
    }
    columns = [(key, *value) for key, value in extra.items() if key in rows[0]]
    latency = "p99" in rows[0]["step_ms"]
    titles = ["", f"{unit}/s", "ratio", "per CPU second", *(title for _, title, _ in columns)]
    titles += ["step, ms: 50 %", "99 %"] if latency else []
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|--:" * (len(titles) - 1) + "|"]
    for row in rows:
        cells = [row["name"], cell(row["per_second"]), ratio(row["ratio"]), number(row["per_cpu_second"]["median"])]
        cells += [show(row[key]) for key, _, show in columns]
        cells += [number(row["step_ms"][key]) if key in row["step_ms"] else "" for key in ("p50", "p99") if latency]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def costs(groups: list[dict[str, Any]]) -> list[str]:
    """Returns a table of programs by group: milliseconds of a step and their ratio to the first program."""
    names = list(dict.fromkeys(row["name"] for group in groups for row in group["rows"]))
    lines = ["| | " + " | ".join(group["title"] for group in groups) + " |", "|---" + "|--:" * len(groups) + "|"]
    for name in names:
        cells = []
        for group in groups:
            row = next((row for row in group["rows"] if row["name"] == name), None)
            times = None if row is None else 1 / row["ratio"]["median"]
            digits = 0 if times is None or times >= 10 else 1
            cells.append("" if row is None else f"{number(row['step_ms']['p50'])} ({times:.{digits}f})")
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def circumstances(found: dict[str, Any]) -> str:
    """Returns a sentence with the command, the date, the versions and the machine."""
    versions = {"jax": found["versions"]["jax"]} | found["packages"]
    shown = ", ".join(f"{name} {value}" for name, value in versions.items())
    return (
        f"`{found['command']}`, {found['date'][:10]}, commit {found['commit'][:7]}, {shown}, "
        f"Python {found['versions']['python']}, {found['machine']}, {found['memory_gib']:.0f} GiB, allocator: "
        f"{found['allocator']}, load average before {found['load_average_before']:.1f}."
    )


def section(name: str, found: dict[str, Any]) -> list[str]:
    title, text = SECTIONS[name]
    lines = [f"## {title}", "", text, ""]
    if found["unit"] == "calls":
        lines += [*costs(found["groups"]), ""]
    elif "groups" in found:
        for group in found["groups"]:
            lines += [f"{group['title']}:", "", *speeds(group["rows"], found["unit"]), ""]
    else:
        lines += [*speeds(found["rows"], found["unit"]), ""]
    return [*lines, *(f"- {note}" for note in found["notes"]), f"- {circumstances(found)}", ""]


def render() -> str:
    """Returns the page."""
    lines = [INTRODUCTION]
    for name in SECTIONS:
        path = RESULTS / f"{name}.json"
        if path.exists():
            lines += section(name, json.loads(path.read_text(encoding="utf-8")))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
