"""Dynamic memory networks: which loss teaches what, what a pass remembers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_stories import VOCAB, batch_of

from attn_jax.attention import build_attention
from attn_jax.attention.normalizers.base import softmax
from attn_jax.models.memory_networks.base import StoryModel
from attn_jax.models.memory_networks.dmn import dmn, dmn_plus
from attn_jax.models.memory_networks.episodes import LOGISTIC, GateNetwork

STORIES = [
    ("mary moved to the garden . john went to the kitchen . where is mary ?", "garden", [2, 1]),
    ("john went to the bathroom . mary went to the kitchen . where is john ?", "bathroom", [1]),
]
BATCH = jax.tree.map(jnp.asarray, batch_of(STORIES, 18))
SMALL = dict(vocab_size=VOCAB, memory_size=3, features=4, gate_size=3, num_passes=2)


def params_for(module):
    return fill(jax.eval_shape(StoryModel(module).init, jax.random.key(0), BATCH))


@functools.cache
def trained(gate_weight, independent):
    """(value, gradient) of the loss at steps 0 and 7, where 7 steps teach the gates alone."""
    gates = build_attention(
        score=GateNetwork(features=3, all_terms=True), normalize=LOGISTIC if independent else softmax
    )
    module = dmn(**SMALL, embedding_size=3, attention=gates, soft=True, gate_weight=gate_weight, warmup_steps=7)
    model = StoryModel(module)

    @compiled
    def run(params, step):
        loss = lambda p: model.loss_fn(p, BATCH, jax.random.key(0), step)  # noqa: E731
        (total, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        answer = module.apply({"params": params}, BATCH["source"], method="answer")
        return total, metrics["nll"].total, gradient, answer.log_probs, answer.hops

    params = params_for(module)
    return [run(params, jnp.array(step)) for step in (0, 7)]


@pytest.mark.slow
def test_while_the_answer_does_not_count_only_the_gates_learn():
    (gates_only, nll, gradient, _, _), (both, same, whole, log_probs, gates) = trained(2.0, False)
    expected = -sum(log_probs[i, a] for i, a in enumerate(BATCH["target_out"][:, 0]))
    np.testing.assert_allclose([nll, same, both - gates_only], expected, rtol=1e-4)
    # -log gate of the supporting fact of each pass; the second story has one fact only
    supervised = -2.0 * np.log([gates[0, 0, 1], gates[0, 1, 0], gates[1, 0, 0]]).sum()
    np.testing.assert_allclose(gates_only, supervised, rtol=1e-4)
    assert not jax.tree.reduce(lambda found, leaf: found or np.any(leaf != 0), gradient["out"], False)
    for leaf in jax.tree.leaves(gradient["attention"]["map"]["score"]["vector"]["kernel"]) + jax.tree.leaves(
        whole["out"]
    ):
        assert np.any(leaf != 0)


@pytest.mark.slow
def test_without_supervision_the_gates_learn_from_the_answer():
    (nothing, _, gradient, _, _), (both, nll, whole, _, gates) = trained(0.0, True)
    assert nothing == 0 and all(np.all(leaf == 0) for leaf in jax.tree.leaves(gradient))
    assert both == nll and np.any(whole["attention"]["map"]["score"]["vector"]["kernel"] != 0)
    assert np.abs(gates.sum(-1) - 1).min() > 1e-3  # sigmoids, each on its own


@compiled
def by_passes(params, other):
    """Of a DMN of one and of two passes: answers. Of a DMN+, too, the second with `other` parameters."""
    results = []
    for build, second in ((functools.partial(dmn, embedding_size=3), params[0]), (dmn_plus, other)):
        first = params[0] if second is params[0] else params[1]
        for num_passes, p in ((1, first), (2, second)):
            module = build(**SMALL | dict(num_passes=num_passes))
            answer = module.apply({"params": p}, BATCH["source"], method="answer")
            results.append((answer.log_probs, answer.hops))
    return results


@pytest.mark.slow
def test_a_pass_whose_update_keeps_the_memory_is_none():
    """An update gate of one keeps it in a DMN; [I 0 0] does in a DMN+, whose memory is not negative."""
    first = params_for(dmn(**SMALL, embedding_size=3))
    first["update"]["input"]["bias"][4:8] = 100.0
    two = params_for(dmn_plus(**SMALL))
    kept = {"kernel": np.eye(12, 4, dtype=np.float32), "bias": np.zeros(4, np.float32)}
    one = two | {"update": {"layers_0": two["update"]["layers_0"]}}
    results = by_passes([first, one], two | {"update": two["update"] | {"layers_1": kept}})
    for (log_probs, hops), (same, both) in (results[:2], results[2:]):
        np.testing.assert_allclose(log_probs, same, atol=1e-5)
        np.testing.assert_allclose(hops[:, 0], both[:, 0], atol=1e-6)
    np.testing.assert_allclose(results[1][1][:, 1], results[1][1][:, 0], atol=1e-6)  # the memory is the question
    assert np.abs(results[3][1][:, 1] - results[3][1][:, 0]).max() > 1e-3  # it is not, after the first update
    changed = by_passes([first, one], two)
    assert np.abs(changed[3][0] - results[3][0]).max() > 1e-3
