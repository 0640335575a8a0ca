"""Translation with and without attention on equal terms, and with two decoders: English and Japanese, six seeds.

    python launch.py --sweep=experiments/translation.py --config.data_dir=data/enja
    python experiments/translation.py --data_dir=data/enja

The first command trains: no attention, the mean of all states (a constant score), Bahdanau's and Luong's decoder, and
the Transformer, six seeds in one program each, and the last two in both directions. No checkpoint is selected: the last
four are averaged. The second measures every finished run on the test split of the corpus, or with --split=dev on the
sentences on which rates, dropout and sizes of the configs were chosen; greedy and with a beam of five, each seed and
the ensemble of all. No unknown word is replaced, which only attention could. It writes
experiments/results/translation.json and .md.
"""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.statistics import t_interval  # noqa: E402
from attn_jax.evaluation.tables import differences_table  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

CONFIGS = (
    "enja_none",
    "enja_constant",
    "enja_bahdanau",
    "enja_soft",
    "enja_transformer",
    "jaen_soft",
    "jaen_transformer",
)
SEEDS = (0, 1, 2, 3, 4, 5)
METRICS = {"bleu": 1, "chrf": 1, "perplexity": 2}  # and digits
WAYS = {"greedy": (), "beam": ("--config.decode.method=beam",)}


class Corpus(NamedTuple):
    """Parallel files: a split has STEM.LANGUAGE for each of two languages."""

    title: str
    folder: str  # in data
    stems: dict[str, str]  # {split: STEM}; the last is measured unless another is asked for


ENJA = Corpus("small_parallel_enja", "enja", {"dev": "dev", "test": "test"})


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run."""
    for config in CONFIGS:
        yield {
            "config": f"configs/{config}.py",
            "seeds": SEEDS,
            "train.keep": 1,
            "eval.metrics": tuple(METRICS),
            "eval.num_pictures": 0,
        }


def measure(workdir: pathlib.Path, data_dir: pathlib.Path, stem: str) -> dict[str, Any]:
    """Measures a finished run on the files STEM.LANGUAGE of a folder: {way: {metric: {seeds, ensemble}}}."""
    languages = (pathlib.Path(name).suffix for name in load_config(workdir).task.train)
    source, target = (data_dir / f"{stem}{language}" for language in languages)
    found: dict[str, Any] = {}
    for way, options in WAYS.items():
        values = []
        for together in ("none", "seeds"):
            command = [sys.executable, "-m", "attn_jax.cli", "--mode=eval", f"--workdir={workdir}", *options]
            command += [f"--source={source}", f"--target={target}", "--config.decode.unk=keep"]
            command += [f"--config.decode.ensemble={together}"]
            if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode:
                raise UserError(f"{workdir}: --mode=eval failed")
            values.append(load_json(workdir / "eval.json")["metrics"])
        each, ensemble = values
        found[way] = {name: {"seeds": each[name]["seeds"], "ensemble": ensemble[name]["seeds"][0]} for name in METRICS}
    return found


def size(config: Any) -> str:
    """Describes how large a run is."""
    pairs = f", {config.task.num_examples:,} pairs" if config.task.num_examples else ""
    parts = f"width {config.model.hidden_size}{pairs}, {config.train.num_epochs:g} epochs"
    return f"{parts}, dropout {config.model.dropout:g}"


def differences(runs: list[dict[str, Any]]) -> str:
    """Formats the paired differences of runs with the same languages, a table for each way of decoding.

    They are differences to the first run, and, of what comes after it, to the recurrent model with attention.
    """
    parts = []
    for languages in dict.fromkeys(run["config"].split("_")[0] for run in runs):
        first, *others = (run for run in runs if run["config"].startswith(languages))
        soft = [run for run in others if run["config"].endswith("_soft")]
        orders = [[first, *others]] + ([soft + [run for run in others if run not in soft]] if soft else [])
        for way in WAYS:
            for order in orders:
                results = {run["config"]: {"seeds": run["seeds"], "metrics": run["measured"][way]} for run in order}
                if table := differences_table(results):
                    parts.append(f"Paired differences, {way}:\n\n{table}")
    return "\n\n".join(parts)


def report(runs: list[dict[str, Any]]) -> str:
    """Formats a Markdown table: a row per run and way of decoding; a size that all runs have stands above it."""
    sizes = {run["size"] for run in runs}
    rows = []
    for run in runs:
        for way, metrics in run["measured"].items():
            cells = [run["config"], *([run["size"]] if len(sizes) > 1 else []), way]
            for name, digits in METRICS.items():
                interval = t_interval(metrics[name]["seeds"])
                cells.append(raw.interval(interval, digits))
                cells.append(f"{metrics[name]['ensemble']:.{digits}f}")
            rows.append([*cells, f"{run['train_seconds'] / 60:.0f}"])
    names = ["config", *(["size"] if len(sizes) > 1 else []), "decoding"]
    head = [*names, *(text for name in METRICS for text in (name, "ensemble")), "minutes"]
    above = f"All have {sizes.pop()}:\n\n" if len(sizes) == 1 else ""
    return above + raw.table(head, rows, left=len(names))


def tables(runs: list[dict[str, Any]]) -> str:
    """Formats the measured values and the differences."""
    return f"{report(runs)}\n\n{differences(runs)}"


def page(
    record: dict[str, Any],
    name: str = "translation",
    title: str = __doc__.splitlines()[0],
    configs: tuple[str, ...] = CONFIGS,
    corpus: Corpus = ENJA,
) -> str:
    """Formats the page of results."""
    runs = record["results"]["runs"]
    missing = [config for config in configs if config not in {run["config"] for run in runs}]
    return f"""# {title}

    python launch.py --sweep=experiments/{name}.py --config.data_dir=data/{corpus.folder}
    python experiments/{name}.py --data_dir=data/{corpus.folder} --split={record["results"]["split"]}

