"""Exact variances against published and independently computed ones, and a run of the whole experiment in small."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import estimator_page, raw
from experiments import estimator_toys as toys
from experiments import estimator_variance as experiment
from experiments.estimator_bias import Moments

# Computed by enumeration in a program of its own, to three or four digits: {(draw, baseline): {k: variance}}.
FLAT = {
    ("reinforce", "none"): {1: 0.4384, 2: 0.2192, 3: 0.1461, 4: 0.1096, 6: 0.0731, 7: 0.0626},
    ("reinforce", "mean"): {1: 0.00465, 2: 0.002325, 3: 0.00155, 4: 0.001162, 6: 0.000775, 7: 0.000664},
    ("reinforce", "best"): {1: 0.00465, 4: 0.001162},  # E f is the best constant here
    ("reinforce", "leave_one_out"): {2: 0.007275, 3: 0.0032, 4: 0.001988, 6: 0.001105, 7: 0.0009},
    ("stratified", "none"): {1: 0.4384, 2: 0.1469, 3: 0.04674, 4: 0.03655, 6: 0.0122, 7: 0.01117},
    ("stratified", "mean"): {1: 0.00465, 2: 0.002325, 3: 0.000549, 4: 0.000406, 6: 0.000148, 7: 0.000106},
    ("sum_and_sample", "none"): {1: 0.4384, 2: 0.1943, 3: 0.1302, 4: 0.06987, 6: 0.01428, 7: 0.00745},
    ("sum_and_sample", "mean"): {1: 0.00465, 2: 0.003056, 3: 0.002502, 4: 0.002078, 6: 0.000247, 7: 0.0000766},
    ("unordered_set", "none"): {1: 0.4384, 2: 0.1879, 3: 0.1044, 4: 0.06263, 6: 0.02088, 7: 0.00895},
    ("unordered_set", "leave_one_out"): {2: 0.006113, 3: 0.002262, 4: 0.001131, 6: 0.0003165, 7: 0.000129},
    ("unordered_set", "mean"): {1: 0.00465, 2: 0.001993, 3: 0.001107, 4: 0.000664, 6: 0.000221, 7: 0.0000949},
}
PEAKED = {
    ("reinforce", "none"): {1: 0.03356, 2: 0.01678, 4: 0.008389, 6: 0.005593},
    ("reinforce", "mean"): {1: 7.126e-4, 2: 3.563e-4, 4: 1.782e-4, 6: 1.188e-4},
    ("reinforce", "best"): {1: 5.354e-4, 2: 2.677e-4, 4: 1.338e-4, 6: 8.923e-5},
    ("reinforce", "leave_one_out"): {2: 3.81e-4, 4: 1.823e-4, 6: 1.204e-4},
    ("sum_and_sample", "mean"): {1: 7.126e-4, 2: 2.922e-5, 4: 1.908e-6, 6: 1.480e-9},
    ("stochastic_sum_and_sample", "none"): {1: 0.03356, 2: 1.278e-3, 4: 9.138e-6, 6: 2.633e-8},
    ("unordered_set", "none"): {1: 0.03356, 2: 1.21e-3, 4: 5.106e-6, 6: 2.012e-8},
    ("unordered_set", "leave_one_out"): {2: 2.978e-5, 4: 1.055e-6, 6: 1.025e-8},
}
# The constant that is best for one sample with replacement, used for all.
PEAKED_AT_ONE_CONSTANT = {
    "sum_and_sample": {1: 5.354e-4, 2: 2.836e-5, 4: 1.438e-6, 6: 1.425e-9},
    "unordered_set": {1: 5.354e-4, 2: 3.213e-5, 4: 9.083e-7, 6: 9.816e-9},
}
# Variances of 4000 draws of the PyTorch code published with Kool 2020, k = 4.
SAMPLED = {
    (0.0, "reinforce"): 0.001978,
    (0.0, "unordered_set"): 0.001103,
    (-4.0, "reinforce"): 1.735e-4,
    (-4.0, "unordered_set"): 9.97e-7,
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@functools.cache
def variances(num_samples, eta):
    return toys.variances(num_samples, eta)


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [1, 2, 3, 4, 6, 7])
def test_variances_are_those_computed_elsewhere(num_samples):
    checked = 0
    for eta, table in ((0.0, FLAT), (-4.0, PEAKED)):
        for key, expected in table.items():
            if num_samples in expected:
                # The last digit of the numbers above is rounded; the shortest have two that count.
                digits = len(f"{expected[num_samples]:.15g}".split("e")[0].replace(".", "").strip("0"))
                got = variances(num_samples, eta)[key]
                assert got == pytest.approx(expected[num_samples], rel=0.6 * 10 ** (1 - min(digits, 3))), (eta, key)
                checked += 1
    assert checked >= 9
    for name, expected in PEAKED_AT_ONE_CONSTANT.items():
        if num_samples in expected:
            b = toys.parts("reinforce", 1, -4.0).best()
            assert b == pytest.approx(0.7894, abs=5e-5)
            got = toys.parts(name, num_samples, -4.0).variance(b)
            assert got == pytest.approx(expected[num_samples], rel=2e-3)


@pytest.mark.slow
def test_variances_of_leave_one_out_and_of_the_unordered_set_agree_with_the_code_of_their_authors():
    for (eta, name), expected in SAMPLED.items():
        assert variances(4, eta)[name, "leave_one_out"] == pytest.approx(expected, rel=0.08)


@pytest.mark.slow
def test_the_mean_is_the_derivative():
    for eta, expected in ((0.0, -0.045), (-4.0, -0.0032)):
        exact = jax.grad(lambda eta: jnp.exp(toys.log_probs(eta, toys.ATOMS)) @ toys.losses(
            jnp.asarray(toys.ATOMS)
        ))(eta)  # fmt: skip
        assert exact == pytest.approx(expected, abs=5e-5)
        for name in toys.DRAWS:
            for k in (1, 4):
                of = toys.parts(name, k, eta)
                np.testing.assert_allclose(of.probabilities @ of.a, exact, rtol=1e-9)
                np.testing.assert_allclose(of.probabilities @ of.unit, 0, atol=1e-12)
                best = of.best()
                assert of.variance(best) <= min(of.variance(best + 0.01), of.variance(best - 0.01))


def test_leave_one_out_without_all_tuples_is_with_them():
    assert toys.leave_one_out_variance(3, -1.0) == pytest.approx(
        toys.parts("reinforce", 3, -1.0, True).variance(), rel=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.0, -4.0])
@pytest.mark.parametrize("num_samples", [1, 2, 3, 4, 6, 7])
def test_what_learns_its_baseline_is_at_least_as_good_as_all_published_estimators(num_samples, eta):
    setting = toys.Setting(num_seeds=10, learned=(1_000,))
    learned = toys.learned_variances(num_samples, eta, setting)
    _, best = toys.best_of(variances(num_samples, eta), oracle=False)
    assert learned["adaptive"].mean() < best
    if num_samples == 4:
        goal, ceiling = (4.1e-4, 1.1e-3) if eta == 0 else (9.1e-7, 1.06e-6)
        assert learned["adaptive"].mean() < goal and learned["ratio"].mean() < goal
        assert max(learned["adaptive"].max(), learned["ratio"].max()) < ceiling
        least = min(variances(4, eta)[name, "best"] for name in toys.CHOICE)
        assert np.all(learned["adaptive"] > 0.999 * least - 1e-12)


def test_running_means_are_means_over_the_draws_so_far():
    of = toys.parts("sum_and_sample", 2, -1.0)
    sums = toys.Sums.of(of, 50, np.random.default_rng(3))
    which = np.random.default_rng(3).choice(len(of.a), 50, p=of.probabilities / of.probabilities.sum())[:20]
    a, unit, mean = of.a[which], of.unit[which], of.value[which].mean()
    assert sums.ratio()[19] == pytest.approx((a @ unit) / (unit @ unit))
    centred = unit - unit.mean()
    slope = mean + ((a - mean * unit) @ centred) / (centred @ centred + np.mean(unit**2))
    assert sums.regression()[19] == pytest.approx(slope)
    assert sums.noise(sums.regression())[19] == pytest.approx(np.var(a - slope * unit))
    many = toys.Sums.of(of, 200_000, np.random.default_rng(4))
    np.testing.assert_allclose([many.ratio()[-1], many.regression()[-1]], of.best(), rtol=0.01)
    # One outcome, again and again, says nothing of the best constant; what is left is the mean loss.
    same = toys.Parts(np.ones(1), np.array([0.2]), np.array([1e-3]), np.array([0.8]))
    assert toys.Sums.of(same, 5, np.random.default_rng(0)).regression()[-1] == pytest.approx(0.8)


@pytest.mark.slow
def test_baselines_of_the_coordinates_are_learned():
    ten = toys.tens(1.0, 1)[0]
    variance = functools.partial(toys.total_variance, ten, "reinforce", 2)
    score = np.eye(10) - ten.p
    second = ten.p @ (np.square(score).sum(1) * (ten.f - ten.p @ ten.f) ** 2)
    scalar = second - np.sum((ten.p @ (ten.f[:, None] * score)) ** 2)
    assert variance(baseline=float(ten.p @ ten.f)) == pytest.approx(scalar / 2, rel=1e-9)
    best = (ten.p * ten.f) @ np.square(score) / (ten.p @ np.square(score))
    learned = toys.learned_coordinates(ten, "reinforce", 2, 20_000)
    np.testing.assert_allclose(learned, best, atol=0.3)
    at_best = variance(coordinates=best)
    assert variance(coordinates=learned) == pytest.approx(at_best, rel=0.05) and at_best < 0.5 * scalar / 2


@pytest.mark.slow
def test_orders_are_permutations_and_matter_only_where_keys_are_looked_up_in_their_order():
    atoms = toys.orders(toys.Setting(num_orders=1))[0]
    assert sorted(map(tuple, atoms)) == sorted(map(tuple, toys.ATOMS)) and not np.array_equal(atoms, toys.ATOMS)
    for name in ("stochastic_sum_and_sample", "unordered_set"):
        same = [toys.parts(name, 3, -1.0, atoms=x).variance() for x in (atoms, toys.ATOMS)]
        assert same[0] == pytest.approx(same[1], rel=1e-9)
    other = [toys.parts("systematic", 3, -1.0, atoms=x).variance() for x in (atoms, toys.ATOMS)]
    assert abs(other[0] / other[1] - 1) > 0.01


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    setting = toys.Setting(
        etas=(-1.0,), samples=(1, 2), sweep=(0.0, -1.0), sweep_samples=2, learned=(10, 20), num_seeds=2, num_orders=2,
        concentrations=(1.0,), rebar_steps=20, rebar_batch=4, rebar_samples=2_000,
    )  # fmt: skip
    monkeypatch.setattr(experiment, "Setting", lambda: setting)
    monkeypatch.setattr(experiment, "ten_rows", lambda ten, k, setting: {"one": 0.5, "another": 1e-5})
    moments = {
        ("coupled", 2, -1.0): Moments(0.0, 0.0, 0.5),
        ("ReinMax", 4, -1.0): Moments(-0.25, 0.01, 2.0),
    }
    monkeypatch.setattr(experiment, "measure", lambda etas, num_samples: moments)
    with jax.enable_x64(False):  # as it starts
        raw.main(experiment.PAGES[0], experiment.measure_all, [f"--out={tmp_path / 'results'}"])
    page = (tmp_path / "results" / "estimator_variance.md").read_text()
    assert capsys.readouterr().out[:-1] == page and "1.00e-5" in page and "nan" not in page
    record = raw.read(tmp_path / "results" / "estimator_variance.json")
    assert estimator_page.page(record) == page
    assert raw.plain(estimator_page.raw_of(*estimator_page.of_raw(record["results"]))) == record["results"]
    assert "| coupled | 2 | 0 | 0.5 |" in page and "| ReinMax | 1 | -0.25 (SE 0.01) | 2 |" in page
    assert "## eta = -1" in page and "unordered set, leave-one-out" in page and "REBAR" in page
    assert (tmp_path / "results" / "estimator_variance.png").stat().st_size > 10_000
