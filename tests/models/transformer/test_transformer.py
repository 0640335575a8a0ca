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

# Each scheme of positions, both norms, shared keys, and scores, normalizers and wrappers: each at least once.
# Of each side of a Transformer, or of a language model:
STACKS = {
    "post norm, sinusoidal": (dict(norm="post"), DOT),
    "rotary, shared keys, convolution": (
        dict(positions="rotary", num_heads=4, num_kv_heads=2, short_convolution=3),
        DOT,
    ),
    "relative, sparsemax": (dict(positions="relative"), DOT | dict(normalize="sparsemax")),
    "nape, gelu, 2 layers": (dict(positions="nape", activation="gelu", num_layers=2), DOT),
}
CASES = {name: SMALL | both(**options) | dict(attention=attention) for name, (options, attention) in STACKS.items()}
SOFTCAP = {"softcap": {"softcap": 5.0}}
CASES |= {
    "alibi, difference of maps, lines": SMALL
    | both(positions="alibi", num_kv_heads=1)
    | dict(
        attention=dict(score="additive"),
        decoder__attention={"name": "map", "score": "additive", "wrappers": ("difference",)},
        decoder__source_attention={"name": "map", "wrappers": ("hopfield", "line")} | DOT,
    ),
    "learned, tied, conv encoder": dict(encoder="conv", encoder__positions="learned", hidden_size=8)
    | dict(encoder__positions__max_length=24, tie_embeddings=True, attention=DOT)
    | decoder(**LAYERS, positions="learned", positions__max_length=24),
    "forgetting, stick-breaking, gates": SMALL
    | both(positions="forgetting")
    | dict(
        attention={"score": "qk_norm", "normalize": "stick_breaking", "wrappers": ("softcap", "gate")}
        | {"wrappers.parts.softcap.softcap": 5.0},
        decoder__source_attention={
            "name": "map",
            "score": "qk_norm",
            "normalize": "learned_sink",
            "wrappers": {"pattern": ("softcap", "top_keys", "gate"), "parts": SOFTCAP | {"top_keys": {"count": 3}}},
        },
    ),
    "no positions, recurrent encoder, selective": dict(encoder="lstm", hidden_size=8, attention=DOT)
    | decoder(**LAYERS, positions="none", attention={"name": "map", "wrappers": ("selective",)} | DOT),
}
DECODERS = {name: SMALL_STACK | STACKS[name][0] | dict(attention=DOT) for name in list(STACKS)[:2]}
DECODERS["relative, selective"] = SMALL_STACK | dict(
    positions="relative", attention=DOT | dict(wrappers=("selective",))
)
MODELS = {f"transformer, {case}": ("transformer", options) for case, options in CASES.items()}
MODELS |= {f"language_model, {case}": ("language_model", options) for case, options in DECODERS.items()}


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
        targets = jnp.stack([batch["target_in"], batch["target_in"].at[:, 4].set(9)])
        return {
            "whole": jax.vmap(lambda target_in: whole(model, params, batch | {"target_in": target_in}))(targets),
            "steps": step_by_step(model, params, batch),
            "train": model.loss_fn(params, batch, jax.random.key(0))[0],
            "longer": model.eval_fn(params, longer)["loss"].total,
        }

    return run(params, ON_DEVICE)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_steps_losses_and_padding_are_those_of_the_whole_pass_which_sees_no_later_token(name):
    result = measured(name)
    found, later = result["whole"]
    assert found[REAL].std() > 0.1
    np.testing.assert_allclose(result["steps"][REAL], found[REAL], atol=2e-5)
    nll = -np.take_along_axis(found, BATCH["target_out"][..., None], axis=-1)[..., 0]
    np.testing.assert_allclose([result["train"], result["longer"]], nll[REAL].sum(), rtol=1e-5)
    np.testing.assert_allclose(later[:, :4], found[:, :4], atol=1e-5)
    assert np.abs(later[1, 4:6] - found[1, 4:6]).max() > 1e-2


def test_weights_are_those_over_the_source():
    """Those of a language model, which also reads the target, sum to less than one."""
    (model, params), (one_stack, others) = (
        model_of(f"{kind}, post norm, sinusoidal") for kind in ("transformer", "language_model")
    )
    run = compiled(
        lambda *each: (model.attention_weights(each[0], ON_DEVICE), one_stack.attention_weights(each[1], ON_DEVICE))
    )
    weights, inside = run(params, others)
    np.testing.assert_allclose(weights[REAL].sum(-1), 1, rtol=1e-5)
    assert np.all(inside[REAL].sum(-1) < 1) and np.all(inside[REAL].sum(-1) > 0)
    for found in (weights, inside):
        assert np.all(np.moveaxis(found, 1, 2)[BATCH["source"] == PAD] == 0)


