"""Training steps that update only the rows of a table that the step reads.

If a step reads n rows of a table of v rows (an embedding, a sampled output layer), the gradient of the other rows is
zero. Here the gradient, the moments of the optimizer and the update have only n rows, so that the cost of a step does
not depend on v.

For sgd without momentum the result equals the usual update. With momentum, adam and adamw, a row that is not read keeps
its moments and does not change, while the usual update decays its moments and keeps changing it ("lazy" Adam); the bias
correction counts all steps. Clipping uses the norm of the whole gradient, which is the same.
"""

from typing import NamedTuple

import flax
import jax
import jax.numpy as jnp
import optax

from attn_jax.layers.rows import path_of_table
from attn_jax.models.base import RowLoss
from attn_jax.types import Array, Batch, Callable, Float, Int, Metrics, Params, PRNGKeyArray, PyTree

Path = tuple[str, ...]


class Lookup(NamedTuple):
    """Rows of a table that a loss reads, and the gradient with respect to them."""

    ids: Int[Array, "..."]
    gradient: Float[Array, "..."]  # ids.shape + row.shape


def row_gradients(
    loss: RowLoss, params: Params, batch: Batch, rng: PRNGKeyArray, step: Array
) -> tuple[dict[Path, Array], Metrics, dict[Path, tuple[Lookup, ...]]]:
    """Computes the gradient of a loss.

    Returns:
        The gradients of the parameters that are not tables, by path; the metrics; and the lookups in each table.
    """
    tables, shapes = loss.tables(params, batch, rng)
    flat = flax.traverse_util.flatten_dict(params)
    dense = {path: x for path, x in flat.items() if path not in tables}
    zeros = flax.traverse_util.flatten_dict(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))
    trained = {path: x for path, x in zeros.items() if path_of_table(path) in tables}

    def total(dense, trained):
        every = flax.traverse_util.unflatten_dict(flat | dense)
        perturbations = flax.traverse_util.unflatten_dict(zeros | trained)
        return loss(every, perturbations, batch, rng, step)

    (_, (metrics, ids)), (grads, rows) = jax.value_and_grad(total, (0, 1), has_aux=True)(dense, trained)
    ids = flax.traverse_util.flatten_dict(ids)
    lookups: dict[Path, tuple[Lookup, ...]] = {}
    for path, gradient in rows.items():
        lookups[path_of_table(path)] = (*lookups.get(path_of_table(path), ()), Lookup(ids[path], gradient))
    return grads, metrics, lookups


class Touched(NamedTuple):
    """The distinct rows of a table that a step reads, and their gradient.

    Unused entries have the id v, a row that does not exist, and gradient zero.
    """

    ids: Int[Array, "n"]
    gradient: Float[Array, "n ..."]


def merge_all(
    lookups: dict[Path, tuple[Lookup, ...]], params: Params, mean: Callable[[Array], Array]
) -> dict[Path, Touched]:
    """Merges the lookups in each table; `mean` turns a sum of gradients into the gradient of the mean loss."""
    tables = flax.traverse_util.flatten_dict(params)
    merged = {path: merge(some, len(tables[path])) for path, some in lookups.items()}
    return {path: Touched(rows.ids, mean(rows.gradient)) for path, rows in merged.items()}


def merge(lookups: tuple[Lookup, ...], num_rows: int) -> Touched:
    """Sums the gradients of lookups, whose first axis counts the parts of a batch.

    The parts are added one after another, as in the gradient of a whole table, so that the sums have the same bits.
    """
    parts = [lookup.ids.reshape(len(lookup.ids), -1) for lookup in lookups]
    ids = jnp.concatenate(parts, axis=1)
    unique, slots = jnp.unique(ids, size=ids.size, fill_value=num_rows, return_inverse=True)
    slots = jnp.split(slots.reshape(ids.shape), _ends(parts), axis=1)
    rows = [
        x.gradient.reshape(*part.shape, *x.gradient.shape[x.ids.ndim :]) for x, part in zip(lookups, parts, strict=True)
    ]
    zeros = jnp.zeros((ids.size, *rows[0].shape[2:]), rows[0].dtype)

    def add(so_far, part):
        sums = [zeros.at[slot].add(row) for slot, row in zip(*part, strict=True)]
        return so_far + sum(sums[1:], sums[0]), None

    return Touched(unique, jax.lax.scan(add, zeros, (slots, rows))[0])


def update_rows(
    tx: optax.GradientTransformation,
    params: Params,
    opt_state: PyTree,
    grads: dict[Path, Array],
    touched: dict[Path, Touched],
) -> tuple[Params, PyTree]:
    """Applies an optimizer to the parameters `grads` and to the `touched` rows of tables; returns the new state.

    `tx` sees a tree of parameters in which each table has only its touched rows, so it must be elementwise within an
    array, except for norms; all optimizers of optimizers.py are.
    """
    flat = flax.traverse_util.flatten_dict(params)
    rows_of = {path: _Rows(touched[path].ids if path in touched else None) for path in flat}
    rows_of = flax.traverse_util.unflatten_dict(rows_of)
    everywhere = optax.tree_map_params(
        tx, lambda _, rows: rows, opt_state, rows_of, transform_non_params=lambda _: _Rows(None)
    )
    some_params = jax.tree.map(lambda rows, x: rows.take(x), rows_of, params)
    some_state = jax.tree.map(lambda rows, x: rows.take(x), everywhere, opt_state)
    gradient = flax.traverse_util.unflatten_dict(grads | {path: rows.gradient for path, rows in touched.items()})
    updates, some_state = tx.update(gradient, some_state, some_params)
    some_params = optax.apply_updates(some_params, updates)
    return (
        jax.tree.map(lambda rows, x, new: rows.put(x, new), rows_of, params, some_params),
        jax.tree.map(lambda rows, x, new: rows.put(x, new), everywhere, opt_state, some_state),
    )


class _Rows:
    """Some rows of an array, or all of it if ids is None; a leaf of a pytree."""

    def __init__(self, ids: Int[Array, "n"] | None):
        self.ids = ids

    def take(self, x: Array) -> Array:
        return x if self.ids is None else x.at[self.ids].get(mode="fill", fill_value=0)

    def put(self, x: Array, new: Array) -> Array:
        return new if self.ids is None else x.at[self.ids].set(new, mode="drop", unique_indices=False)


def _ends(parts: list[Array]) -> list[int]:
    """Returns the places between neighbouring parts, joined along the second axis."""
    ends, total = [], 0
    for part in parts[:-1]:
        total += part.shape[1]
        ends.append(total)
    return ends
