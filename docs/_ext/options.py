"""Sphinx extension: the page of all options, from the parts that have them."""

import pathlib

from attn_jax.cli.reference import reference


def setup(app):
    page = pathlib.Path(app.srcdir, "options.md")
    app.connect("builder-inited", lambda app: page.write_text(reference(), encoding="utf-8"))
    return {"version": "1", "parallel_read_safe": True}
