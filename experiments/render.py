"""Writes every page and figure of experiments/results from the JSON file of its raw numbers.

    python -m experiments.render                 # all of them, and the tables of docs/results.md
    python -m experiments.render kernels length  # some pages

A page without a JSON file, whose numbers were measured before they were kept, is left as it is. In docs/results.md a
table between `<!-- NAME -->` and `<!-- end -->` is that of NAME in TABLES.
"""

import argparse
import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from attn_jax.errors import check_known, one_line
from attn_jax.evaluation.tables import results_table
from experiments import (
    ensembles,
    estimator_page,
    inflection,
    inflection_peer,
    kernels,
    null_differences,
    raw,
    translation,
)

NAMES = (  # experiments with a page
    "atlas",
    "attention",
    "attention_dropout",
    "attention_gap",
    "babi",
    "captions",
    "complexity",
    "costs",
    "dates_scores",
    "decoders",
    "encoders",
    "estimator_variance",
    "glimpse_operations",
    "inflection",
    "inflection_peer",
    "kernel_exercises",
    "kernels",
    "length",
    "null_differences",
    "output_layers",
    "output_layers_brown",
    "overview",
    "pooling",
    "positions",
    "precision",
    "quickstarts",
    "recall",
    "receptive_field",
    "scenes",
    "seeds",
    "soft_vs_hard",
    "soft_vs_hard_tags",
    "translation",
    "translation_peer",
    "vanishing_gradient",
    "where",
    "where_beyond",
    "xu_tricks",
)
MODULES = [importlib.import_module(f"experiments.{name}") for name in NAMES]
PAGES = {page.name: page for module in MODULES for page in module.PAGES}
DOCUMENT = raw.ROOT / "docs" / "results.md"
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {  # of DOCUMENT: (record) -> Markdown
    "ensembles": lambda found: ensembles.table(found["results"]["runs"]),
    "estimators": estimator_page.summary_table,
    "biased_estimators": estimator_page.bias_table,
    "translation": lambda found: translation.report(found["results"]["runs"]),
    "attention": lambda found: translation.tables(found["results"]["runs"]),
    "attention_dropout": lambda found: translation.tables(found["results"]["runs"]),
    "inflection": lambda found: inflection.report(found["results"]["runs"]),
    "inflection_peer": lambda found: inflection_peer.report(found["results"]["runs"]),
    "decoders": lambda found: results_table(found["results"]),
    "null_differences": lambda found: null_differences.table(found["results"]),
    "kernels": lambda found: f"{kernels.error_table(found['results']['fresh'], kernels.MINOR)}\n\n{kernels.NOTE}",
}
FILES = {"estimators": "estimator_variance", "biased_estimators": "estimator_variance"}  # where not of the same name
BLOCK = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def record_of(page: raw.Page, folder: pathlib.Path = raw.RESULTS) -> dict[str, Any] | None:
    """Returns the record of a page; {} if nothing is measured for it, None if its numbers were not kept.

    Raises:
        UserError: the file is cut short, or of another layout.
    """
    path = folder / f"{page.name}.json"
    if not page.measured:
        return {}
    return (page.load or raw.read)(path) if path.exists() else None


def render_document(text: str, folder: pathlib.Path = raw.RESULTS) -> str:
    """Returns a document with the tables of its JSON files.

    Raises:
        UserError: a block has an unknown name, or its file is missing or damaged.
    """

    def block(match: re.Match) -> str:
        begin, name, _, end = match.groups()
        check_known(name, TABLES, "table")
        return f"{begin}\n{TABLES[name](raw.read_any(folder / f'{FILES.get(name, name)}.json'))}\n\n{end}"

    return BLOCK.sub(block, text)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of pages; none: all, and docs/results.md")
    names = parser.parse_args(argv).names
    for name in names:
        check_known(name, PAGES, "page")
    for name in names or PAGES:
        record = record_of(PAGES[name])
        if record is None and not (raw.RESULTS / f"{name}.md").exists():
            print(f"{name}: not measured", file=sys.stderr)
        elif record is None:
            print(f"{name}: {raw.NOT_KEPT[:1].lower()}{raw.NOT_KEPT[1:]}", file=sys.stderr)
        else:
            PAGES[name].save(record, raw.RESULTS)
    if not names:
        raw.rewrite(DOCUMENT, render_document)


if __name__ == "__main__":
    with one_line("render.py"):
        main()