@pytest.mark.slow
def test_dropout_is_a_function_of_its_rng_and_to_compute_activations_again_changes_no_gradient():
    options = SMALL | dict(name="transformer", dropout=0.3, attention=DOT | dict(dropout=0.2))
    params = random_params(build(**options), BATCH, scale=0.4)

    def run(**remat):
        model = build(**options, **remat)
        return compiled(jax.value_and_grad(lambda p, seed: model.loss_fn(p, ON_DEVICE, jax.random.key(seed))[0]))

    plain, again = run(), run(**both(remat=True))
    first = plain(params, 0)
    assert abs(first[0] - plain(params, 1)[0]) > 1e-2
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), again(params, 0), first)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "language_model"])
def test_remat_computes_each_layer_again(name):
    """With the same parameters."""
    of = decoder if name == "transformer" else dict
    models = [
        build(name=name, hidden_size=8, attention=DOT, **of(**LAYERS | dict(num_layers=2), remat=remat))
        for remat in (False, True)
    ]
    plain, params = (jax.eval_shape(model.init, jax.random.key(0), BATCH) for model in models)
    assert params == plain
    counts = [str(jax.make_jaxpr(model.eval_fn)(params, ON_DEVICE)).count("remat") for model in models]
    assert counts[0] == 0 and counts[1] >= 2


