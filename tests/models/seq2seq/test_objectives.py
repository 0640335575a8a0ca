"""Objectives, readings, baselines and transitions inside the decoder, against enumeration."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, build, random_params, sentences

from attn_jax.attention.hard.readings import READINGS, Reading, log_of
from attn_jax.attention.hard.samplers import choose
from attn_jax.attention.reads import Read
from attn_jax.errors import UserError
from attn_jax.models.seq2seq.objectives import HardObjective, MarginalObjective, mixture
from attn_jax.runs.checks import check_num_samples
from attn_jax.runs.options import change, resolve
from configs.base import get_config

LENGTHS = [(4, 3), (2, 2), (0, 0)]  # source, target; the last row is padding
BATCH = jax.tree.map(jnp.asarray, sentences(LENGTHS, 4, 3))
LONGER = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 2))), BATCH)
REAL = np.asarray(BATCH["target_out"] != 0)
TARGETS = np.asarray(BATCH["target_out"])
GRU = dict(encoder="gru", encoder__bidirectional=False, decoder__cell="gru")
LUONG = dict(GRU, decoder="luong", decoder__input_feeding=False)
BAHDANAU = dict(GRU, decoder="bahdanau")
LAYERS = dict(num_heads=2, feed_forward_size=5, num_layers=2, positions="rotary", num_kv_heads=1)
TRANSFORMER = dict(decoder="transformer", encoder="transformer", embedding_size=8, hidden_size=8)
TRANSFORMER |= {f"{part}__{key}": value for part in ("encoder", "decoder") for key, value in LAYERS.items()}
TRANSFORMER |= dict(attention=dict(score="scaled_dot"))
ENUMERATED = dict(objective__reading="enumeration")
ELBO = dict(objective="elbo", objective__inference_size=4, objective__cell="gru")
CHAIN = dict(objective="markov", objective__jump_size=1)
CASES = {  # every objective with a recurrent decoder, and what is most unlike it with a Transformer decoder
    "soft": dict(LUONG),
    "top": dict(LUONG, objective="top", objective__num_samples=2),
    "expected monotonic": dict(BAHDANAU, attention=dict(normalize="monotonic")),
    "marginal": dict(BAHDANAU, objective="marginal"),
    "k-max": dict(LUONG, objective="marginal", objective__k_max=2),
    "elbo": dict(LUONG, **ELBO, **ENUMERATED),
    "hard": dict(LUONG, objective="hard", **ENUMERATED),
    "fed back": dict(BAHDANAU, objective="trajectory", objective__reading__num_samples=2),
    "first order": dict(LUONG, **CHAIN, objective__monotonic=False),
    "monotonic first order": dict(LUONG, **CHAIN),
    "own past, marginal": dict(LUONG, objective="marginal", decoder__extras=("self_attention",)),
    "transformer, elbo": dict(TRANSFORMER, **ELBO | dict(objective__cell="lstm"), **ENUMERATED),
    "transformer, monotonic": dict(TRANSFORMER, objective="markov"),
}


def params_for(model, batch):
    return jax.tree.map(jnp.asarray, random_params(model, batch))


@functools.cache
def built(name):
    """(model, parameters)."""
    model = build(**CASES[name])
    return model, params_for(model, BATCH)


@functools.cache
def measured(name):
    """Evaluation of the batch with more padding, its steps one by one without, and a training loss."""
    model, params = built(name)

    @compiled
    def run(params, rng):
        memory, state = model.start(params, BATCH["source"])
        _, log_probs = jax.lax.scan(functools.partial(model.step, params, memory), state, BATCH["target_in"].T)
        training = jax.value_and_grad(model.loss_fn, has_aux=True)(params, BATCH, rng)
        nll, correct, weights = model._apply(params, LONGER, "evaluate")
        return (nll[:, :3], correct[:, :3], weights), jnp.swapaxes(log_probs, 0, 1), training

    return run(params, jax.random.key(0, impl="rbg"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_step_by_step_is_teacher_forced_and_training_reaches_every_parameter(name):
    """Whatever the padding; what is padded has no weight."""
    (nll, correct, weights), log_probs, ((loss, _), gradient) = measured(name)
    np.testing.assert_allclose(np.exp(log_probs[:2]).sum(-1), 1, rtol=1e-4)
    picked = np.take_along_axis(log_probs, TARGETS[..., None], -1)[..., 0]
    np.testing.assert_allclose(nll[REAL], -picked[REAL], rtol=1e-4)
    np.testing.assert_array_equal(correct[REAL], (log_probs.argmax(-1) == TARGETS)[REAL])
    assert np.all(weights[0, :3, 4:] == 0) and np.all(weights[1, :2, 2:] == 0) and np.any(weights[1, 0, :2] > 0)
    assert np.isfinite(loss)
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert np.all(np.isfinite(leaf)), path
        if name not in ("top", "expected monotonic"):  # the choice of the k best keys has no gradient
            assert np.any(leaf != 0), path


@pytest.mark.parametrize(
    ("options", "own"),
    [
        (dict(objective="hard", objective__baseline="learned"), {"baseline": {"inner", "outer"}}),
        (dict(objective="trajectory", objective__baseline="running_mean"), {"baseline": {"running_mean"}}),
        (CASES["elbo"], {"inference": {"rnn", "score"}}),
        (CASES["first order"], {"jumps": {"kernel", "bias"}}),
        (CASES["soft"], None),
    ],
)
def test_parameters_of_an_objective(options, own):
    params = jax.eval_shape(build(**LUONG | options).init, jax.random.key(0), BATCH)
    assert {name: set(tree) for name, tree in params.get("objective", {}).items()} == (own or {})


def test_an_objective_keeps_the_key_of_its_parameters_in_a_copy_of_the_model():
    model = build(**LUONG, objective="hard", objective__baseline="learned")
    copy = model.module.clone(objective=model.module.objective.clone(reading=READINGS["stratified"]))
    assert "objective" in jax.eval_shape(type(model)(copy).init, jax.random.key(0), BATCH)


@pytest.mark.slow
def test_likelihoods_are_in_the_order_of_jensen():
    """With the same parameters: marginal <= hard, marginal <= elbo, and training without dropout is evaluation."""
    nll = {name: measured(name)[-1][0][1]["nll"].total for name in CASES}
    marginal = build(**LUONG, objective="marginal")
    exact = compiled(lambda params: jnp.sum(marginal._apply(params, BATCH, "evaluate")[0] * REAL))
    of_keys = exact(built("hard")[1])
    np.testing.assert_allclose(nll["k-max"], of_keys, rtol=1e-5)
    assert nll["hard"] > of_keys + 1e-3 and nll["elbo"] > exact(built("elbo")[1]) + 1e-3
    for name in ("first order", "monotonic first order"):
        np.testing.assert_allclose(nll[name], measured(name)[0][0][REAL].sum(), rtol=1e-5)


@pytest.mark.slow
def test_k_max_of_all_keys_is_the_marginal():
    models = [
        build(**LUONG, objective="marginal", **k_max) for k_max in ({}, *({"objective__k_max": k} for k in (4, 2)))
    ]
    run = compiled(lambda params: [model._apply(params, BATCH, "evaluate")[0] for model in models])
    exact, four, two = run(params_for(models[0], BATCH))
    np.testing.assert_allclose(exact[REAL], four[REAL], rtol=1e-5)
    assert not np.allclose(exact[0], two[0], rtol=1e-3)
    np.testing.assert_allclose(exact[1, :2], two[1, :2], rtol=1e-5)  # this sentence has but two words


EXACT = ("sum_and_sample", "stochastic_sum_and_sample", "unordered_set", "optimal_resampling")


@functools.cache
def gradient_of_enumeration(objective):
    model = build(**LUONG, **ELBO if objective == "elbo" else dict(objective=objective), **ENUMERATED)
    params = params_for(model, BATCH)
    return params, compiled(jax.value_and_grad(lambda p: model.loss_fn(p, BATCH, jax.random.key(0))[0]))(params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective, read, baseline",  # each reading and each baseline once; all pairs share the code of the objective
    [
        ("hard", "sum_and_sample", "soft"),
        ("hard", "stochastic_sum_and_sample", "learned"),
        ("hard", "unordered_set", "leave_one_out"),
        ("hard", "optimal_resampling", "running_mean"),
        ("hard", "optimal_resampling", "per_coordinate"),
        ("hard", "optimal_resampling", "critic"),
        ("hard", "adaptive", "adaptive"),
        ("elbo", "optimal_resampling", "none"),
    ],
)
def test_as_many_evaluations_as_keys_are_the_enumeration(objective, read, baseline):
    """Loss and gradients, with every baseline; whose own parameters get a gradient of their own and nothing else."""
    params, (loss, expected) = gradient_of_enumeration(objective)
    options = ELBO if objective == "elbo" else dict(objective=objective)
    options = options | dict(objective__reading=read, objective__reading__num_samples=4, objective__baseline=baseline)
    model = build(**LUONG, **options)
    shapes = jax.eval_shape(model.init, jax.random.key(0), BATCH)
    filled = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.3), shapes.get("objective", {}).get("baseline", {}))
    params = {**params, "objective": {**params.get("objective", {}), "baseline": filled}}
    value, gradient = compiled(jax.value_and_grad(lambda p: model.loss_fn(p, BATCH, jax.random.key(1))[0]))(params)
    np.testing.assert_allclose(value, loss, rtol=1e-5)
    others = gradient.pop("objective")
    own = others.pop("baseline")
    for leaf in jax.tree.leaves(own):
        assert np.any(leaf != 0)
    if baseline == "running_mean":  # towards the loss of each token, evaluated at its mean
        np.testing.assert_allclose(own["running_mean"], 0.3 * REAL.sum() - loss, rtol=1e-4)
    gradient |= {"objective": others} if others else {}
    for (path, leaf), other in zip(jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-3, atol=2e-5, err_msg=str(path))


def fixed(model, key):
    """The model whose attention always reads this key."""

    def sample(rng, log_weights):
        shape = (*log_weights.shape[:-1], 1)
        return choose(log_weights, jnp.full(shape, key), jnp.ones(shape))

    attention = model.module.decoder.attention.clone(read=Read(reading=Reading("fixed", sample, random=False)))
    return model.module.clone(decoder=model.module.decoder.clone(attention=attention))


@pytest.mark.slow
def test_the_bound_holds_where_attention_is_sparse():
    model = build(**CASES["elbo"], attention=dict(normalize="sparsemax"))
    params = params_for(model, BATCH)
    nll = compiled(lambda p: model.loss_fn(p, BATCH, jax.random.key(0))[1]["nll"].total)(params)
    exact, _, weights = model._apply(params, BATCH, "evaluate")
    assert np.any(np.asarray(weights)[0] == 0)
    assert nll > np.sum(np.asarray(exact)[REAL]) + 1e-3


def test_a_mixture_of_nothing_is_a_distribution_and_of_one_is_that_one():
    log_probs = jnp.log(jnp.array([[0.2, 0.8], [0.5, 0.5]]))
    np.testing.assert_allclose(np.exp(mixture(log_of(jnp.array([0.0, 1.0])), log_probs)), [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(np.exp(mixture(log_of(jnp.array([0.25, 0.75])), log_probs)), [0.425, 0.575], rtol=1e-6)
    np.testing.assert_allclose(np.exp(mixture(log_of(jnp.zeros(2)), log_probs)).sum(), 1, rtol=1e-6)


HARD, MARGINAL, MARKOV = (dict(objective=name) for name in ("hard", "marginal", "markov"))


def read_by(name, **options):
    return {"objective__reading": name} | {f"objective__{key}": value for key, value in options.items()}


WRONG = [
    (LUONG | ELBO | dict(objective__inference_size=5), "model.objective.inference_size 5 is odd"),
    (LUONG | HARD | read_by("expectation"), "unknown model.objective.reading 'expectation'"),
    (
        LUONG | dict(objective="soft") | read_by("reinforce"),
        "unknown config key model.objective.reading; it is an option of model.objective hard, trajectory, marginal",
    ),
    (LUONG | MARGINAL | read_by("stratified"), "'stratified'; known: enumeration, reinforce"),
    (
        LUONG | HARD | read_by("stratified", baseline="leave_one_out"),
        "model.objective.reading stratified cannot use model.objective.baseline leave_one_out",
    ),
    (LUONG | HARD | dict(objective__baseline="leave_one_out"), "num_samples of at least 2"),
    (
        LUONG | HARD | read_by("gumbel_rao", baseline="learned"),
        "model.objective.baseline; it is for a reading whose gradient can have a baseline",
    ),
    (LUONG | HARD | read_by("rebar", baseline="per_coordinate"), "it can use none, running_mean"),
    (
        LUONG | MARGINAL | read_by("reinforce", baseline="per_coordinate"),
        "cannot use model.objective.baseline per_coordinate here",
    ),
    (BAHDANAU | dict(objective="trajectory") | read_by("stratified"), "model.objective.reading 'stratified'"),
    (
        BAHDANAU | dict(objective="trajectory", objective__baseline="soft"),
        "unknown model.objective.baseline 'soft'; known: learned, leave_one_out, none, running_mean",
    ),
    (GRU | HARD | dict(decoder="none"), "it is for a model.decoder that attends to the source"),
    (LUONG | MARKOV | dict(objective__monotonic=False), "neither monotonic nor jump_size is no chain; expected one"),
    (LUONG | MARKOV | dict(decoder__input_feeding=True), "model.decoder.input_feeding False"),
    (LUONG | HARD | read_by("reinforc"), "did you mean reinforce?"),
    (LUONG | HARD | dict(attention=dict(wrappers=("local_p",))), "sum to one, unlike those of Windowed (LocalP)"),
    *[
        (LUONG | MARKOV | dict(attention=wrong), "sums over all keys")
        for wrong in (dict(normalize="sparsemax"), dict(wrappers=("local_m",)), dict(wrappers=("top_keys",)))
    ],
    (
        LUONG | MARKOV | dict(objective__k_max=2),
        "objective.k_max; it is an option of model.objective hard, marginal or",
    ),
    (dict(encoder="conv", decoder__bridge="copy", decoder__num_layers=2), "bridge copy needs a last state of each of"),
    (dict(encoder="none", decoder__bridge="copy"), "needs model.embedding_size and model.hidden_size"),
    (
        LUONG | MARGINAL | dict(attention=dict(normalize="linear")),
        "unlike those of linear inside of Map(linear); see model.attention.normalize",
    ),
    (LUONG | dict(objective="marginals"), "did you mean marginal?"),
    (
        LUONG | HARD | ENUMERATED | dict(attention=dict(dropout=0.5)),
        "model.attention.dropout is of the mean context, which this model.objective reads only with",
    ),
    (LUONG | MARKOV | dict(attention=dict(dropout=0.5)), "model.attention.dropout is of the mean context"),
    (
        LUONG | dict(attention=dict(score="boxcar", normalize="kernel_sum")),
        "score boxcar has no gradient; set model.attention.score.width",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_choices_are_told_in_one_line(options, message):
    with pytest.raises(UserError) as error:
        build(**options)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
def test_more_samples_than_a_short_source_has_words_are_the_enumeration():
    params, (loss, _) = gradient_of_enumeration("hard")

    @compiled
    def losses(params):
        options = dict(objective="hard", objective__reading__num_samples=6, objective__baseline="none")
        models = [build(**LUONG, **options, objective__reading=read) for read in EXACT]
        return [model.loss_fn(params, BATCH, jax.random.key(0))[0] for model in models]

    np.testing.assert_allclose(losses(params), loss, rtol=1e-5)


def test_more_samples_than_the_longest_source_is_an_error():
    given = {"model.objective": "hard", "model.objective.reading": "unordered_set"}
    config = resolve(change(get_config(), given | {"model.objective.reading.num_samples": 9}))
    check_num_samples(config, 9)
    with pytest.raises(UserError, match="num_samples is 9, but unordered_set samples different keys and the longest"):
        check_num_samples(config, 8)
    check_num_samples(config, 1, cells=(3, 3))
    with pytest.raises(UserError, match="unordered_set samples different keys and the grid of an image has 8"):
        check_num_samples(config, 12, cells=(2, 4))


@pytest.mark.slow
def test_every_reading_has_a_place():
    """Each is part of an objective, and traces in the decoder with its default options."""
    tested = {"expectation", "top", "enumeration", "adaptive", *EXACT}
    for name in READINGS.keys() - tested:
        options = {"objective__reading__num_samples": 2} if "num_samples" in READINGS[name].options else {}
        model = build(**LUONG, **HARD, **read_by(name), **options)
        shapes = jax.eval_shape(model.init, jax.random.key(0), BATCH)
        loss, _ = jax.eval_shape(model.loss_fn, shapes, BATCH, jax.random.key(0))
        assert loss.shape == ()


@pytest.mark.slow
def test_hard_attention_reads_one_word_in_decoding():
    """Fed back, each step reads the most probable key; the first word is that of the key read alone."""
    model, params = built("fed back")
    key = int(np.argmax(measured("fed back")[0][2][0, 0]))
    alone, token = fixed(model, key), jnp.full(3, BOS, jnp.int32)

    @compiled
    def run(params):
        memory, state = alone.apply({"params": params}, BATCH["source"], 1, method="start")
        return alone.apply({"params": params}, memory, state, token, method="step")[1][0]

    np.testing.assert_allclose(measured("fed back")[1][0, 0], run(params), rtol=1e-4)


@pytest.mark.slow
def test_a_baseline_learns_what_the_estimate_multiplies():
    """The mean loss where it is minimized, and -log of the mean likelihood where that is."""
    sample = READINGS["reinforce"].configure(num_samples=3)(jax.random.key(0), jnp.log(jnp.array([[[0.5, 0.3, 0.2]]])))
    loss = jnp.array([[[0.1, 4.0, 12.0]]])
    assert float(HardObjective.reward(None, sample, loss)[0, 0]) == pytest.approx(16.1 / 3, rel=1e-5)
    expected = -np.log(np.mean(np.exp(-np.asarray(loss))))
    assert float(MarginalObjective.reward(None, sample, loss)[0, 0]) == pytest.approx(expected, rel=1e-5)
