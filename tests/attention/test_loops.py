"""Within shard_map, with its default checks, each mechanism with a loop is what it is without, gradients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from attn_jax.attention import NORMALIZERS, build_attention
from attn_jax.attention.core import Attention
from attn_jax.attention.hard.monotonic import forward, log_transition
from attn_jax.attention.masks import causal
from attn_jax.attention.recurrent import Delta, Linear, Mesa, chunked, make_writes, recurrent
from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.outputs import OUTPUTS
from attn_jax.outputs.adaptive import GivenCutoffs
from attn_jax.outputs.base import OutputSetting

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(4, 5, 4)), jnp.float32)  # [b, n, d], b of two devices
BY_BLOCKS = sorted(name for name, x in NORMALIZERS.items() if x.has_form)


def attention(name, block_size=0):
    module = build_attention(score="scaled_dot", normalize=name, block_size=block_size)
    return module, lambda params, x: module.apply(params, x, x, mask=causal).context


def written(rule, form):
    def call(params, x):
        writes = make_writes(x, jnp.sin(x), rates=jnp.abs(x[..., 0]), log_decay=-jnp.abs(x[..., :1]))
        return form(rule, jnp.cos(x), writes)

    return None, call


def recurrence(name):
    module = Recurrence(cell=CELLS[name], features=3)
    mask = jnp.arange(5) < 4
    return module, lambda params, x: module.apply(params, x, jnp.broadcast_to(mask, x.shape[:2]))[1]


def output(name):
    options = OUTPUTS[name]
    small = {"num_samples": 6, "chunk_size": 7, "cutoffs": GivenCutoffs(words=(5, 11))}
    given = {key: value for key, value in small.items() if key in options.__dataclass_fields__}
    module = options(**given).build(OutputSetting(vocab_size=20, counts=np.arange(20, 0, -1)))
    targets = jnp.arange(5)

    def call(params, x):
        places = jnp.broadcast_to(targets, x.shape[:2])
        loss, _ = module.apply(params, x, places, rng=jax.random.key(0), method="loss")
        return loss, module.apply(*jax.lax.stop_gradient((params, x)), 2, method="top_k")[0]

    return module, call


def paths(params, x):
    mask = jnp.ones(x.shape[:-1], bool)
    return forward(log_transition(x, jnp.ones_like(x, bool), monotonic=True), jnp.abs(x), mask).nll


CASES = {f"{name}": lambda name=name: attention(name) for name in sorted(NORMALIZERS)}
CASES |= {f"{name} by blocks": lambda name=name: attention(name, 2) for name in BY_BLOCKS}
for rule in (Linear(normalized=True), Delta(), Mesa(), Mesa(steps=3)):
    for kind, form in (("recurrent", recurrent), ("chunked", lambda *x: chunked(*x, chunk_size=2))):
        CASES[f"{rule} {kind}"] = lambda rule=rule, form=form: written(rule, form)
CASES |= {f"cell {name}": lambda name=name: recurrence(name) for name in CELLS}
CASES |= {f"output {name}": lambda name=name: output(name) for name in OUTPUTS}
CASES["paths"] = lambda: (None, paths)


def prepared(case):
    """(total(params, x), parameters)"""
    module, call = CASES[case]()
    params = {}
    if isinstance(module, Attention):
        params = module.init(jax.random.key(0), X, X)
    elif module is not None:
        arguments = (X, jnp.ones(X.shape[:2], int if "output" in case else bool))
        options = {"rng": jax.random.key(0), "method": "loss"} if "output" in case else {}
        params = module.init(jax.random.key(0), *arguments, **options)
    return lambda params, x: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(call(params, x))), params


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_function_in_shard_map_is_the_function(case):
    total, params = prepared(case)
    whole = jax.value_and_grad(total, argnums=(0, 1))
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,))

    def part(params, x):
        value, gradients = whole(params, x)
        return jax.lax.psum(value, "x"), gradients

    specs = {"in_specs": (P(), P("x")), "out_specs": (P(), (P(), P("x")))}
    found, expected = jax.jit(jax.shard_map(part, mesh=mesh, **specs))(params, X), jax.jit(whole)(params, X)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
