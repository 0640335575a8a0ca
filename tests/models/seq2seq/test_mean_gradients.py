"""The mean of the sampled gradients is that of the expected loss, under every baseline: by enumeration of all keys or,
where what was sampled is fed back, of all trajectories of keys."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import build, random_params, sentences

from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.hard.samplers import choose
from attn_jax.attention.reads import Read

NUM_KEYS, NUM_STEPS = 2, 2
BATCH = jax.tree.map(jnp.asarray, sentences([(NUM_KEYS, NUM_STEPS)], NUM_KEYS, NUM_STEPS, seed=1))
DECODERS = {
    "bahdanau": dict(decoder="bahdanau"),
    "luong": dict(decoder="luong", decoder__input_feeding=False),
    "luong, input feeding": dict(decoder="luong", decoder__input_feeding=True),
}
# Where contexts are fed back, and where they are not; a decoder has no code that knows of baselines.
CASES = [("bahdanau", "read", baseline) for baseline in ("none", "running_mean", "learned", "leave_one_out")]
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


def over_trajectories(module, params, count):
    """(probability [b, 1], losses, nll [b, t]) of each choice of `count` trajectories, side by side as in training."""
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
        readout = module.make_readout()
        return probability[:, None], *module.objective.losses(
            readout, memory, steps, targets=targets, real=targets != 0
        )

    module = module.clone(decoder=module.decoder.clone(attention=attention))
    return module.apply({"params": params}, method=losses)


def over_keys(module, params, count):
    """(probability, losses, nll) [b, t] of each choice of `count` keys, the same choice at every step."""
    keys = jnp.array(list(itertools.product(range(NUM_KEYS), repeat=count)))
    rows = {name: jnp.repeat(x, len(keys), axis=0) for name, x in BATCH.items()}

    def both(module):
        memory, steps = module.unroll(rows["source"], rows["target_in"])
        targets = rows["target_out"]
        chosen = jnp.take_along_axis(steps.weights, keys[:, None], axis=-1)
        readout = module.make_readout()
        losses = module.objective.losses(readout, memory, steps, targets=targets, real=targets != 0)
        return jnp.prod(chosen, axis=-1), *losses

    module = module.clone(objective=module.objective.clone(reading=reading_of(iter([keys[:, None]]))))
    return module.apply({"params": params}, method=both, rngs={"dropout": jax.random.key(0)})


@pytest.mark.slow
@pytest.mark.parametrize("decoder, feed, baseline", CASES)
def test_the_mean_gradient_is_that_of_the_expected_loss(decoder, feed, baseline):
    count = 3 if baseline == "leave_one_out" else 1
    objective = {"objective": {"read": "trajectory", "mean": "hard"}[feed], "objective__baseline": baseline}
    gru = dict(encoder="gru", encoder__bidirectional=False, decoder__cell="gru")
    model = build(**gru, **objective, objective__reading__num_samples=count, **DECODERS[decoder])

    @compiled
    def gradients(params):
        def means(params):
            enumerate_all = over_trajectories if feed == "read" else over_keys
            probability, losses, nll = enumerate_all(model.module, params, count)
            return jnp.sum(jax.lax.stop_gradient(probability) * losses), jnp.sum(probability * nll)

        return jax.jacrev(means)(params)

    params = random_params(model, BATCH)
    if "objective" in params:
        params["objective"] = jax.tree.map(np.abs, params["objective"])  # as denominators are
    found, expected = gradients(params)
    own = [np.abs(x).max() for x in jax.tree.leaves(found.pop("objective", {}))]
    assert min(own, default=1) > 0 and not any(np.any(x) for x in jax.tree.leaves(expected.pop("objective", {})))
    size = max(np.abs(x).max() for x in jax.tree.leaves(expected))
    for (path, x), y in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 * size, err_msg=jax.tree_util.keystr(path))
