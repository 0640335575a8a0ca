"""The Transformer: torch with the same weights, the cache against the whole pass, causality, padding, positions."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from tiny_seq2seq import EOS, PAD, TARGET_VOCAB, build, random_params, sentences

from attn_jax.attention import CAUSAL, MultiHead, build_attention
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.information import entropy
from attn_jax.attention.scores import ScaledDot
from attn_jax.decoding.beam_search import beam_search
from attn_jax.decoding.decode import greedy
from attn_jax.errors import UserError
from attn_jax.layers.positions import POSITIONS, NoPositions
from attn_jax.layers.transformer import TransformerLayer, TransformerStack
from attn_jax.models.base import shares
from attn_jax.models.module import BOTH

LENGTHS = [(7, 3), (4, 6), (1, 5), (0, 0)]  # source, target; the last row is padding
BATCH = sentences(LENGTHS, 8, 7)
REAL = BATCH["target_out"] != PAD
ON_DEVICE = jax.tree.map(jnp.asarray, BATCH)
SMALL_STACK = dict(hidden_size=8, num_heads=2, feed_forward_size=12, num_layers=1)
DOT = dict(score="scaled_dot")


def both(**options):
    """Options of the encoder and of the decoder; those that only a decoder can have are left out of the encoder."""
    of_decoder = ("short_convolution",)
    sides = {"encoder": {key: x for key, x in options.items() if key not in of_decoder}, "decoder": options}
    return {f"{side}__{key}": value for side, given in sides.items() for key, value in given.items()}


def decoder(**options):
    return {f"decoder__{key}": value for key, value in options.items()}


LAYERS = dict(num_heads=2, feed_forward_size=12, num_layers=1)
SMALL = dict(encoder="transformer", hidden_size=8, **both(**LAYERS))

# Each scheme of positions, both norms, shared keys, and scores and normalizers per head: each at least once.
# Of each side of a Transformer, or of a language model:
STACKS = {
    "post norm, sinusoidal": (dict(norm="post"), DOT),
    "rotary, shared keys": (dict(positions="rotary", num_heads=4, num_kv_heads=2), DOT),
    "convolution, keys": (dict(short_convolution=3, num_layers=2), DOT),
    "relative, sparsemax": (dict(positions="relative"), DOT | dict(normalize="sparsemax")),
    "alibi, additive": (dict(positions="alibi"), dict(score="additive")),
    "nape, gelu, 2 layers": (dict(positions="nape", activation="gelu", num_layers=2), DOT),
}
CASES = {name: SMALL | both(**options) | dict(attention=attention) for name, (options, attention) in STACKS.items()}
GATED = {"score": "qk_norm", "wrappers": ("softcap", "gate"), "wrappers.parts.softcap.softcap": 5.0}
CASES |= {
    "learned, tied": SMALL
    | both(positions="learned", positions__max_length=24)
    | dict(tie_embeddings=True, attention=DOT),
    "none, conv encoder": dict(
        encoder="conv", encoder__positions="none", hidden_size=8, **decoder(**LAYERS, positions="none"), attention=DOT
    ),
    "forgetting, stick-breaking, gates": SMALL
    | both(positions="forgetting")
    | dict(
        attention=GATED | dict(normalize="stick_breaking"),
        decoder__source_attention={
            "name": "map",
            "score": "qk_norm",
            "normalize": "learned_sink",
            "wrappers": {
                "pattern": ("softcap", "top_keys", "gate"),
                "parts": {"softcap": {"softcap": 5.0}, "top_keys": {"count": 3}},
            },
        },
    ),
    "difference of maps, lines": SMALL
    | both(num_kv_heads=1)
    | dict(
        attention=DOT,
        decoder__attention={"name": "map", "wrappers": ("difference",)} | DOT,
        decoder__source_attention={"name": "map", "wrappers": ("hopfield", "line")} | DOT,
    ),
    "recurrent encoder, selective": dict(
        encoder="lstm",
        hidden_size=8,
        **decoder(**LAYERS),
        attention=DOT,
        decoder__attention={"name": "map", "wrappers": ("selective",)} | DOT,
    ),
}
DECODERS = {
    name: SMALL_STACK | options | dict(attention=attention)
    for name, (options, attention) in STACKS.items()
    if name in ("post norm, sinusoidal", "rotary, shared keys", "convolution, keys")
}
DECODERS |= {
    "relative, selective": SMALL_STACK | dict(positions="relative", attention=DOT | dict(wrappers=("selective",)))
}
MODELS = {
    f"{kind}, {case}": (kind, options)
    for kind, cases in (("transformer", CASES), ("language_model", DECODERS))
    for case, options in cases.items()
}


@functools.cache
def model_of(name):
    """(model, params) of a case."""
    kind, options = MODELS[name]
    model = build(name=kind, **options)
    return model, random_params(model, BATCH, scale=0.4)


def whole(model, params, batch):
    """log_probs [b, t, v] of one pass over the target."""

    def run(module, batch):
        states, _ = module.unroll(batch["source"], batch["target_in"])
        return module.log_probs(states)

    return model.module.apply({"params": params}, batch, method=run)


def step_by_step(model, params, batch):
    memory, state = model.start(params, batch["source"], batch["target_in"].shape[1])
    _, log_probs = jax.lax.scan(functools.partial(model.step, params, memory), state, batch["target_in"].T)
    return jnp.swapaxes(log_probs, 0, 1)


@functools.cache
def measured(name):
    model, params = model_of(name)

    @compiled
    def run(params, batch):
        longer = {key: jnp.pad(value, ((0, 0), (0, 3))) for key, value in batch.items()}
        later = batch | {"target_in": batch["target_in"].at[:, 4].set(9)}
        return {
            "whole": whole(model, params, batch),
            "steps": step_by_step(model, params, batch),
            "eval": model.eval_fn(params, batch),
            "train": model.loss_fn(params, batch, jax.random.key(0)),
            "longer": model.eval_fn(params, longer),
            "weights": model.attention_weights(params, batch),
            "later": whole(model, params, later),
        }

    return run(params, ON_DEVICE)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_cached_steps_are_the_whole_pass(name):
    result = measured(name)
    assert result["whole"][REAL].std() > 0.1
    np.testing.assert_allclose(result["steps"][REAL], result["whole"][REAL], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_loss_is_that_of_the_log_probs_and_longer_padding_changes_nothing(name):
    result = measured(name)
    nll = -np.take_along_axis(result["whole"], BATCH["target_out"][..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(result["eval"]["loss"].total, nll[REAL].sum(), rtol=1e-5)
    np.testing.assert_allclose(result["train"][0], nll[REAL].sum(), rtol=1e-5)
    np.testing.assert_allclose(result["longer"]["loss"].total, nll[REAL].sum(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_seen_of_later_tokens(name):
    result = measured(name)
    np.testing.assert_allclose(result["later"][:, :4], result["whole"][:, :4], atol=1e-5)
    assert np.abs(result["later"][1, 4:6] - result["whole"][1, 4:6]).max() > 1e-2


def test_weights_are_those_over_the_source():
    weights = measured("transformer, post norm, sinusoidal")["weights"]
    np.testing.assert_allclose(weights[REAL].sum(-1), 1, rtol=1e-5)
    assert np.all(np.moveaxis(weights, 1, 2)[BATCH["source"] == PAD] == 0)
    inside = measured("language_model, post norm, sinusoidal")["weights"]
    assert np.all(inside[REAL].sum(-1) < 1) and np.all(inside[REAL].sum(-1) > 0)
    assert np.all(np.moveaxis(inside, 1, 2)[BATCH["source"] == PAD] == 0)


@pytest.mark.slow
def test_dropout_and_remat():
    """Dropout is a function of its rng, and computing activations again changes neither the loss nor the gradient."""
    options = SMALL | dict(name="transformer", dropout=0.3, attention=DOT | dict(dropout=0.2))
    plain, again = build(**options), build(**both(remat=True), **options)
    params = random_params(plain, BATCH, scale=0.4)

    def run(model):
        value = jax.value_and_grad(lambda p, seed: model.loss_fn(p, ON_DEVICE, jax.random.key(seed))[0])
        return compiled(lambda p, seed: value(p, seed))

    first, second = run(plain)(params, 0), run(plain)(params, 1)
    assert abs(first[0] - second[0]) > 1e-2
    repeated = run(again)(params, 0)
    for got, expected in zip(jax.tree.leaves(repeated), jax.tree.leaves(first), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
    evaluated = [float(compiled(model.eval_fn)(params, ON_DEVICE)["loss"].total) for model in (plain, again)]
    assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-6) and abs(first[0] - evaluated[0]) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "language_model"])
def test_remat_computes_each_layer_again(name):
    """One checkpoint for each layer in the program of the gradient, and the same parameters."""
    layers = LAYERS | dict(num_layers=2)
    of = decoder if name == "transformer" else dict
    options = dict(name=name, hidden_size=8, **of(**layers), attention=DOT)
    models = {remat: build(**of(remat=remat), **options) for remat in (False, True)}
    params = {remat: jax.eval_shape(model.init, jax.random.key(0), BATCH) for remat, model in models.items()}
    assert params[False] == params[True]
    for remat, model in models.items():
        loss = lambda p, model=model: model.loss_fn(p, ON_DEVICE, jax.random.key(0))[0]  # noqa: E731
        program = jax.make_jaxpr(jax.grad(loss))(params[remat])
        count = str(program).count("remat")
        assert (count > 0) == remat


BY_DISTANCE = ("none", "relative", "alibi", "nape", "forgetting")


def by_blocks(positions, length, block_size, remat=False, groups=2):
    """(a causal stack of one layer, its total over all outputs as a function of parameters and inputs)."""

    def make_heads():
        forget_heads = (groups or 4) if positions == "forgetting" else 0
        attention = build_attention(
            score="scaled_dot", normalize="sparsemax", block_size=block_size, forget_heads=forget_heads
        )
        return MultiHead(attention=attention, num_heads=4, num_kv_heads=groups, features=8, order=CAUSAL)

    def make_layer():
        return TransformerLayer(make_attention=make_heads, features=8, feed_forward_size=8)

    scheme = POSITIONS[positions](num_heads=4, causal=True)
    stack = TransformerStack(make_layer=make_layer, positions=scheme, num_layers=1, features=8, remat=remat)

    def total(params, x):
        mask = jnp.arange(length) < jnp.array([[length], [length - 2]])
        return jnp.sum(jnp.sin(stack.apply(params, x, mask)[1]))

    return stack, total


@pytest.mark.slow
@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize("positions", BY_DISTANCE)
def test_positions_by_blocks_are_those_of_all_scores_at_once(positions, groups):
    """Also where activations are computed again, and with an axis of seeds over parameters and inputs."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 7, 8)), jnp.float32)
    stack, whole = by_blocks(positions, 7, 0, groups=groups)
    params = params_of(stack, x[0], jnp.ones((2, 7), bool))
    params = {"params": jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), params)}
    gradients = lambda total: compiled(jax.vmap(jax.value_and_grad(total, argnums=(0, 1))))(params, x)  # noqa: E731
    expected = gradients(whole)
    for remat in (False, True):
        found = gradients(by_blocks(positions, 7, 3, remat, groups)[1])
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("positions", BY_DISTANCE)
def test_positions_by_blocks_need_no_array_of_all_pairs(positions):
    length = 1024
    x = jax.ShapeDtypeStruct((2, length, 8), jnp.float32)

    def program(block_size):
        stack, total = by_blocks(positions, length, block_size)
        params = jax.eval_shape(stack.init, jax.random.key(0), x, jax.ShapeDtypeStruct((2, length), jnp.bool_))
        return jax.jit(jax.grad(total)).lower(params, x).compile().as_text()

    assert "1024,1024" in program(0) and "1024,1024" not in program(128)


