"""The page of experiments/estimator_variance.py: its results as JSON has them, the tables and the figure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments import raw
from experiments.estimator_bias import POWERS, Moments, bias_rows
from experiments.estimator_toys import ADAPTIVE, DRAWS, Setting, best_of

TITLE = "Which estimator of the gradient of E[f] has the least variance, and can its baseline be learned on the way?"
COLORS = dict(
    zip(DRAWS, ("0.5", "tab:olive", "tab:brown", "tab:blue", "tab:cyan", "tab:green", "tab:red"), strict=True)
)


class Results(NamedTuple):
    exact: dict[tuple[float, int], dict]  # (eta, k) -> variances
    learned: dict[tuple[float, int], dict[str, np.ndarray]]  # (eta, k) -> what learned_variances returns
    shuffled: dict[tuple[float, int], dict]  # (eta, k) -> what measure_orders returns
    sweep: dict[float, tuple[dict, dict]]  # eta -> as exact and learned, at sweep_samples
    ten: dict[float, dict[str, float]]  # concentration -> mean over problems, "entropy" among them
    rebar: dict[tuple[float, bool], tuple]  # (eta, with a baseline) -> what `rebar` returns
    biased: dict[tuple[str, int, float], Moments]  # (label, power of f, eta) -> bias and variance


CASE, SAMPLER = ("eta", "k"), ("draw", "baseline")


def raw_of(results: Results, setting: Setting) -> dict[str, Any]:
    """Returns the results as JSON has them: rows in place of dicts with several keys."""
    return {
        "setting": setting._asdict(),
        "exact": _rows(results.exact, CASE, SAMPLER),
        "learned": _rows(results.learned, CASE, ("estimator",)),
        "shuffled": _rows(results.shuffled, CASE, SAMPLER),
        "sweep_exact": _rows({(eta,): exact for eta, (exact, _) in results.sweep.items()}, ("eta",), SAMPLER),
        "sweep_learned": _rows({(eta,): found for eta, (_, found) in results.sweep.items()}, ("eta",), ("estimator",)),
        "ten": _rows({(spread,): found for spread, found in results.ten.items()}, ("concentration",), ("estimator",)),
        "rebar": [
            {"eta": eta, "with_baseline": baseline, "learned": learned, "variance": variance, "error": error}
            for (eta, baseline), (learned, variance, error) in results.rebar.items()
        ],
        "biased": [
            {"estimator": label, "power": power, "eta": eta} | found._asdict()
            for (label, power, eta), found in results.biased.items()
        ],
    }


def of_raw(found: Mapping[str, Any]) -> tuple[Results, Setting]:
    """Returns what `raw_of` was given."""
    exact, learned = _nested(found["sweep_exact"], ("eta",), SAMPLER), _nested(found["sweep_learned"], ("eta",))
    rebar = {(row["eta"], row["with_baseline"]): row for row in found["rebar"]}
    results = Results(
        _nested(found["exact"], CASE, SAMPLER),
        _nested(found["learned"], CASE),
        _nested(found["shuffled"], CASE, SAMPLER),
        {eta: (exact[eta,], learned[eta,]) for (eta,) in exact},
        {spread: values for (spread,), values in _nested(found["ten"], ("concentration",)).items()},
        {key: (row["learned"], row["variance"], row["error"]) for key, row in rebar.items()},
        {
            (row["estimator"], row["power"], row["eta"]): Moments(*(row[field] for field in Moments._fields))
            for row in found["biased"]
        },
    )
    return results, Setting(**found["setting"])


def _rows(found: Mapping[tuple, Mapping], outer: Sequence[str], inner: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row {names of keys: keys, "value"} for each value in a dict of dicts; outer keys are tuples."""
    return [
        dict(zip(outer, key, strict=True))
        | dict(zip(inner, name if len(inner) > 1 else (name,), strict=True))
        | {"value": value}
        for key, values in found.items()
        for name, value in values.items()
    ]


