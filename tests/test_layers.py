"""Imports inside attn_jax point to a folder of a lower rank, and never out of it to the files that run it."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANKS = [
    {"types", "errors", "token_ids", "version"},
    {"options"},
    {"attention"},
    {"layers", "outputs"},
    {"tasks"},
    {"models"},
    {"training", "evaluation"},
    {"cli"},
    {"__init__"},  # the public names
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


def rooms(path):
    """The folder of the package that a file is in, and the other folders that it imports from."""
    own = path.with_suffix("").parts[1]
    names = list(imported(ast.parse((ROOT / path).read_text(encoding="utf-8"))))
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


def test_every_place_is_taken():
    assert set(RANK) == {path.with_suffix("").parts[1] for path in FILES}


def test_folders_are_at_most_two_deep():
    assert max(len(path.parts) for path in FILES) <= 4