@pytest.mark.slow
def test_what_dropout_takes_out():
    """Between the embedding and the first layer, in each part that is added to x, and inside the feed forward."""
    x, mask = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 8)), jnp.float32), jnp.ones((2, 8), bool)
    places = jnp.broadcast_to(jnp.arange(8), (2, 8))
    heads = functools.partial(MultiHead, attention=build_attention(score=ScaledDot()), num_heads=2, features=8)

    def layer(rate):
        return TransformerLayer(
            make_attention=heads, features=8, feed_forward_size=8, make_source_attention=heads, dropout=rate
        )

    def of_layer(module, x, source, train=False):
        memory = module.source_attention.prepare(source, key_mask=mask)
        return module(x, key_mask=mask, positions=places, source=memory, train=train)[0]

    params = params_of(layer(0.0), x, x, method=of_layer)
    # The feed forward hands on what is positive in it, and all of that comes from a bias.
    params["inner"] = {"kernel": np.zeros((8, 8), np.float32), "bias": np.arange(1, 9, dtype=np.float32)}
    params["outer"] = {"kernel": np.eye(8, dtype=np.float32), "bias": np.zeros(8, np.float32)}
    silent = params | {
        name: jax.tree.map(np.zeros_like, params[name]) for name in ("self_attention", "source_attention")
    }
    parts = dict(make_layer=lambda: layer(0.0), positions=NoPositions(), num_layers=1, features=8)
    stack = TransformerStack(**parts, dropout=1.0)
    stack_params = params_of(TransformerStack(**parts), x, mask)

    @compiled
    def run(params, silent, stack_params):
        rngs = {"dropout": jax.random.key(0)}
        apply = lambda rate, p, train: layer(rate).apply({"params": p}, x, x, train, rngs=rngs, method=of_layer)  # noqa: E731
        embedded = [
            stack.apply({"params": stack_params}, y, mask, train=train, rngs=rngs)[1]
            for y in (x, -x)
            for train in (True, False)
        ]
        return apply(1.0, params, True), apply(1.0, params, False), apply(0.5, silent, True), embedded

    nothing_added, evaluated, half, (blind, seen, as_blind, other) = run(params, silent, stack_params)
    np.testing.assert_array_equal(nothing_added, x)
    assert np.abs(evaluated - x).min() > 1e-4
    # Dropped twice, inside and as a part: what is left of b is 4 b, a quarter of the time.
    ratio = (half - x) / params["inner"]["bias"]
    assert np.all(np.isclose(ratio, 0, atol=1e-5) | np.isclose(ratio, 4, atol=1e-5))
    assert 0.1 < np.mean(ratio > 2) < 0.4
    np.testing.assert_array_equal(blind, as_blind)  # nothing of what is embedded is left
    assert np.abs(seen - other).max() > 1e-2


