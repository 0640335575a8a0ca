"""Imports inside attn_jax point to the same layer or to a lower one, and never out of it to the files that run it."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAYERS = [
    {"__init__", "types", "errors"},
    {"files", "attention", "outputs", "tasks", "metrics", "progress"},
    {
        "models",
        "decode",
        "training",
        "parallel",
        "optimizers",
        "checkpoints",
        "workdir",
        "data_files",
        "model_size",
        "provenance",
        "failures",
    },
    {"figures", "fits"},
    {"evaluation"},
    {"story_evaluation", "regression"},
    {"build", "build_attention", "build_stories", "build_regression"},
    {"kinds"},
    {"experiment", "sweep", "arguments"},
    {"unread"},
    {"commands"},
]
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "attn_jax").rglob("*.py"))
OUTSIDE = {"launch", "configs", "experiments", "tests"}


def imported(tree):
    """The dotted name of everything that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_down(path):
    own = path.with_suffix("").parts[1]
    assert own in LAYER, f"{path} is new: give it its place in LAYERS"
    for name in imported(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        package, module, *_ = [*name.split("."), "__init__"]
        assert package not in OUTSIDE, f"{path} imports {name}, which is not part of the package"
        if package == "attn_jax":
            assert module in LAYER, f"{path} imports {name}, which has no place in LAYERS"
            assert LAYER[module] <= LAYER[own], f"{path} (layer {LAYER[own]}) imports {name} (layer {LAYER[module]})"


def test_every_place_is_taken():
    assert set(LAYER) == {path.with_suffix("").parts[1] for path in FILES}
