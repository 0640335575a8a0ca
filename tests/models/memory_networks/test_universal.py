"""The Universal Transformer: one step is one layer, halting weights sum to one, a position is an age."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_stories import VOCAB, batch_of

from attn_jax.attention import MultiHead, build_attention
from attn_jax.attention.scores import ScaledDot
from attn_jax.layers.positions import NoPositions, Sinusoidal, sinusoids
from attn_jax.layers.transformer import TransformerLayer, TransformerStack
from attn_jax.models.memory_networks.universal import UniversalStack, universal_transformer

B, N, D = 2, 4, 6
X = jnp.asarray(np.random.default_rng(0).normal(size=(B, N, D)), jnp.float32)
MASK = jnp.arange(N) < jnp.array([[4], [2]])


def layer(norm_first=True):
    heads = functools.partial(MultiHead, attention=build_attention(score=ScaledDot()), num_heads=2, features=D)
    return TransformerLayer(make_attention=heads, features=D, feed_forward_size=5, norm_first=norm_first)


def stack(num_steps, **options):
    return UniversalStack(
        layer=layer(options.pop("norm_first", True)), positions=Sinusoidal(), num_steps=num_steps, **options
    )


def params_for(module):
    return fill(jax.eval_shape(lambda: module.init(jax.random.key(0), X, MASK))["params"])


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [True, False])
def test_one_step_is_a_stack_of_one_layer(norm_first):
    universal = stack(1, norm_first=norm_first)
    params = params_for(universal)
    ordinary = {"layers_0": params["layer"]} | {name: params[name] for name in ("norm",) if norm_first}

    @compiled
    def run(params, ordinary):
        deep = TransformerStack(
            make_layer=lambda: layer(norm_first),
            positions=Sinusoidal(),
            num_layers=1,
            features=D,
            norm_first=norm_first,
        )
        first_step = X + sinusoids(jnp.ones(1, jnp.int32), D)
        states, _, reads = deep.apply({"params": ordinary}, first_step, MASK, method="run")
        return states, reads[-1].own.weights, universal.apply({"params": params}, X, MASK)

    states, weights, (same, seen, counts, ponder) = run(params, ordinary)
    np.testing.assert_allclose(same, states, atol=1e-5)
    np.testing.assert_allclose(seen[0], weights, atol=1e-6)
    assert np.all(counts == 1) and np.all(ponder == 0)


@functools.cache
def adaptive():
    """(weights, ponder, states) of four steps: halting as it comes; at the first step; never. And without halting."""
    params = params_for(stack(4, halting=True))
    never = params | {"halt": {"kernel": 0 * params["halt"]["kernel"], "bias": np.full(1, -200.0, np.float32)}}

    @compiled
    def run(params, never):
        apply = lambda p, *args, **options: stack(*args, **options).apply({"params": p}, X, MASK)  # noqa: E731
        plain = {name: value for name, value in params.items() if name != "halt"}
        halting = apply(params, 4, halting=True, threshold=0.8)
        cost = lambda p: jnp.sum(apply(p, 4, halting=True, threshold=0.8)[3])  # noqa: E731
        return (
            halting,
            apply(params, 4, halting=True, threshold=0.0),
            apply(plain, 1),
            apply(never, 4, halting=True),
            apply(plain, 4),
            jax.grad(cost)(params)["halt"]["bias"],
        )

    return run(params, never)


@pytest.mark.slow
def test_halting_weights_sum_to_one_and_the_cost_counts_steps_from_one_to_all():
    (_, _, weights, ponder), at_once, one_step, never, all_steps, gradient = adaptive()
    np.testing.assert_allclose(weights.sum(0), 1, rtol=1e-6)
    steps = (weights > 0).sum(0)
    assert len(np.unique(steps)) > 1  # not all positions alike
    last = np.take_along_axis(weights, steps[None] - 1, axis=0)[0]
    np.testing.assert_allclose(ponder, steps + last, rtol=1e-6)
    assert gradient[0] < 0  # to halt sooner costs less
    np.testing.assert_allclose(at_once[0], one_step[0], atol=1e-5)
    assert np.all(at_once[2][0] == 1) and np.all(at_once[2][1:] == 0) and np.all(at_once[3] == 2)
    np.testing.assert_allclose(never[0], all_steps[0], atol=1e-5)
    assert np.all(never[3] == 5)


@pytest.mark.slow
def test_adaptive_states_are_those_of_a_loop_in_which_a_halted_position_stays():
    module = stack(4, halting=True, threshold=0.8, norm_first=False)
    params = params_for(module)
    params["halt"]["bias"][:] = -2.0  # so that some halt at once and others go on to the end
    params["halt"]["kernel"] *= 3
    places = jnp.broadcast_to(jnp.arange(N), (B, N))

    @compiled
    def run(params):
        return module.apply({"params": params}, X, MASK)

    @compiled
    def one_step(own, x):
        return layer(False).apply({"params": own}, x, key_mask=MASK, positions=places)[0]

    states, _, weights, _ = run(params)
    x, expected, total, running = np.array(X), np.zeros(X.shape), np.zeros((B, N)), np.ones((B, N), bool)
    steps = np.zeros((B, N))
    for t in range(4):
        inner = x + np.asarray(sinusoids(jnp.array([t + 1]), D)) + np.asarray(sinusoids(places, D))
        probability = 1 / (1 + np.exp(-(inner @ params["halt"]["kernel"] + params["halt"]["bias"])[..., 0]))
        changed = one_step(params["layer"], inner.astype(np.float32))
        steps += running
        for index in zip(*np.nonzero(running), strict=True):
            done = total[index] + probability[index] > 0.8 or t == 3
            weight = 1 - total[index] if done else probability[index]
            np.testing.assert_allclose(weights[(t, *index)], weight, atol=1e-5)
            x[index] = changed[index]
            expected[index] += weight * x[index]
            total[index] += weight
            running[index] = not done
    assert np.ptp(steps[0]) >= 2  # some still look at others that halted two steps before
    np.testing.assert_allclose(states, expected, atol=2e-5)


@pytest.mark.slow
def test_without_positions_the_order_of_statements_is_nothing_and_with_them_it_is_something():
    parts = ("mary moved to the garden .", "john went .", "where the bathroom is .")
    turned = [2, 0, 1]
    asked = "where is mary ?"
    rows = [(" ".join([*(parts[i] for i in order), asked]), "garden", []) for order in ([0, 1, 2], turned)]
    source = jnp.asarray(batch_of(rows, 24)["source"])
    sizes = dict(vocab_size=VOCAB, memory_size=4, features=D, num_heads=2, feed_forward_size=5, num_steps=2)
    module = universal_transformer(**sizes)
    blind = module.clone(stack=module.stack.clone(positions=NoPositions()))
    params = fill(jax.eval_shape(lambda: module.init(jax.random.key(0), source, method="answer"))["params"])

    @compiled
    def run(params):
        answered = [net.apply({"params": params}, source, method="answer") for net in (module, blind)]
        return [(a.log_probs, a.hops) for a in answered]

    (log_probs, _), (same, hops) = run(params)
    np.testing.assert_allclose(same[0], same[1], atol=1e-5)
    np.testing.assert_allclose(hops[0][:, turned], hops[1][:, :3], atol=1e-6)
    assert np.std(hops[0][:, :3], axis=-1).min() > 1e-4
    assert np.abs(log_probs[0] - log_probs[1]).max() > 1e-3
