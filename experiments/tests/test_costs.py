"""Costs by factor: programs that train, and powers that are fitted."""

import numpy as np
import pytest

from experiments import costs

ROWS = [
    {"model": "recurrent", "factor": "length", "value": n, "memory": 1000 * n**2 + 7, "seconds": [n / 10, n / 10, 9.0]}
    for n in (1, 8, 16, 32)
] + [{"model": "Transformer", "factor": "devices", "value": n, "memory": 8e6 / n} for n in (1, 2, 4, 8)]


def test_the_power_is_of_the_last_three_points():
    assert costs.power((1, 8, 16, 32), (5.0, 64.0, 256.0, 1024.0)) == pytest.approx(2.0)


def test_the_table_of_powers_and_a_figure_of_what_was_measured():
    lines = costs.growth_table(ROWS).splitlines()
    assert lines[2] == "| length | recurrent | 8 to 32 | 1.00 | 2.00 |"
    assert lines[3] == "| devices | Transformer | 2 to 8 |  | -1.00 |"
    figure = costs.draw({"results": {"rows": ROWS}})
    assert [axes.get_visible() for axes in figure.axes] == [True, False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("model, factor", [(costs.MODELS[2], "keys"), (costs.MODELS[0], "seeds")])
def test_a_program_goes_on_training_and_needs_more_memory_for_more(monkeypatch, model, factor):
    monkeypatch.setattr(costs, "SECONDS", 0.0)
    monkeypatch.setattr(costs, "SETTING", {"length": 4, "vocabulary": 20, "batch": 2, "seeds": 1, "keys": 3})
    small = model._replace(factors={factor: (1, 8)})
    rows = costs.measure([small], windows=1)
    assert [(row["factor"], row["value"]) for row in rows] == [(factor, 1), (factor, 8)]
    assert rows[0]["memory"] < rows[1]["memory"]
    assert all(np.all(np.array(row["seconds"]) > 0) for row in rows)
    program = costs.Program(small, costs.SETTING)
    before = np.asarray(program.state.step)
    program.run()
    assert program.state.step == before + 1


def test_a_story_has_as_many_statements_as_keys():
    batch = costs.make_batch("memory network", {"vocabulary": 30, "batch": 2, "keys": 5})
    assert (batch["source"] == costs.PERIOD_ID).sum(1).tolist() == [5, 5]
    assert batch["source"].shape == (2, 6 * costs.WORDS) and batch["target_out"].shape == (2, 1)
