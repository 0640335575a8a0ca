"""Inflection with tags beside the source: which reading, with and without made training forms, in which language?

    python launch.py --sweep=experiments/inflection.py --config.data_dir=data/sigmorphon2017
    python experiments/inflection.py

The first command trains every run that RUNS names, three seeds in one program; finished runs are skipped. The second
collects the finished ones, and writes experiments/results/inflection.json and .md. The last checkpoint is measured on
the dev set, which chooses nothing; if `launch.py --mode=eval --workdir=... --config.decode.ensemble=seeds` has measured
the mean of the probabilities of a run's seeds, the page has it, too. Ensembles of several runs, that is with
--config.decode.ensemble=runs, are named by --ensembles, a folder each.

The tags are the first tokens of the source, or beside it: fed to every step of the decoder, or read by a second
attention. Readings: soft attention, hard attention by enumeration, and the exact marginal likelihood of independent
alignments, of monotonic ones and of monotonic ones of first order (Wu & Cotterell 2019, arXiv 1905.06319). Synthetic
examples have random stems or copy a word (Anastasopoulos & Neubig 2019, arXiv 1908.05838). A run with them has twice as
many steps. Width 320, with batches of 20, has 1.6 million parameters, and so less than the 2.2 million of
neural-transducer (experiments/inflection_peer.py). From 10,000 forms the training has 20 epochs, from 1,000 it has 40.

The Transformer reads the tags as a set in front of the lemma (Wu, Cotterell & Hulden 2021, arXiv 2005.10213). It has
half of the published width, batches of 100 in place of 400, and a tenth of the 20,000 steps, which are 20 epochs of
10,000 forms, as many as those of the others: what two cores can train.
"""

import argparse
import itertools
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.paired import same_examples  # noqa: E402
from attn_jax.evaluation.statistics import compare, t_interval  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.options import resolve  # noqa: E402
from attn_jax.runs.tree import flatten  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

MONOTONIC = {"model.objective": "markov", "model.objective.monotonic": True}
READINGS = {
    "soft": {},
    "hard": {"model.objective": "hard", "model.objective.reading": "enumeration"},
    "marginal": {"model.objective": "marginal", "model.objective.reading": "enumeration"},
    "monotonic": MONOTONIC | {"model.objective.jump_size": 0},
    "monotonic, first order": MONOTONIC | {"model.objective.jump_size": 5},
}
SET = "a set, Transformer"
PLACES = {
    "first": {"config": "configs/inflection_soft.py"},
    "fed": {"config": "configs/inflection_tags.py"},
    "attended": {"config": "configs/inflection_tags.py", "model.tags": "attended"},
    SET: {"config": "configs/inflection_transformer_tags.py"},
}
TRANSFORMER = {
    "model.hidden_size": 128,
    "model.encoder.feed_forward_size": 512,
    "model.decoder.feed_forward_size": 512,
    "task.batch_size": 100,
    "train.num_steps": 2000,
    "train.eval_every": 1000,
    "optimizer.warmup_steps": 400,
}
MADE = {
    False: {"train.num_epochs": 40.0, "train.eval_every": 640},
    True: {
        "task.hallucinated": 2000,
        "task.copy_words": True,
        "train.num_steps": 2720,
        "train.num_epochs": 0.0,
        "train.eval_every": 1360,
    },
}


class Setting(NamedTuple):
    """A run: what is compared."""

    language: str
    place: str  # of the tags
    reading: str
    made: bool = False  # training forms
    width: int = 128  # of the hidden states
    forms: int = 1000  # of training


