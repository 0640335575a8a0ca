"""Lines that commands print."""

import pathlib
from collections.abc import Sequence

import jax
from ml_collections import ConfigDict

from attn_jax.errors import printable
from attn_jax.evaluation.kinds import find_metric
from attn_jax.runs.options import RunOptions, schema_of

LONGEST_SHOWN = 200  # characters of an example


def say(line: str) -> None:
    """Prints a line on standard output with escapes for unprintable characters; only the first process prints."""
    if jax.process_index() == 0:
        print(printable(line), flush=True)


def header(options: RunOptions, workdir: pathlib.Path, overrides: tuple[str, ...] = ()) -> str:
    """Formats the first line of a run: the description of its config, and the overrides that affect training."""
    devices, seeds = jax.devices(), options.all_seeds
    where = f"{len(devices)} {devices[0].platform} device{'s' * (len(devices) > 1)}"
    seeds = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    what = f"{options.description or f'{options.model.name}, {options.task.name}'}{changes(options.config, overrides)}"
    return f"{options.name:<13} {what}    {where}, {options.dtype}, {seeds}    {workdir}"


def changes(config: ConfigDict, overrides: Sequence[str]) -> str:
    """Formats at most four overrides that affect training, such as ", with model.num_layers=1"."""
    options = schema_of(config)
    texts = [text.lstrip("-") for text in overrides]
    texts = [f"{text[2:]}=False" if text.startswith("noconfig.") else text for text in texts]
    texts = [text.removeprefix("config.") for text in (text if "=" in text else f"{text}=True" for text in texts)]
    trained = {key for key, option in options.items() if option.affects == "training"} - {"seed", "seeds"}
    texts = [text for text in texts if {(key := text.partition("=")[0]), f"{key}.name", f"{key}.pattern"} & trained]
    more = f" and {len(texts) - 4} more" if len(texts) > 4 else ""
    return f", with {', '.join(texts[:4])}{more}" if texts else ""


def table(result: dict, path: pathlib.Path) -> str:
    """Formats the metrics of a result on one line: the mean and, for several seeds, the standard deviation.

    The value of the seed chosen for prediction follows in parentheses.
    """
    cells = []
    for name, values in result["metrics"].items():
        several = len(values["seeds"]) > 1
        deviation = f" (SD {values['std']:.3g})" if several else ""
        chosen = ""
        if several and "chosen_seed" in result:
            seed = result["chosen_seed"]
            chosen = f" (seed {seed}: {values['seeds'][result['seeds'].index(seed)]:.4g})"
        unit = metric.unit if (metric := find_metric(name)) else ""
        cells.append(f"{name.replace('_', ' ')} {values['mean']:.4g}{deviation}{unit}{chosen}")
    return f"{label(str(result.get('split', ''))):<14}{'   '.join(cells)}   ({path})"


def say_examples(result: dict) -> None:
    """Prints the first examples of a result, three lines each: source, output and reference."""
    for number, example in enumerate(result["examples"], 1):
        for i, (name, text) in enumerate(example.items()):
            text = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " ..."
            say(f"{f'example {number}' if i == 0 else '':<14}{name:<11}{text}")


def label(split: str) -> str:
    """Returns the label of a split: its name, or "files" if the name is long."""
    return split if len(split) < 13 else "files"
