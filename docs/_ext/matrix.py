"""Sphinx extension: the pages of the matrix beside the site's, _static/matrix.html and _static/matrix_source.html."""

import pathlib

from experiments.matrix import page
from experiments.matrix.__main__ import folder_of
from experiments.matrix.tables import TABLES


def write(app, error):
    if error is not None:
        return
    for name in TABLES:
        path = pathlib.Path(app.outdir, "_static", f"{folder_of(name).name}.html")
        path.write_text(page.of_table(name), encoding="utf-8")


def setup(app):
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True}
