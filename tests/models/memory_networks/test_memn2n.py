"""End-to-end memory networks: encodings and tying against their formulas, a story answered with weights set by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_stories import VOCABULARY, encode_stories

from attn_jax.attention import build_attention
from attn_jax.attention.normalizers import linear, sparsemax
from attn_jax.attention.scores import Dot
from attn_jax.models.memory_networks.base import StoryModel, find_sentences
from attn_jax.models.memory_networks.memn2n import MemN2N, noisy_ages
from attn_jax.outputs import FullSoftmax

V, N, D = len(VOCABULARY), 6, 4
STORY = "mary moved to the garden . john moved to the office . mary got the milk . where is mary ?"
SHORT = "john moved to the garden . where is john ?"
OUTPUT = FullSoftmax(vocab_size=V, tied=True, use_bias=False)
OPTIONS = dict(vocab_size=V, output=OUTPUT, features=D, num_hops=2, memory_size=N)
OF_ATTENTION = ("score", "normalize", "iterations", "top_keys", "difference", "fit", "gate")


def network(**options):
    """MemN2N, of its fields and those of its attention, by default softmax of the dot product."""
    parts = {name: options.pop(name) for name in OF_ATTENTION if name in options}
    return MemN2N(attention=build_attention(**dict(score=Dot()) | parts), **OPTIONS | options)


@pytest.fixture(scope="module")
def batch():
    return encode_stories([(STORY, "garden", (1,)), (SHORT, "garden", (1,)), ("where is mary ?", "office", ())])


def parameters(**options):
    module = network(**options)
    init = lambda rng: module.init(rng, jnp.zeros((1, 4), jnp.int32), method="answer")  # noqa: E731
    return module, fill(jax.eval_shape(init, jax.random.key(0))["params"], scale=1.0)


def reference(params, text, *, adjacent, position, nonlinear=False, empty=0):
    """Sukhbaatar 2015, equations 1 to 3, word by word in numpy."""
    *statements, question = [s.split() for s in text.removesuffix(" ?").split(" . ")]
    params = {name: np.asarray(value, np.float64) for name, value in params.items()}

    def embed(words, table):
        total = np.zeros(D)
        for j, word in enumerate(words, 1):
            for k in range(D):
                J = len(words)
                weight = 1 + 4 * (k + 1 - (D + 1) / 2) * (j - (J + 1) / 2) / (D * J) if position else 1
                total[k] += weight * table[VOCABULARY.encode(word)[0], k]
        return total

    def memory(i):
        ages = reversed(range(len(statements)))
        rows = [
            embed(words, params[f"embedding_{i}"]) + params[f"time_{i}"][age]
            for words, age in zip(statements, ages, strict=True)
        ]
        return np.array(rows + [np.zeros(D)] * max(0, empty - len(rows))).reshape(-1, D)

    u = embed(question, params["embedding_0"] if adjacent else params["question"])
    hops = []
    for hop in range(2):
        keys, values = memory(hop if adjacent else 0), memory(hop + 1 if adjacent else 1)
        p = np.exp(keys @ u - np.max(keys @ u, initial=-np.inf))
        p = p / p.sum()
        u = (u if adjacent else u @ params["between"]) + p @ values
        u = np.maximum(u, 0) if nonlinear else u
        hops.append(p)
    logits = u @ (params["embedding_2"] if adjacent else params["out"]).T
    return logits - np.log(np.sum(np.exp(logits))), hops


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"adjacent": True, "position_encoding": False},
        {"adjacent": False, "position_encoding": True, "nonlinear": True},
        {"adjacent": True, "position_encoding": True, "attend_empty": True},
    ],
    ids=["adjacent, bag", "layerwise, position, relu", "adjacent, position, empty slots"],
)
def test_the_equations_of_the_paper(options, batch):
    module, params = parameters(**options)
    answered = jax.jit(StoryModel(module).answer)(params, batch["source"])
    of_reference = {name: options.get(name, False) for name in ("adjacent", "nonlinear")}
    of_reference |= {"position": options["position_encoding"], "empty": N if "attend_empty" in options else 0}
    for row, text in enumerate((STORY, SHORT, "where is mary ?")):
        log_probs, hops = reference(params, text, **of_reference)
        np.testing.assert_allclose(answered.log_probs[row], log_probs, atol=2e-4)
        for hop, weights in enumerate(hops):
            np.testing.assert_allclose(answered.hops[row, hop, : len(weights)], weights, atol=1e-4)
            assert not np.any(answered.hops[row, hop, len(weights) :])


@pytest.mark.slow
def test_longer_padding_and_a_larger_memory_change_nothing(batch):
    module, params = parameters()
    answer = StoryModel(module).answer
    wider = dict(params) | {
        f"time_{i}": jnp.pad(params[f"time_{i}"], ((0, 3), (0, 0)), constant_values=9.0) for i in range(3)
    }
    large = StoryModel(network(memory_size=N + 3)).answer
    longer = jnp.pad(batch["source"], ((0, 0), (0, 5)))
    first, second = jax.jit(lambda: (answer(params, batch["source"]), large(wider, longer)))()
    np.testing.assert_allclose(first.log_probs, second.log_probs, atol=1e-5)
    np.testing.assert_allclose(first.hops, second.hops[..., :N], atol=1e-5)


def test_a_story_longer_than_the_memory_is_its_last_statements():
    module, params = parameters()
    many = " . ".join(["john got the milk"] * 3 + STORY.removesuffix(" . where is mary ?").split(" . ") * 2)
    texts = [f"{many} . where is mary ?", f"{' . '.join(many.split(' . ')[-N:])} . where is mary ?"]
    source = encode_stories([(text, "garden", ()) for text in texts])["source"]
    first, second = jax.jit(StoryModel(module).answer)(params, source).log_probs
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_linear_start_is_the_identity_as_normalizer_and_then_the_softmax(batch):
    module, params = parameters(linear_steps=3)

    def loss(module, step):
        return StoryModel(module).loss_fn(params, batch, jax.random.key(0), step)[0]

    plain, identity = network(), network(normalize=linear)
    values = jax.jit(lambda: [loss(module, 2), loss(module, 3), loss(identity, 0), loss(plain, 0)])()
    np.testing.assert_allclose(values[0], values[2], rtol=1e-5)
    np.testing.assert_allclose(values[1], values[3], rtol=1e-5)
    assert abs(values[0] - values[1]) > 1e-3


@pytest.mark.slow
def test_hops_of_tied_tables_that_keep_nothing_are_the_iterations_of_a_hopfield_network(batch):
    """Keys = values, and u <- 0 u + o: three hops are one hop of three iterations."""
    hops, params = parameters(adjacent=False, num_hops=3, normalize=sparsemax)
    iterated, _ = parameters(adjacent=False, num_hops=1, iterations=3, normalize=sparsemax)
    params |= {"embedding_1": params["embedding_0"], "time_1": params["time_0"]}
    params["between"] = np.zeros_like(params["between"])

    @compiled
    def read(params, source):
        return [module.apply({"params": params}, source, method="read") for module in (hops, iterated)]

    (found, weights), (expected, last) = read(params, batch["source"])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(weights[:, -1], last[:, 0], atol=1e-5)
    assert np.abs(weights[0, 0] - weights[0, -1]).max() > 1e-2


@pytest.mark.slow
def test_each_hop_may_have_an_attention_of_its_own(batch):
    """The weights of the first hop are those of its own normalizer, and what follows reads its context."""
    kinds = ("softmax", "sparsemax")
    several = tuple(build_attention(score=Dot(), normalize=kind) for kind in kinds)
    mixed, params = MemN2N(attention=several, **OPTIONS), parameters()[1]
    modules = {kind: network(normalize=kind) for kind in kinds} | {"mixed": mixed}

    @compiled
    def run(params):
        answer = lambda module: module.apply({"params": params}, batch["source"], method="answer")  # noqa: E731
        return {name: answer(module).hops for name, module in modules.items()}

    hops = run(params)
    np.testing.assert_allclose(hops["mixed"][:, 0], hops["softmax"][:, 0], atol=1e-6)
    assert np.any(hops["mixed"][:, 1] == 0, where=hops["softmax"][:, 1] > 0)  # sparse, unlike softmax
    with pytest.raises(ValueError, match="2 attentions for 3 hops; expected one for each"):
        MemN2N(attention=several, **OPTIONS | dict(num_hops=3))


@pytest.mark.slow
def test_empty_memories_stand_at_every_place_as_often():
    """Ages keep their order, and are shifted by at most a tenth (rounded up) of the statements.

    One on average, at one of 21 places: before the newest statement as often as after the oldest.
    """
    source = encode_stories([("mary moved to the garden . " * 20 + "where is mary ?", "garden", ())])["source"]
    places = find_sentences(source, 30)
    rngs = jax.random.split(jax.random.key(2), 8000)
    ages = jax.jit(jax.vmap(lambda rng: noisy_ages(rng, places, 0.1)))(rngs)
    shift = np.asarray(ages - places.age())[:, 0, :20]
    assert shift.min() == 0 and shift.max() == 2 and {0, 1, 2} == set(np.unique(shift[:, 0]))
    assert np.all(np.diff(shift, axis=1) <= 0)  # older statements, which stand first, are shifted more
    np.testing.assert_allclose(shift.mean(axis=0), np.arange(20, 0, -1) / 21, atol=0.025)


@pytest.mark.slow
def test_an_answer_never_seen_is_never_right(batch):
    module, params = parameters()
    params["embedding_2"] = np.zeros((V, D), np.float32)
    params["embedding_2"][1] = 1e3  # unk is by far the most probable
    unknown = dict(batch) | {"target_out": np.where(np.asarray(batch["target_out"]) > 5, 1, batch["target_out"])}
    assert compiled(StoryModel(module).eval_fn)(params, unknown)["accuracy"].total == 0