def _nested(rows: Sequence[Mapping], outer: Sequence[str], inner: Sequence[str] = ("estimator",)) -> dict[tuple, dict]:
    """Returns the dict of dicts that `_rows` was given."""
    found: dict[tuple, dict] = {}
    for row in rows:
        name = tuple(row[key] for key in inner)
        value = np.array(row["value"]) if isinstance(row["value"], list) else row["value"]
        found.setdefault(tuple(row[key] for key in outer), {})[name if len(inner) > 1 else name[0]] = value
    return found


NAMES = {
    "reinforce": "REINFORCE",
    "stratified": "stratified",
    "systematic": "systematic",
    "sum_and_sample": "sum and sample",
    "stochastic_sum_and_sample": "stochastic sum and sample",
    "unordered_set": "unordered set",
    "optimal_resampling": "optimal resampling",
}
BASELINES = {"none": "none", "mean": "E f", "best": "b*", "leave_one_out": "leave-one-out"}


def number(value: float) -> str:
    """Formats a number with three digits."""
    if value < 1e-12:  # of rounding, or of a baseline that is nearly b* where b* leaves nothing
        return "0"
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.2e}".replace("e-0", "e-")


def exact_table(results: Results, eta: float, setting: Setting) -> str:
    """Formats a table with a row per sampler and baseline and a column per k."""
    keys = list(dict.fromkeys(key for k in setting.samples for key in results.exact[eta, k]))
    keys.sort(key=lambda key: (DRAWS.index(key[0]), list(BASELINES).index(key[1])))
    rows = []
    for name, baseline in keys:
        found = [results.exact[eta, k].get((name, baseline)) for k in setting.samples]
        cells = ["" if x is None else number(x) for x in found]
        rows.append([f"{NAMES[name]}, {BASELINES[baseline]}", *cells])
    return raw.table(["draw, baseline", *(f"k = {k}" for k in setting.samples)], rows)


def named(item: tuple[tuple[str, str], float]) -> str:
    (name, baseline), value = item
    return f"{number(value)} ({NAMES[name]}, {BASELINES[baseline]})"


def adaptive_table(results: Results, eta: float, setting: Setting) -> str:
    """Formats a table of the adaptive estimator next to the best of the others."""
    head = [f"{name}, {count:,} draws" for name in ("adaptive", "learned ratio") for count in setting.learned]
    rows = []
    for k in setting.samples:
        exact, learned = results.exact[eta, k], results.learned[eta, k]
        columns = np.concatenate([learned["adaptive"], learned["ratio"]], axis=1).T
        cells = [f"{number(x.mean())} (SD {number(x.std(ddof=1))})" for x in columns]
        rows.append([str(k), *cells, *(named(best_of(exact, oracle)) for oracle in (False, True))])
    return raw.table(["k", *head, "best published without an oracle", "best published with E f or b* as oracle"], rows)