LANGUAGES = ("german", "finnish", "turkish", "hungarian")  # nobody tuned anything on the last
LARGE, ALL = 320, 10_000
PUBLISHED = {
    False: {"task.batch_size": 20, "train.eval_every": 1000},
    True: {"task.batch_size": 20, "train.num_steps": 4160, "train.eval_every": 2080},
}
SIZES = {  # of the training files
    1000: {"task.size": "medium"},
    ALL: {"task.size": "high", "train.num_epochs": 20.0, "train.eval_every": 5000},
}
KEPT = ("split", "sentences", "seeds", "steps", "train_seconds", "metrics", "commit", "date", "machine", "device")
WIDTHS = ("model.hidden_size", "model.decoder.readout_size")
FIRST = ("soft", "monotonic, first order")
# Those without which the others say little come first.
RUNS = (
    *(Setting("german", "fed", reading, made) for made in (False, True) for reading in FIRST),
    *(Setting("german", "fed", reading, width=LARGE) for reading in FIRST),
    *(Setting(language, "fed", FIRST[1], width=LARGE, forms=ALL) for language in LANGUAGES[:3]),
    Setting("german", "fed", FIRST[0], width=LARGE, forms=ALL),
    Setting("german", "fed", FIRST[1], made=True, width=LARGE),
    *(Setting(language, "fed", reading) for language in LANGUAGES[:0:-1] for reading in FIRST),
    *(Setting("german", "fed", reading) for reading in ("hard", "marginal", "monotonic")),
    *(Setting("german", place, "soft") for place in ("attended", "first")),
    Setting("german", "fed", FIRST[0], made=True, width=LARGE),
    *(Setting(language, "fed", reading) for language in LANGUAGES[1:] for reading in READINGS if reading not in FIRST),
    *(Setting(language, SET, "soft", forms=ALL) for language in LANGUAGES[:2]),
    Setting("german", SET, "soft"),
    *(Setting("hungarian", "fed", reading, made=True, width=LARGE) for reading in FIRST),
    *(Setting(language, "fed", reading, width=LARGE) for language in LANGUAGES[:0:-1] for reading in FIRST),
    *(Setting(language, "fed", FIRST[0], width=LARGE, forms=ALL) for language in LANGUAGES[1:3]),
)


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for run in RUNS:
        common = {**PLACES[run.place], "task.language": run.language, "task.size": "medium", "seeds": (0, 1, 2)}
        common |= {"eval.num_pictures": 0}
        if run.place == SET:
            yield common | {"task.size": SIZES[run.forms]["task.size"]} | TRANSFORMER
        else:
            yield {
                **common,
                **MADE[run.made],
                **READINGS[run.reading],
                **(dict.fromkeys(WIDTHS, LARGE) | PUBLISHED[run.made] if run.width == LARGE else {}),
                **SIZES[run.forms],  # over what is above
            }


def report(results: list[dict[str, Any]]) -> str:
    """Formats a Markdown table with a row per run."""
    rows = []
    for found in results:
        run, metrics = Setting(**found["setting"]), found["result"]["metrics"]
        exact, loss = (t_interval(metrics[name]["seeds"]) for name in ("exact_match", "loss"))
        rows.append(
            [
                run.language,
                run.place,
                run.reading,
                str(run.width),
                f"{found['result']['batch_size']}",
                f"{run.forms:,}",
                "yes" if run.made else "no",
                f"{exact.mean:.1f} [{exact.low:.1f}, {exact.high:.1f}]",
                ", ".join(f"{value:.1f}" for value in metrics["exact_match"]["seeds"]),
                f"{found['ensemble']['exact_match']['mean']:.1f}" if "ensemble" in found else "",
                f"{loss.mean:.3f}",
                f"{found['result']['steps']:,}",
                f"{found['result']['train_seconds']:.0f}",
            ]
        )
    head = [
        "language",
        "tags",
        "reading",
        "width",
        "batch",
        "forms",
        "synthetic examples",
        "exact match [95 % interval]",
        "each seed",
        "ensemble",
        "nll",
        "steps",
        "s",
    ]
    return raw.table(head, rows, left=7)


def differences(results: list[dict[str, Any]]) -> str:
    """Formats the differences in exact match of runs whose settings differ in one part.

    A reading is compared with soft attention, a larger setting with the smaller.
    """
    rows = []
    for first, second in itertools.combinations(results, 2):
        run, other = Setting(**first["setting"]), Setting(**second["setting"])
        changed = [name for name, a, b in zip(Setting._fields, run, other, strict=True) if a != b]
        if len(changed) != 1 or changed == ["language"]:
            continue
        more = changed[0] in ("made", "width", "forms") and getattr(run, changed[0]) > getattr(other, changed[0])
        if more or (changed == ["reading"] and other.reading == "soft"):
            first, second, run, other = second, first, other, run
        if changed == ["reading"] and run.reading != "soft":
            continue
        values, others = (found["result"]["metrics"]["exact_match"]["seeds"] for found in (first, second))
        if len(values) == len(others) > 1:
            gap = compare(others, values).difference
            same = [str(value) for name, value in run._asdict().items() if name not in (*changed, "made", "forms")]
            same += [f"{run.forms:,} forms"] if changed != ["forms"] else []
            same += ["synthetic examples"] if run.made and changed != ["made"] else []
            what = f"{changed[0]}: {getattr(other, changed[0])} − {getattr(run, changed[0])}"
            rows.append([what, ", ".join(same), f"{gap.mean:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"])
    return raw.table(["changed", "else", "exact match, difference [95 % interval]"], rows, left=2)


def of_ensemble(workdir: pathlib.Path, result: dict[str, Any]) -> dict[str, Any]:
    """Returns {"ensemble": metrics} if the last --mode=eval of a run was of its ensemble, else as `result`; else {}."""
    path = workdir / "eval.json"
    if not path.exists():
        return {}
    measured = load_json(path)
    same = all(measured[key] == result[key] for key in ("split", "sentences")) and same_examples(measured, result)
    decoded = measured["decode"] == result["decode"] | {"ensemble": {"name": "seeds"}}
    return {"ensemble": measured["metrics"]} if same and decoded else {}


