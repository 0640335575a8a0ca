"""Imports inside attn_jax point to a folder of a lower rank, and never out of it to the files that run it."""

import ast
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANKS = [
    {"types", "errors", "token_ids", "version", "paths", "notices"},
    {"parts"},
    {"attention"},
    {"layers", "outputs", "data"},
    {"tasks"},
    {"models"},
    {"training"},
    {"decoding", "figures"},
    {"evaluation"},
    {"inspection"},
    {"runs"},
    {"sweeps"},
    {"cli"},
    {"__init__", "__main__"},  # the public names, and the program
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "attn_jax").rglob("*.py"))
OUTSIDE = {"launch", "configs", "experiments", "tests", "oracles"}


def imported(tree):
    """The dotted name of everything that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_by(path):
    return list(imported(ast.parse((ROOT / path).read_text(encoding="utf-8"))))


def rooms(path):
    """The folder of the package that a file is in, and the other folders that it imports from."""
    own = path.with_suffix("").parts[1]
    names = imported_by(path)
    assert not OUTSIDE & {name.split(".")[0] for name in names}, f"{path} imports what is not part of the package"
    inside = [[*name.split("."), "__init__"] for name in names if name.split(".")[0] == "attn_jax"]
    return own, {parts[1] for parts in inside} - {own}


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_down(path):
    own, others = rooms(path)
    assert own in RANK, f"{path} is new: give it its place in RANKS"
    for other in others:
        assert other in RANK, f"{path} imports {other}, which has no place in RANKS"
        assert RANK[other] <= RANK[own], f"{path} (rank {RANK[own]}) imports {other} (rank {RANK[other]})"


@pytest.mark.slow
def test_folders_of_one_rank_do_not_import_each_other_in_a_circle():
    arrows = {(own, other) for path in FILES for own, others in [rooms(path)] for other in others}
    assert not {(a, b) for a, b in arrows if (b, a) in arrows}


@pytest.mark.slow
def test_configs_are_trees_in_runs_and_commands_alone():
    """Below them options are objects: nothing there reads or makes a ConfigDict."""
    reading = {path.parts[1] for path in FILES for name in imported_by(path) if name.startswith("ml_collections")}
    assert reading == {"runs", "sweeps", "cli"}


def test_options_need_errors_and_paths_alone():
    """So that each part can have options."""
    names = {name.split(".")[0] for name in imported_by(pathlib.Path("attn_jax/parts.py"))}
    assert rooms(pathlib.Path("attn_jax/parts.py"))[1] == {"errors", "paths"}
    assert names - {"attn_jax"} <= sys.stdlib_module_names


def test_every_place_is_taken():
    assert set(RANK) == {path.with_suffix("").parts[1] for path in FILES}


def test_folders_are_at_most_two_deep():
    assert max(len(path.parts) for path in FILES) <= 4
