"""Dense, recurrent and chunked are one function: values, derivatives, every chunk size, padding, causality."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax.attention.recurrent import Delta, Linear, Mesa, Writes, chunked, dense, make_writes, recurrent, write_all
from attn_jax.attention.recurrent.features import elu_plus_one
from attn_jax.attention.recurrent.writes import map_writes
from attn_jax.attention.scores.base import unit

LENGTH, WIDTH, COLUMNS = 7, 3, 2
SIZES = (1, 3, 9)  # of one position, one that does not divide the length, and one that is longer
MASK = np.array([[True] * 7, [True, False, True, True, True, False, False]])


def kept(of_key=False):
    """Log decays, for all columns of a key or for each."""
    return lambda gates: -jnp.square(gates if of_key else gates[..., :1])


NOTHING, PLAIN = lambda gates: None, lambda x: x
RULES = {  # rule, map of queries and keys, log decay
    "linear": (Linear(), PLAIN, NOTHING),
    "normalized and faded": (Linear(normalized=True), elu_plus_one, kept()),
    "gated linear": (Linear(), PLAIN, kept(of_key=True)),
    "delta": (Delta(), unit, NOTHING),
    "gated delta": (Delta(), unit, kept()),
    "delta gated by column": (Delta(), unit, kept(of_key=True)),
    "mesa": (Mesa(ridge=jnp.array([0.5, 1.0, 0.7], jnp.float32)), unit, kept()),
    "mesa by conjugate gradient": (Mesa(ridge=0.5, steps=5), unit, kept()),
}


def arrays(lead=(2,)):
    """query, keys, values, rates before a sigmoid, gates."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(*lead, LENGTH, n)) for n in (WIDTH, WIDTH, COLUMNS, 1, WIDTH)]


def writes_of(name, query, keys, values, rates, gates, mask=None):
    rule, turn, decay = RULES[name]
    rates = 2 * jax.nn.sigmoid(rates[..., 0])
    return rule, turn(query), make_writes(turn(keys), values, key_mask=mask, rates=rates, log_decay=decay(gates))


def forms_of(rule, query, writes):
    """Contexts of all forms, and the last states of those that have one."""
    states, contexts = zip(
        recurrent(rule, query, writes), *(chunked(rule, query, writes, size) for size in SIZES), strict=True
    )
    return [dense(rule, query, writes)[0], *contexts], list(states)


@functools.cache
def measured(name, wide):
    def total(form, mask, arrays):
        rule, query, writes = writes_of(name, *arrays, mask)
        return jnp.sum(jnp.sin(form(rule, query, writes)))

    forms = [lambda *a: dense(*a)[0], lambda *a: recurrent(*a)[1], lambda *a: chunked(*a, 3)[1]]

    def run(mask, *arrays):
        contexts, states = forms_of(*writes_of(name, *arrays, mask))
        return contexts, states, [jax.grad(functools.partial(total, form, mask))(list(arrays)) for form in forms]

    with jax.enable_x64(wide):
        return compiled(run)(MASK, *(x if wide else x.astype(np.float32) for x in arrays()))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wide"), [(name, True) for name in RULES] + [("gated delta", False), ("mesa", False)])