def test_every_stack_has_dropout_in_all_its_places():
    """In training alone, at the rate of the config."""
    model = build(name="transformer", dropout=0.3, **SMALL, attention=DOT)
    params = random_params(model, BATCH)
    rates = []

    def spy(call, args, kwargs, context):
        if isinstance(context.module, Dropout) and not kwargs["deterministic"]:
            rates.append(context.module.rate)
        return call(*args, **kwargs)

    with nn.intercept_methods(spy):
        jax.eval_shape(model.eval_fn, params, BATCH)
        assert not rates
        jax.eval_shape(model.loss_fn, params, BATCH, jax.random.key(0))
    # The encoder: embedding, attention, inside and after the feed forward; the decoder: its source as well.
    assert rates == [0.3] * (4 + 5)


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_biases_of_distance_are_not_rounded_in_bfloat16(positions):
    """In bfloat16 a distance of 601 would be 600, and the score of its key the same as that of the next."""
    model = build(name="transformer", dtype="bfloat16", **SMALL, attention=DOT, **both(positions=positions))
    scheme = model.module.encoder.positions
    of_distance = lambda module, distance: module.of_distance(distance)  # noqa: E731
    at_zero, _ = scheme.init_with_output(jax.random.key(0), jnp.arange(700)[None], method=of_distance)
    assert at_zero.dtype == jnp.float32
    if positions == "alibi":
        np.testing.assert_allclose(at_zero[:, 0, 600] - at_zero[:, 0, 601], scheme.slopes(), rtol=1e-4)


