"""Mechanisms that are wrappers of a part or files of their own: windows, gates, fitted lines, heads.

A mechanism without a table needs a line in MECHANISMS; an argument of build_attention that no line names makes a test
fail.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from zoo_code import CALL, MAKE, construct, imports, written
from zoo_entry import Entry, described_by, first_line
from zoo_example import CAUSAL, KEYS, MASK, QUERY, SIZE, VALUES, WIDTH, initialized
from zoo_example import SCORES as EXAMPLE

from attn_jax.attention import blockwise, build_attention, forgetting, gates, maps, rotary, selection, selective
from attn_jax.attention.hard import monotonic
from attn_jax.attention.local import WINDOWS
from attn_jax.attention.masks import causal
from attn_jax.attention.multi_head import MultiHead
from attn_jax.attention.normalizers import softmax
from attn_jax.attention.scores import Softcap
from attn_jax.attention.signed import FITS, Subtract


def _by(fields: dict[str, Callable[[], Any]], **named: Any) -> Callable[[], Any]:
    """Makes the weights of Attention with these fields."""

    def weights():
        made = {name: make() for name, make in fields.items()}
        return initialized(build_attention(score="scaled_dot", **made), QUERY, KEYS, VALUES, **named)[1].weights

    return weights


def _forgetting() -> jax.Array:
    log_gates = jnp.where(jnp.arange(SIZE) == 6, -3.0, -0.1)
    bias = forgetting.forgetting_bias(log_gates, jnp.arange(SIZE))
    return softmax(EXAMPLE + bias, CAUSAL)


def _selective() -> jax.Array:
    positions = jnp.arange(SIZE)
    selected = selective.selections(EXAMPLE, CAUSAL, positions)
    return softmax(EXAMPLE - selective.selected_before(selected), CAUSAL)


def _monotonic() -> jax.Array:
    rows, row = [], monotonic.initial_weights(MASK[0])
    for step in range(SIZE):
        row = monotonic.expected_weights(jax.nn.sigmoid(EXAMPLE[step]), row, MASK[step])
        rows.append(row)
    return jnp.stack(rows)


def _markov() -> jax.Array:
    return jnp.exp(monotonic.log_transition(EXAMPLE[0], MASK[0], monotonic=True))


def _heads() -> jax.Array:
    heads = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=2, features=WIDTH)
    return initialized(heads, QUERY, KEYS, VALUES)[1].weights[0]


def attention_code(fields: str, *parts: Any, call: str = CALL) -> str:
    return f'{MAKE}{imports(*parts)}\nattention = attn_jax.attention(score="scaled_dot", {fields})\n{call}'


AROUND = "model.attention.wrappers"
PLACED = CALL.replace("values)", "values, positions=jax.numpy.arange(len(query)))")
MECHANISMS: dict[str, tuple] = {  # name -> (arguments of build_attention, what has docstrings, option, weights, code)
    **{
        name: (
            ("window",),
            (kind,),
            f"{AROUND}={name}",
            _by({"window": lambda kind=kind: construct(kind)}, positions=jnp.arange(SIZE)),
            attention_code(f"window={written(kind)}", kind, call=PLACED),
        )
        for name, kind in WINDOWS.items()
    },
    **{
        name: (
            ("fit",),
            described_by(kind),
            f"{AROUND}={name}",
            _by({"fit": lambda kind=kind: construct(kind)}),
            attention_code(f"fit={written(kind)}", kind),
        )
        for name, kind in FITS.items()
        if kind
    },
    "difference": (
        ("difference",),
        (Subtract,),
        f"{AROUND}=difference",
        _by({"difference": Subtract}),
        attention_code("difference=Subtract()", Subtract),
    ),
    "softcap": (
        (),
        (Softcap,),
        f"{AROUND}=softcap --config.{AROUND}.parts.softcap.softcap=2.0",
        lambda: softmax(2 * jnp.tanh(EXAMPLE / 2)),
        f"{MAKE}from attn_jax.attention.scores import ScaledDot, Softcap\n\n"
        f"attention = attn_jax.attention(score=Softcap(score=ScaledDot(), softcap=2.0))\n{CALL}",
    ),
    "top_keys": (
        ("top_keys", "keys_per_block"),
        (selection.top_keys_mask,),
        f"{AROUND}=top_keys --config.{AROUND}.parts.top_keys.count=3",
        _by({"top_keys": lambda: 3}),
        attention_code("top_keys=3"),
    ),
    "hopfield": (
        ("iterations",),
        (maps.Hopfield,),
        f"{AROUND}=hopfield --config.{AROUND}.parts.hopfield.iterations=3",
        _by({"iterations": lambda: 3}),
        attention_code("iterations=3"),
    ),
    "context_gate": (
        ("gate",),
        (gates.ContextGate,),
        f"{AROUND}=gate",
        _by({"gate": lambda: True}),
        attention_code("gate=True"),
    ),
    "forget_gates": (
        ("forget_heads",),
        (forgetting.forgetting_bias, forgetting.ForgetGates),
        "model.positions=forgetting",
        _forgetting,
        "import jax.numpy as jnp\n\nfrom attn_jax import attend\n"
        "from attn_jax.attention.forgetting import forgetting_bias\n\n"
        "bias = forgetting_bias(jnp.full(len(keys), -0.1), jnp.arange(len(query)))\n"
        "attended = attend(query, keys, values, bias=bias)",
    ),
    "rotary": (
        ("rotary",),
        (rotary.Rotary, rotary.rotate),
        "model.positions=rotary",
        _by({"rotary": lambda: True}, positions=jnp.arange(SIZE)),
        attention_code("rotary=True", call=PLACED),
    ),
    "selective": (("selective",), (selective,), f"{AROUND}=selective", _selective, ""),
    "monotonic": (
        ("monotonic",),
        (monotonic.MonotonicSelection, monotonic.expected_weights),
        "model.attention.normalize=monotonic",
        _monotonic,
        "",
    ),
    "hidden_markov": ((), (monotonic.log_transition, monotonic.forward), "model.objective=markov", _markov, ""),
    "heads": (
        (),
        (MultiHead,),
        "model.num_heads=2",
        _heads,
        "import jax\n\nimport attn_jax\n\n"
        'heads = attn_jax.MultiHead(attention=attn_jax.attention(score="scaled_dot"), num_heads=2, features=4)\n'
        "variables = heads.init(jax.random.key(0), query, keys, values)\n"
        "attended = heads.apply(variables, query, keys, values)",
    ),
    "blockwise": (
        ("block_size",),
        (blockwise.blockwise_attention, blockwise),
        "model.attention.block_size=4",
        _by({"block_size": lambda: 4}, mask=causal),
        attention_code("block_size=4"),
    ),
}
# They have tables of their own, or make no weights.
PLAIN_FIELDS = {"score", "normalize", "read", "dropout", "dtype"}


def mechanisms() -> list[Entry]:
    """Returns what is not in a table of scores, normalizers and readings."""
    return [
        Entry("mechanisms", name, fields, described, first_line("mechanisms", name), weights, code, option)
        for name, (fields, described, option, weights, code) in MECHANISMS.items()
    ]