{raw.circumstances(record)}
{raw.training(runs, missing)}

Split {record["results"]["split"]} of {corpus.title}; mean of the seeds ± half the 95 % confidence interval
(Student's t), and the ensemble of all; minutes of training all seeds. No unknown word is replaced.

{tables(runs)}
"""


PAGES = (raw.Page("translation", page),)


def main(
    argv=None,
    results: raw.Page = PAGES[0],
    configs: tuple[str, ...] = CONFIGS,
    usage: str = __doc__,
    corpus: Corpus = ENJA,
) -> None:
    """Measures the finished runs of the sweep experiments/NAME.py, of which `results` is the page."""
    *_, usual = corpus.stems
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=user_path, required=True)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / results.name)
    parser.add_argument("--split", choices=tuple(corpus.stems), default=usual)
    parser.add_argument("--jobs", type=int, default=1, help="how many runs are measured at a time")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / f"{results.name}.json"
    begun = raw.begin(path)
    data_dir = args.data_dir.resolve()

    def described(config: str, workdir: pathlib.Path) -> dict[str, Any]:
        result = load_json(workdir / "result.json")
        measured = measure(workdir, data_dir, corpus.stems[args.split])
        kept = {name: result[name] for name in ("seeds", "steps", "train_seconds", "commit", "device")}
        return {"config": config, "size": size(load_config(workdir)), "measured": measured, **kept}

    script = ROOT / "experiments" / f"{results.name}.py"
    finished = of_sweep.finished(script, configs, args.runs.resolve())
    with ThreadPoolExecutor(args.jobs) as pool:  # each measurement is a process of its own
        runs = list(pool.map(described, *zip(*finished.items(), strict=True)))
    command = f"python experiments/{script.name} --data_dir=data/{corpus.folder} --split={args.split}"
    found = {"split": args.split, "runs": runs}
    record = raw.write(path, found, command=command, begun=begun)
    print(results.save(record, args.out))


if __name__ == "__main__":
    with one_line("translation.py"):
        main()
