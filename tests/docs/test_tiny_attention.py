"""docs/tiny_attention.py: its words are right, it runs, and it learns."""

import pathlib
import runpy

import numpy as np
import pytest

FILE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tiny_attention.py"
TINY = runpy.run_path(str(FILE))


def test_numbers_are_spelled_and_every_one_fits():
    assert " ".join(TINY["spell"](4071)) == "four thousand seventy one" and TINY["spell"](0) == ["zero"]
    assert " ".join(TINY["spell"](800_019)) == "eight hundred thousand nineteen"
    numbers = [int(digit * length) for digit in "1379" for length in range(1, 7)]
    source, target = TINY["encode"](numbers)
    assert ((target == TINY["EOS"]).sum(axis=1) == 1).all() and (target != TINY["PAD"])[:, -1].any()
    np.testing.assert_array_equal((source != TINY["PAD"]).sum(axis=1), [len(str(number)) for number in numbers])


def test_it_trains_and_draws_a_map_in_at_most_150_lines(capsys):
    assert 0 <= TINY["main"](steps=2) <= 100
    assert "0" in capsys.readouterr().out.splitlines()[2]
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.slow
def test_nearly_all_numbers_that_it_has_never_seen_are_right(capsys):
    assert TINY["main"]() > 97