def of_runs(workdir: pathlib.Path) -> dict[str, Any]:
    """Returns {"language", "members", "metrics", ...} of a run whose last --mode=eval was of several runs.

    Raises:
        UserError: it was not, or not of all seeds, or the runs differ in language or training forms.
    """
    measured, configs = load_json(workdir / "eval.json"), [load_config(workdir)]
    ensemble = measured["decode"]["ensemble"]
    if ensemble["name"] != "runs" or not ensemble["every_seed"]:
        raise UserError(f"{workdir / 'eval.json'} is of no ensemble of several runs; see --help")
    configs += [load_config(pathlib.Path(path)) for path in ensemble["workdirs"]]
    data = {(config.task.language, config.task.size) for config in configs}
    if len(data) != 1:
        raise UserError(f"{workdir}: the runs of the ensemble are of {sorted(data)}; expected one language and size")
    task, kept = configs[0].task, ("split", "sentences", "metrics", "commit", "date", "machine")
    members = [member(config) for config in configs]
    return {"language": task.language, "size": task.size, "members": members} | {key: measured[key] for key in kept}


def member(config: ConfigDict) -> dict[str, Any]:
    """Returns the reading, the width and the seeds of a run of the ensemble."""
    values = flatten(config)
    values |= {key.removesuffix(".name"): value for key, value in values.items()}  # a slot by its own key, too
    # The readings with more settings come last: the last that fits says all.
    *_, reading = (name for name, own in READINGS.items() if own.items() <= values.items())
    return {"reading": reading, "width": config.model.hidden_size, "seeds": list(resolve(config).all_seeds)}


def ensembles(found: list[dict[str, Any]]) -> str:
    """Formats a Markdown table with a row per ensemble of several runs."""
    rows = [
        [
            one["language"],
            one["size"],
            "; ".join(
                f"{m['reading']}, width {m['width']}, seeds {', '.join(map(str, m['seeds']))}" for m in one["members"]
            ),
            f"{one['metrics']['exact_match']['mean']:.1f}",
            f"{one['metrics']['loss']['mean']:.3f}",
        ]
        for one in found
    ]
    return raw.table(["language", "size", "members", "exact match", "nll"], rows, left=3)


def names(ensemble: dict[str, Any]) -> dict[str, Any]:
    """Returns what an ensemble is of."""
    return {key: ensemble[key] for key in ("language", "size", "members")}


def added(results: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the results with those of an earlier record whose settings are not among them, in the order of RUNS."""
    rows = {Setting(**found["setting"]): found for found in [*earlier, *results]}
    return [found | {"setting": run._asdict()} for run in RUNS if (found := rows.get(run))]


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    runs = record["results"]["runs"]
    trained = raw.training([found["result"] for found in runs])
    return f"""# {__doc__.splitlines()[0]}

    python launch.py --sweep=experiments/inflection.py --config.data_dir=data/sigmorphon2017
    python experiments/inflection.py

{raw.circumstances(record)}
{trained}
- trained so far: {len(runs)} of the {len(RUNS)} runs of the experiment

CoNLL-SIGMORPHON 2017, dev set (1,000 forms); LSTM, but for the Transformer that the second column names; three seeds in
one program; exact match in percent with the interval of Student's t for the mean of the seeds, and of their ensemble;
nll in nats per character, seconds of the whole training of all three seeds, beside other programs.

{report(runs)}

Ensembles of several runs: the mean of the probabilities of all members.

{ensembles(record["results"].get("ensembles", []))}

Differences, paired by seed. With three seeds no exact test can tell a difference; the interval takes them to be normal.
Width 320 comes with batches of 20 in place of 32, synthetic examples with twice as many steps, and 10,000 forms with 20
epochs in place of 40.

{differences(runs)}
"""


PAGES = (raw.Page("inflection", page),)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "inflection")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    parser.add_argument("--ensembles", type=user_path, nargs="*", default=[], help="runs measured with others")
    parser.add_argument("--add", action="store_true", help="keep the rows that the page has of runs that are not here")
    args = parser.parse_args(argv)
    path = args.out / "inflection.json"
    begun, earlier = raw.begin(path), raw.earlier(path)["results"] if args.add else None
    found = []
    for setting, folder in of_sweep.finished(pathlib.Path(__file__), RUNS, args.runs).items():
        result = load_json(folder / "result.json")
        kept = {key: result[key] for key in KEPT} | {"batch_size": result["config"]["task"]["batch_size"]}
        found.append({"setting": setting._asdict(), "result": kept} | of_ensemble(folder, result))
    command = f"python experiments/inflection.py{' --ensembles ...' * bool(args.ensembles)}{' --add' * args.add}"
    together = [of_runs(folder) for folder in args.ensembles]
    if earlier:
        found = added(found, earlier["runs"])
        together = [one for one in earlier.get("ensembles", []) if names(one) not in map(names, together)] + together
    record = raw.write(path, {"runs": found, "ensembles": together}, command=command, begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("inflection.py"):
        main()
