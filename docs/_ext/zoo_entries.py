"""What is in the zoo: an entry for each line of the tables of the package, and the mechanisms.

A new line in a table of the package is a new page without a change here.
"""

import dataclasses
import functools
import inspect
import re
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from docstrings import text_of
from zoo_code import CALL, MAKE, construct, imports, options_for, written
from zoo_entry import ROOT, Entry, described_by, first_line
from zoo_example import KEYS, QUERY, RNG, SIZE, VALUES, WIDTH, initialized
from zoo_example import SCORES as EXAMPLE
from zoo_mechanisms import mechanisms

from attn_jax.attention import build_attention
from attn_jax.attention.hard import readings
from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.attention.normalizers import NORMALIZERS, Normalizer, entmax, fusedmax
from attn_jax.attention.recurrent import Linear, Mesa, dense, make_writes
from attn_jax.attention.recurrent.heads import RECURRENT
from attn_jax.attention.scores import SCORES
from attn_jax.models.attention_options import DETERMINISTIC
from attn_jax.models.seq2seq import objectives
from attn_jax.models.seq2seq.objective_options import OBJECTIVES
from attn_jax.outputs import OUTPUTS

HARD = "model.objective=hard --config.model.objective.reading"


def scores() -> list[Entry]:
    """Returns the entries of SCORES."""
    found = []
    for name, kind in SCORES.items():
        normalize = "kernel_sum" if kind.compact else "softmax"

        def weights(kind=kind, normalize=normalize):
            attention = build_attention(score=construct(kind), normalize=normalize)
            return initialized(attention, _queries(kind), KEYS, VALUES)[1].weights

        fields = [f"score={written(kind)}", *(['normalize="kernel_sum"'] if kind.compact else [])]
        parents = tuple(base for base in kind.__mro__[1:] if base.__module__ == kind.__module__ and text_of(base))
        code = f"{MAKE}{imports(kind)}\nattention = attn_jax.attention({', '.join(fields)})\n{CALL}"
        found.append(Entry("scores", name, kind, (kind, *parents), weights=weights, code=code, option=name))
    return found


def _queries(kind: type) -> jax.Array:
    """Queries for a score; learned ones, as wide as its hidden layer, for one that has such."""
    return jax.random.normal(RNG, (SIZE, options_for(kind)["features"])) if kind.own_width else QUERY


def normalizers() -> list[Entry]:
    """Returns the entries of NORMALIZERS."""
    also = {"fusedmax": (fusedmax,)} | dict.fromkeys(("entmax15", "entmax", "learned_entmax"), (entmax,))
    found = []
    for name, kind in NORMALIZERS.items():

        def weights(kind=kind):
            return normalized(kind)[0]

        if isinstance(kind, type):
            made = f'attention = attn_jax.attention(score="scaled_dot", normalize={written(kind)})'
            code = f"{MAKE}{imports(kind)}\n{made}\n{CALL}"
        else:
            code = f'import attn_jax\n\nattended = attn_jax.attend(query, keys, values, normalize="{name}")'
        written_as = kind.function if isinstance(kind, Normalizer) else kind
        described = tuple(dict.fromkeys((*described_by(written_as), *also.get(name, ()))))
        found.append(Entry("normalizers", name, kind, described, weights=weights, code=code, option=name))
    return found


@functools.cache
def normalized(kind: Any) -> tuple[Any, bool, int]:
    """Returns (weights, whether scores + 3 have the same, number of parameters) of an entry of NORMALIZERS.

    Parameters are drawn anew for the comparison: with those at the start, some are softmax.
    """
    made = construct(kind)
    both = jnp.stack([EXAMPLE, EXAMPLE + 3])
    if isinstance(made, nn.Module):
        query = jnp.stack([QUERY, QUERY])
        variables, (weights, _) = initialized(made, both, query=query)
        drawn = jax.tree.map(lambda x: x + jax.random.normal(RNG, x.shape), variables)
        one, moved = jax.jit(made.apply)(drawn, both, query=query)
        return weights, np.allclose(one, moved, atol=1e-5), sum(x.size for x in jax.tree.leaves(variables))
    weights, moved = jax.jit(made)(both)
    return weights, np.allclose(weights, moved, atol=1e-5), 0