@pytest.mark.slow
def test_bfloat16_is_near_float32():
    half = build(name="transformer", dtype="bfloat16", **SMALL, attention=DOT)
    full, params = model_of("transformer, post norm, sinusoidal")
    full = build(name="transformer", **SMALL, attention=DOT)
    params = random_params(full, BATCH, scale=0.2)
    losses = [float(compiled(model.eval_fn)(params, BATCH)["loss"].total) for model in (full, half)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.02)
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_the_entropy_of_weights_in_bfloat16_is_computed_in_float32():
    model = build(name="transformer", dtype="bfloat16", **SMALL, attention=DOT)
    params = random_params(model, BATCH)
    weights = compiled(model.attention_weights)(params, BATCH)
    assert weights.dtype == jnp.bfloat16
    found = compiled(model.eval_each)(params, BATCH)["attention_entropy"]
    each = entropy(shares(jnp.asarray(weights, jnp.float32))) * (BATCH["target_out"] != PAD)
    np.testing.assert_allclose(found.total, each.sum(-1), rtol=1e-6)


@pytest.mark.slow
def test_greedy_is_a_beam_of_one_and_its_score_is_the_models():
    model, params = model_of("transformer, rotary, shared keys")
    source = ON_DEVICE["source"][:3]
    options = dict(max_length=12, limits=np.array([12, 12, 12], np.int32), bos=2, eos=EOS, pad=PAD)

    @jax.jit
    def run(params):
        step = functools.partial(model.step_top_k, params)
        return greedy(step, *model.start(params, source, 12), **options), beam_search(
            step, *model.start(params, source, 12), beam_size=3, **options
        )

    one, three = jax.device_get(run(params))
    assert np.all(three.log_prob[:, 0] >= one.log_prob - 1e-5)
    for row in range(3):
        tokens = three.tokens[row, 0]
        target = {"target_out": tokens[None], "target_in": np.concatenate([[2], tokens[:-1]])[None].astype(np.int32)}
        target["target_in"] = np.where(target["target_out"] == PAD, PAD, target["target_in"])
        score = compiled(model.score)(params, {"source": source[row : row + 1], **target})
        np.testing.assert_allclose(score[0], three.log_prob[row, 0], atol=1e-4)


