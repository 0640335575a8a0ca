"""Renders docs/performance.md from experiments/results/speed/*.json.

python -m experiments.benchmarks.page
"""

import json
import pathlib
import re
from typing import Any

from experiments.benchmarks.texts import INTRODUCTION, SECTIONS, SLOWER, TRIED
from experiments.benchmarks.turns import RESULTS

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "performance.md"


def number(value: float) -> str:
    """Formats a number with three digits or, if it is large, all."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def windows(values: dict[str, float]) -> int:
    """Tells of how many windows a median and a range are, one, two or three: a median of two is their mean."""
    low, high = values["low"], values["high"]
    return 1 if low == high else 2 if values["median"] == (low + high) / 2 else 3


def cell(values: dict[str, float]) -> str:
    """Formats a median with its range; a single value has none."""
    text = number(values["median"])
    return text if windows(values) == 1 else f"{text} [{number(values['low'])}-{number(values['high'])}]"


def ratio(values: dict[str, float], single: bool) -> str:
    """Formats the same for a ratio, which may be one and the same in several windows."""
    digits = 1 if values["median"] >= 10 else 2
    text = f"{values['median']:.{digits}f}"
    return text if single else f"{text} [{values['low']:.{digits}f}-{values['high']:.{digits}f}]"


def speeds(rows: list[dict[str, Any]], unit: str) -> list[str]:
    """Returns a table of programs: speed, ratio to the baseline, what else the rows have."""
    extra = {
        "real_source": ("real source positions", lambda x: f"{x:.1%}"),
        "real": ("real target positions", lambda x: f"{x:.1%}"),
        "of_peak": ("of the peak", lambda x: f"{x:.0%}"),
    }
    columns = [(key, *value) for key, value in extra.items() if key in rows[0]]
    latency = "p99" in rows[0]["step_ms"]
    titles = ["", f"{unit}/s", "ratio", "per CPU second", *(title for _, title, _ in columns)]
    titles += ["step, ms: 50 %", "99 %"] if latency else []
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|--:" * (len(titles) - 1) + "|"]
    for row in rows:
        cells = [row["name"], cell(row["per_second"]), ratio(row["ratio"], windows(row["per_second"]) == 1)]
        cells += [number(row["per_cpu_second"]["median"])]
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


def shares(found: dict[str, Any]) -> list[str]:
    """Returns a table of the parts of a step: milliseconds, and the share of the whole step."""
    lines = ["| | ms | of the step |", "|---|--:|--:|"]
    for row in found["rows"]:
        share = 1 / row["ratio"]["median"]
        lines.append(f"| {row['name']} | {number(row['step_ms']['p50'])} | {share:.1%} |")
    return lines


def largest_operations(found: dict[str, Any]) -> list[str]:
    """Returns a list of the largest operations of each program, below its milliseconds and memory."""
    lines = []
    for group in found["groups"]:
        shape = ", ".join(f"{size:,}" for size in group["shape"])
        memory = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in group["memory"].items())
        lines += [
            f"{group['title']}, {number(group['ms'])} ms a step (rows, source and target positions: {shape}; {memory}):"
        ]
        lines += ["", "| operation | ms | share |", "|---|--:|--:|"]
        for one in group["operations"]:
            lines.append(f"| {one['name']} | {number(one['milliseconds'])} | {one['share']:.0%} |")
        lines.append("")
    return lines[:-1]


def memory_and_time(found: dict[str, Any]) -> list[str]:
    """Returns two tables of programs by the number of keys, context / context and gradient."""
    lines = []
    for key, unit in (("megabytes", "MB"), ("milliseconds", "ms")):
        lengths = sorted({int(length) for row in found[key].values() for length in row})
        lines += [f"| {unit} | " + " | ".join(f"{n:,} keys" for n in lengths) + " |"]
        lines += ["|---" + "|--:" * len(lengths) + "|"]
        for name, row in found[key].items():
            cells = [row.get(str(n)) for n in lengths]
            texts = [f"{number(cell['context'])} / {number(cell['gradient'])}" if cell else "" for cell in cells]
            lines.append("| " + " | ".join([name, *texts]) + " |")
        lines.append("")
    return lines[:-1]


def by_vocabulary(found: dict[str, Any]) -> list[str]:
    """Returns a table of output layers by the number of words."""
    sizes = sorted({row["vocab_size"] for row in found["rows"]})
    lines = ["| | " + " | ".join(f"V = {size:,}" for size in sizes) + " |", "|---" + "|--:" * len(sizes) + "|"]
    for method in dict.fromkeys(row["method"] for row in found["rows"]):
        rows = {row["vocab_size"]: row for row in found["rows"] if row["method"] == method}
        texts = []
        for size in sizes:
            row = rows.get(size)
            memory = "" if row is None or row["temporary_mb"] is None else f" ({number(row['temporary_mb'])} MB)"
            texts.append("" if row is None else number(row["median_ms"]) + memory)
        lines.append("| " + " | ".join([method, *texts]) + " |")
    return lines


def by_length(found: dict[str, Any]) -> list[str]:
    """Returns a table of memories by the number of tokens before."""
    groups = found["groups"]
    lines = ["| | " + " | ".join(f"{group['title']} tokens" for group in groups) + " |"]
    lines.append("|---" + "|--:" * len(groups) + "|")
    for rows in zip(*(group["rows"] for group in groups), strict=True):
        cells = (f"{row['step_ms']['p50']:.3f} ({row['cache_bytes'] / 1e6:.2f})" for row in rows)
        lines.append(f"| `{rows[0]['name']}` | " + " | ".join(cells) + " |")
    return lines


def starts(found: dict[str, Any]) -> list[str]:
    """Returns a table of configs: seconds of the first start and of later ones."""
    lines = ["| config | first | later |", "|---|--:|--:|"]
    return lines + [f"| {row['name']} | {row['first']:.1f} | {cell(row['later'])} |" for row in found["rows"]]


def corpora(found: dict[str, Any]) -> list[str]:
    """Returns a table of the number of pairs: encoding, checking, reading."""
    titles = ["pairs", "text, MB", "encoding, s", "its memory, MB", "checking, s", "pairs read/s"]
    titles += ["memory before, MB", f"after {found['batches']:,} batches, MB"]
    lines = ["| " + " | ".join(titles) + " |", "|--:" * len(titles) + "|"]
    keys = "text_mb", "index_seconds", "index_mb", "check_seconds", "pairs_per_second", "before_mb", "after_mb"
    return lines + [
        "| " + " | ".join([f"{row['pairs']:,}", *(number(row[key]) for key in keys)]) + " |" for row in found["rows"]
    ]


def kernels(found: dict[str, Any]) -> list[str]:
    """Returns the table of fits, and that of numbers of points."""
    lines = ["| 40 points | error | ms per fit | times as fast |", "|---|--:|--:|--:|"]
    slowest = found["fits"][0]["ms"]
    for row in found["fits"]:
        lines.append(f"| {row['name']} | {row['error']:.4f} | {number(row['ms'])} | {slowest / row['ms']:.0f} |")
    titles = "predictions, s", "leave-one-out gradient of 256 points, s", "peak memory, MiB"
    titles = f"{found['num_queries']:,} queries, training points", *titles, "a matrix [queries, keys], MiB", "error"
    lines += ["", "| " + " | ".join(titles) + " |", "|--:" * len(titles) + "|"]
    for row in found["sizes"]:
        cells = f"{row['points']:,}", f"{row['predict_s']:.2f}", f"{row['gradient_s']:.2f}", f"{row['peak_mib']:.0f}"
        lines.append("| " + " | ".join([*cells, f"{row['matrix_mib']:,.0f}", f"{row['error']:.3f}"]) + " |")
    return lines


def gpu(found: dict[str, Any]) -> list[str]:
    """Returns a table of checks, one of programs for each type, and one of attention by length; none without rows."""
    tables = [checks(found["checks"])] if found["checks"] else []
    for group in found["groups"]:
        count = windows(group["rows"][0]["per_second"])
        of_each = ("one window of each program", "medians of two windows", "medians of three windows")[count - 1]
        tables.append([f"Training in {group['title']}, {of_each}:", "", *speeds(group["rows"], found["unit"])])
    lengths = {int(length): times for length, times in found["attention"].items() if times}
    if lengths:
        tables.append(by_positions(lengths))
    return [line for table in tables for line in ("", *table)][1:]


def checks(rows: list[dict[str, Any]]) -> list[str]:
    """Returns a table of errors beside float64."""
    show = lambda x: "not finite" if x is None else f"{x:.1e}"  # noqa: E731
    lines = ["| check | precision | error | of gradients | at most | passed |", "|---|---|--:|--:|--:|---|"]
    for row in rows:
        cells = row["name"], row["precision"], show(row["error"]), show(row["gradient_error"]), f"{row['limit']:.0e}"
        lines.append("| " + " | ".join([*cells, "yes" if row["passed"] else "NO"]) + " |")
    return lines


def by_positions(lengths: dict[int, dict[str, Any]]) -> list[str]:
    """Returns a table of attention alone: milliseconds by the number of positions, medians of three windows or one."""
    lines = ["Attention alone, medians of three windows; a number without a range is of one window:", ""]
    lines += ["| | " + " | ".join(f"{length:,} positions" for length in lengths) + " |"]
    lines += ["|---" + "|--:" * len(lengths) + "|"]
    for name in dict.fromkeys(name for times in lengths.values() for name in times):
        cells = [cell(times[name]) if name in times else "" for times in lengths.values()]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def turns(found: dict[str, Any]) -> list[str]:
    """Returns the tables of programs that took turns."""
    if "groups" not in found:
        return speeds(found["rows"], found["unit"])
    if found["unit"] == "calls":
        return costs(found["groups"])
    lines = []
    for group in found["groups"]:
        lines += [f"{group['title']}:", "", *speeds(group["rows"], found["unit"]), ""]
    return lines[:-1]


TABLES = {
    "blockwise_memory": memory_and_time,
    "output_speed": by_vocabulary,
    "kernel_speed": kernels,
    "translation_profile": shares,
    "step_profile": largest_operations,
    **dict.fromkeys(("gpu_checks", "gpu_training", "gpu_attention"), gpu),
    "long_decoding": by_length,
    "start_speed": starts,
    "large_corpus": corpora,
}  # all others: turns


def rates(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the speed of each program of a measurement by the title of its table; of normalizers, of softmax.

    An output layer stands beside the other program's layer of its kind.
    """
    groups = found.get("groups") or [{"title": "", "rows": found.get("rows", [])}]
    medians = {
        x["title"]: {y["name"]: y["per_second"]["median"] for y in x.get("rows", ()) if "per_second" in y}
        for x in groups
    }
    for title, speed in medians.items():
        if "torch softmax" in speed:
            medians[title] = {"ours, softmax": speed["softmax"], "torch softmax": speed["torch softmax"]}
    rows = found.get("rows", ())
    layers = {(row["method"], row["vocab_size"]): 1 / row["median_ms"] for row in rows if "vocab_size" in row}
    for (method, size), speed in layers.items():
        if (other := (f"torch {method}", size)) in layers:
            medians[f"V = {size:,}, {method}"] = {f"ours, {method}": speed, other[0]: layers[other]}
    for length, times in found.get("attention", {}).items():
        medians[f"{int(length):,} positions"] = {program: 1 / time["median"] for program, time in times.items()}
    return medians