def reading_entries() -> list[Entry]:
    """Returns the entries of READINGS."""
    found = []
    for name, reading in readings.READINGS.items():
        code = "import jax\n\nfrom attn_jax import attend, combine, log_of\n"
        code += f"from attn_jax.attention.hard.readings import {name}\n\n"
        code += f"sample = {name}()(jax.random.key(0), log_of(attend(query, keys, values).weights))\n"
        code += "losses = ((sample.rows @ values) ** 2).sum(-1)  # your loss, at each row that was read\n"
        code += "surrogate = combine(sample, losses)  # minimize this"
        described = (getattr(readings, name), reading.function)
        option = f"model.attention.read={name}" if name in DETERMINISTIC else f"{HARD}={name}"
        found.append(Entry("readings", name, reading, described, code=code, option=option))
    return found


def baseline_entries() -> list[Entry]:
    """Returns the entries of BASELINES."""
    return [
        Entry("baselines", name, kind, (kind,), first_line("baselines", name), option=name)
        for name, kind in BASELINES.items()
    ]


def objective_entries() -> list[Entry]:
    """Returns the objectives of the decoders."""
    classes = [x for x in vars(objectives).values() if isinstance(x, type) and x.__module__ == objectives.__name__]
    found = []
    for name, kind in OBJECTIVES.items():
        of_name = [x for x in classes if x.__name__.lower().startswith(name)] or [kind]
        found.append(Entry("objectives", name, kind, (*of_name, objectives), option=name))
    return found


def memories() -> list[Entry]:
    """Returns the entries of RECURRENT, described by docs/recurrent_memory.md and the file of their rule."""
    text = (ROOT / "docs" / "recurrent_memory.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+\|[^|]+\|[^|]+)\|$", text, re.MULTILINE))
    found = []
    for name, kind in RECURRENT.items():
        write, read, paper = (cell.strip() for cell in rows[name].split("|"))

        def weights(kind=kind):
            rule = Mesa(ridge=jnp.ones(WIDTH), steps=0) if kind.rule is Mesa else kind.rule()
            unit = lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
            query, keys = (jax.nn.elu(x) + 1 for x in (QUERY, KEYS)) if kind.maps else (unit(QUERY), unit(KEYS))
            rule = Linear(normalized=True) if kind.maps else rule
            decay = jnp.full((SIZE, 1), -0.2) if kind.decay is not None else None
            rates = jnp.full(SIZE, 0.7) if kind.rated else None
            return dense(rule, query, make_writes(keys, VALUES, rates=rates, log_decay=decay))[1]

        said = f"- write: {write}\n- read: {read}\n- paper: {paper}\n"
        said += "- symbols: [recurrent_memory.md](../../recurrent_memory.md)\n"
        described = (sys.modules[kind.rule.__module__],)
        found.append(Entry("memories", name, kind, described, text=said, weights=weights, option=name))
    return found


def outputs() -> list[Entry]:
    """Returns the entries of OUTPUTS: the layer, and the loss it is trained by."""
    found = []
    for name, options in OUTPUTS.items():
        layer = inspect.signature(options.build).return_annotation
        layer = getattr(sys.modules[options.__module__], layer) if isinstance(layer, str) else layer
        criterion = (options.criterion,) if hasattr(options, "criterion") else ()
        described = (*criterion, layer, sys.modules[layer.__module__], *(sys.modules[x.__module__] for x in criterion))
        code = f"from {options.__module__} import {options.__name__}\nfrom attn_jax.outputs import OutputSetting\n\n"
        code += (
            f"layer = {options.__name__}({'num_samples=64' if criterion else ''}).build(OutputSetting(vocab_size=1000))"
        )
        found.append(Entry("outputs", name, options, described, code=code, option=name))
    return found


def entries() -> list[Entry]:
    """Returns all entries, kind by kind."""
    makers = scores, normalizers, reading_entries, baseline_entries, objective_entries, mechanisms, memories, outputs
    found = (entry for make in makers for entry in make())
    return [dataclasses.replace(x, weights=x.weights and functools.cache(x.weights)) for x in found]
