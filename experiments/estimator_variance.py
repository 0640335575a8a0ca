"""Which estimator of the gradient of E[f] has the least variance, and can its baseline be learned on the way?

    python experiments/estimator_variance.py

The toy problem of Liu 2019 (arXiv 1810.04777) and Kool 2020 (arXiv 2002.06043): three bits b_i, independent and 1 with
probability sigmoid(eta), so eight keys; f = |b - (.6, .51, .48)|^2; the derivative of E[f] with respect to eta. The
tables have no sampling error, except for REBAR: the variances are sums over all outcomes of the samplers of the package
(tests/oracles/enumeration.py). k is the number of evaluations of f.

An estimate is A - b B for a constant baseline b, where A is the estimate for f and B the estimate for f = 1. The
variance is least at b* = E[A B] / E[B^2]. This needs no oracle, since both are means over samples. Two estimators learn
b from earlier samples, so they are unbiased:

    learned ratio    optimal resampling, b = (sum A B) / (sum B^2)
    adaptive         the better of optimal resampling and sum and sample, by the variance of A - b B over half of the
                     samples each, with b = m + sum (A - m B) (B - mean B) / (sum (B - mean B)^2 + mean B^2), m the
                     mean estimate of E[f]: a regression that falls back on m while it has seen a single outcome

Answer (experiments/results/estimator_variance.md): no published estimator is best everywhere. With 1,000 samples to
learn from, `adaptive` has less variance than all published estimators without an oracle, at every k from 1 to 7, for
flat and peaked weights, in lexicographic order of the keys and in the mean over orders. At k = 4 this is a factor of
four at eta = 0 in the mean over orders (in lexicographic order its variance happens to be 0: the errors of every other
corner cancel), and a fifth at eta = -4. At worst it is about a fifth above the best estimator that knows E f or b*,
where the latter is not 0. The plain ratio needs more samples for more peaked weights: until it has seen the rare
outcomes, it fits only the frequent ones. REBAR with trained temperature and scale is no better here than one sample
with a baseline. With ten keys and a logit each, a baseline per coordinate matters more than the sampler: 6 to 40 times
less variance than leave-one-out with the same REINFORCE samples; with optimal resampling 9 to 50 times less than the
unordered set with its built-in baseline. Coupled keys have less variance than two independent ones with leave-one-out.
experiments/estimator_bias.py has the answer for estimators that use the gradient of f at one sampled key.
"""

import pathlib
import sys
from typing import Any

import jax
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from experiments import estimator_page, raw  # noqa: E402
from experiments.estimator_bias import measure  # noqa: E402
from experiments.estimator_page import Results, raw_of  # noqa: E402
from experiments.estimator_toys import (  # noqa: E402
    ADAPTIVE,
    Setting,
    learned_variances,
    orders,
    parts,
    rebar,
    ten_rows,
    tens,
    variances,
)

PAGES = (estimator_page.PAGE,)
ORDERED = ("stratified", "systematic", "sum_and_sample", ADAPTIVE)  # to these the order of the keys matters


def measure_orders(num_samples: int, eta: float, setting: Setting) -> dict[tuple[str, str], float]:
    """Returns mean variances over random orders of the keys, for estimators that depend on the order.

    Learned baselines use the middle number of samples and one seed for each order.
    """
    rows: dict[tuple[str, str], list] = {}
    one = setting._replace(num_seeds=1, learned=(setting.learned[len(setting.learned) // 2],))
    for atoms in orders(setting):
        for name in ORDERED:
            of = parts(name, num_samples, eta, atoms=atoms)
            rows.setdefault((name, "none"), []).append(of.variance())
            rows.setdefault((name, "best"), []).append(of.variance(of.best()))
        for which, learned in learned_variances(num_samples, eta, one, atoms).items():
            rows.setdefault((which, ""), []).append(learned[0, 0])
    return {key: float(np.mean(values)) for key, values in rows.items()}


def run(setting: Setting) -> Results:
    """Computes all results, in float64."""
    cases = [(eta, k) for eta in setting.etas for k in setting.samples]
    with jax.enable_x64(True):
        ten = {}
        for concentration in setting.concentrations:
            problems = tens(concentration)
            rows = [ten_rows(one, 4, setting) | {"entropy": -one.p @ np.log(one.p)} for one in problems]
            ten[concentration] = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        return Results(
            {(eta, k): variances(k, eta) for eta, k in cases},
            {(eta, k): learned_variances(k, eta, setting) for eta, k in cases},
            {(eta, k): measure_orders(k, eta, setting) for eta, k in cases},
            {
                eta: (variances(setting.sweep_samples, eta), learned_variances(setting.sweep_samples, eta, setting))
                for eta in setting.sweep
            },
            ten,
            {(eta, baseline): rebar(eta, setting, baseline) for eta in setting.etas for baseline in (False, True)},
            measure(setting.etas, setting.rebar_samples),
        )


def measure_all() -> dict[str, Any]:
    """Measures everything; returns the results of the JSON file."""
    setting = Setting()
    return raw_of(run(setting), setting)


if __name__ == "__main__":
    with one_line("estimator_variance.py"):
        raw.main(PAGES[0], measure_all)
