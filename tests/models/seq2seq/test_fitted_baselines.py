"""A baseline leaves the mean gradient as it is, however well it is fitted: for every decoder and baseline, by
enumeration of all keys or, where what was sampled is fed back, of all trajectories of keys.

python tests/models/seq2seq/test_fitted_baselines.py prints what the tests compare: norms, difference and cosine.
"""

import functools
import itertools
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[i]) for i in (2, 3)]  # for the script
from arrays import compiled, fill  # noqa: E402
from tiny_seq2seq import build, sentences  # noqa: E402

from attn_jax.attention.hard.readings import Reading  # noqa: E402
from attn_jax.attention.hard.samplers import choose  # noqa: E402
from attn_jax.attention.reads import Read  # noqa: E402

NUM_KEYS, NUM_STEPS, FIT_STEPS = 2, 2, 300
BATCH = jax.tree.map(jnp.asarray, sentences([(NUM_KEYS, NUM_STEPS)], NUM_KEYS, NUM_STEPS, seed=1))
DECODERS = {
    "bahdanau": dict(decoder="bahdanau"),
    "luong": dict(decoder="luong", decoder__input_feeding=False),
    "luong, input feeding": dict(decoder="luong", decoder__input_feeding=True),
}
FED_BACK = ("running_mean", "learned", "leave_one_out")
LOCAL = (*FED_BACK, "soft", "per_coordinate", "critic")
CASES = [(decoder, "read", baseline) for decoder in DECODERS for baseline in FED_BACK]
CASES += [(decoder, "mean", baseline) for decoder in ("bahdanau", "luong") for baseline in LOCAL]


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


def report():
    """Prints the gradients with respect to the parameters of the score, with a baseline and without one."""
    print(f"{'decoder':<22}{'feed':<6}{'baseline':<16}{'norm':>8}{'without':>9}{'difference':>12}{'cosine':>8}")
    for decoder, feed, baseline in CASES:
        found = (gradients(decoder, feed, name)[0]["decoder"]["attention"] for name in (baseline, "none"))
        with_it, without = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in found)
        norms = np.linalg.norm(with_it), np.linalg.norm(without), np.linalg.norm(with_it - without)
        cosine = with_it @ without / (norms[0] * norms[1])
        print(f"{decoder:<22}{feed:<6}{baseline:<16}{norms[0]:8.4f}{norms[1]:9.4f}{norms[2]:12.1e}{cosine:8.3f}")


if __name__ == "__main__":
    report()
