"""A baseline leaves the mean gradient as it is, however well it is fitted: for every decoder and baseline, by
enumeration of all keys or, where what was sampled is fed back, of all trajectories of keys.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from arrays import compiled, fill
from tiny_seq2seq import build, sentences

from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.hard.samplers import choose
from attn_jax.attention.reads import Read

NUM_KEYS, NUM_STEPS, FIT_STEPS = 2, 2, 300
BATCH = jax.tree.map(jnp.asarray, sentences([(NUM_KEYS, NUM_STEPS)], NUM_KEYS, NUM_STEPS, seed=1))
DECODERS = {
    "bahdanau": dict(decoder="bahdanau"),
    "luong": dict(decoder="luong", decoder__input_feeding=False),
    "luong, input feeding": dict(decoder="luong", decoder__input_feeding=True),
}
# Where contexts are fed back, and where they are not; a decoder has no code that knows of baselines.
CASES = [("bahdanau", "read", baseline) for baseline in ("running_mean", "learned", "leave_one_out")]
CASES += [("luong, input feeding", "read", "learned")]
LOCAL = ("running_mean", "learned", "leave_one_out", "soft", "per_coordinate", "critic")
CASES += [("luong", "mean", baseline) for baseline in LOCAL]


def reading_of(draws):
    """The reading that takes its keys [..., n] from an iterator, sample by sample, with importance weights 1 / n."""

    def sample(rng, log_weights):
        keys = next(draws)
        keys = jnp.broadcast_to(keys, (*log_weights.shape[:-1], n := keys.shape[-1]))
        others = jnp.broadcast_to((1 - jnp.eye(n)) / (n - 1), (*keys.shape, n)) if n > 1 else None
        return choose(log_weights, keys, jnp.full(keys.shape, 1 / n), others)

    return Reading("enumerated", sample, random=False)


def mean_surrogate(model, params, count, feed):
    """E[surrogate] over all samples of `count` keys for each step, its gradient that of the surrogates alone."""
    if feed == "read":
        probability, losses = over_trajectories(model.module, params, count)
    else:
        probability, losses = over_keys(model.module, params, count)
    return jnp.sum(jax.lax.stop_gradient(probability) * losses)


def over_trajectories(module, params, count):
    """(probability [b, 1], losses [b, t]) of each choice of `count` trajectories, side by side as in training."""
    every = list(itertools.product(range(NUM_KEYS), repeat=NUM_STEPS))
    keys = jnp.array(list(itertools.product(every, repeat=count))).reshape(-1, NUM_STEPS)
    rows = {name: jnp.repeat(x, len(keys), axis=0) for name, x in BATCH.items()}
    read = reading_of(iter([keys[:, t, None, None] for t in range(NUM_STEPS)]))
    attention = module.decoder.attention.clone(read=Read(reading=read))

    def losses(module):
        memory, (state, _) = module.start(rows["source"], NUM_STEPS)
        steps = []
        for t in range(NUM_STEPS):
            state, step = module.decoder.step(memory, state, module.target_embedding(rows["target_in"][:, t]))
            steps.append(step)
        steps = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *steps)
        probability = jnp.exp(jnp.sum(steps.log_prob, axis=1)).reshape(-1, count).prod(axis=1)
        targets = rows["target_out"][::count]
        return probability[:, None], module.objective.losses(
            module.make_readout(), memory, steps, targets=targets, real=targets != 0
        ).loss

    module = module.clone(decoder=module.decoder.clone(attention=attention))
    return module.apply({"params": params}, method=losses)


def over_keys(module, params, count):
    """(probability, losses) [b, t] of each choice of `count` keys, the same choice at every step."""
    keys = jnp.array(list(itertools.product(range(NUM_KEYS), repeat=count)))
    rows = {name: jnp.repeat(x, len(keys), axis=0) for name, x in BATCH.items()}

    def both(module):
        memory, steps = module.unroll(rows["source"], rows["target_in"])
        targets = rows["target_out"]
        chosen = jnp.take_along_axis(steps.weights, keys[:, None], axis=-1)
        losses = module.objective.losses(module.make_readout(), memory, steps, targets=targets, real=targets != 0).loss
        return jnp.prod(chosen, axis=-1), losses

    module = module.clone(objective=module.objective.clone(reading=reading_of(iter([keys[:, None]]))))
    return module.apply({"params": params}, method=both, rngs={"dropout": jax.random.key(0)})


@functools.cache
def gradients(decoder, feed, baseline):
    """(mean gradient of all but a fitted baseline, largest gradient left in the baseline itself)."""
    count = 2 if baseline == "leave_one_out" else 1
    objective = dict(
        objective={"read": "trajectory", "mean": "hard"}[feed],
        objective__reading__num_samples=count,
        objective__baseline=baseline,
    )
    if baseline in ("learned", "critic"):
        objective["objective__baseline__features"] = 8
    gru = dict(encoder="gru", encoder__bidirectional=False, decoder__cell="gru")
    model = build(**gru, **objective, **DECODERS[decoder])
    shapes = jax.eval_shape(model.init, jax.random.key(0), BATCH)
    baselines = {"objective": fill(shapes.pop("objective", {}), seed=3)}
    params = fill(shapes, seed=2, scale=0.7) | baselines
    tx = optax.adam(0.05)

    @compiled
    def step(params, state):
        found = jax.grad(lambda params: mean_surrogate(model, params, count, feed))(params)
        updates, state = tx.update({"objective": found.pop("objective", {})}, state)
        baseline = optax.apply_updates({"objective": params["objective"]}, updates)
        return found, params | baseline, state

    state = tx.init(baselines)
    for _ in range(FIT_STEPS if jax.tree.leaves(baselines) else 1):
        found, params, state = step(params, state)
    moved = [np.abs(x).max() for x in jax.tree.leaves(state[0].mu)]  # the mean gradient of late
    return found, max(moved, default=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("decoder, feed, baseline", CASES)
def test_a_fitted_baseline_leaves_the_mean_gradient_as_it_is(decoder, feed, baseline):
    expected = gradients(decoder, feed, "none")[0]
    found, left = gradients(decoder, feed, baseline)
    assert left < 0.2, "the baseline is not fitted"
    size = max(np.abs(x).max() for x in jax.tree.leaves(expected))
    for (path, x), y in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 * size, err_msg=jax.tree_util.keystr(path))
