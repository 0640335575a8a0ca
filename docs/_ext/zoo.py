"""Writes the pages of the zoo into docs/zoo before Sphinx looks for pages. They are made anew at every build.

They are written by a process of their own: Sphinx forks with -j, and a process in which JAX has started must not. It
has flags of its own, too, for quick compilation, since everything runs once on small arrays.
"""

import os
import pathlib
import shutil
import subprocess
import sys

FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def write(folder: pathlib.Path) -> int:
    """Writes all pages and pictures, and returns the number of entries."""
    import zoo_example as example
    from zoo_entries import entries
    from zoo_entry import KINDS
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


def run(folder: pathlib.Path) -> None:
    """Runs `write` in a process of its own.

    Raises:
        CalledProcessError: it has failed; what it said is in the standard error.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FAST}".strip()
    own = {"XLA_FLAGS": flags, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    subprocess.run([sys.executable, __file__, str(folder)], env=os.environ | own, check=True)


def setup(app):
    app.connect("builder-inited", lambda app: run(pathlib.Path(app.srcdir, "zoo")))
    return {"version": "1", "parallel_read_safe": True}


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
