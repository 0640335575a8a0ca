"""Sphinx extension: the page of the matrix beside the site's, _static/matrix.html, from the files of its cells."""

import pathlib

from experiments.matrix import page
from experiments.matrix.__main__ import folder_of
from experiments.matrix.tables import SELF


def write(app, error):
    if error is None:
        data = page.data_of(page.read_cells(folder_of("self")), SELF)
        pathlib.Path(app.outdir, "_static", "matrix.html").write_text(page.render(data), encoding="utf-8")


def setup(app):
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True}
