"""Lookups of rows of a table, in a form that a training step can differentiate by rows.

The gradient of table[ids] with respect to a table of v rows has v rows, and so do the updates and moments of an
optimizer, although only the rows `ids` differ from zero. So there is a second way: a variable that is zero is added to
the rows, and its gradient has one row for each id.

    plain          table[ids]
    row by row     table[ids] + perturbation, with the table held constant; ids are returned in the collection ROW_IDS

training/row_updates.py uses this gradient. A table that is also read as a whole has the plain gradient.
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.loops import by_compiler
from attn_jax.types import Array, Float, Int

PERTURBATIONS = "row_perturbations"  # collection of the variables that are added to the rows, all zero
ROW_IDS = "row_ids"  # collection of the ids of each lookup
WHOLE = "whole_tables"  # collection that names the tables that are read as a whole


class RowTable:
    """A parameter [v, ...] with one row for each of v words, which can be read by rows or as a whole."""

    def __init__(self, module: nn.Module, name: str, table: Float[Array | np.ndarray, "v ..."]):
        """
        Args:
            module: the module that owns the parameter.
            name: name of the parameter.
            table: value of the parameter.
        """
        self.module, self.name, self._table = module, name, jnp.asarray(table)

    def whole(self) -> Float[Array, "v ..."]:
        """Returns all rows."""
        if self.module.is_mutable_collection(WHOLE) and not self.module.is_initializing():
            self.module.put_variable(WHOLE, self.name, jnp.zeros(()))
        return self._table

    def take(self, ids: Int[Array, "..."]) -> Float[Array, "..."]:
        """Returns the rows `ids`, of shape ids.shape + row.shape."""
        rows = _rows(ids, self._table)
        if self.module.is_initializing() or not self.module.is_mutable_collection(ROW_IDS):
            return rows
        label = f"{self.name}.{self._num_lookups()}"
        self.module.put_variable(ROW_IDS, label, ids)
        return self.module.perturb(label, rows, collection=PERTURBATIONS)

    def _num_lookups(self) -> int:
        """Returns the number of earlier lookups in this parameter, including those of other RowTables."""
        labels = self.module.variables.get(ROW_IDS, {})
        return sum(table_of(label) == self.name for label in labels)


def table_of(label: str) -> str:
    """Returns the name of the parameter of a lookup."""
    return label.rpartition(".")[0]


def path_of_table(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the path of the parameter of a lookup, from the path of the lookup."""
    return (*path[:-1], table_of(path[-1]))


def whole(table: RowTable | Float[Array, "v ..."]) -> Float[Array, "v ..."]:
    """Returns all rows of a table, which may be an array."""
    return table.whole() if isinstance(table, RowTable) else table


def take(table: RowTable | Float[Array, "v ..."], ids: Int[Array, "..."]) -> Float[Array, "..."]:
    """Returns the rows `ids` of a table, which may be an array."""
    return table.take(ids) if isinstance(table, RowTable) else _rows(ids, table)


@by_compiler
def _rows(ids: Int[Array, "..."], table: Float[Array, "v ..."]) -> Float[Array, "..."]:
    return jnp.take(table, ids, axis=0)
