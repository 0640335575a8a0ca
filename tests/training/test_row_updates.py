"""Updating the rows that a step reads is the usual update for sgd, and leaves other rows alone for any optimizer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import optimizer
from tiny_seq2seq import build, random_params, sentences

from attn_jax.layers.embedding import Embedding
from attn_jax.models.base import RowLoss
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.parallel import PARALLEL
from attn_jax.training.row_updates import Lookup, merge

SAMPLED = dict(output="sampled", output__num_samples=3)
MODELS = {
    "seq2seq": dict(name="seq2seq", hidden_size=4),
    "seq2seq, tied": dict(name="seq2seq", hidden_size=4, tie_embeddings=True, embedding_size=4),
    "seq2seq, sampled": dict(name="seq2seq", hidden_size=4, **SAMPLED),
    "language model, nce": dict(name="language_model", hidden_size=8, **SAMPLED | {"output": "nce"}),
    "language model, tied": dict(name="language_model", hidden_size=8, tie_embeddings=True, **SAMPLED),
    "language model, tree": dict(name="language_model", hidden_size=8, output="hierarchical"),
}
LENGTHS = [(3, 4), (5, 2), (1, 3), (2, 4)]


def batch_at(step, rows=1):
    return sentences(LENGTHS * rows, 5, 4, seed=step)


def params_of(name):
    return jax.tree.map(jnp.asarray, random_params(build(**MODELS[name]), batch_at(0)))


# As outside of the tests (see conftest.py): two programs with the same sums round alike if they are optimized alike.
OPTIMIZED = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
if jax.__version_info__ < (0, 11):
    OPTIMIZED["xla_cpu_use_fusion_emitters"] = True


@functools.cache
def program(model_name, parallel, by_rows, microbatches, several, to_the_bit, **changes):
    """(optimizer, program of a step); one that is compared to the bit takes longer to compile."""
    model = build(**MODELS[model_name])
    plain = {"clip": "none"} if "name" in changes else {"clip": "none", "momentum": 0.0}
    tx = optimizer(**plain | changes)
    loss = RowLoss(model) if by_rows else model.loss_fn
    make = functools.partial(make_train_step, loss, tx, microbatches=microbatches, by_rows=by_rows)
    run = PARALLEL[parallel].make(lambda axis: make(axis_name=axis), seeds=several)
    if parallel == "single":
        step = jax.vmap(make()) if several else make()
        run = run._replace(train_step=jax.jit(step, compiler_options=OPTIMIZED if to_the_bit else None))
    return tx, run


def trained(
    model_name, parallel="single", by_rows=False, steps=3, microbatches=1, seeds=0, rows=1, to_the_bit=True, **changes
):
    """(state, metrics) after some steps, on the host."""
    tx, run = program(model_name, parallel, by_rows, microbatches, seeds > 0, to_the_bit, **changes)
    create = lambda rng: TrainState.create(params_of(model_name), tx, rng)  # noqa: E731
    rng = jax.random.key(0)
    state = run.put_state(jax.vmap(create)(jax.random.split(rng, seeds)) if seeds else create(rng))
    for step in range(steps):
        batch = batch_at(step, rows)
        if seeds:
            batch = jax.tree.map(lambda x: np.stack([x] * seeds), batch)
        state, metrics = run.train_step(state, run.put_batch(batch))
    return run.get_state(state), run.get_state(metrics)


def paths(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def assert_equal(a, b, **tolerance):
    check = np.testing.assert_array_equal if not tolerance else np.testing.assert_allclose
    jax.tree.map(lambda x, y: check(x, y, **tolerance), a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("seq2seq, sampled", {"microbatches": 2}), ("language model, nce", {"seeds": 2}), ("language model, tree", {})],
)
def test_sgd_is_the_usual_update_to_the_bit(name, options):
    expected, usual = trained(name, **options)
    state, metrics = trained(name, by_rows=True, **options)
    assert_equal(state.params, expected.params)
    assert_equal(metrics["loss"], usual["loss"])
    np.testing.assert_allclose(metrics["grad_norm"].total, usual["grad_norm"].total, rtol=1e-6)
    before = paths(params_of(name))
    assert any(np.any(leaf != before[path]) for path, leaf in paths(state.params).items())
    assert "seeds" not in options or any(np.any(leaf[0] != leaf[1]) for leaf in jax.tree.leaves(state.params))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["pmap", "mesh"])
def test_sgd_is_the_usual_update_with_clipping_and_under_every_strategy(strategy):
    options = dict(parallel=strategy, microbatches=2, rows=4, clip="global", clip__norm=0.5, to_the_bit=False)
    expected, _ = trained("language model, tied", **options)
    state, _ = trained("language model, tied", by_rows=True, **options)
    assert_equal(state.params, expected.params, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_adam_moves_the_rows_that_are_read_and_leaves_the_others_alone():
    model, options = "seq2seq, sampled", dict(name="adam", learning_rate=0.1, eps=1e-3, to_the_bit=False)
    one, _ = trained(model, by_rows=True, steps=1, **options)
    usual, _ = trained(model, steps=1, **options)
    assert_equal(one.params, usual.params, rtol=1e-5, atol=1e-6)  # at the first step all moments are zero
    two, _ = trained(model, by_rows=True, steps=2, **options)
    tokens = set(np.unique(batch_at(1)["source"]))
    before, first, after = (
        np.asarray(params["source_embedding"]["embedding"]) for params in (params_of(model), one.params, two.params)
    )
    touched = np.flatnonzero(np.any(first != after, axis=1))
    assert set(touched) <= tokens and len(touched)
    never = list(set(range(len(before))) - tokens - set(np.unique(batch_at(0)["source"])))
    assert never and np.all(after[never] == before[never])


def test_tables_that_are_read_as_a_whole_are_none():
    """A full softmax that shares the embedding moves all its rows."""
    batch = jax.tree.map(jnp.asarray, batch_at(0))
    for name, expected in (
        ("seq2seq", {"source_embedding", "target_embedding"}),
        ("seq2seq, tied", {"source_embedding"}),
        ("seq2seq, sampled", {"source_embedding", "target_embedding", "output"}),
    ):
        found, _ = RowLoss(build(**MODELS[name])).tables(params_of(name), batch, jax.random.key(0))
        assert {path[0] for path in found} == expected


def test_merged_rows_hold_each_row_once():
    ids, rows = np.array([[3, 1, 3], [1, 0, 3]]), np.arange(12.0).reshape(2, 3, 2)
    other_ids, other_rows = np.array([[3], [2]]), np.full((2, 1, 2), 100.0)
    lookups = (Lookup(jnp.asarray(ids), jnp.asarray(rows)), Lookup(jnp.asarray(other_ids), jnp.asarray(other_rows)))
    touched = merge(lookups, num_rows=6)
    expected = np.zeros((6, 2))
    np.add.at(expected, ids, rows)
    np.add.at(expected, other_ids, other_rows)
    np.testing.assert_array_equal(touched.ids, [0, 1, 2, 3, 6, 6, 6, 6])
    np.testing.assert_array_equal(touched.gradient[:4], expected[:4])
    np.testing.assert_array_equal(touched.gradient[4:], 0)


def test_init_returns_parameters_alone():
    assert set(Embedding(vocab_size=5, features=3).init(jax.random.key(0), jnp.array([1, 2]))) == {"params"}
