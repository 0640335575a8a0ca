"""Reference of options, generated from their classes: --options for one config, a page for all.

python launch.py --config=configs/quickstart.py --options[=attention]
python -m attn_jax.cli.reference
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from attn_jax.decoding.options import DecodeOptions, PointDecodeOptions
from attn_jax.errors import UserError, nearest
from attn_jax.evaluation.options import EvalOptions, LanguageEvalOptions, PointEvalOptions
from attn_jax.parts import Choice, Field, Option, Repeat, Section, fields_of
from attn_jax.runs.options import RunOptions, decode_options, eval_options, schema_of

# All classes of the sections whose class depends on other choices.
FOLLOWING = {
    decode_options: (DecodeOptions, PointDecodeOptions),
    eval_options: (EvalOptions, LanguageEvalOptions, PointEvalOptions),
}

INTRODUCTION = """# Options

A config is a tree of parts. The key `name` of a slot chooses a part, and brings the options of that part; what is not
chosen has no key. `--config.model.encoder=gru` is short for `--config.model.encoder.name=gru`. A sequence of slots has
a `pattern` of names, and the options of each name under `parts`:
`--config.model.attention.wrappers=top_keys --config.model.attention.wrappers.parts.top_keys.count=4`.
`python launch.py --config=configs/X.py --options` prints the options of one config with their values, and
`--options=TEXT` those that have the text in their key or meaning.

Each table below is a part, once, and each link a part that may be chosen. This page is what
`python -m attn_jax.cli.reference` prints.
"""


def describe(config: ConfigDict, text: str = "") -> str:
    """Returns a text with the options of a config: key, value, meaning, range, and the default if it differs.

    Only options whose key or meaning has `text`, in any case, are there.

    Raises:
        UserError: there are none.
    """
    whole, lines = schema_of(config), []
    options = {key: option for key, option in whole.items() if text.lower() in f"{key} {about(option)}".lower()}
    if not options:
        words = {word for key in whole for word in key.split(".")}
        raise UserError(f"--options={text}: no key or meaning of an option has it; {nearest(text, words)}")
    for section in dict.fromkeys(map(_section, options)):
        inside = {key: option for key, option in options.items() if _section(key) == section}
        lines += [f"{section or 'run'}:", *_lines(config, inside), ""]
    return "\n".join(lines).rstrip()


def _section(key: str) -> str:
    return key.partition(".")[0] if "." in key else ""


def _lines(config: ConfigDict, options: dict[str, Option]) -> list[str]:
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
    return option.meaning + (f"; {option.range}" if option.range else "")


def reference() -> str:
    """Returns the page of all options: first the root, then each part that can be chosen, once."""
    titles, waiting = {RunOptions: "Run"}, [RunOptions]
    while waiting:
        for field in fields_of(waiting.pop(0)).values():
            for _, kind in parts_of(field):
                if fields_of(kind) and kind not in titles:
                    titles[kind] = _title(kind.__name__, titles.values())
                    waiting.append(kind)
    lines = [line for kind, title in titles.items() for line in _page(kind, title, titles)]
    return "\n".join([INTRODUCTION, *lines]).rstrip() + "\n"


def parts_of(field: Field) -> Iterator[tuple[str, Any]]:
    """Yields (name, part) for each part that a field may hold; the name is "" if there is no choice."""
    if isinstance(field, Choice | Repeat):
        yield from ((name, field.table[name]) for name in field.table)
    elif isinstance(field, Section):
        yield from (("", kind) for kind in FOLLOWING.get(field.kind, (field.kind,)))


def _title(name: str, taken: Iterable[str]) -> str:
    """Returns a unique heading: the name, followed by a number if another part has this name."""
    titles = (f"{name} {number}" if number > 1 else name for number in itertools.count(1))
    return next(title for title in titles if title not in taken)


def _page(kind: Any, title: str, titles: Mapping[Any, str]) -> list[str]:
    """Returns the lines of a heading and a Markdown table of the options of a part."""
    summary = (kind.__doc__ or "").strip().splitlines()[0].removeprefix("Options of ")
    rows = [f"## {title}", "", summary[:1].upper() + summary[1:], "", "| key | default | meaning |", "|---|---|---|"]
    for key, field in fields_of(kind).items():
        where = f" (for {field.where.text})" if field.where is not None else ""
        if isinstance(field, Option):
            rows.append(f"| `{key}` | `{field.default!r}` | {_cell(about(field))}{where} |")
            continue
        parts = ", ".join(_link(name, titles.get(part, "")) for name, part in parts_of(field))
        default = "" if isinstance(field, Section) else f"`{field.default!r}`"
        meaning = f"{_cell(field.meaning)}{where}"
        rows.append(f"| `{key}` | {default} | {': '.join(filter(None, (meaning, parts)))} |")
    return [*rows, ""]


def _link(name: str, title: str) -> str:
    return f"[{name or title}](#{title.lower().replace(' ', '-')})" if title else name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