def order_table(results: Results, eta: float, setting: Setting) -> str:
    """Formats a table of means over random orders."""
    keys = list(results.shuffled[eta, setting.samples[0]])
    count = setting.learned[len(setting.learned) // 2]
    learned = {"ratio": f"learned ratio, {count:,} draws", "adaptive": f"adaptive, {count:,} draws"}
    rows = [
        [
            learned.get(key[0]) or f"{NAMES[key[0]]}, {BASELINES[key[1]]}",
            *(number(results.shuffled[eta, k][key]) for k in setting.samples),
        ]
        for key in keys
    ]
    return raw.table(["draw, baseline", *(f"k = {k}" for k in setting.samples)], rows)


def summary_table(record: Mapping[str, Any], k: int = 4) -> str:
    """Formats the table of docs/results.md: the main estimators at k evaluations, a column for each eta."""
    results, setting = of_raw(record["results"])
    middle = len(setting.learned) // 2
    rows: dict[str, list[str]] = {}
    for eta in setting.etas:
        exact, learned = results.exact[eta, k], results.learned[eta, k]["adaptive"][:, middle]
        cells = {
            "REINFORCE without a baseline": number(exact["reinforce", "none"]),
            "leave-one-out": number(exact["reinforce", "leave_one_out"]),
            "best published one that needs no oracle": named(best_of(exact, False)),
            "best published one with an oracle, E f or the best constant b*": named(best_of(exact, True)),
            "unordered set with the best constant b*": number(exact["unordered_set", "best"]),
            f"**adaptive**, after {setting.learned[middle]:,} samples, keys in lexicographic order": (
                f"{number(learned.mean())} (SD {number(learned.std(ddof=1))})"
            ),
            f"the same, mean over {setting.num_orders} random orders of the keys": number(
                results.shuffled[eta, k]["adaptive", ""]
            ),
        }
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    head = ["", *(f"{'flat' if eta == 0 else 'peaked'} weights (eta = {eta:g})" for eta in setting.etas)]
    return raw.table(head, [[name, *cells] for name, cells in rows.items()])


def bias_table(record: Mapping[str, Any], power: int = POWERS[0]) -> str:
    """Formats the table of docs/results.md: bias and variance of estimators that use the gradient of f."""
    results, setting = of_raw(record["results"])
    return raw.table(*bias_rows(results.biased, power, setting.etas, number))


def ten_table(results: Results) -> str:
    names = [name for name in next(iter(results.ten.values())) if name != "entropy"]
    head = [f"{row['entropy']:.2f} nats" for row in results.ten.values()]
    return raw.table(
        ["estimator", *head], [[name, *(number(row[name]) for row in results.ten.values())] for name in names]
    )


def rebar_table(results: Results) -> str:
    rows = []
    for (eta, baseline), (learned, variance, error) in results.rebar.items():
        cells = [f"{x:.3g}" for x in learned] if baseline else [*(f"{x:.3g}" for x in learned[:2]), "none"]
        rows.append([f"{eta:g}", *cells, f"{number(variance)} (SE {number(error)})"])
    return raw.table(["eta", "temperature", "scale", "baseline", "variance, k = 3"], rows)


LINES = (
    ("reinforce", "none", ":"),
    ("reinforce", "leave_one_out", "-"),
    ("stratified", "none", "-"),
    ("sum_and_sample", "none", "-"),
    ("stochastic_sum_and_sample", "none", "-"),
    ("unordered_set", "none", ":"),
    ("unordered_set", "leave_one_out", "-"),
    ("unordered_set", "best", "--"),
)


def draw(results: Results, setting: Setting) -> Figure:
    """Plots variance against k for each eta, and against eta for one k; dashed lines need an oracle."""
    figure = Figure(figsize=(4.4 * (len(setting.etas) + 1) + 2.6, 4.4), layout="constrained")
    *by_samples, by_eta = figure.subplots(1, len(setting.etas) + 1)
    middle = len(setting.learned) // 2
    panels = [
        (axes, setting.samples, [results.exact[eta, k] for k in setting.samples],
         [results.learned[eta, k] for k in setting.samples], f"eta = {eta:g}", "k, evaluations of f")
        for axes, eta in zip(by_samples, setting.etas, strict=True)
    ]  # fmt: skip
    sweep = list(results.sweep.values())
    panels.append(
        (by_eta, setting.sweep, [x for x, _ in sweep], [x for _, x in sweep], f"k = {setting.sweep_samples}", "eta")
    )
    for axes, across, exact, learned, title, label in panels:
        for name, baseline, line in LINES:
            values = [max(x.get((name, baseline), np.nan), 1e-18) for x in exact]
            text = f"{NAMES[name]}, {BASELINES[baseline]}"
            axes.plot(across, values, line, color=COLORS[name], label=text, linewidth=1.2)
        chosen = np.stack([x["adaptive"][:, middle] for x in learned], axis=1)
        text = f"adaptive, {setting.learned[middle]:,} draws"
        axes.plot(
            across,
            np.maximum(chosen.mean(0), 1e-18),
            "o-",
            color=COLORS[ADAPTIVE],
            label=text,
            markersize=4,
            linewidth=2,
        )
        axes.fill_between(
            across, np.maximum(chosen.min(0), 1e-18), chosen.max(0), color=COLORS[ADAPTIVE], alpha=0.2, linewidth=0
        )
        axes.set_yscale("log")
        axes.set(title=title, xlabel=label)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 1e-11))
    for axes, eta in zip(by_samples, setting.etas, strict=True):
        values = [results.shuffled[eta, k]["adaptive", ""] for k in setting.samples]
        text = f"the same, mean over {setting.num_orders} orders of the keys"
        axes.plot(setting.samples, values, ":", color=COLORS[ADAPTIVE], label=text, linewidth=2)
    by_eta.invert_xaxis()
    by_samples[0].set_ylabel("variance")
    figure.legend(*by_samples[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return figure


def page_of(results: Results, setting: Setting) -> str:
    """Formats the page of results: the tables with explanations."""
    sections = []
    for eta in setting.etas:
        sections.append(f"""## eta = {eta:g}

What learns on the way, after so many draws (mean and standard deviation of the exact variance over {setting.num_seeds}
seeds), next to the best of all others:

{adaptive_table(results, eta, setting)}

All of them, the keys in lexicographic order:

{exact_table(results, eta, setting)}

Stratified and systematic sampling look the keys up in their order, and so does optimal resampling among the keys that
it does not sum; of keys with the same weight the first are summed, by sum and sample too. Means over
{setting.num_orders} random orders of the keys:

{order_table(results, eta, setting)}
""")
    return f"""# {TITLE}

Variance of the estimated derivative for k evaluations of f. What is measured and how, and the answer:
[experiments/estimator_variance.py](../estimator_variance.py).

![variance against k and eta](estimator_variance.png)

The band of the adaptive estimator goes from the least to the greatest of {setting.num_seeds} seeds; dashed is what
needs an oracle. b* is the best constant baseline of the estimator at hand, E f the mean loss: neither is known in
practice.

{chr(10).join(sections)}
## REBAR

Temperature and scale trained on the square of the estimate ({setting.rebar_steps:,} steps), and a constant baseline
with them; f is evaluated at two relaxed points besides the sample. Variance of {setting.rebar_samples:,} samples, with
its standard error:

{rebar_table(results)}

## Bias and variance of estimators that use the gradient of f

One sampled key and the gradient of f there, temperatures of 1; and, at two evaluations, coupled keys beside independent
ones. A bias with a standard error comes from {setting.rebar_samples:,} samples; the others are exact
([experiments/estimator_bias.py](../estimator_bias.py)). f as above, quadratic in the row that is read:

{raw.table(*bias_rows(results.biased, POWERS[0], setting.etas, number))}

f = sum_i (b_i - c_i)^4, which is not:

{raw.table(*bias_rows(results.biased, POWERS[1], setting.etas, number))}

## Ten keys, one logit each

f = 5 + N(0, 1), logits N(0, s^2) for s of {", ".join(f"{x:g}" for x in setting.concentrations)}; the variance of the
gradient with respect to the logits, summed over them, k = 4. Mean over five problems; on top their mean entropy. Per
coordinate: a baseline for each logit, learned from so many draws.

{ten_table(results)}
"""


def page(record: Mapping[str, Any]) -> str:
    """Formats the page of a record."""
    return f"{page_of(*of_raw(record['results']))}\n{raw.circumstances(record)}\n"


PAGE = raw.Page("estimator_variance", page, {"estimator_variance.png": lambda record: draw(*of_raw(record["results"]))})
