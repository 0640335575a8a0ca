"""Reference of options, generated from their classes: --options for one config, docs/options.md for all.

python launch.py --config=configs/quickstart.py --options
python -m attn_jax.cli.reference > docs/options.md
"""

import sys
from collections.abc import Iterable

from ml_collections import ConfigDict

from attn_jax.cli.options import RunOptions, schema_of
from attn_jax.cli.unread import why_unread
from attn_jax.evaluation.options import DecodeOptions, EvalOptions, PointDecodeOptions, PointEvalOptions
from attn_jax.models.families import FAMILIES, family
from attn_jax.options import Option, options_of
from attn_jax.outputs import OutputLayerOptions
from attn_jax.tasks import TASKS
from attn_jax.training.options import OptimizerOptions, TokenTrainOptions

INTRODUCTION = """# Options

The options of a config are those of its task and of its family of models. Set one on the command line with
`--config.KEY=VALUE`. `python launch.py --config=configs/X.py --options` prints the options of one config with their
values, and lists the options that its other choices leave without effect.

This page is generated: `python -m attn_jax.cli.reference > docs/options.md`.
"""
UNREAD_WIDTH = 118
OUTPUT = "model.output."


def describe(config: ConfigDict) -> str:
    """Returns a text with every option of a config: key, value, meaning, range, and the default if it differs."""
    options, lines = schema_of(config), []
    sections = dict.fromkeys(map(_section, options))
    for section in sections:
        inside = {key: option for key, option in options.items() if _section(key) == section}
        unread = [key for key in inside if not key.endswith(".name") and why_unread(config, key)]
        first = f"{section}.name"
        read = sorted((key for key in inside if key not in unread), key=lambda key: key != first)
        lines += [f"{section or 'run'}:", *_table(config, {key: inside[key] for key in read})]
        lines += _wrapped("  nothing reads, with these choices: ", unread)
        lines.append("")
    return "\n".join(lines).rstrip()


def _section(key: str) -> str:
    return key.partition(".")[0] if "." in key else ""


def _table(config: ConfigDict, options: dict[str, Option]) -> list[str]:
    """Returns one line per option, in columns."""
    names = {key: f"  {key} = {config[key]!r}" for key in options}
    width = min(max(map(len, names.values()), default=0), 52)
    lines = []
    for key, option in options.items():
        changed = "" if config[key] == option.default or not option.default else f"; default {option.default!r}"
        lines.append(f"{names[key]:<{width}}  {about(option)}{changed}")
    return lines


def about(option: Option) -> str:
    """Returns the meaning and the range of an option."""
    readers = f"; for {', '.join(option.only[1])}" if option.only and option.only[0] == "name" else ""
    return option.meaning + (f"; {option.range}" if option.range else "") + readers


def _wrapped(beginning: str, keys: Iterable[str]) -> list[str]:
    """Lists keys in lines of at most UNREAD_WIDTH characters."""
    lines, line = [], beginning
    for key in keys:
        if len(line) + len(key) > UNREAD_WIDTH:
            lines.append(line.rstrip())
            line = "    "
        line += f"{key}, "
    return [*lines, line.rstrip(", ")] if line != beginning else []


def reference() -> str:
    """Returns the page docs/options.md."""
    tasks = {name: options_of(kind, "task.") for name, kind in TASKS.items()}
    families = {name: options_of(family(name), "model.") for name in FAMILIES}
    parts = [INTRODUCTION, *_page("Every run", options_of(RunOptions))]
    for title, found, section in (("Task", tasks, "task"), ("Family", families, "model")):
        for name, options in found.items():
            own = {key: option for key, option in options.items() if not key.startswith(OUTPUT)}
            parts += _page(f"{title} {name}", own, f"`{section}.name={name}`")
    note = f"Of the families {', '.join(name for name, options in families.items() if f'{OUTPUT}name' in options)}."
    parts += _page("Output layer", options_of(OutputLayerOptions, OUTPUT), note)
    note = "A regression has no microbatches, choose_seed and label_smoothing; a memory network has no label_smoothing."
    parts += _page("Training", options_of(TokenTrainOptions, "train."), note)
    parts += _page("Optimizer", options_of(OptimizerOptions, "optimizer."))
    parts += _page("Decoding", options_of(DecodeOptions, "decode."))
    parts += _page("Predictions of a regression", options_of(PointDecodeOptions, "decode."))
    note = "A task without sources, such as plain_text, has perplexity and accuracy as its metrics."
    parts += _page("Measuring", options_of(EvalOptions, "eval."), note)
    parts += _page("Measuring a regression", options_of(PointEvalOptions, "eval."))
    return "\n".join(parts).rstrip() + "\n"


def _page(title: str, options: dict[str, Option], note: str = "") -> list[str]:
    """Returns the lines of a heading and a Markdown table of options."""
    rows = [f"## {title}", "", *([note, ""] if note else []), "| key | default | meaning |", "|---|---|---|"]
    for key, option in options.items():
        if key not in ("task.name", "model.name"):
            default = "as in model.attention" if option.default is None else f"`{option.default!r}`"
            rows.append(f"| `{key}` | {default} | {_cell(about(option))} |")
    return [*rows, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
