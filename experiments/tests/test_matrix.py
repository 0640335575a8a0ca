"""A cell of the matrix is measured once, and its seeds and rates are members of one program."""

import json

import jax
import numpy as np
import pytest

from attn_jax.errors import UserError
from experiments import matrix

SMALL = {"task.num_examples": 60, "task.valid_size": 10, "task.batch_size": 8}


@pytest.mark.parametrize("column", matrix.COLUMNS)
@pytest.mark.parametrize("row", matrix.ROWS)
def test_every_cell_has_options(row, column):
    options = matrix.options_of(row, column)
    assert options.model.name == "language_model" and options.config.model.hidden_size == 64
    assert options.model.build(options.kind.any_sizes, options.setting)
    for test in matrix.COLUMNS[column].tests:
        assert matrix.options_of(row, column, test).task.batch_size == options.task.batch_size


@pytest.mark.slow
def test_a_member_trains_as_it_would_alone():
    """With its own seed and its own learning rate; Adam makes much of gradients that are rounding errors alone."""
    options, members = matrix.options_of("softmax", "recall", **SMALL), [(0, 1e-3), (1, 1e-2)]
    begun, _ = matrix.train(options, (0, 1), (1e-3, 1e-2), 0)
    together, curve = matrix.train(options, (0, 1), (1e-3, 1e-2), 2)
    assert curve.shape == (0,)
    for member, (seed, rate) in enumerate(members):
        ((alone,), _) = matrix.train(options, (seed,), (rate,), 2)
        ours, theirs = (flat(one) - flat(begun[member]) for one in (together[member], alone))
        assert np.linalg.norm(ours - theirs) < 0.05 * np.linalg.norm(theirs)
        assert rate / 3 < np.abs(theirs).max() < 3 * rate


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_a_cell_is_measured_once(tmp_path, monkeypatch, capsys):
    measured = []

    def measure(row, column):
        measured.append((row, column))
        return {"row": row, "column": column, "rate": 0.1, "tests": {"test": [1.0, 2.0]}, "minutes": 0.1}

    monkeypatch.setattr(matrix, "measure", measure)
    for _ in range(2):
        matrix.main(["--only=softmax,delta,recall", f"--out={tmp_path}"])
    assert measured == [("softmax", "recall"), ("delta", "recall")]
    assert json.loads((tmp_path / "delta,recall.json").read_text())["row"] == "delta"
    assert "test 1.0 2.0" in capsys.readouterr().out
    matrix.main(["--cell=delta,recall", f"--out={tmp_path}"])
    assert measured[2:] == [("delta", "recall")]
    matrix.main(["--only=addition", "--budget=0", f"--out={tmp_path}"])
    assert len(measured) == 3 and "cells are left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--cell=delta", "expected a row, a comma and a column"),
        ("--cell=delta,recal", "expected a row, a comma and a column"),
        ("--only=sofmax", "unknown row or column 'sofmax'; did you mean softmax"),
    ],
)
def test_a_wrong_name_is_one_clear_line(argument, message, tmp_path):
    with pytest.raises(UserError, match=message):
        matrix.main([argument, f"--out={tmp_path}"])
