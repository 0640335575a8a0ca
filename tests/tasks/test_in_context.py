"""In-context regression: the Bayes error by conditioning a joint normal distribution, and by errors made."""

import numpy as np
import pytest

from attn_jax.tasks.synthetic.in_context import InContextOptions

TASK = InContextOptions(features=3, num_pairs=6, noise=0.4)


@pytest.mark.parametrize("count", [0, 1, 3, 6])
def test_the_posterior_is_that_of_the_joint_normal_distribution_of_all_outputs(count):
    """Without slopes: outputs are jointly normal with covariance x . x' / d + noise on the diagonal."""
    examples = TASK.sample(1, np.random.default_rng(count), num_pairs=max(count, 1))
    if count == 0:
        examples = examples._replace(inputs=0 * examples.inputs, outputs=0 * examples.outputs)
    found = TASK.bayes(examples)
    x = np.concatenate([examples.inputs[0][:count], examples.query])
    covariance = x @ x.T / 3 + 0.16 * np.eye(count + 1)
    given, cross = covariance[:count, :count], covariance[:count, count]
    np.testing.assert_allclose(found.mean[0], cross @ np.linalg.solve(given, examples.outputs[0][:count]), atol=1e-12)
    np.testing.assert_allclose(found.error[0], covariance[count, count] - cross @ np.linalg.solve(given, cross))


def test_the_error_of_the_posterior_mean_is_the_bayes_error_and_any_other_costs_its_distance():
    examples = TASK.sample(40_000, np.random.default_rng(0), num_pairs=4)
    best = TASK.bayes(examples)
    error = (best.mean - examples.answer) ** 2
    assert abs(error.mean() - best.error.mean()) < 4 * error.std() / 200
    other = 0.5 * best.mean + 0.2 * examples.query[:, 0]
    costs = (other - examples.answer) ** 2 - error - (other - best.mean) ** 2
    assert abs(costs.mean()) < 4 * costs.std() / 200


def test_padding_says_nothing_and_counts_are_even():
    examples = TASK.sample(3000, np.random.default_rng(1))
    shares = np.bincount(examples.counts, minlength=7)[1:] / 3000
    np.testing.assert_allclose(shares, 1 / 6, atol=0.03)
    row = int(np.flatnonzero(examples.counts == 2)[0])
    short = type(examples)(*(x[row : row + 1] for x in examples))
    cut = short._replace(inputs=short.inputs[:, :2], outputs=short.outputs[:, :2])
    np.testing.assert_allclose(TASK.bayes(cut), TASK.bayes(short))
    np.testing.assert_allclose(examples.answer.var(), 1 + 0.16, rtol=0.1)
