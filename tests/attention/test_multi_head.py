"""Heads side by side, the fused kernel against the explicit formula, and torch with the same weights."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, MultiHead, build_attention
from attn_jax.attention.fused import fused_attention, implementation_of
from attn_jax.attention.hard.readings import weighted_sum
from attn_jax.attention.masks import causal, causal_mask
from attn_jax.attention.mixer import head_width
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.scores import Additive, Dot, ScaledDot
from attn_jax.attention.signed import Subtract

BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 4, 5, 8, 4
RNG = np.random.default_rng(0)
QUERY = RNG.normal(size=(BATCH, QUERIES, WIDTH)).astype(np.float32)
MEMORY = RNG.normal(size=(BATCH, KEYS, WIDTH)).astype(np.float32)
MASK = np.arange(KEYS) < np.array([5, 2, 0])[:, None]  # the last row has nothing to attend to
NARROW = RNG.random((BATCH, QUERIES, KEYS)) < 0.7
QUERY, MEMORY, MASK, NARROW = map(jnp.asarray, (QUERY, MEMORY, MASK, NARROW))


class Result(NamedTuple):
    context: object
    weights: object
    log_prob: object


def read(module, query, keys, mask, narrow=None, values=None, **options):
    attended = module(query, module.prepare(keys, values, key_mask=mask), mask=narrow, **options)
    return Result(attended.context, attended.weights, attended.log_prob)


# The fused kernel


@pytest.fixture
def given(monkeypatch):
    """The options of each call of the kernel of the GPU, which is replaced by the one that the CPU has."""
    found, kernel = [], jax.nn.dot_product_attention

    def recorded(*args, **options):
        found.append(options)
        return kernel(*args, **options | {"implementation": "xla"})

    monkeypatch.setattr("attn_jax.attention.fused.implementation_of", lambda *_: "cudnn")
    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    return found


def heads_and_mask(grouped):
    """Query, keys, values and a mask of the keys, for the heads of three examples, the last of which has no keys."""
    rng = np.random.default_rng(3)
    lead = (3, 2, 2) if grouped else (3, 2)
    shapes = (*lead, 5, 8), *2 * [(*lead[:-1], 1, 6, 8) if grouped else (*lead, 6, 8)]
    arrays = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    mask = jnp.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)
    return *arrays, mask.reshape(3, *len(lead[1:]) * [1], 1, 6)


def written_out(query, keys, values, mask, bias=0.0, scale=0.3):
    scores = scale * query @ jnp.swapaxes(keys, -1, -2) + bias
    return weighted_sum(softmax(scores, mask), values)


def fused_and_explicit(grouped, with_bias=False, **masks):
    """((sum, context), gradients) of the fused kernel, and of the formula written out."""
    query, keys, values, mask = heads_and_mask(grouped)
    rng = np.random.default_rng(4)
    weight = rng.normal(size=query.shape).astype(np.float32)
    bias = rng.normal(size=(*query.shape[1:-2], 5, 6)).astype(np.float32) if with_bias else np.float32(0)
    narrow = masks.get("mask", True)
    allowed = mask & (causal_mask(5, 6) if narrow is causal else narrow)

    def fused(query, keys, values, bias):
        given = dict(bias=bias if with_bias else None, scale=0.3, key_mask=mask[..., 0, :]) | masks
        context = fused_attention(query, keys, values, **given)
        return jnp.sum(context * weight), context

    def explicit(query, keys, values, bias):
        context = written_out(query, keys, values, allowed, bias)
        return jnp.sum(context * weight), context

    gradients = lambda *x: [jax.value_and_grad(f, (0, 1, 2, 3), has_aux=True)(*x) for f in (fused, explicit)]  # noqa: E731
    return compiled(gradients)(query, keys, values, bias)


def check_fused(got, wanted, atol=1e-5):
    for leaf, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert np.all(np.isfinite(leaf))
        np.testing.assert_allclose(leaf, other, atol=atol)
    np.testing.assert_array_equal(got[0][1][2], 0)  # no keys


@pytest.mark.slow
@pytest.mark.parametrize(("grouped", "with_bias"), [(False, True), (True, True), (True, False)])
def test_fused_is_explicit_with_masks_and_empty_rows(grouped, with_bias):
    narrow = np.random.default_rng(5).random((3, *(1, 1)[: 1 + grouped], 5, 6)) < 0.7
    check_fused(*fused_and_explicit(grouped, with_bias, mask=jnp.asarray(narrow)))


@pytest.mark.slow
@pytest.mark.parametrize(("in_order", "grouped"), [(None, True), (causal, False)])
def test_a_mask_of_keys_is_a_column_of_the_keys_on_a_gpu(in_order, grouped, given):
    got, wanted = fused_and_explicit(grouped, mask=in_order) if in_order else fused_and_explicit(grouped)
    assert [(options["mask"], options["bias"], options["is_causal"]) for options in given] == [
        (None, None, in_order is causal)
    ]
    check_fused(got, wanted, atol=2e-5)
    assert np.all(got[0][1][1, ..., :2, :] == 0) == (in_order is causal)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "grouped"), [(1, True), (5, False)])
def test_with_a_bias_the_mask_stays_an_array_of_pairs_on_a_gpu(rows, grouped, given):
    query, keys, values, mask = heads_and_mask(grouped)
    bias = jnp.asarray(np.random.default_rng(5).normal(size=(*query.shape[1:-2], rows, 6)), jnp.float32)
    fused = lambda *x: fused_attention(*x, scale=0.3, key_mask=mask[..., 0, :], bias=bias)  # noqa: E731
    both = compiled(lambda *x: (fused(*x), written_out(*x, mask, bias)))
    found, expected = both(query, keys, values)
    (options,) = given
    assert options["mask"].shape == (3, 4 if grouped else 2, 5, 6) and options["bias"] is not None
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_array_equal(found[2], 0)


@pytest.mark.slow
@pytest.mark.parametrize(("own_mask", "with_bias"), [(True, False), (False, True), (False, False)])
def test_what_all_seeds_share_reaches_the_kernel_of_a_gpu_with_the_batch_of_its_queries(
    own_mask, with_bias, monkeypatch
):
    """It adds the mask to the bias, and takes no bias with fewer examples than there are queries."""
    query, keys, values, mask = heads_and_mask(False)
    mask = jnp.broadcast_to(mask, (3, 1, 5, 6))  # of pairs
    bias = jnp.asarray(np.random.default_rng(5).normal(size=(2, 5, 6)), jnp.float32) if with_bias else None
    batched = []

    @jax.custom_batching.custom_vmap
    def kernel(query, keys, values, bias):
        return attend(query, keys, values, bias=bias, scale=0.3)

    @kernel.def_vmap
    def _(size, in_batched, *arrays):
        batched.append(in_batched)
        axes = tuple(0 if own else None for own in in_batched)
        return jax.vmap(lambda *x: attend(*x[:3], bias=x[3], scale=0.3), axes)(*arrays), True

    def combined(query, keys, values, *, bias, mask, **options):
        return kernel(query, keys, values, bias if mask is None else jnp.where(mask, bias, bias - 1e9))

    attend = jax.nn.dot_product_attention
    monkeypatch.setattr("attn_jax.attention.fused.implementation_of", lambda *_: "cudnn")
    monkeypatch.setattr(jax.nn, "dot_product_attention", combined)
    seeds = [jnp.stack([x, x[::-1]]) for x in (query, keys, values)]
    masks, axis = (jnp.stack([mask, mask[::-1]]), 0) if own_mask else (mask, None)
    found = jax.vmap(lambda *x: fused_attention(*x[:3], scale=0.3, mask=x[3], bias=bias), (0, 0, 0, axis))(
        *seeds, masks
    )
    assert batched == [[True] * 4]
    for seed in range(2):
        mask = masks[seed] if own_mask else masks
        expected = written_out(*(x[seed] for x in seeds), mask, 0.0 if bias is None else bias)
        np.testing.assert_allclose(found[seed], expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 1e-6])
def test_with_a_scale_of_almost_zero_the_mask_stays_an_array_of_pairs_on_a_gpu(scale, given):
    """Its column would have to be larger than the numbers of float16, or infinite."""
    query, keys, values, mask = heads_and_mask(False)
    found = fused_attention(query, keys, values, scale=scale, key_mask=mask[..., 0, :])
    assert [options["mask"] is None for options in given] == [False]
    np.testing.assert_allclose(found, written_out(query, keys, values, mask, scale=scale), atol=2e-5)


@pytest.mark.slow
def test_attention_hands_a_causal_order_to_the_kernel(monkeypatch):
    monkeypatch.setattr("attn_jax.attention.core.FEW", 0)
    given = []
    monkeypatch.setattr(
        "attn_jax.attention.core.fused_attention",
        lambda *args, **options: given.append(options) or fused_attention(*args, **options),
    )
    attention = build_attention(score=Dot()).bind({})
    x = jnp.asarray(np.random.default_rng(4).normal(size=(2, 4, 8)), jnp.float32)
    found, expected = (attention(x, x, mask=mask).context for mask in (causal, causal_mask(4)))
    assert given[0]["mask"] is causal and given[1]["mask"].shape == (4, 4)
    assert all(options["key_mask"].shape == (2, 4) for options in given)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_attention_takes_the_fused_kernel_where_it_may(monkeypatch):
    calls = []
    monkeypatch.setattr("attn_jax.attention.core.FEW", 0)
    monkeypatch.setattr(
        "attn_jax.attention.core.fused_attention",
        lambda *args, **options: calls.append(1) or fused_attention(*args, **options),
    )
    fusible = {
        name: build_attention(score=ScaledDot(), normalize=softmax, read=READINGS["expectation"], **options)
        for name, options in {"plain": {}, "dropping": {"dropout": 0.5}}.items()
    } | {
        "sparse": build_attention(score=ScaledDot(), normalize=NORMALIZERS["sparsemax"]),
        "additive": build_attention(score=Additive(features=3)),
    }
    taken = {}
    for name, attention in fusible.items():
        params = params_of(attention, QUERY, MEMORY, MASK, method=read)
        calls.clear()
        jax.eval_shape(
            lambda a=attention, p=params: a.apply(
                {"params": p}, QUERY, MEMORY, MASK, train=True, rngs={"dropout": jax.random.key(0)}, method=read
            )
        )
        taken[name] = bool(calls)
    assert taken == {"plain": True, "dropping": False, "sparse": False, "additive": False}
    assert implementation_of(jnp.float32, 64) == "xla"


def test_cudnn_is_for_what_it_has_a_gradient_of(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert implementation_of(jnp.bfloat16, 64) == implementation_of(jnp.bfloat16, 64, 4, 6) == "cudnn"
    for wrong in ((jnp.float32, 64), (jnp.bfloat16, 60), (jnp.bfloat16, 256), (jnp.bfloat16, 64, 5, 6)):
        assert implementation_of(*wrong) == "xla"


# Several heads


def plain_weights(module, num_kv_heads=0, normalize=softmax):
    heads = MultiHead(
        attention=build_attention(score=module, normalize=normalize),
        num_heads=HEADS,
        features=WIDTH,
        num_kv_heads=num_kv_heads,
    )
    return heads, params_of(heads, QUERY, MEMORY, MASK, method=read)


@pytest.mark.slow
def test_each_head_is_one_attention():
    heads, params = plain_weights(ScaledDot())
    attended = compiled(lambda p: heads.apply({"params": p}, QUERY, MEMORY, MASK, NARROW, method=read))(params)
    project = lambda name, x: x @ params[name]["kernel"] + params[name]["bias"]  # noqa: E731
    query, keys, values = project("query", QUERY), project("key", MEMORY), project("value", MEMORY)
    contexts, width = [], WIDTH // HEADS
    alone = compiled(lambda *x: read(build_attention(score=ScaledDot()).bind({}), *x[:2], MASK, NARROW, values=x[2]))
    for head in range(HEADS):
        own = slice(head * width, (head + 1) * width)
        one = alone(query[..., own], keys[..., own], values[..., own])
        np.testing.assert_allclose(attended.weights[:, head], one.weights, atol=1e-6)
        contexts.append(one.context)
    expected = project("out", np.concatenate(contexts, axis=-1))
    np.testing.assert_allclose(attended.context, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["scaled_dot", "additive", "normalizer with parameters"])
def test_shared_keys_are_repeated_keys(score):
    make = {"additive": lambda: Additive(features=3)}.get(score, ScaledDot)
    normalize = NORMALIZERS["scalable_entmax"](num_heads=HEADS) if score not in SCORES else softmax
    grouped, params = plain_weights(make(), num_kv_heads=2, normalize=normalize)
    whole, _ = plain_weights(make(), normalize=normalize)
    call = lambda module, p: module.apply({"params": p}, QUERY, MEMORY, MASK, NARROW, method=read)  # noqa: E731
    repeated = {**params}
    for name in ("key", "value"):
        repeated[name] = {
            part: np.repeat(x.reshape(*x.shape[:-1], 2, -1), 2, axis=-2).reshape(*x.shape[:-1], WIDTH)
            for part, x in params[name].items()
        }
    found, expected = compiled(lambda p, repeated: (call(grouped, p), call(whole, repeated)))(params, repeated)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["top", "reinforce", "gumbel_softmax"])
def test_every_head_reads_on_its_own(reading):
    attention = build_attention(score=ScaledDot(), read=READINGS[reading])
    heads = MultiHead(attention=attention, num_heads=HEADS, features=WIDTH)
    params = params_of(heads, QUERY, MEMORY, MASK, method=read)
    call = compiled(lambda rng: heads.apply({"params": params}, QUERY, MEMORY, MASK, rng=rng, method=read))
    attended = call(jax.random.key(0))
    assert attended.log_prob.shape == (BATCH, HEADS, QUERIES)
    assert np.all(np.isfinite(attended.context))
    if attention.read.random:  # with equal weights the samples of 20 heads are not all the same
        values = jnp.broadcast_to(jnp.eye(KEYS), (20, KEYS, KEYS))
        alone = lambda *x: attention.apply({}, *x, values, rng=jax.random.key(0)).context  # noqa: E731
        sampled = compiled(alone)(jnp.zeros((20, 1, WIDTH)), jnp.zeros((20, KEYS, WIDTH)))
        assert len(np.unique(np.argmax(sampled, axis=-1))) > 2


@pytest.mark.slow
def test_dropped_weights_keep_their_mean():
    heads = MultiHead(attention=build_attention(score=ScaledDot(), dropout=0.4), num_heads=1, features=WIDTH)
    params = params_of(heads, QUERY, MEMORY, MASK, method=read)
    whole = compiled(lambda params: heads.apply({"params": params}, QUERY, MEMORY, MASK, method=read))(params)
    rngs = jax.random.split(jax.random.key(0), 4000)
    drop = lambda rng: heads.apply(  # noqa: E731
        {"params": params}, QUERY, MEMORY, MASK, train=True, rngs={"dropout": rng}, method=read
    )
    several = compiled(lambda rngs: jax.vmap(drop)(rngs))(rngs)
    np.testing.assert_allclose(several.weights[0], whole.weights, atol=1e-6)
    error = several.context.std(axis=0) / np.sqrt(len(rngs))
    assert np.max(np.abs(several.context.mean(axis=0) - whole.context) / (error + 1e-4)) < 5
    assert several.context.std(axis=0)[0].min() > 0.01


# torch


@pytest.mark.slow
def test_torch_multihead_attention_with_the_same_weights():
    torch = pytest.importorskip("torch")
    heads, params = plain_weights(ScaledDot())
    theirs = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    tensor = lambda x: torch.tensor(np.asarray(x))  # noqa: E731
    with torch.no_grad():
        theirs.in_proj_weight.copy_(tensor(np.concatenate([params[n]["kernel"].T for n in ("query", "key", "value")])))
        theirs.in_proj_bias.copy_(tensor(np.concatenate([params[n]["bias"] for n in ("query", "key", "value")])))
        theirs.out_proj.weight.copy_(tensor(params["out"]["kernel"].T))
        theirs.out_proj.bias.copy_(tensor(params["out"]["bias"]))
    some = slice(0, 2)  # torch gives NaN for a row without keys
    query, memory = (torch.tensor(np.asarray(x[some]), requires_grad=True) for x in (QUERY, MEMORY))
    context, weights = theirs(query, memory, memory, key_padding_mask=tensor(~MASK[some]), average_attn_weights=False)
    context.square().sum().backward()

    def run(query, memory):
        attended = heads.apply({"params": params}, query, memory, MASK[some], method=read)
        return jnp.sum(attended.context**2), attended

    (_, attended), gradients = compiled(jax.value_and_grad(run, (0, 1), has_aux=True))(QUERY[some], MEMORY[some])
    np.testing.assert_allclose(attended.context, context.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(attended.weights, weights.detach().numpy(), atol=1e-5)
    for got, tensor in zip(gradients, (query, memory), strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-4, atol=1e-4)


# What a user may get wrong


def test_heads_have_to_divide_the_width():
    with pytest.raises(ValueError, match="num_heads 5 does not divide the width 8; the nearest that does is 4"):
        head_width(8, 5)
    with pytest.raises(ValueError, match="num_kv_heads 3 does not divide num_heads 4; the nearest is 2"):
        head_width(8, 4, 3)


@pytest.mark.slow
def test_with_a_difference_rotary_scores_depend_on_distances_alone():
    """Each half is compared by itself, so each half is rotated by itself."""
    heads, plain = (
        MultiHead(
            attention=build_attention(score="scaled_dot", difference=Subtract(), rotary=rotary),
            num_heads=2,
            features=16,
        )
        for rotary in (True, False)
    )
    x = jnp.asarray(RNG.normal(size=(1, 5, 16)), jnp.float32)
    params = {"params": params_of(plain, x, x)}
    wrapped = params["params"] | {"attention": {"map": {"of": params["params"]["attention"]["map"]}}}

    def weights(first):
        call = heads.bind({"params": wrapped})
        positions = (jnp.arange(5) + first)[None]
        return call(x, call.prepare(x, positions=positions), positions=positions).weights

    near, far, other = compiled(lambda first: (weights(0), weights(first), plain.apply(params, x, x).weights))(7)
    np.testing.assert_allclose(near, far, atol=1e-5)
    assert np.abs(near - other).max() > 1e-2  # rotation changes something


@pytest.mark.slow
@pytest.mark.parametrize("kv_heads", [0, 2])
def test_a_query_without_a_batch_reads_each_memory_of_a_batch(kv_heads):
    heads = MultiHead(
        attention=build_attention(score="scaled_dot"), num_heads=HEADS, num_kv_heads=kv_heads, features=WIDTH
    )
    params = params_of(heads, QUERY, MEMORY)
    call = lambda query: heads.apply({"params": params}, query, MEMORY, None, method=read)  # noqa: E731
    both = compiled(lambda query: (call(query), call(jnp.broadcast_to(query, QUERY.shape))))
    for one, same in zip(*both(QUERY[0]), strict=True):
        assert one.shape == same.shape
        np.testing.assert_allclose(one, same, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "block_size"),
    [({}, 2), (dict(num_kv_heads=2), 0), (dict(num_kv_heads=2), 2), (dict(selective=True, forget_heads=HEADS), 0)],
    ids=str,
)
def test_a_bias_as_a_function_of_places_is_the_array(options, block_size):
    kv_heads = options.get("num_kv_heads", 0)
    of_map = {name: value for name, value in options.items() if name != "num_kv_heads"}
    attention = build_attention(score="scaled_dot", block_size=block_size, **of_map)
    heads = MultiHead(attention=attention, num_heads=HEADS, features=WIDTH, num_kv_heads=kv_heads)
    bias = jnp.asarray(np.random.default_rng(2).normal(size=(BATCH, HEADS, KEYS, KEYS)), jnp.float32)
    arguments = dict(mask=causal, positions=jnp.broadcast_to(jnp.arange(KEYS), (BATCH, KEYS)))
    params = params_of(heads, MEMORY, MEMORY, **arguments)

    def run(bias, as_function):
        given = (lambda query, key: bias[..., query, key]) if as_function else bias
        attended = heads.apply({"params": params}, MEMORY, MEMORY, bias=given, **arguments)
        return attended.context, attended.weights

    found, expected = compiled(lambda bias: (run(bias, True), run(bias, False)))(bias)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), found, expected)
