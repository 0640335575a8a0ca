"""Attention by blocks is the recurrent formula: value, derivatives of two orders, and memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax import MultiHead
from attn_jax.attention.blockwise import blockwise_attention
from attn_jax.attention.build import build_attention
from attn_jax.attention.masks import causal, causal_mask
from attn_jax.attention.normalizers import (
    NORMALIZERS,
    LearnedSink,
    Normalizer,
    fusedmax,
    hardmax,
    softmax_one,
    softpick,
    stick_breaking,
)
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.elementwise import kernel_sum, rela
from attn_jax.attention.normalizers.entmax import entmax, entmax15, sparsemax
from attn_jax.attention.normalizers.entmax_form import entmax_form
from attn_jax.attention.normalizers.forms import SOFTMAX
from attn_jax.attention.normalizers.parametric import Entmax, LearnedEntmax
from attn_jax.attention.scores import Additive, General, ScaledDot
from attn_jax.attention.scores.kernels import Epanechnikov

RNG = np.random.default_rng(0)
BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 5, 11, 4
QUERY, KEY, VALUE = (
    jnp.asarray(RNG.normal(0, 2, (BATCH, HEADS, n, WIDTH)), jnp.float32) for n in (QUERIES, KEYS, KEYS)
)
BIAS = jnp.asarray(RNG.normal(0, 1, (HEADS, QUERIES, KEYS)), jnp.float32)
MASK = RNG.random((BATCH, 1, QUERIES, KEYS)) < 0.7
MASK[0, 0, 1] = False  # a query without keys
MASK = jnp.asarray(MASK)
SENSES = RNG.normal(size=(*VALUE.shape[:-2], QUERIES, WIDTH)).astype(np.float32)
SCORE = ScaledDot()


def dot(query, keys):
    return SCORE.apply({}, query, keys)


def written(normalize, query, keys, values, bias, mask):
    """The formula with all weights in memory."""
    weights = normalize(dot(query, keys) + bias, mask)
    return weights, weights @ values


NAMES = {name: x for name, x in NORMALIZERS.items() if isinstance(x, Normalizer) and x.has_form}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_context_and_all_gradients_are_those_of_the_formula(name):
    """Of two normalizers also with blocks of one key, of all and of more."""
    normalize = NAMES[name]

    def ours(query, keys, values, bias, block_size):
        options = dict(mask=MASK, normalize=normalize, bias=bias, block_size=block_size)
        found = blockwise_attention(dot, query, keys, values, **options)
        return jnp.sum(found.context * SENSES), (found.context, found.threshold)

    def formula(query, keys, values, bias):
        context = written(normalize, query, keys, values, bias, MASK)[1]
        return jnp.sum(context * SENSES), context

    def run(*given):
        sizes = (1, 4, 11, 512) if name in ("softmax", "entmax15") else (4,)
        gradient = functools.partial(jax.value_and_grad, argnums=(0, 1, 2, 3), has_aux=True)
        return gradient(formula)(*given), [gradient(ours)(*given, size) for size in sizes]

    ((_, expected), gradient), by_blocks = compiled(run)(QUERY, KEY, VALUE, BIAS)
    for (_, (got, threshold)), got_gradient in by_blocks:
        np.testing.assert_allclose(got, expected, atol=2e-5)
        assert np.all(got[0, :, 1] == 0) and np.all(threshold[0, :, 1] == 0)
        for one, other in zip(got_gradient, gradient, strict=True):
            assert np.all(np.isfinite(one))
            np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [softmax, entmax15, functools.partial(entmax, alpha=1.3)])
def test_second_derivatives_are_those_of_the_formula(normalize):
    form = entmax_form(1.3) if isinstance(normalize, functools.partial) else normalize
    direction = RNG.normal(size=QUERY.shape).astype(np.float32)

    def curvature(context_of):
        value = lambda query: jnp.sum(jnp.tanh(context_of(query)) * SENSES)  # noqa: E731
        along = lambda query: jnp.vdot(jax.grad(value)(query), direction)  # noqa: E731
        return compiled(jax.grad(along))(QUERY)

    blocks = lambda query: blockwise_attention(dot, query, KEY, VALUE, mask=MASK, normalize=form, block_size=4)  # noqa: E731
    ours = curvature(lambda query: blocks(query).context)
    formula = curvature(lambda query: written(normalize, query, KEY, VALUE, 0.0, MASK)[1])
    np.testing.assert_allclose(ours, formula, atol=5e-4 * np.abs(formula).max())


@pytest.mark.slow
def test_parameters_of_the_score_and_of_the_normalizer_get_gradients():
    score = Additive(features=6)
    params = {"params": params_of(score, QUERY, KEY, method=lambda s, q, k: s(q, s.project_keys(k)))}
    alpha = np.array([1.2, 1.5, 1.9], np.float32)[:, None, None]

    def total(params, alpha, blocks):
        keys = score.apply(params, KEY, method="project_keys")
        score_of = lambda query, keys: score.apply(params, query, keys)  # noqa: E731
        if blocks:
            found = blockwise_attention(
                score_of, QUERY, keys, VALUE, mask=MASK, normalize=entmax_form(alpha), block_size=3
            )
            return jnp.sum(found.context * SENSES)
        return jnp.sum(entmax(score_of(QUERY, keys), MASK, alpha) @ VALUE * SENSES)

    both = compiled(lambda *x: [jax.grad(total, (0, 1))(*x, blocks) for blocks in (True, False)])
    ours, formula = both(params, alpha)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-4), ours, formula)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(ours))


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [softmax, sparsemax, Entmax(alpha=1.2), softmax_one])
def test_masks_and_biases_by_position_and_parts_of_the_weights(normalize):
    slope = np.float32(0.3)

    def parts(query):
        found = blockwise_attention(
            dot, query, KEY, VALUE, mask=lambda q, k: k <= q + 2, normalize=normalize,
            bias=lambda q, k: -slope * jnp.abs(q - k), block_size=4,
        )  # fmt: skip
        assert found.rows([3, 0]).shape == (BATCH, HEADS, 2, KEYS)
        return found.context, found.rows([3, 0]), found.column_sums(), found.first(), found.entropy(), found.threshold

    places, keys = np.arange(QUERIES)[:, None], np.arange(KEYS)
    apply = normalize.apply if isinstance(normalize, Entmax) else lambda _, *arguments: normalize(*arguments)
    bias = -slope * np.abs(places - keys)
    weights = compiled(lambda query, mask: apply({}, dot(query, KEY) + bias, mask))(
        QUERY, (keys <= places + 2)[None, None]
    )
    context, rows, sums, first, entropy, threshold = compiled(parts)(QUERY)
    np.testing.assert_allclose(context, weights @ VALUE, atol=2e-5)
    np.testing.assert_allclose(rows, weights[..., [3, 0], :], atol=2e-6)
    np.testing.assert_allclose(sums, weights.sum(-2), atol=1e-5)
    np.testing.assert_allclose(first, weights[..., 0], atol=2e-6)
    logs = np.log(np.where(weights > 0, weights, 1))
    np.testing.assert_allclose(entropy, -(weights * logs).sum(-1), atol=2e-5)
    if normalize is softmax:
        scores = np.where(keys <= places + 2, np.asarray(dot(QUERY, KEY)) + bias, -np.inf)
        np.testing.assert_allclose(threshold, np.log(np.exp(scores).sum(-1)), rtol=1e-5)


TRACED = {
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "scan": lambda f: lambda *x: jax.lax.scan(lambda total, _: (total + f(*x) / 2, None), 0.0, None, length=2)[0],
}


@pytest.mark.slow
@pytest.mark.parametrize("traced", TRACED)
def test_functions_of_positions_in_what_is_traced_before_it_is_differentiated(traced):
    """What they close over, and the positions, must not be kept from a trace that has ended."""

    def total(query, slope, real):
        real = real > 0
        mask = lambda query, key: (key <= query + 2) & real[key]  # noqa: E731
        bias = lambda query, key: -slope * jnp.abs(query - key)  # noqa: E731
        return jnp.sum(jnp.sin(blockwise_attention(dot, query, KEY, VALUE, mask=mask, bias=bias, block_size=4).context))

    given = QUERY, jnp.float32(0.3), jnp.arange(KEYS) != 2
    expected = compiled(jax.grad(total, argnums=(0, 1)))(*given)
    found = jax.grad(TRACED[traced](total), argnums=(0, 1))(*given)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, expected)


def test_entmax_of_alpha_one_is_softmax():
    scores = jax.ShapeDtypeStruct((QUERIES, KEYS), jnp.float32)
    assert Entmax(alpha=1.0).form_of(scores) is Entmax(alpha=1 + 1e-9).form_of(scores) is SOFTMAX


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0])
def test_weights_of_entmax_sum_to_one_to_the_last_digits(alpha):
    """Also where a query is alone: in a batch, the steps of the slowest row go on for all others."""
    query, keys = (jnp.asarray(RNG.normal(0, 2, (n, WIDTH)), jnp.float32) for n in (100, 40))
    options = dict(normalize=entmax_form(alpha), block_size=16)
    sums = lambda query: blockwise_attention(dot, query, keys, jnp.ones((40, 1)), **options).context  # noqa: E731
    np.testing.assert_allclose(sums(query), 1, atol=4e-6)
    np.testing.assert_allclose(jax.lax.map(lambda row: sums(row[None]), query), 1, atol=4e-6)


def test_keys_out_of_reach_of_a_kernel():
    score = Epanechnikov(width=(2.5,))
    kernel = lambda query, keys: score.apply({}, query, keys)  # noqa: E731
    ours = compiled(lambda q: blockwise_attention(kernel, q, KEY, VALUE, normalize=kernel_sum, block_size=3).context)
    weights = compiled(lambda q: kernel_sum(kernel(q, KEY)))(QUERY)
    assert np.any(weights.sum(-1) == 0) and np.any(weights > 0)
    np.testing.assert_allclose(ours(QUERY), weights @ VALUE, atol=1e-5)


@pytest.mark.slow
def test_half_precision_under_vmap():
    half = [jnp.asarray(x, jnp.bfloat16) for x in (QUERY, KEY, VALUE)]
    ours = jax.jit(jax.vmap(lambda *x: blockwise_attention(dot, *x, normalize=entmax15, block_size=4).context))(*half)
    assert ours.dtype == jnp.bfloat16
    expected = written(entmax15, *half, jnp.bfloat16(0), None)[1]
    np.testing.assert_allclose(ours.astype(jnp.float32), expected.astype(jnp.float32), atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [softmax, entmax15])
def test_memory_grows_with_the_number_of_keys_alone(normalize):
    def memory(length, by_blocks):
        def total(query, keys, values):
            if by_blocks:
                return jnp.sum(
                    blockwise_attention(dot, query, keys, values, normalize=normalize, block_size=64).context
                )
            return jnp.sum(normalize(dot(query, keys)) @ values)

        x = jax.ShapeDtypeStruct((length, 16), jnp.float32)
        analysis = jax.jit(jax.grad(total, (0, 1, 2))).lower(x, x, x).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    few, many = memory(256, True), memory(2048, True)
    assert many < 9 * few  # 8 times as many keys
    assert memory(2048, False) > 4 * many


def test_what_needs_more_than_one_number_of_a_row_is_refused():
    for normalize in (fusedmax, hardmax, softpick, stick_breaking):
        with pytest.raises(ValueError, match="cannot be computed block by block; expected softmax"):
            blockwise_attention(dot, QUERY, KEY, VALUE, normalize=normalize)
    with pytest.raises(ValueError, match=r"Entmax\(alpha=2\.5\) cannot be .*entmax with alpha 1, or 1\.01 to 2"):
        blockwise_attention(dot, QUERY, KEY, VALUE, normalize=Entmax(alpha=2.5))
    with pytest.raises(ValueError, match="block_size is 0"):
        blockwise_attention(dot, QUERY, KEY, VALUE, block_size=0)


@pytest.mark.slow
def test_integers_are_computed_as_numbers(without_type_checks):
    integers = [jnp.asarray(RNG.integers(0, 4, (n, WIDTH))) for n in (QUERIES, KEYS, KEYS)]
    query, keys, values = (x.astype(jnp.float32) for x in integers)
    found = blockwise_attention(dot, *integers, block_size=4).context
    np.testing.assert_allclose(found, softmax(dot(query, keys)) @ values, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(mask=jnp.where(MASK, 0, -jnp.inf)), r"mask must be boolean \(True = may attend\), got float32"),
        (dict(mask=lambda q, k: jnp.where(k <= q, 0, -jnp.inf)), "mask must be boolean .*, got float32"),
        (dict(mask=MASK[..., :4]), r"mask of shape \(2, 1, 5, 4\) does not fit \(2, 3, 5, 11\)"),
        (dict(mask=MASK[:, 0]), r"mask of shape \(2, 5, 11\) does not fit \(2, 3, 5, 11\)"),
        (dict(bias=BIAS[:, :4]), r"a bias of shape \(3, 4, 11\) does not broadcast to the scores, \(2, 3, 5, 11\)"),
        (
            dict(values=VALUE[..., :8, :]),
            r"values of shape \(2, 3, 8, 4\) do not fit keys .*expected one value for each key",
        ),
        (dict(normalize="softmux"), "unknown normalize 'softmux'; "),
        (dict(normalize="fusedmax"), "Fusedmax cannot be computed block by block"),
        (dict(normalize=Entmax), r"normalize is the class Entmax; give an object, Entmax\(\)"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(arguments, message, without_type_checks):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        blockwise_attention(dot, QUERY, KEY, **dict(values=VALUE) | arguments)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_normalizers_by_name_and_a_bias_with_axes_of_its_own():
    query, keys, values = (x[0, 0] for x in (QUERY, KEY, VALUE))
    found = blockwise_attention(
        dot, query, keys, values, mask=MASK[0, 0], bias=BIAS, normalize="sparsemax", block_size=4
    )
    expected = compiled(functools.partial(written, sparsemax))(query, keys, values, BIAS, MASK[:1, 0])[1]
    np.testing.assert_allclose(found.context, expected, atol=1e-5)


def test_the_result_leaves_jit_with_its_context_and_threshold():
    run = lambda query: blockwise_attention(dot, query, KEY, VALUE, block_size=4)  # noqa: E731
    found, here = jax.jit(run)(QUERY), run(QUERY)
    assert_close = functools.partial(np.testing.assert_allclose, atol=1e-6)
    jax.tree.map(assert_close, (found.context, found.threshold), (here.context, here.threshold))
    with pytest.raises(ValueError, match=r"return found\.context, found\.entropy\(\) from there"):
        found.entropy()


def test_rows_of_queries_that_there_are_not():
    found = blockwise_attention(dot, QUERY, KEY, VALUE, block_size=4)
    for row in (QUERIES, -QUERIES - 1):
        with pytest.raises(IndexError, match=rf"rows of the queries \[{row}\] are asked for, and there are 5 queries"):
            found.rows([0, row])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "normalize"),
    [
        (ScaledDot(), softmax),
        (Additive(features=6), LearnedEntmax(num_heads=HEADS)),
        (General(query_features=4), rela),
        (ScaledDot(), LearnedSink(num_heads=HEADS)),
    ],
)
def test_attention_by_blocks_is_attention(score, normalize):
    x = jnp.asarray(RNG.normal(size=(BATCH, KEYS, HEADS * WIDTH)), jnp.float32)
    real = jnp.asarray(np.arange(KEYS) < np.array([KEYS, 7])[:, None])

    def heads(block_size):
        attention = build_attention(score=score, normalize=normalize, block_size=block_size)
        return MultiHead(attention=attention, num_heads=HEADS, features=HEADS * WIDTH)

    params = jax.jit(heads(0).init)(jax.random.key(1), x, x)
    assert jax.tree.structure(params["params"]) == jax.tree.structure(params_of(heads(4), x, x))

    def total(params, block_size, mask):
        module = heads(block_size)
        memory = module.apply(params, x, key_mask=real, method="prepare")
        return jnp.sum(jnp.square(module.apply(params, x, memory, mask=mask).context))

    cases = [(0, causal_mask(KEYS)), (0, causal), (4, causal), (4, causal_mask(KEYS))]
    expected, *others = compiled(lambda params: [jax.value_and_grad(total)(params, *case) for case in cases])(params)
    for got in others:
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), got, expected)