def slower(measurements: dict[str, dict[str, Any]]) -> list[str]:
    """Returns a table of what another program does faster: the fastest of ours beside the fastest of the others."""
    lines = ["| table | fastest of ours | fastest of the others | share of its speed |", "|---|---|---|--:|"]
    for name, found in measurements.items():
        heading = SECTIONS[name][0]
        link = f"[{heading}](#{re.sub('[^a-z -]', '', heading.lower()).replace(' ', '-')})"
        for title, speed in rates(found).items():
            ours, others = ({x: speed[x] for x in speed if x.startswith("ours") is own} for own in (True, False))
            if ours and others and max(ours.values()) < max(others.values()):
                best = [max(side, key=side.get) for side in (ours, others)]
                share = max(ours.values()) / max(others.values())
                lines.append(f"| {link}{title and f', {title}'} | {best[0]} | {best[1]} | {share:.1%} |")
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
    table, notes = TABLES.get(name, turns)(found), found.get("notes", ())
    return [f"## {title}", "", text, "", *table, "", *(f"- {note}" for note in notes), f"- {circumstances(found)}", ""]


def render() -> str:
    """Returns the page."""
    paths = {name: RESULTS / f"{name}.json" for name in SECTIONS}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}
    lines = [INTRODUCTION, SLOWER, *slower(found), ""]
    for name, each in found.items():
        lines += section(name, each)
    return "\n".join([*lines, TRIED]).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