def test_a_language_model_goes_on_from_a_prompt():
    """Given p1 p2 to go on from, it says what it would say after p1 p2 of a target with an empty source."""
    options = dict(continue_source=True, share_embeddings=False, source_vocab=TARGET_VOCAB, **SMALL_STACK)
    model = build(name="language_model", **options, attention=DOT)
    params = random_params(model, BATCH, scale=0.4)
    prompts = jnp.array([[5, 7, EOS, PAD], [9, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]], jnp.int32)
    said = jnp.array([[2, 2, 2], [6, 6, 6]], jnp.int32)  # bos, and a token
    targets = jnp.array([[2, 5, 7, 6], [2, 9, 6, 0], [2, 6, 0, 0]], jnp.int32)

    @compiled
    def run(params):
        memory, state = model.start(params, prompts)
        _, log_probs = jax.lax.scan(functools.partial(model.step, params, memory), state, said)
        empty = jnp.full((3, 1), EOS, jnp.int32)
        return log_probs, whole(model, params, {"source": empty, "target_in": targets})

    (first, second), expected = run(params)
    for row, length in enumerate([2, 1, 0]):
        np.testing.assert_allclose(first[row], expected[row, length], atol=2e-5)
        np.testing.assert_allclose(second[row], expected[row, length + 1], atol=2e-5)


