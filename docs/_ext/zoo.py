"""Writes the pages of the zoo into docs/zoo before Sphinx looks for pages. They are made anew at every build."""

import os
import pathlib
import shutil

FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def start_jax() -> None:
    """Starts JAX in this process with quick compilation, since everything here runs once on small arrays.

    The flags are read when JAX starts; processes that execute notebooks do not get them.
    """
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{before or ''} {FAST}".strip()
    import jax

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.devices()
    os.environ.pop("XLA_FLAGS") if before is None else os.environ.update(XLA_FLAGS=before)


def write(folder: pathlib.Path) -> int:
    """Writes all pages and pictures, and returns the number of entries."""
    start_jax()
    import zoo_example as example
    from zoo_entries import KINDS, entries
    from zoo_figures import draw, maps
    from zoo_pages import index, index_of, page

    from attn_jax.attention.normalizers import NORMALIZERS

    shutil.rmtree(folder, ignore_errors=True)
    found = entries()
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        of_kind = [entry for entry in found if entry.kind == kind]
        (folder / kind / "index.md").write_text(index_of(kind, of_kind), encoding="utf-8")
    (folder / "index.md").write_text(index(found), encoding="utf-8")
    scores = example.SCORES
    (folder / "example.svg").write_text(maps(scores, NORMALIZERS["softmax"](scores)), encoding="utf-8")
    for entry in found:
        picture, path = draw(entry), folder / entry.kind / entry.name
        if picture:
            path.with_suffix(".svg").write_text(picture, encoding="utf-8")
        path.with_suffix(".md").write_text(page(entry, picture=bool(picture)), encoding="utf-8")
    return len(found)


def setup(app):
    app.connect("builder-inited", lambda app: write(pathlib.Path(app.srcdir, "zoo")))
    return {"version": "1", "parallel_read_safe": True}
