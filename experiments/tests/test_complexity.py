"""The formulas count what jax traces; the layers compared are the same function; and a run in small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import complexity as experiment
from experiments import raw

SETTING = experiment.Setting(features=8, num_heads=2, lengths=(4, 8), windows=2, seconds=1e-4)
LSTM, WRITTEN, FUSED, CONVOLUTION = experiment.LAYERS


def applied(layer, length, features=8, init=jax.eval_shape):
    """(function of params and x, params, x) of the forward pass; of the params no more than the shapes."""
    module = layer.make(SETTING._replace(features=features))
    mask, x = jnp.ones((1, length), bool), jax.random.normal(jax.random.key(0), (1, length, features))
    params = init(module.init, jax.random.key(1), x, mask)
    return (lambda params, x: layer.output(module.apply(params, x, mask))), params, x


@pytest.mark.slow
@pytest.mark.parametrize("layer", experiment.LAYERS, ids=lambda layer: layer.label)
@pytest.mark.parametrize(("length", "features"), [(5, 8), (12, 4)])
def test_formula_is_what_is_traced(layer, length, features):
    function, params, x = applied(layer, length, features)
    expected = layer.products(length, features)
    assert experiment.count_products(function, params, x) == expected

    def loss(params, x):
        return jnp.sum(jnp.square(function(params, x)))

    assert experiment.count_products(jax.grad(loss, argnums=(0, 1)), params, x) == 3 * expected


def test_what_nobody_needs_is_not_counted():
    a, b = jnp.ones((2, 3)), jnp.ones((3, 5))
    assert experiment.count_products(lambda a, b: (a @ b, jnp.ones(2))[1], a, b) == 0
    assert experiment.count_products(lambda a, b: a @ b, a, b) == 2 * 3 * 5
    assert experiment.count_products(jax.jit(lambda a, b: a @ b), a, b) == 2 * 3 * 5


def test_fused_and_written_out_are_the_same_function():
    def real(function, *args):
        return jax.jit(function)(*args)

    (written, params, x), (fused, _, _) = applied(WRITTEN, 6, init=real), applied(FUSED, 6)
    np.testing.assert_allclose(*jax.jit(lambda *args: (written(*args), fused(*args)))(params, x), atol=1e-5)


def test_only_the_recurrence_has_a_loop():
    for layer in experiment.LAYERS:
        function, params, x = applied(layer, 6)
        scans = [e for e in jax.make_jaxpr(function)(params, x).jaxpr.eqns if "scan" in str(e)]
        assert bool(scans) == (layer is LSTM) == (layer.in_sequence(6) == 6)


def test_crossing_of_powers_is_exact():
    n = np.array([1.0, 10.0, 100.0])
    assert experiment.crossing(n, n**2, 30 * n) == pytest.approx(30)
    assert experiment.crossing(n, n, n**2 + 1) == np.inf
    assert experiment.crossing(n, n**2 + 1, n) == 0


def test_multiply_adds_cross_where_the_formula_says():
    d = 16
    for layer in (LSTM, CONVOLUTION):
        n = (layer.products(1, 1) - 4) * d // 2
        assert FUSED.products(n, d) == layer.products(n, d)


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    real = experiment.Setting
    monkeypatch.setattr(experiment, "Setting", lambda **stored: real(**stored) if stored else SETTING)
    monkeypatch.setattr(experiment, "LAYERS", (LSTM, WRITTEN))
    raw.main(experiment.PAGES[0], experiment.measure_all, [f"--out={tmp_path / 'results'}"])
    page = capsys.readouterr().out[:-1]
    for layer in experiment.LAYERS:
        assert sum(line.startswith(f"| {layer.label} |") for line in page.splitlines()) == 4
    assert "are exactly those" in page and page == (tmp_path / "results" / "complexity.md").read_text()
    assert (tmp_path / "results" / "complexity.png").stat().st_size > 10_000
    record = raw.read(tmp_path / "results" / "complexity.json")
    assert len(record["results"]["costs"][0]["windows"]) == SETTING.windows
    assert experiment.page(record) == page
