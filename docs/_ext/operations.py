"""How many operations on numbers a function takes, counted in its jaxpr: no clock, so every build says the same.

A product of matrices counts two for each multiplication, a sum one for each number, an elementwise function one, a sort
n log2 n; moving numbers counts nothing. A loop whose number of turns depends on the numbers counts one turn, and the
result says so.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

MOVES = {
    *("reshape", "broadcast_in_dim", "transpose", "squeeze", "expand_dims", "slice", "dynamic_slice", "concatenate"),
    *("convert_element_type", "iota", "copy", "copy_p", "pad", "gather", "stop_gradient", "rev", "split", "select_n"),
    *("dynamic_update_slice", "random_bits", "random_wrap", "random_unwrap", "random_fold_in", "random_split"),
}


class Operations(NamedTuple):
    """Their number, and whether a loop has an unknown number of turns."""

    number: float
    open_loop: bool = False

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(self.number + other.number, self.open_loop or other.open_loop)


def count(function: Callable, *arguments: Any) -> Operations:
    """Counts the operations of a function at arguments, arrays or shapes."""
    return _of(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of(jaxpr: Any) -> Operations:
    return sum((_equation(equation) for equation in jaxpr.eqns), Operations(0))


def _equation(equation: Any) -> Operations:
    name, parameters = equation.primitive.name, equation.params
    if name == "scan":
        inside = _of(parameters["jaxpr"].jaxpr)
        return Operations(inside.number * parameters["length"], inside.open_loop)
    if name == "while":
        return _of(parameters["body_jaxpr"].jaxpr)._replace(open_loop=True)
    if name == "cond":
        return max((_of(branch.jaxpr) for branch in parameters["branches"]), key=lambda found: found.number)
    inside = [value for key, value in parameters.items() if key in ("jaxpr", "call_jaxpr", "fun_jaxpr")]
    if inside:
        return _of(getattr(inside[0], "jaxpr", inside[0]))
    read, made = (sum(math.prod(x.aval.shape) for x in side) for side in (equation.invars, equation.outvars))
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        return Operations(2 * made * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted))
    if name == "sort":
        length = equation.invars[0].aval.shape[parameters["dimension"]]
        return Operations(read * math.log2(max(length, 2)))
    if name in MOVES:
        return Operations(0)
    return Operations(read if name.startswith(("reduce", "cum", "arg", "top_k")) else made)