@pytest.mark.slow
def test_a_target_that_goes_on_from_a_prompt_has_the_probability_of_decoding():
    """And its weights on the prompt are those that the text as a whole has there."""
    options = dict(continue_source=True, share_embeddings=False, source_vocab=TARGET_VOCAB, **SMALL_STACK)
    model = build(name="language_model", **options, attention=DOT)
    params = random_params(model, BATCH, scale=0.4)
    source = jnp.array([[5, 7, EOS, PAD], [9, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]], jnp.int32)
    target = jnp.array([[6, 8, EOS], [10, EOS, PAD], [6, 9, EOS]], jnp.int32)
    batch = {"source": source, "target_out": target}
    batch["target_in"] = jnp.concatenate([jnp.full((3, 1), 2), target[:, :-1]], axis=1) * (target != PAD)
    joined = jnp.array([[2, 5, 7, 6, 8], [2, 9, 10, PAD, PAD], [2, 6, 9, PAD, PAD]], jnp.int32)

    @compiled
    def run(params):
        memory, state = model.start(params, source)
        _, steps = jax.lax.scan(functools.partial(model.step, params, memory), state, batch["target_in"].T)
        text = {"source": jnp.full((3, 1), EOS, jnp.int32), "target_in": joined, "target_out": joined}
        whole_text = model.maps(params, text)[BOTH][:, 0]
        return steps, model.score(params, batch), model.attention_weights(params, batch), whole_text.mean(axis=1)

    steps, scores, weights, expected = run(params)
    own = np.take_along_axis(steps, np.asarray(target.T)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(scores, (own * (target.T != PAD)).sum(axis=0), rtol=1e-4)
    for row, n in enumerate((2, 1, 0)):
        for t in range(3 if row != 1 else 2):
            read = [*expected[row, n + 1 + t, 2 : n + 2], expected[row, n + 1 + t, 0]]  # the prompt, then eos
            np.testing.assert_allclose(weights[row, t], read + [0] * (3 - n), atol=1e-5)


# the short convolution


@pytest.mark.slow
def test_the_input_of_self_attention_is_mixed_over_the_last_positions():
    """With w_0 = 0.5, w_1 = 2 and no other weight the layer attends to 1.5 x_t + 2 x_{t-1}."""
    width, convolution = 8, 3
    heads = MultiHead(attention=build_attention(score=ScaledDot()), num_heads=2, features=width, order=CAUSAL)
    parts = dict(make_attention=lambda: heads, features=width, feed_forward_size=12, norm_first=False)
    x = jax.random.normal(jax.random.key(0), (2, 5, width))
    real = jnp.arange(5) < jnp.array([[5], [3]])
    arguments = dict(key_mask=real, positions=jnp.broadcast_to(jnp.arange(5), (2, 5)))
    params = params_of(TransformerLayer(**parts, convolution=convolution), x, **arguments)
    params["convolve"]["kernel"] = jnp.array([0.5, 2.0, 0.0])[:, None] * jnp.ones(width)
    plain = {name: value for name, value in params.items() if name != "convolve"}

    layer = TransformerLayer(**parts, convolution=convolution)
    _, memory, read = layer.apply({"params": params}, x, **arguments)
    mixed = 1.5 * x + 2 * jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    _, expected_memory, expected = TransformerLayer(**parts).apply({"params": plain}, mixed, **arguments)
    np.testing.assert_allclose(read.own.context[real], expected.own.context[real], atol=1e-5)
    np.testing.assert_array_equal(memory.cache.positions, expected_memory.positions)
    np.testing.assert_array_equal(memory.recent, jnp.stack([x[0, 3:5], x[1, 1:3]]))


def test_a_convolution_is_of_causal_attention_alone():
    model, params = model_of("transformer, convolution, keys")
    assert "convolve" in params["decoder"]["layers_0"] and "convolve" not in params["encoder"]["layers_0"]
    assert model.module.decoder.make_layer().convolution == 3


# torch


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [False, True])
def test_torch_encoder_layer_with_the_same_weights(norm_first):
    torch = pytest.importorskip("torch")
    width, heads, inner = 8, 2, 12
    layer = TransformerLayer(
        make_attention=lambda: MultiHead(attention=build_attention(score=ScaledDot()), num_heads=heads, features=width),
        features=width,
        feed_forward_size=inner,
        norm_first=norm_first,
    )
    x = np.random.default_rng(0).normal(size=(2, 5, width)).astype(np.float32)
    mask = np.arange(5) < np.array([[5], [3]])
    positions = jnp.zeros((2, 5), jnp.int32)
    arguments = dict(key_mask=jnp.asarray(mask), positions=positions)
    params = params_of(layer, jnp.asarray(x), **arguments)
    theirs = torch.nn.TransformerEncoderLayer(width, heads, inner, 0.0, batch_first=True, norm_first=norm_first).eval()
    tensor = lambda x: torch.tensor(np.asarray(x))  # noqa: E731
    own = params["self_attention"]
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(
            tensor(np.concatenate([own[n]["kernel"].T for n in ("query", "key", "value")]))
        )
        theirs.self_attn.in_proj_bias.copy_(tensor(np.concatenate([own[n]["bias"] for n in ("query", "key", "value")])))
        for ours, module in [
            (own["out"], theirs.self_attn.out_proj),
            (params["inner"], theirs.linear1),
            (params["outer"], theirs.linear2),
        ]:
            module.weight.copy_(tensor(ours["kernel"].T))
            module.bias.copy_(tensor(ours["bias"]))
        for ours, module in [(params["self_norm"], theirs.norm1), (params["feed_forward_norm"], theirs.norm2)]:
            module.weight.copy_(tensor(ours["scale"]))
            module.bias.copy_(tensor(ours["bias"]))
    source = torch.tensor(x, requires_grad=True)
    expected = theirs(source, src_key_padding_mask=tensor(~mask))
    (expected * tensor(mask)[..., None]).square().sum().backward()

    def run(x):
        out = layer.apply({"params": params}, x, **arguments)[0]
        return jnp.sum((out * mask[..., None]) ** 2), out

    (_, got), gradient = compiled(jax.value_and_grad(run, has_aux=True))(jnp.asarray(x))
    np.testing.assert_allclose(got[mask], expected.detach().numpy()[mask], atol=1e-5)
    np.testing.assert_allclose(gradient, source.grad.numpy(), rtol=1e-3, atol=1e-4)


