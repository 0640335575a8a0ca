"""Analysis of the attention of a trained model: a table of measures, and analysis.json.

    python launch.py --mode=analyze --workdir=DIR [--source=FILE --target=FILE] [--gold=FILE]

A gold file has the true alignment of each pair in Talp format: in "1-1 2p3" the numbers are source and target words
between white space, counted from 1, and p marks a possible link. Without a gold file, a task that knows its alignments
gives them between tokens.
"""

import math
import pathlib
from collections.abc import Sequence
from functools import partial

from attn_jax.data.files import is_finite, load_json, reason
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Predictor, Split
from attn_jax.evaluation.collect import Collector
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.tables import markdown
from attn_jax.inspection.analysis import Alignment, read_talp
from attn_jax.inspection.attention_measures import NUMBERED_ROWS, Gold, Links, Row, measure_attention
from attn_jax.runs.inputs import decoded
from attn_jax.tasks.options import TaskOptions
from attn_jax.types import Params

AXES = ("layer", "head", *NUMBERED_ROWS.values())
MEASURES = {
    "entropy": "of the weights, in nats",
    "keys": "exp(entropy): the number of equal weights with this entropy",
    "first": "weight of the first key",
    "agreement": "overlap of the weights of all pairs of heads of a layer",
    "evidence": "share of the weight on the statements that support the answer",
    "error": "alignment error rate of the link of each target token to its key of largest weight",
    "attended": "fall of log p(target | source) without the key of largest weight",
    "random": "fall of log p(target | source) without a key at random",
}


def analysis_of(
    collector: Collector, params: Sequence[Params], split: Split, *, task: TaskOptions, gold_file: str = ""
) -> dict:
    """Measures the attention of each seed on a split; returns {"gold", "rows"} of analysis.json.

    Raises:
        UserError: the gold file is wrong, or is given for a model without weights of target over source tokens.
    """
    predictor = collector.predictor
    gold = gold_of_file(gold_file, predictor, split) if gold_file else gold_of_task(task, predictor, split)
    rows = measure_attention(collector, params, split, gold)
    if gold_file and not any("error" in row.values for row in rows):
        places = ", ".join(dict.fromkeys(row.place for row in rows)) or "none"
        raise UserError(
            f"--gold={gold_file}: the model has no weights of target words over source words, but: {places}"
        )
    return {"gold": gold_file or ("task" if gold else None), "rows": [_plain(row) for row in rows]}


def gold_of_file(path: str, predictor: Predictor, split: Split) -> Gold:
    """Reads the true alignments of the words of a split.

    Raises:
        UserError: the file cannot be read, its number of lines differs from the split, a line is no alignment, or a
            link names a word that does not exist.
    """
    try:
        with open(path, "rb") as stream:
            lines = list(decoded(stream, path))
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}") from error
    if len(lines) != len(split):
        raise UserError(f"{path} has {len(lines)} lines, but there are {len(split)} pairs; expected a line for each")
    alignments = read_talp(lines, path)
    translator = predictor.translator
    vocabularies = (translator.target_vocabulary, translator.source_vocabulary)
    sides = list(zip(split.target, split.source, strict=True))
    for number, (alignment, texts) in enumerate(zip(alignments, sides, strict=True), 1):
        for link in sorted(alignment.possible):
            for word, text, vocabulary, name in zip(link, texts, vocabularies, ("target", "source"), strict=True):
                if word >= (count := len(_without_tags(vocabulary, text).split())):
                    raise UserError(f"{path}, line {number}: {name} word {word + 1}, but the {name} has {count}")

    def convert(index: int, links: Links) -> Links:
        targets, sources = (words_of(*pair) for pair in zip(vocabularies, sides[index], strict=True))
        found = ((targets[t], sources[s]) for t, s in links)
        return frozenset(link for link in found if None not in link)

    return Gold(alignments, convert)


def gold_of_task(task: TaskOptions, predictor: Predictor, split: Split) -> Gold | None:
    """Returns the true token alignments that the task knows for a split; None if it knows none."""
    if not isinstance(split, Pairs):
        return None
    source, target = predictor.translator.source_vocabulary, predictor.translator.target_vocabulary
    tokens = zip(map(source.tokenize, split.source), map(target.tokenize, split.target), strict=True)
    found = [task.align(*pair) for pair in tokens]
    known = [None if links is None else Alignment(*links) for links in found]
    return Gold(known, only_known=True) if any(alignment is not None for alignment in known) else None


def words_of(vocabulary: Vocabulary, text: str) -> list[int | None]:
    """Returns for each token of a text the index of its white-space word; None for a space and for tags beside it."""
    tokens = vocabulary.tokenize(text)
    start, end, _ = vocabulary.text_places(text).indices(len(tokens))
    before = [vocabulary.join(tokens[start : i + 1]) if start <= i < end else "" for i in range(len(tokens))]
    return [
        len(joined.split()) - 1 if joined and token.strip("\u2581 ") else None
        for token, joined in zip(tokens, before, strict=True)
    ]


def _without_tags(vocabulary: Vocabulary, text: str) -> str:
    return text.partition("\t")[0] if vocabulary.form else text


def analysis_table(rows: Sequence[dict]) -> str:
    """Formats rows of analysis.json as Markdown: a line per place, layer, head and hop, without empty columns."""
    return markdown(analysis_rows(rows))


def analysis_rows(rows: Sequence[dict]) -> list[list[str]]:
    """Returns the cells of `analysis_table`, the head first."""
    axes = [axis for axis in AXES if any(axis in row for row in rows)]
    measures = measures_of(rows)
    lines = [["place", *axes, *measures]]
    for row in rows:
        lines.append([row["place"], *(str(row.get(axis, "")) for axis in axes), *map(partial(_cell, row), measures)])
    return lines


def read_analysis(path: pathlib.Path) -> dict:
    """Reads an analysis.json.

    Raises:
        UserError: the file is damaged, or is no analysis.json.
    """
    found = load_json(path)
    rows = found.get("rows")
    sound = isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("values"), dict) and isinstance(row.get("place"), str)
        for row in rows
    )
    for values in (one for row in (rows if sound else ()) for one in row["values"].values()):
        sound &= isinstance(values, dict) and {"mean", "std", "seeds"} <= values.keys()
        sound = sound and all(x is None or is_finite(x) for x in (values["mean"], values["std"]))
        sound = sound and isinstance(values["seeds"], list)
    if not sound:
        raise UserError(f"cannot read {path}: expected what --mode=analyze writes; remove it, or analyze again")
    return found


def measures_of(rows: Sequence[dict]) -> list[str]:
    """Returns the names of the measures in rows of analysis.json, in the order of MEASURES."""
    return [name for name in MEASURES if any(name in row["values"] for row in rows)]


def _cell(row: dict, name: str) -> str:
    values = row["values"].get(name)
    if values is None or values["mean"] is None:
        return ""
    return f"{values['mean']:.3g}" + (f" (SD {values['std']:.2g})" if len(values["seeds"]) > 1 else "")


def _plain(row: Row) -> dict:
    """Returns a row as JSON values; nan becomes null."""
    values = {name: summarize(row.values[name]) for name in MEASURES if name in row.values}
    finite = {
        name: {
            "mean": _finite(of["mean"]),
            "std": _finite(of["std"]),
            "seeds": [_finite(value) for value in of["seeds"]],
        }
        for name, of in values.items()
    }
    return {"place": row.place, **row.axes, "values": finite}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
