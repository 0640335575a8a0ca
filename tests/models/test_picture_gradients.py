"""Hard attention on a tiny image: the exact gradient is the mean of every unbiased estimator, over all its outcomes.

And the parts of Xu 2015 (arXiv 1502.03044), each against its formula: the start from the mean annotation, the gate, the
deep output.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from oracles.enumeration import outcomes
from test_picture_models import SIZES, batch_of, build, params_of

BATCH = jax.tree.map(lambda x: x[:1], batch_of(asks=False))
BATCH |= {"target_in": BATCH["target_in"][:, :1], "target_out": BATCH["target_out"][:, :1]}
IMAGE = SIZES._replace(source_vocab_size=4)
DECODER = {"model__decoder": "bahdanau"}
# reading -> (samples, baselines under which it is unbiased); the baselines share the code of the objective
ESTIMATORS = {
    "reinforce": (2, ("running_mean", "learned", "leave_one_out", "critic")),
    "stratified": (2, ("soft",)),
    "systematic": (2, ("none",)),
    "sum_and_sample": (3, ("learned",)),
    "stochastic_sum_and_sample": (2, ("learned",)),
    "unordered_set": (2, ("leave_one_out",)),
    "optimal_resampling": (3, ("none",)),
}
CASES = [(read, baseline) for read, (_, baselines) in ESTIMATORS.items() for baseline in baselines]


def hard(reading, **options):
    """A model with this reading; options are those of the objective."""
    options = {f"model__objective__{key}": value for key, value in options.items()}
    return build(sizes=IMAGE, model__objective="hard", model__objective__reading=reading, **DECODER, **options)


EXACT = hard("enumeration")
PARAMS = params_of(EXACT, BATCH)


@functools.cache
def exact():
    """(loss, gradient, attention weights) of the enumeration."""
    value = jax.value_and_grad(lambda params: EXACT.loss_fn(params, BATCH, jax.random.key(0))[0])
    return compiled(lambda params: (*value(params), EXACT.attention_weights(params, BATCH)))(PARAMS)


def of_model(gradient):
    """Without the part of the baseline, as one vector."""
    own = {name: gradient[name] for name in PARAMS}
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(own)])


@pytest.mark.slow
@pytest.mark.parametrize(("read", "baseline"), CASES)
def test_the_mean_of_an_estimator_over_all_outcomes_is_the_exact_gradient(read, baseline):
    model = hard(read, baseline=baseline, reading__num_samples=ESTIMATORS[read][0])
    params = params_of(model, BATCH) | PARAMS
    _, exact_gradient, weights = exact()
    found = outcomes(read, weights[0, 0], ESTIMATORS[read][0])
    reading = model.module.objective.reading

    def loss(params, outcome):
        def sampler(rng, log_weights, **options):
            return reading.function(outcome[None, None], log_weights, **options)

        given = dataclasses.replace(reading, function=sampler, random=False)
        one = dataclasses.replace(
            model, module=model.module.clone(objective=model.module.objective.clone(reading=given))
        )
        return one.loss_fn(params, BATCH, jax.random.key(0))[0]

    each = compiled(jax.vmap(jax.grad(loss), (None, 0)))(params, jnp.asarray(np.stack([w for _, w in found])))
    p = np.array([probability for probability, _ in found])
    mean = of_model(jax.tree.map(lambda x: np.tensordot(p, x, 1), each))
    expected = of_model(exact_gradient)
    assert len(found) > 3 and np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(mean, expected, rtol=2e-3, atol=2e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_the_exact_gradient_is_that_of_the_expected_loss_written_out():
    """sum_x a_x f(z_x), with the readout of each cell computed on its own."""

    def expected(params):
        def total(module):
            memory, steps = module.unroll(BATCH["source"], BATCH["target_in"])
            value = 0.0
            for cell in range(6):
                context = memory.values[:, None, cell]
                hidden = module.decoder.readout(steps.hidden, context, steps.embedded)
                nll, _ = module.nll_and_correct(hidden, BATCH["target_out"])
                value += jnp.sum(steps.weights[..., cell] * nll)
            return value

        return EXACT.module.apply({"params": params}, method=total)

    value, gradient = compiled(jax.value_and_grad(expected))(PARAMS)
    loss, exact_gradient, _ = exact()
    np.testing.assert_allclose(loss, value, rtol=1e-5)
    np.testing.assert_allclose(of_model(exact_gradient), of_model(gradient), rtol=1e-3, atol=1e-6)


def test_the_lstm_starts_from_the_mean_annotation():
    """h = tanh(W mean(a) + b), c = V mean(a) + d: section 3.1.2, with one layer for each."""
    module = EXACT.module

    def first(module):
        encoded = module.encode(BATCH["source"])
        _, state = module.decoder.start(encoded)
        return encoded.states, state.layers[0]

    states, (h, c) = compiled(lambda: module.apply({"params": PARAMS}, method=first))()
    bridges = PARAMS["decoder"]["stack"]
    mean = states.mean(1)
    np.testing.assert_allclose(h, np.tanh(mean @ bridges["bridges_0"]["kernel"] + bridges["bridges_0"]["bias"]), 1e-4)
    np.testing.assert_allclose(c, mean @ bridges["bridges_1"]["kernel"] + bridges["bridges_1"]["bias"], 1e-4, 1e-5)


def test_the_deep_output_reads_the_word_the_state_and_the_gated_context():
    """tanh(W [h; beta z; E y] + b), beta = sigmoid(v . h_before + c): equation 7 and section 4.2.1."""
    soft = build(sizes=IMAGE, model__decoder__extras=("selector",), **DECODER)
    params = params_of(soft, BATCH)

    def outputs(module):
        memory, steps = module.unroll(BATCH["source"], BATCH["target_in"])
        return memory.values, steps.weights, steps.query, steps.hidden, steps.embedded, steps.readout

    run = compiled(lambda: soft.module.apply({"params": params}, method=outputs))
    values, weights, query, hidden, embedded, readout = run()
    decoder = params["decoder"]
    context = np.einsum("bts,bsd->btd", weights, values)
    beta = 1 / (1 + np.exp(-(query @ decoder["beta"]["kernel"] + decoder["beta"]["bias"])))
    inputs = np.concatenate([hidden, beta * context, embedded], axis=-1)
    deep = np.tanh(inputs @ decoder["combine"]["kernel"] + decoder["combine"]["bias"])
    np.testing.assert_allclose(readout, deep, rtol=1e-4, atol=1e-5)
    assert np.all((beta > 0) & (beta < 1))
