"""What is in the zoo: the tables of the package, and mechanisms that are fields of Attention or files of their own.

A new line in a table of the package is a new page without a change here. A mechanism without a table needs a line in
MECHANISMS; a field of Attention that no line names makes a test fail.
"""

import dataclasses
import functools
import inspect
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from docstrings import cites, text_of
from zoo_example import CAUSAL, KEYS, MASK, QUERY, RNG, SIZE, VALUES, WIDTH, initialized
from zoo_example import SCORES as EXAMPLE

from attn_jax.attention import blockwise, core, gates, selection, selective
from attn_jax.attention.hard import baselines, monotonic, readings
from attn_jax.attention.local import WINDOWS
from attn_jax.attention.masks import causal
from attn_jax.attention.multi_head import MultiHead
from attn_jax.attention.names import required_options
from attn_jax.attention.normalizers import NORMALIZERS, entmax, fusedmax
from attn_jax.attention.scores import SCORES, Softcap
from attn_jax.attention.signed import FITS, Difference
from attn_jax.attention.written import Linear, Mesa, dense, make_writes
from attn_jax.attention.written.heads import WRITTEN
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.models.seq2seq import objectives
from attn_jax.models.seq2seq.objective_options import OBJECTIVES
from attn_jax.options import options_of
from attn_jax.outputs import OUTPUTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {  # kind -> (title, what its entries are, option that chooses one)
    "scores": ("Scores", "How well a query and a key match.", "model.attention.score"),
    "normalizers": ("Normalizers", "From the scores of a row to its weights.", "model.attention.normalize"),
    "readings": ("Readings", "What is read with a row of weights, and the gradient of it.", "model.attention.read"),
    "baselines": ("Baselines", "What is subtracted from the loss at a sampled key.", "model.attention.baseline"),
    "objectives": ("Objectives", "Which loss a decoder with attention minimizes.", "model.objective"),
    "mechanisms": ("Mechanisms", "What else attention can have: windows, gates, fitted lines, heads.", ""),
    "memories": ("Memories of fixed size", "Keys and values are written into one matrix.", "model.attention.memory"),
    "outputs": ("Output layers", "From hidden states to words.", "model.output.name"),
}
TEXTS = {  # the first line of entries whose docstrings begin with something else
    ("baselines", "none"): "b = 0: nothing is subtracted.",
    ("baselines", "leave_one_out"): "b = the mean loss of the other samples (Kool 2019), computed by the reading.",
    ("baselines", "soft"): "b = the loss at the mean context, that of soft attention (Deng 2018).",
    ("mechanisms", "hopfield"): "Several reads: the mean of the keys under the weights is the next query.",
}
NO_PAPER = {  # entries that need none, and why
    ("scores", "constant"): "It is the mean, which needs no paper; the measure that any other score has to beat.",
    ("readings", "adaptive"): "It was made for this package; its measurements are in results.md.",
    ("baselines", "adaptive"): "It was made for this package; its measurements are in results.md.",
    ("memories", "ridge"): "Ridge regression, solved for each query.",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One page: what it describes, the objects whose docstrings say it, and how its weights are made."""

    kind: str
    name: str
    value: Any  # the entry of the table
    described: tuple = ()  # objects with docstrings, the most special first
    text: str = ""  # in place of docstrings
    weights: Callable[[], Any] | None = None  # on the shared example
    code: str = ""  # how it is used
    option: str = ""

    @property
    def papers(self) -> str:
        """All text in which a paper may be named."""
        return "\n".join([self.text, *(text_of(part) for part in self.described)])

    @property
    def reason(self) -> str:
        """Why there is no paper."""
        return NO_PAPER.get((self.kind, self.name), "")

    @property
    def is_cited(self) -> bool:
        """Tells whether a paper is named, or said why there is none."""
        return bool(self.reason) or cites(self.papers)

    @property
    def file(self) -> pathlib.Path:
        """The file of the first described object."""
        for part in self.described:
            if found := source_of(part):
                return found
        return pathlib.Path(inspect.getfile(core)).resolve()


def source_of(part: Any) -> pathlib.Path | None:
    """Returns the file of an object, if it is one of the package."""
    try:
        found = pathlib.Path(inspect.getsourcefile(inspect.unwrap(part))).resolve()
    except TypeError:
        return None
    return found if found.is_relative_to(ROOT / "attn_jax") else None


def described_by(part: Any) -> tuple:
    """Returns what describes an object: itself, functions of its file that its docstring names, and, if none of these
    cites a paper, its file."""
    module, text = sys.modules[part.__module__], text_of(part)
    own = [x for x in vars(module).values() if inspect.isfunction(x) and x.__module__ == module.__name__]
    own = [x for x in own if x not in NORMALIZERS.values()]  # those have pages of their own
    named = [x for x in own if x is not part and text_of(x) and re.search(rf"\b{x.__name__}\b", text)]
    found = (part, *named)
    return found if any(cites(text_of(x)) for x in found) else (*found, module)


def options_for(kind: type) -> dict[str, Any]:
    """Chooses values for the required fields of a class, for the example: small ones."""
    small = {"query_features": WIDTH, "features": 8, "max_length": SIZE, "num_features": 64, "size": 2, "softcap": 2.0}
    defaults = {key: option.default for key, option in options_of(AttentionOptions).items()}
    needed = required_options(kind)
    if missing := [name for name in needed if name not in defaults | small]:
        raise ValueError(f"{kind.__name__} needs {', '.join(missing)}: give small values in docs/_ext/zoo_entries.py")
    return {name: (defaults | small)[name] for name in needed}


def construct(kind: Any) -> Any:
    """Makes an object of a class with options for the example; a function is itself."""
    if not isinstance(kind, type):
        return kind
    fixed = {"width": (1.5,)} if getattr(kind, "compact", False) else {}
    return kind(**options_for(kind), **fixed)


def written(kind: Any) -> str:
    """Writes down `construct`."""
    made = options_for(kind) | ({"width": (1.5,)} if getattr(kind, "compact", False) else {})
    return f"{kind.__name__}({', '.join(f'{name}={value!r}' for name, value in made.items())})"


def _imports(*parts: Any) -> str:
    return "".join(f"from {part.__module__} import {part.__name__}\n" for part in parts)


MAKE = "import jax\n\nfrom attn_jax import Attention\n"
CALL = "variables = attention.init(jax.random.key(0), query, keys, values)\n"
CALL += "attended = attention.apply(variables, query, keys, values)"


def scores() -> list[Entry]:
    """Returns the entries of SCORES."""
    found = []
    for name, kind in SCORES.items():
        normalize = "kernel_sum" if kind.compact else "softmax"

        def weights(kind=kind, normalize=normalize):
            attention = core.Attention(score=construct(kind), normalize=normalize)
            return initialized(attention, _queries(kind), KEYS, VALUES)[1].weights

        fields = [f"score={written(kind)}", *(['normalize="kernel_sum"'] if kind.compact else [])]
        parents = tuple(base for base in kind.__mro__[1:] if base.__module__ == kind.__module__ and text_of(base))
        code = f"{MAKE}{_imports(kind)}\nattention = Attention({', '.join(fields)})\n{CALL}"
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
            code = (
                f'{MAKE}{_imports(kind)}\nattention = Attention(score="scaled_dot", normalize={written(kind)})\n{CALL}'
            )
        else:
            code = f'import attn_jax\n\nattended = attn_jax.attend(query, keys, values, normalize="{name}")'
        described = tuple(dict.fromkeys((*described_by(kind), *also.get(name, ()))))
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
        found.append(Entry("readings", name, reading, described, code=code, option=name))
    return found


def _first(kind: str, name: str) -> str:
    """Returns the first line of an entry in TEXTS as an item of a list; "" where there is none."""
    text = TEXTS.get((kind, name), "")
    return f"- {text}\n" if text else ""


def baseline_entries() -> list[Entry]:
    """Returns the entries of BASELINES."""
    found = []
    for name, kind in baselines.BASELINES.items():
        part = baselines if name in ("leave_one_out", "soft") else kind  # NoBaseline stands for these two
        found.append(Entry("baselines", name, kind, (part,), _first("baselines", name), option=name))
    return found


def objective_entries() -> list[Entry]:
    """Returns the objectives of the decoders."""
    classes = [x for x in vars(objectives).values() if isinstance(x, type) and x.__module__ == objectives.__name__]
    found = []
    for name, allowed in OBJECTIVES.items():
        of_name = [x for x in classes if x.__name__.lower().startswith(name)]
        found.append(Entry("objectives", name, allowed, (*of_name, objectives), option=name))
    return found


def mechanisms() -> list[Entry]:
    """Returns what is not in a table of scores, normalizers and readings."""
    return [
        Entry("mechanisms", name, fields, described, _first("mechanisms", name), weights, code, option)
        for name, (fields, described, option, weights, code) in MECHANISMS.items()
    ]


def _by(fields: dict[str, Callable[[], Any]], **named: Any) -> Callable[[], Any]:
    """Makes the weights of Attention with these fields."""

    def weights():
        made = {name: make() for name, make in fields.items()}
        return initialized(core.Attention(score="scaled_dot", **made), QUERY, KEYS, VALUES, **named)[1].weights

    return weights


def _forgetting() -> jax.Array:
    log_gates = jnp.where(jnp.arange(SIZE) == 6, -3.0, -0.1)
    bias = gates.forgetting_bias(log_gates, jnp.arange(SIZE))
    return core.softmax(EXAMPLE + bias, CAUSAL)


def _selective() -> jax.Array:
    positions = jnp.arange(SIZE)
    selected = selective.selections(EXAMPLE, CAUSAL, positions)
    return core.softmax(EXAMPLE - selective.selected_before(selected), CAUSAL)


def _monotonic() -> jax.Array:
    rows, row = [], monotonic.initial_weights(MASK[0])
    for step in range(SIZE):
        row = monotonic.expected_weights(jax.nn.sigmoid(EXAMPLE[step]), row, MASK[step])
        rows.append(row)
    return jnp.stack(rows)


def _markov() -> jax.Array:
    return jnp.exp(monotonic.log_transition(EXAMPLE[0], MASK[0], monotonic=True))


def _heads() -> jax.Array:
    heads = MultiHead(attention=core.Attention(score="scaled_dot"), num_heads=2, features=WIDTH)
    return initialized(heads, QUERY, KEYS, VALUES)[1].weights[0]


def _attention_code(fields: str, *parts: Any, call: str = CALL) -> str:
    return f'{MAKE}{_imports(*parts)}\nattention = Attention(score="scaled_dot", {fields})\n{call}'


PLACED = CALL.replace("values)", "values, positions=jax.numpy.arange(len(query)))")
MECHANISMS: dict[str, tuple] = {  # name -> (fields of Attention, what has docstrings, option, weights, code)
    **{
        name: (
            ("window",),
            (kind,),
            f"model.attention.window={name}",
            _by({"window": lambda kind=kind: construct(kind)}, positions=jnp.arange(SIZE)),
            _attention_code(f"window={written(kind)}", kind, call=PLACED),
        )
        for name, kind in WINDOWS.items()
    },
    **{
        name: (
            ("fit",),
            described_by(kind),
            f"model.attention.fit={name}",
            _by({"fit": lambda kind=kind: construct(kind)}),
            _attention_code(f"fit={written(kind)}", kind),
        )
        for name, kind in FITS.items()
        if kind
    },
    "difference": (
        ("difference",),
        (Difference,),
        "model.attention.difference=True",
        _by({"difference": Difference}),
        _attention_code("difference=Difference()", Difference),
    ),
    "softcap": (
        (),
        (Softcap,),
        "model.attention.softcap=2.0",
        lambda: core.softmax(2 * jnp.tanh(EXAMPLE / 2)),
        f"{MAKE}from attn_jax.attention.scores import ScaledDot, Softcap\n\n"
        f"attention = Attention(score=Softcap(score=ScaledDot(), softcap=2.0))\n{CALL}",
    ),
    "top_keys": (
        ("top_keys", "keys_per_block"),
        (selection.top_keys_mask,),
        "model.attention.top_keys=3",
        _by({"top_keys": lambda: 3}),
        _attention_code("top_keys=3"),
    ),
    "hopfield": (
        ("iterations",),
        (core.Attention,),
        "model.attention.iterations=3",
        _by({"iterations": lambda: 3}),
        _attention_code("iterations=3"),
    ),
    "context_gate": (
        ("gate",),
        (gates.ContextGate,),
        "model.attention.gate=True",
        _by({"gate": lambda: True}),
        _attention_code("gate=True"),
    ),
    "forget_gates": (
        (),
        (gates.forgetting_bias, gates.ForgetGates),
        "model.positions=forgetting",
        _forgetting,
        "import jax.numpy as jnp\n\nfrom attn_jax import attend\n"
        "from attn_jax.attention.gates import forgetting_bias\n\n"
        "bias = forgetting_bias(jnp.full(len(keys), -0.1), jnp.arange(len(query)))\n"
        "attended = attend(query, keys, values, bias=bias)",
    ),
    "selective": ((), (selective,), "model.attention.selective=True", _selective, ""),
    "monotonic": (
        ("monotonic",),
        (monotonic.MonotonicSelection, monotonic.expected_weights),
        "model.attention.normalize=monotonic",
        _monotonic,
        "",
    ),
    "hidden_markov": ((), (monotonic.log_transition, monotonic.forward), "", _markov, ""),
    "heads": (
        (),
        (MultiHead,),
        "model.num_heads=2",
        _heads,
        "import jax\n\nfrom attn_jax import Attention, MultiHead\n\n"
        'heads = MultiHead(attention=Attention(score="scaled_dot"), num_heads=2, features=4)\n'
        "variables = heads.init(jax.random.key(0), query, keys, values)\n"
        "attended = heads.apply(variables, query, keys, values)",
    ),
    "blockwise": (
        ("block_size",),
        (blockwise.blockwise_attention, blockwise),
        "model.attention.block_size=4",
        _by({"block_size": lambda: 4}, mask=causal),
        _attention_code("block_size=4"),
    ),
}
PLAIN_FIELDS = {
    "score",
    "normalize",
    "read",
    "dropout",
    "parent",
    "name",
}  # have tables of their own, or make no weights


def memories() -> list[Entry]:
    """Returns the entries of WRITTEN, described by the table of docs/written_memory.md and the file of their rule."""
    text = (ROOT / "docs" / "written_memory.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+\|[^|]+\|[^|]+)\|$", text, re.MULTILINE))
    found = []
    for name, kind in WRITTEN.items():
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
        said += "- symbols: [written_memory.md](../../written_memory.md)\n"
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
    return [entry for make in makers for entry in make()]