# What a user may get wrong


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(decoder__num_heads=3), "num_heads 3 does not divide the width 8; the nearest that does is 2"),
        (both(positions="rotary", num_heads=8), "rotary need heads of even width, got 1"),
        (
            dict(both(positions="rotary", num_heads=4), attention=dict(wrappers=("difference",))),
            "heads of even width, got 1, of which a difference has two",
        ),
        (both(positions="rotry"), "did you mean rotary"),
        (dict(share_embeddings=True), "needs one vocabulary, but the source has 13 tokens and the target 11"),
        (
            dict(name="language_model", continue_source=True),
            "continue_source needs one vocabulary, but the source has 13 tokens and the target 11",
        ),
        # At once, not in the first layer:
        (dict(attention=dict(wrappers=("difference", "line"))), "fit=LocalLine needs"),
        (dict(decoder__norm="before"), "unknown model.decoder.norm 'before'"),
        (dict(encoder="conv", encoder__kernel_size=4), "model.encoder.kernel_size 4 is even"),
        (dict(encoder="conv", encoder__positions="rotary"), "expected none, sinusoidal, learned"),
        (dict(attention=dict(read="reinforce")), "unknown model.attention.read 'reinforce'"),
        (dict(decoder__num_kv_heads=3), "num_kv_heads 3"),
    ],
)
def test_errors(options, message):
    small = SMALL_STACK if "name" in options else SMALL
    if options.get("encoder") == "conv":
        small = dict(hidden_size=8, **decoder(**LAYERS))
    options = small | dict(name="transformer") | options
    options["attention"] = DOT | options.get("attention", {})
    with pytest.raises(UserError, match=message):
        build(**options)


def test_a_sequence_longer_than_the_learned_positions():
    model = build(name="transformer", **both(positions="learned", positions__max_length=6), **SMALL, attention=DOT)
    with pytest.raises(UserError, match=r"a sequence of [78] tokens, but there are 6 learned positions; set a larger"):
        jax.eval_shape(model.init, jax.random.key(0), ON_DEVICE)
    model = build(name="transformer", **both(positions="learned", positions__max_length=20), **SMALL, attention=DOT)
    params = jax.eval_shape(model.init, jax.random.key(0), ON_DEVICE)
    with pytest.raises(UserError, match=r"a sequence of 30 tokens, but there are 20 learned positions"):
        jax.eval_shape(functools.partial(model.start, length=30), params, ON_DEVICE["source"])


@pytest.mark.slow
def test_each_attention_of_a_layer_samples_if_it_does():
    """The source attention samples in training, whatever the self-attention does."""
    heads = lambda read: MultiHead(attention=build_attention(score="scaled_dot", read=read), num_heads=2, features=8)  # noqa: E731
    layer = TransformerLayer(
        make_attention=lambda: heads("expectation"),
        make_source_attention=lambda: heads("reinforce"),
        features=8,
        feed_forward_size=8,
    )
    x = jax.random.normal(jax.random.key(0), (1, 5, 8))
    arguments = dict(key_mask=jnp.ones((1, 5), bool), positions=jnp.arange(5)[None])

    def run(layer, x, train):
        source = layer.source_attention.prepare(x)
        return layer(x, source=source, train=train, **arguments)[2].source.context

    params = layer.init(jax.random.key(1), x, False, method=run)
    contexts = {
        float(layer.apply(params, x, True, method=run, rngs={"sample": jax.random.key(seed)}).sum())
        for seed in range(4)
    }
    assert len(contexts) > 1
