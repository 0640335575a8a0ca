"""Each mechanism with a loop within shard_map, with its default checks, and where JAX refuses to add axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from attn_jax.attention import NORMALIZERS, build_attention
from attn_jax.attention.core import Attention
from attn_jax.attention.hard.monotonic import forward, log_transition
from attn_jax.attention.masks import causal, causal_mask
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
    mask = causal if block_size else causal_mask(5)
    return module, lambda params, x: module.apply(params, x, x, mask=mask).context


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
# One of each kind of loop, for its values.
RUN = ["entmax", "learned_entmax by blocks", "fusedmax", "stick_breaking", "Mesa(ridge=1.0, steps=3) chunked", "paths"]
RUN += ["Delta() recurrent", "cell peephole_lstm", "output chunked", "output adaptive", "output hierarchical"]
MESH = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,))


def prepared(case):
    """(the function, the same within shard_map, parameters): value and gradients of (params, x)."""
    module, call = CASES[case]()
    params = {}
    if isinstance(module, Attention):
        params = {"params": params_of(module, X, X)}
    elif module is not None:
        options = {"rng": jax.random.key(0), "method": "loss"} if "output" in case else {}
        params = {"params": params_of(module, X, jnp.ones(X.shape[:2], int if "output" in case else bool), **options)}
    total = lambda params, x: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(call(params, x)))  # noqa: E731
    whole = jax.value_and_grad(total, argnums=(0, 1))

    def part(params, x):
        value, gradients = whole(params, x)
        return jax.lax.psum(value, "x"), gradients

    specs = {"in_specs": (P(), P("x")), "out_specs": (P(), (P(), P("x")))}
    return whole, jax.shard_map(part, mesh=MESH, **specs), params


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_loops_are_traced_in_shard_map_and_where_axes_are_added_explicitly(case):
    with jax.numpy_rank_promotion("raise"):
        _, part, params = prepared(case)
        assert jax.eval_shape(part, params, X)[1][1].shape == X.shape


@pytest.mark.slow
@pytest.mark.parametrize("case", RUN)
def test_a_function_in_shard_map_is_the_function(case):
    whole, part, params = prepared(case)
    found, expected = compiled(lambda *x: (part(*x), whole(*x)))(params, X)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
