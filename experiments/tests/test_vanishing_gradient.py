"""Gradients by distance, against the product of Jacobians; and a run of the whole experiment in small."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.layers.rnn import CELLS, Cell, Recurrence
from experiments import raw
from experiments import vanishing_gradient as experiment

D = 8


def _linear(extra, state, projected, recurrent):
    return (projected + recurrent,)


LINEAR = Cell(num_gates=1, num_states=1, update=_linear, extra={})


def norms_of(cell, params, length=30):
    """The gradient norms by distance, of four directions along axes."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(4, length, 3)).astype(np.float32)
    run = jax.jit(functools.partial(experiment.gradient_norms, Recurrence(cell=cell, features=D)))
    return np.asarray(run(params, inputs, np.eye(D, dtype=np.float32)[:4]))


def params_of(cell, kernel):
    width = cell.num_gates * D
    inputs = np.random.default_rng(1).normal(size=(3, width)).astype(np.float32)
    kernel = np.tile(kernel, cell.num_gates).astype(np.float32)
    return {"input": {"kernel": inputs, "bias": jnp.zeros(width)}, "kernel": kernel}


def test_linear_network_has_powers_of_its_matrix():
    kernel = np.random.default_rng(2).normal(size=(D, D)) / D**0.5
    powers = [np.linalg.norm(np.linalg.matrix_power(kernel, d)[:, :4], axis=0).mean() for d in range(30)]
    np.testing.assert_allclose(norms_of(LINEAR, params_of(LINEAR, kernel)), powers, rtol=1e-4)
    orthogonal, _ = np.linalg.qr(kernel)
    np.testing.assert_allclose(norms_of(LINEAR, params_of(LINEAR, orthogonal)), 1, rtol=1e-4)


def test_an_open_forget_gate_keeps_what_a_small_matrix_loses():
    rng, kernel = jax.random.key(0), np.eye(D)
    kept = norms_of(CELLS["lstm"], experiment.forget_bias(5.0)(rng, params_of(CELLS["lstm"], 0 * kernel)))
    lost = norms_of(CELLS["rnn"], experiment.gaussian(0.5)(rng, params_of(CELLS["rnn"], kernel)))
    assert kept[0] == pytest.approx(1) and lost[0] == pytest.approx(1)
    assert kept[25] > 0.01 and lost[25] < 1e-6


def test_the_answer_is_the_flagged_symbol():
    inputs, answers = experiment.sequences(jax.random.key(0), np.array([0, 3, 9]), 10)
    symbols, flag = inputs[..., :-1].argmax(-1), inputs[..., -1]
    assert flag.argmax(-1).tolist() == [9, 6, 0] and flag.sum() == 3
    assert answers.tolist() == [int(symbols[0, 9]), int(symbols[1, 6]), int(symbols[2, 0])]


def test_half_life():
    distance = np.arange(101)
    assert experiment.half_life(0.3 * 0.5 ** (distance / 7)) == pytest.approx(7)
    assert experiment.half_life(1.1**distance) < 0
    assert experiment.half_life(np.where(distance < 30, 0.5**distance, 0.0)) == pytest.approx(1)


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    real = experiment.Setting
    setting = real(hidden_size=4, num_seeds=2, num_steps=2, batch_size=2, num_measured=4)
    monkeypatch.setattr(experiment, "Setting", lambda **stored: real(**stored) if stored else setting)
    monkeypatch.setattr(experiment, "VARIANTS", experiment.VARIANTS[:1])
    raw.main(experiment.PAGES[0], experiment.measure_all, [f"--out={tmp_path / 'results'}"])
    page = capsys.readouterr().out[:-1]
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| rnn")]
    assert rows == ["| rnn", "| rnn, **trained**"]
    assert (tmp_path / "results" / "vanishing_gradient.png").stat().st_size > 10_000
    assert page == (tmp_path / "results" / "vanishing_gradient.md").read_text()
    record = raw.read(tmp_path / "results" / "vanishing_gradient.json")
    assert np.shape(record["results"]["rows"][0]["norms"]) == (setting.num_seeds, setting.length)
    assert experiment.page(record) == page