BY_DISTANCE = {"relative": (2, True), "alibi": (0, False), "nape": (2, True), "forgetting": (2, True)}


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
@pytest.mark.parametrize(
    ("positions", "groups", "remat"), [*((name, *x) for name, x in BY_DISTANCE.items()), ("forgetting", 0, False)]
)
def test_positions_by_blocks_are_those_of_all_scores_at_once(positions, groups, remat):
    """Also where activations are computed again, and with an axis of seeds over parameters and inputs."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 7, 8)), jnp.float32)
    stack, whole = by_blocks(positions, 7, 0, groups=groups)
    _, blocks = by_blocks(positions, 7, 3, remat, groups)
    params = params_of(stack, x[0], jnp.ones((2, 7), bool))
    params = {"params": jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), params)}
    run = lambda *args: [jax.value_and_grad(total, argnums=(0, 1))(*args) for total in (whole, blocks)]  # noqa: E731
    expected, found = compiled(jax.vmap(run))(params, x)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4), found, expected)


@pytest.mark.slow
def test_positions_by_blocks_need_no_array_of_all_pairs():
    length = 1024
    x = jax.ShapeDtypeStruct((2, length, 8), jnp.float32)

    def has_all_pairs(positions, block_size):
        stack, total = by_blocks(positions, length, block_size)
        params = jax.eval_shape(stack.init, jax.random.key(0), x, jax.ShapeDtypeStruct((2, length), jnp.bool_))
        return "1024,1024" in jax.jit(jax.grad(total)).lower(params, x).compile().as_text()

    assert has_all_pairs("alibi", 0) and not any(has_all_pairs(positions, 128) for positions in BY_DISTANCE)


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
def test_biases_of_distance_are_not_rounded_in_bfloat16():
    """In bfloat16 a distance of 601 would be 600, and the score of its key the same as that of the next."""
    for positions in ("alibi", "relative"):
        model = build(name="transformer", dtype="bfloat16", **SMALL, attention=DOT, **both(positions=positions))
        scheme = model.module.encoder.positions
        of_distance = lambda module, distance: module.of_distance(distance)  # noqa: E731
        at_zero, _ = scheme.init_with_output(jax.random.key(0), jnp.arange(700)[None], method=of_distance)
        assert at_zero.dtype == jnp.float32
        if positions == "alibi":
            np.testing.assert_allclose(at_zero[:, 0, 600] - at_zero[:, 0, 601], scheme.slopes(), rtol=1e-4)


@pytest.mark.slow
def test_bfloat16_is_near_float32_and_the_entropy_of_its_weights_is_computed_in_float32():
    half, full = (build(name="transformer", dtype=x, **SMALL, attention=DOT) for x in ("bfloat16", "float32"))

    @compiled
    def run(params):
        return (
            full.eval_fn(params, ON_DEVICE)["loss"].total,
            half.eval_each(params, ON_DEVICE),
            half.attention_weights(params, ON_DEVICE),
        )

    loss, metrics, weights = run(random_params(full, BATCH, scale=0.2))
    np.testing.assert_allclose(metrics["loss"].total.sum(), loss, rtol=0.02)
    assert metrics["loss"].total.sum() != loss and weights.dtype == jnp.bfloat16
    each = entropy(shares(jnp.asarray(weights, jnp.float32))) * REAL
    np.testing.assert_allclose(metrics["attention_entropy"].total, each.sum(-1), rtol=1e-6)


@pytest.mark.slow
def test_the_score_of_a_beam_is_that_of_the_model():
    model, params = model_of("transformer, rotary, shared keys, convolution")
    source = ON_DEVICE["source"][:3]

    @compiled
    def run(params):
        step, (memory, state) = functools.partial(model.step_top_k, params), model.start(params, source, 12)
        options = dict(max_length=12, limits=np.full(3, 12, np.int32), bos=2, eos=EOS, pad=PAD)
        found = beam_search(step, memory, state, beam_size=3, **options)
        tokens = found.tokens[:, 0]
        shifted = jnp.concatenate([jnp.full((3, 1), 2, jnp.int32), tokens[:, :-1]], axis=1)
        batch = {"source": source, "target_out": tokens, "target_in": jnp.where(tokens == PAD, PAD, shifted)}
        return found.log_prob[:, 0], model.score(params, batch)

    np.testing.assert_allclose(*run(params), atol=1e-4)


@pytest.mark.slow
def test_a_target_that_goes_on_from_a_prompt_is_the_text_as_a_whole():
    """Its steps, its score, and its weights on the prompt, which are those that the text as a whole has there."""
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
        text = {"source": jnp.full((3, 1), EOS, jnp.int32), "target_in": joined, "target_out": joined}
        inside = model.maps(params, text)[BOTH][:, 0].mean(axis=1)
        own = model.score(params, batch), model.attention_weights(params, batch)
        return step_by_step(model, params, batch), *own, whole(model, params, text), inside

    steps, scores, weights, expected, inside = run(params)
    own = np.take_along_axis(steps, np.asarray(target)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(scores, (own * (target != PAD)).sum(axis=1), rtol=1e-4)
    for row, n in enumerate((2, 1, 0)):
        for t in range(3 if row != 1 else 2):
            np.testing.assert_allclose(steps[row, t], expected[row, n + t], atol=2e-5)
            read = [*inside[row, n + 1 + t, 2 : n + 2], inside[row, n + 1 + t, 0]]  # the prompt, then eos
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
    mixed = 1.5 * x + 2 * jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]

    @compiled
    def run(params):
        plain = {name: value for name, value in params.items() if name != "convolve"}
        layers = TransformerLayer(**parts, convolution=convolution), TransformerLayer(**parts)
        _, memory, read = layers[0].apply({"params": params}, x, **arguments)
        _, of_plain, expected = layers[1].apply({"params": plain}, mixed, **arguments)
        return memory.recent, (memory.cache.positions, of_plain.positions), (read.own.context, expected.own.context)

    recent, positions, (context, expected) = run(params)
    np.testing.assert_allclose(context[real], expected[real], atol=1e-5)
    np.testing.assert_array_equal(*positions)
    np.testing.assert_array_equal(recent, jnp.stack([x[0, 3:5], x[1, 1:3]]))


def test_a_convolution_is_of_causal_attention_alone():
    model, params = model_of("transformer, rotary, shared keys, convolution")
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
    projections = [own[name] for name in ("query", "key", "value")]
    packed = {name: np.concatenate([part[name] for part in projections], axis=-1) for name in ("kernel", "bias")}
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(tensor(packed["kernel"].T))
        theirs.self_attn.in_proj_bias.copy_(tensor(packed["bias"]))
        for ours, module in [
            (own["out"], theirs.self_attn.out_proj),
            (params["inner"], theirs.linear1),
            (params["outer"], theirs.linear2),
            (params["self_norm"], theirs.norm1),
            (params["feed_forward_norm"], theirs.norm2),
        ]:
            module.weight.copy_(tensor(ours["kernel"].T if "kernel" in ours else ours["scale"]))
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
            both(positions="rotary", num_heads=4) | dict(attention=dict(wrappers=("difference",))),
            "heads of even width, got 1, of which a difference has two",
        ),
        (both(positions="rotry"), "did you mean rotary"),
        (dict(share_embeddings=True), "needs one vocabulary, but the source has 13 tokens and the target 11"),
        (dict(name="language_model", continue_source=True), "continue_source needs one vocabulary, but the source"),
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

    params = params_of(layer, x, train=False, method=run)

    @compiled
    def contexts(seeds):
        rngs = jax.vmap(jax.random.key)(seeds)
        return jax.vmap(lambda rng: layer.apply({"params": params}, x, True, method=run, rngs={"sample": rng}))(rngs)

    assert len({float(each.sum()) for each in contexts(jnp.arange(4))}) > 1
