"""Soft or hard attention, and which estimator: inflection from 1,000 forms, three languages, three seeds each.

    python launch.py --sweep=experiments/soft_vs_hard.py --config.data_dir=data/sigmorphon2017
    python experiments/soft_vs_hard.py --data_dir=data/sigmorphon2017

The first command trains every variant on every language, three seeds in one vmapped program. The second collects the
results, counts the evaluations of the loss per target token, times a training step of every variant on the same batch,
and writes experiments/results/soft_vs_hard.md. Deng 2018 (arXiv 1807.03756) found for translation that marginal and
variational attention are better than soft attention, and soft is better than hard.
"""

import argparse
import pathlib
import sys
import time
from typing import Any

import jax
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.batching import Batches, encode_pairs  # noqa: E402
from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.data.sizes import TextSizes  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.paths import expanded, user_path  # noqa: E402
from attn_jax.runs.build import build_task  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from attn_jax.runs.python_files import load_file  # noqa: E402
from attn_jax.training.loop import TrainState, make_train_step  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

LANGUAGES = ("german", "finnish", "turkish")


def hard(reading: str, num_samples: int = 0, baseline: str = "", features: int = 128) -> dict:
    """Returns changes to config.model for the expected loss with an estimator.

    Args:
        reading: the estimator.
        num_samples: 0: the reading has no such option.
        baseline: "": the reading cannot have any.
        features: width of a baseline that is a network.
    """
    changes: dict[str, Any] = {"objective": "hard", "objective.reading": reading}
    changes |= {"objective.reading.num_samples": num_samples} if num_samples else {}
    changes |= {"objective.baseline": baseline} if baseline else {}
    return changes | ({"objective.baseline.features": features} if baseline in ("learned", "critic") else {})


EXACT = {"objective": "marginal", "objective.reading": "enumeration"}
VARIANTS = {  # name -> changes to config.model of configs/inflection_soft.py
    "soft": {},
    "hard, 1 sample, no baseline": hard("reinforce", 1, "none"),
    "hard, 1 sample, learned baseline": hard("reinforce", 1, "learned"),
    "hard, 4 samples, leave-one-out": hard("reinforce", 4, "leave_one_out"),
    "hard, unordered set of 4": hard("unordered_set", 4, "leave_one_out"),
    "hard, optimal resampling of 4, learned baseline": hard("optimal_resampling", 4, "learned"),
    "hard, optimal resampling of 4, critic": hard("optimal_resampling", 4, "critic"),
    "hard, adaptive of 4": hard("adaptive", 4, "adaptive"),
    "hard, coupled": hard("coupled"),
    "hard, ReinMax": hard("reinmax"),
    "hard, ReinMax-Rao of 10": hard("reinmax_rao", 10),
    "hard, ReinMax-CV of 10": hard("reinmax_cv", 10),
    "hard, gapped straight-through": hard("gapped"),
    "hard, implicit MLE": hard("implicit_mle"),
    "hard, enumeration": hard("enumeration"),
    "marginal": EXACT,
    "elbo": {"objective": "elbo", "objective.inference_size": 64, "objective.reading": "enumeration"},
    "monotonic, order 1": {"objective": "markov", "objective.monotonic": True, "objective.jump_size": 5},
}


def overrides(language: str, variant: str) -> dict:
    """Returns the overrides of one run, as in a sweep."""
    common = {
        "task.language": language,
        "task.size": "medium",
        "seeds": (0, 1, 2),
        "train.num_epochs": 40.0,
        "train.eval_every": 640,
        "eval.num_pictures": 0,
    }
    return {"config": "configs/inflection_soft.py", **common} | {
        f"model.{key}": value for key, value in VARIANTS[variant].items()
    }


def sweep():
    for variant in VARIANTS:
        for language in LANGUAGES:
            yield overrides(language, variant)


def config_of(language: str, variant: str, data_dir: str):
    """Returns the config of a run of the sweep."""
    changes = overrides(language, variant)
    config = load_file(ROOT / changes.pop("config"), "get_config")
    config.data_dir = data_dir
    return change(config, changes)


def evaluations(config) -> str:
    """Counts the evaluations of the loss per target token in a training step."""
    objective = resolve(config).model.objective
    if not objective.is_latent:
        return "1"
    reading = objective.reading_of_keys()
    if reading is None or reading.exact_rows:  # None: a chain, which is summed out
        return "all"
    log_weights = jax.ShapeDtypeStruct((8,), np.float32)
    rng = jax.eval_shape(lambda: jax.random.key(0))
    rows = jax.eval_shape(lambda rng, log_weights: reading(rng, log_weights).rows, rng, log_weights)
    return str(rows.shape[-2] + (objective.label == "soft"))


class Stepper:
    """Compiled training step of a variant for one batch."""

    def __init__(self, config, batch, sizes):
        options = resolve(config)
        model, tx = options.build_model(TextSizes(*sizes)), options.optimizer.build(1000)
        self.batch = batch
        self.state = jax.jit(lambda rng: TrainState.create(model.init(rng, batch), tx, rng))(jax.random.key(0))
        self.step = jax.jit(make_train_step(model.loss_fn, tx), donate_argnums=0)
        self.run(3)

    def run(self, count: int) -> float:
        """Seconds per step."""
        begin = time.perf_counter()
        for _ in range(count):
            self.state, _ = self.step(self.state, self.batch)
        jax.block_until_ready(self.state)
        return (time.perf_counter() - begin) / count