def test_all_forms_are_equal_in_value_and_gradient(name, wide):
    contexts, states, gradients = measured(name, wide)
    tolerance = dict(rtol=0, atol=1e-12 if wide else 2e-5)
    assert contexts[0].dtype == (np.float64 if wide else np.float32) and contexts[0].std() > 0.05
    for context in contexts[1:]:
        np.testing.assert_allclose(context, contexts[0], **tolerance)
    for state in states[1:]:
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), state, states[0])
    for gradient in gradients[1:]:
        for x, y in zip(gradient, gradients[0], strict=True):
            np.testing.assert_allclose(x, y, **tolerance)
    assert all(np.any(x != 0) for x in gradients[0][:3])


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_masking_a_key_is_deleting_it_and_no_context_depends_on_a_later_position(name):
    given, everything, places = [x[1] for x in arrays()], np.ones(LENGTH, bool), np.arange(LENGTH)[:, None]
    with jax.enable_x64(True):
        run = compiled(lambda given, mask: chunked(*writes_of(name, *given, mask), 3)[1])
        masked, whole = run(given, MASK[1]), run(given, everything)
        deleted = run([x[MASK[1]] for x in given], everything[: MASK[1].sum()])
        later = [run([given[0], *(x + (places >= first) for x in given[1:])], everything) for first in range(1, LENGTH)]
    np.testing.assert_allclose(masked[MASK[1]], deleted, atol=1e-12)
    for first, context in enumerate(later, 1):
        np.testing.assert_allclose(context[:first], whole[:first], atol=1e-12)
        assert np.all(np.abs(context - whole)[first:].max(axis=-1) > 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normalized and faded", "delta gated by column", "mesa by conjugate gradient"])
def test_derivatives_of_first_and_second_order(name):
    """Of a chunk that follows other writes; conjugate gradient has the derivatives of the solution."""

    def total(*arrays):
        rule, query, writes = writes_of(name, *arrays)
        state = rule.write(rule.start(writes), map_writes(lambda x, axis: jnp.take(x, 0, axis), writes))
        return jnp.sum(jnp.sin(rule.chunk(state, query, writes)[1]))

    check_derivatives(total, *(x[0, :3] for x in arrays()))


@pytest.mark.slow
def test_a_memory_goes_on_where_another_one_ended():
    """Chunks, then single steps, as in decoding after a prompt."""
    with jax.enable_x64(True):

        @compiled
        def run(*arrays):
            found = []
            for name in ("normalized and faded", "delta gated by column", "mesa"):
                rule, query, writes = writes_of(name, *arrays)
                (first, last), pairs = jnp.split(query, [4], -2), map_writes(lambda x, i: jnp.split(x, [4], i), writes)
                state, _ = chunked(rule, first, Writes(*(x[0] for x in pairs)), 3)
                steps = recurrent(rule, last, Writes(*(x[1] for x in pairs)), state)[1]
                found.append((steps, dense(rule, query, writes)[0]))
            return found

        found = run(*arrays())
    for rest, whole in found:
        np.testing.assert_allclose(rest, whole[..., 4:, :], atol=1e-12)


def test_chunk_sizes_below_one_and_decays_of_another_width_are_refused():
    query, keys, values, _, gates = (jnp.asarray(x, jnp.float32) for x in arrays())
    with pytest.raises(ValueError, match="chunk_size is 0; expected at least 1"):
        chunked(Linear(), query, make_writes(keys, values), 0)
    with pytest.raises(ValueError, match="log_decay has 2 columns; expected 1, or 3"):
        make_writes(keys, values, log_decay=gates[..., :2])
    with pytest.raises(ValueError, match="Delta needs causal keys"):
        write_all(Delta(), make_writes(keys, values))


@pytest.mark.slow
@pytest.mark.parametrize("reset", [-np.inf, -1e8, -200.0])
def test_what_is_before_a_reset_is_gone_and_later_decays_are_kept(reset):
    query, keys, values, _, _ = (jnp.asarray(x[0], jnp.float32) for x in arrays())
    decays = jnp.full((LENGTH, 1), -0.5)

    @compiled
    def run(query, keys, values):
        after = make_writes(keys[3:], values[3:], log_decay=decays[3:])
        writes = make_writes(keys, values, log_decay=decays.at[3].set(reset))
        return forms_of(Linear(), query, writes)[0], dense(Linear(), query[3:], after)[0]

    contexts, expected = run(query, keys, values)
    for context in contexts:
        np.testing.assert_allclose(context[3:], expected, rtol=1e-3, atol=1e-4)


def test_the_value_of_a_masked_key_may_be_anything():
    _, keys, values, _, _ = (jnp.asarray(x[0], jnp.float32) for x in arrays())
    mask = jnp.arange(LENGTH) != 2
    writes = make_writes(keys, jnp.where(mask[:, None], values, jnp.nan), key_mask=mask)
    assert np.all(np.isfinite(writes.values))


@pytest.mark.slow
def test_a_decay_may_have_axes_that_the_keys_lack():
    query, keys, values, _, _ = (jnp.asarray(x[0], jnp.float32) for x in arrays())
    decays = -jnp.exp(jnp.asarray(np.random.default_rng(1).normal(size=(3, LENGTH, 1)), jnp.float32))
    alone = lambda decay: dense(Linear(), query, make_writes(keys, values, log_decay=decay))[0]  # noqa: E731
    all_forms = lambda decays: forms_of(Linear(), query, make_writes(keys, values, log_decay=decays))[0]  # noqa: E731
    contexts, expected = compiled(lambda decays: (all_forms(decays), [alone(decay) for decay in decays]))(decays)
    for context in contexts:
        np.testing.assert_allclose(context, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_many_resets_leave_the_digits_of_what_comes_after():
    rng = np.random.default_rng(2)
    query, keys, values = (jnp.asarray(rng.normal(size=(512, n)), jnp.float32) for n in (4, 4, 3))
    decays = np.where(np.arange(512) % 2 == 0, -np.inf, -0.01)[:, None]
    writes = make_writes(keys, values, log_decay=jnp.asarray(decays, jnp.float32))
    exact, whole, parts = compiled(
        lambda *x: (recurrent(Linear(), *x)[1], dense(Linear(), *x)[0], chunked(Linear(), *x, 64)[1])
    )(query, writes)
    np.testing.assert_allclose(whole, exact, atol=8e-3)
    np.testing.assert_allclose(parts, exact, atol=1e-3)


@pytest.mark.parametrize("name", RULES)
def test_compiled_forms_are_the_recurrence_at_the_sizes_of_a_model(name):
    """XLA has computed the first chunk wrongly on a CPU, in float32, for keys of 64 columns, but not for small ones."""
    rng = np.random.default_rng(0)
    query, keys, values, gates, rates = (jnp.float32(rng.normal(size=(10, 1, 9, n))) for n in (64, 64, 64, 64, 1))
    if "mesa" in name:
        query, keys, gates = (x[..., :3] for x in (query, keys, gates))

    def of(form):
        return lambda *args: form(*writes_of(name, *args))

    state, context = of(recurrent)(query, keys, values, rates, gates)
    for size in (4, 64):
        found = jax.jit(of(functools.partial(chunked, chunk_size=size)))(query, keys, values, rates, gates)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-2), found, (state, context))
        alone = jax.jit(lambda *args: of(functools.partial(chunked, chunk_size=size))(*args)[1])  # noqa: B023
        np.testing.assert_allclose(alone(query, keys, values, rates, gates), context, rtol=1e-3, atol=1e-2)
