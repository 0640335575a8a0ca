"""The adaptive softmax against torch, and against its definition; its cut points against all others."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.outputs import AdaptiveSoftmax, FullSoftmax
from attn_jax.outputs.adaptive import Ranks, for_rows
from attn_jax.outputs.clusters import candidates, cut_points
from attn_jax.outputs.frequencies import Frequencies

VOCAB, WIDTH, N = 23, 16, 37
RNG = np.random.default_rng(0)
COUNTS = RNG.permutation(np.round(1000 / np.arange(1, VOCAB + 1))).astype(int)
HIDDEN = RNG.normal(size=(N, WIDTH)).astype(np.float32)
TARGETS = RNG.integers(0, VOCAB, N)


def layer(cutoffs=(4, 9), order=None, **options):
    ranks = Ranks(Frequencies(COUNTS).order if order is None else order)
    return AdaptiveSoftmax(vocab_size=VOCAB, ranks=ranks, cutoffs=cutoffs, **options)


def params(layer):
    return {"params": params_of(layer, jnp.asarray(HIDDEN), jnp.asarray(TARGETS), method="loss")}


@pytest.mark.slow
def test_it_is_that_of_torch():
    torch = pytest.importorskip("torch")
    ours = layer(order=np.arange(VOCAB), div_value=2.0)
    given = params(ours)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(WIDTH, VOCAB, cutoffs=[4, 9], div_value=2.0)
    weights = {name: torch.tensor(np.asarray(x).T) for name, x in given["params"].items()}
    names = {"head.weight": "head"} | {
        f"tail.{i}.{j}.weight": f"{part}_{i}" for i in (0, 1) for j, part in enumerate(("down", "tail"))
    }
    theirs.load_state_dict({theirs_name: weights[name] for theirs_name, name in names.items()})
    hidden = torch.tensor(HIDDEN, requires_grad=True)
    out = theirs(hidden, torch.tensor(TARGETS))
    out.output.sum().backward()
    log_probs = compiled(lambda hidden: ours.apply(given, hidden, method="log_probs"))(HIDDEN)
    np.testing.assert_allclose(log_probs, theirs.log_prob(hidden).detach().numpy(), rtol=1e-4, atol=1e-5)
    loss = lambda given, hidden: jnp.sum(ours.apply(given, hidden, jnp.asarray(TARGETS), method="loss")[1])  # noqa: E731
    value, (of_params, of_hidden) = compiled(jax.value_and_grad(loss, (0, 1)))(given, HIDDEN)
    np.testing.assert_allclose(value, -out.output.sum().item(), rtol=1e-5)
    np.testing.assert_allclose(-of_hidden, hidden.grad.numpy(), rtol=1e-3, atol=1e-5)
    gradients = dict(theirs.named_parameters())
    for theirs_name, name in names.items():
        np.testing.assert_allclose(
            -of_params["params"][name].T, gradients[theirs_name].grad.numpy(), rtol=1e-3, atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize("cutoffs", [(4, 9), (1,), (3, 4, 5, 22)])
def test_probabilities_sum_to_one_and_the_methods_agree(cutoffs):
    softmax = layer(cutoffs)
    given = params(softmax)

    @compiled
    def run(hidden, targets):
        call = lambda hidden, *args, method: softmax.apply(given, hidden, *args, method=method)  # noqa: E731
        best = {k: lambda hidden, k=k: call(hidden, k, method="top_k") for k in (1, 5, VOCAB)}
        found = {k: (top_k(hidden), jax.vmap(top_k)(hidden)) for k, top_k in best.items()}
        return call(hidden, method="log_probs"), call(hidden, targets, method="loss")[1], found

    log_probs, nll, best = run(HIDDEN, TARGETS)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(nll, -log_probs[np.arange(N), TARGETS], rtol=1e-4, atol=1e-5)
    for k, both in best.items():
        for values, words in both:
            np.testing.assert_allclose(values, -np.sort(-log_probs, axis=-1)[:, :k], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(np.take_along_axis(log_probs, words, -1), values, rtol=1e-4, atol=1e-5)


def test_a_short_list_of_all_words_but_one_is_the_full_softmax():
    """One word alone in the cluster has probability one there."""
    softmax = layer((VOCAB - 1,), order=np.arange(VOCAB))
    given = params(softmax)
    full = FullSoftmax(vocab_size=VOCAB, use_bias=False)
    expected = full.apply(
        {"params": {"dense": {"kernel": given["params"]["head"]}}}, jnp.asarray(HIDDEN), method="log_probs"
    )
    log_probs = softmax.apply(given, jnp.asarray(HIDDEN), method="log_probs")
    np.testing.assert_allclose(log_probs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_order_of_the_vocabulary_does_not_matter():
    """Renaming the words by frequency gives the layer in which word i has rank i."""
    by_count, sorted_layer = layer(), layer(order=np.arange(VOCAB))
    given, order = params(by_count), Frequencies(COUNTS).order.tolist()
    ranks = [order.index(word) for word in TARGETS]
    loss = lambda layer, words: layer.apply(given, jnp.asarray(HIDDEN), words, method="loss")[1]  # noqa: E731
    nll, expected = compiled(lambda *x: (loss(by_count, x[0]), loss(sorted_layer, x[1])))(TARGETS, np.array(ranks))
    np.testing.assert_array_equal(nll, expected)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_for_rows_is_the_function_on_its_own_rows_and_zero_elsewhere(share):
    own = RNG.random(N) < share
    params = {"w": jnp.asarray(RNG.normal(size=WIDTH), jnp.float32)}
    function = lambda params, x, index: jnp.tanh(x @ params["w"]) * index  # noqa: E731
    weights = jnp.asarray(RNG.normal(size=N), jnp.float32)

    def through(params, x):
        return jnp.sum(weights * for_rows(function, params, x, jnp.asarray(TARGETS), jnp.asarray(own)))

    def plain(params, x):
        return jnp.sum(weights * jnp.where(own, function(params, x, jnp.asarray(TARGETS)), 0.0))

    found, expected = (compiled(jax.value_and_grad(f, (0, 1)))(params, HIDDEN) for f in (through, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
    several = compiled(jax.vmap(jax.value_and_grad(through, (0, 1)), (None, 0)))(params, np.stack([HIDDEN, -HIDDEN]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-4, atol=1e-5), several, expected)


@pytest.mark.parametrize("num_clusters", [1, 2, 3])
def test_cut_points_are_the_cheapest(num_clusters):
    frequencies, size = Frequencies(COUNTS), VOCAB
    probs = np.sort(COUNTS)[::-1] / COUNTS.sum()

    def cost(cuts):
        clusters = itertools.pairwise((*cuts, size))
        return cuts[0] + num_clusters + sum(probs[start:end].sum() * (end - start) for start, end in clusters)

    best = min(itertools.combinations(range(1, size), num_clusters), key=cost)
    np.testing.assert_allclose(cost(cut_points(frequencies, num_clusters)), cost(best))


def test_cut_points_of_a_large_vocabulary_are_fewer_than_all():
    grid = candidates(50_000)
    assert len(grid) <= 201 and grid[-1] == 50_000 and np.all(np.diff(grid) > 0)
    cuts = cut_points(Frequencies(np.round(1e9 / np.arange(1, 50_001)).astype(int)), 3)
    assert len(cuts) == 3 and 500 < cuts[0] < cuts[1] < cuts[2] < 50_000