def time_steps(data_dir: str, windows: int, steps: int, language: str = LANGUAGES[0]) -> dict[str, list[float]]:
    """Returns the seconds of a training step (one seed) in each window, by variant; they take turns on one batch."""
    configs = {variant: config_of(language, variant, data_dir) for variant in VARIANTS}
    config = configs["soft"]
    task = build_task(resolve(config))
    vocabularies = task.source_vocabulary, task.target_vocabulary
    pairs = encode_pairs(task.splits["train"], *vocabularies)
    batches = Batches(pairs, config.task.buckets.shapes, config.task.batch_size, config.task.batch_unit, seeds=(0,))
    batch = max((batches.batch_at(i) for i in range(20)), key=lambda batch: batch["target_in"].size)
    steppers = {name: Stepper(config, batch, list(map(len, vocabularies))) for name, config in configs.items()}
    times: dict[str, list[float]] = {name: [] for name in steppers}
    for window in range(windows):
        order = list(steppers) if window % 2 else list(steppers)[::-1]
        for name in order:
            times[name].append(steppers[name].run(steps))
    return times


def closed(no_baseline: np.ndarray, enumeration: np.ndarray, other: np.ndarray) -> float:
    """Returns the percentage of the gap between one bare sample and enumeration that another estimator closes."""
    return 100 * (np.mean(no_baseline) - np.mean(other)) / (np.mean(no_baseline) - np.mean(enumeration))


def report(results: dict, times: dict[str, float], counts: dict[str, str]) -> str:
    """Formats the tables as Markdown; results: (language, variant) -> metrics of result.json."""
    languages = [language for language in LANGUAGES if any(key[0] == language for key in results)]
    lines = [
        "Dev set, three seeds: mean and standard deviation (SD) of exact match (percent) and of the negative",
        "log-likelihood per character (nats; latent attention: of the mixture over all keys), entropy of the weights",
        "(nats), how often f is evaluated per target token in training, milliseconds per training step (one seed, the",
        "same batch).",
        "An empty place was not trained or not timed.",
        "",
    ]
    head = ["", *(f"{language}: exact match | nll" for language in languages), "entropy", "f", "ms/step", "x soft"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * (len(head) + len(languages))]
    for variant in VARIANTS:
        cells, entropies = [variant], []
        for language in languages:
            metrics = results.get((language, variant))
            if metrics is None:
                cells += ["", ""]
                continue
            for name, digits in (("exact_match", 1), ("loss", 3)):
                cells.append(f"{metrics[name]['mean']:.{digits}f} (SD {metrics[name]['std']:.{digits}f})")
            entropies.append(metrics["attention_entropy"]["mean"])
        cells.append(f"{np.mean(entropies):.2f}" if entropies else "")
        timed = (
            [f"{1e3 * times[variant]:.1f}", f"{times[variant] / times['soft']:.2f}"] if variant in times else ["", ""]
        )
        cells += [counts[variant], *timed]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Each seed:", ""]
    for (language, variant), metrics in results.items():
        pairs = zip(metrics["exact_match"]["seeds"], metrics["loss"]["seeds"], strict=True)
        seeds = ", ".join(f"{exact:.1f} / {nll:.3f}" for exact, nll in pairs)
        lines.append(f"- {language}, {variant}: {seeds}")
    ends = ("hard, 1 sample, no baseline", "hard, enumeration")
    closing = []
    for variant in VARIANTS:
        shares = {}
        for language in languages:
            if all((language, name) in results for name in (*ends, variant)):
                shares[language] = closed(*(results[language, name]["loss"]["seeds"] for name in (*ends, variant)))
        if shares and variant.startswith("hard") and variant not in ends:
            closing.append(
                f"- {variant}: " + ", ".join(f"{language} {share:.1f} %" for language, share in shares.items())
            )
    if closing:
        lines += ["", "Part of the gap in nll between one sample without baseline and enumeration that is closed:", ""]
    lines += closing
    return "\n".join(lines) + "\n"


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    found = record["results"]
    results = {(run["language"], run["variant"]): run["result"]["metrics"] for run in found["runs"]}
    times = {variant: float(np.median(values)) for variant, values in found["step_seconds"].items()}
    head = f"# Soft or hard attention, and which estimator\n\n{raw.circumstances(record)}\n\n"
    return head + report(results, times, found["evaluations"])


PAGES = (raw.Page("soft_vs_hard", page),)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=expanded, required=True)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "soft_vs_hard")
    parser.add_argument("--windows", type=int, default=6, help="of timing; 0: no timing")
    parser.add_argument("--steps", type=int, default=20, help="training steps in a window")
    args = parser.parse_args(argv)
    path = raw.RESULTS / "soft_vs_hard.json"
    begun = raw.begin(path)
    places = [(language, variant) for variant in VARIANTS for language in LANGUAGES]
    runs = [
        {"language": language, "variant": variant, "result": load_json(folder / "result.json")}
        for (language, variant), folder in of_sweep.finished(pathlib.Path(__file__), places, args.runs).items()
    ]
    counts = {variant: evaluations(config_of(LANGUAGES[0], variant, args.data_dir)) for variant in VARIANTS}
    times = time_steps(args.data_dir, args.windows, args.steps) if args.windows else {}
    found = {"runs": runs, "evaluations": counts, "step_seconds": times}
    command = "python experiments/soft_vs_hard.py --data_dir=data/sigmorphon2017"
    record = raw.write(path, found, command=command, begun=begun)
    print(PAGES[0].save(record, raw.RESULTS))


if __name__ == "__main__":
    with one_line("soft_vs_hard.py"):
        main()
