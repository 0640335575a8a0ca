"""Every entry of the tables under four conditions: forward and gradient.

    python tests/attention/conditions.py        prints how many entries work under each condition, and which do not

    shard_map   within jax.shard_map with its default checks, the batch on two devices: the types of a loop's carry
    explicit    on a mesh whose axes are Explicit, the default of jax.make_mesh: JAX moves no array by itself
    x64         with jax_enable_x64: no array of 64-bit floats is made of arrays of 32 bits
    bfloat16    context or losses have the type they should have, are finite, and near those of float32

The first three are errors or types of a trace, so nothing is compiled for them; for those in RUN also the numbers are
compared. The entries come from the tables.
"""

import functools
import os
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
import numpy as np
from arrays import compiled, params_of
from jax.extend.core import jaxprs_in_params
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, WINDOWS, build_attention
from attn_jax.attention.blockwise import blockwise_attention
from attn_jax.attention.hard.monotonic import MonotonicSelection, forward, initial_weights, log_transition
from attn_jax.attention.hard.readings import log_of
from attn_jax.attention.masks import causal, causal_mask
from attn_jax.attention.names import required_options
from attn_jax.attention.recurrent import Delta, Linear, Mesa, chunked, dense, make_writes, recurrent
from attn_jax.layers.positions import POSITIONS
from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.models.attention_options import WRAPPERS, HeadsSetting
from attn_jax.models.mixer_options import MIXERS
from attn_jax.outputs import OUTPUTS
from attn_jax.outputs.adaptive import GivenCutoffs
from attn_jax.outputs.base import OutputSetting
from attn_jax.parts import recipe_of

BATCH, LENGTH, WIDTH = 4, 5, 4
# Exact in bfloat16, so that both types compute from the same numbers.
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(jnp.bfloat16).astype(np.float32)
RNG = jax.random.key(0)
SMALL = {"features": 4, "query_features": WIDTH, "max_length": LENGTH, "width": (3.0,), "num_features": 4}
SMALL |= {"size": 2, "count": 2, "num_samples": 6, "chunk_size": 7, "cutoffs": GivenCutoffs(words=(5, 11))}
SMALL |= {"num_positions": LENGTH, "longest_segment": 2, "iterations": 2, "num_heads": 2}


class Entry(NamedTuple):
    """A computation with a batch on the first axis: call(params, x) -> pytree; `make(dtype)` returns (module, call).

    Attributes:
        make: dtype of the projections -> (module, call(params, x)); a module None has no parameters.
        init: arguments of its init after x.
        losses: results are float32 whatever the type of x.
    """

    make: Any
    init: Any = lambda x: ((x,), {})
    losses: bool = False


def _given(kind: type, *also: str) -> dict:
    """Options of a class that have no default, and small sizes for the others."""
    names = {*required_options(kind), *kind.__dataclass_fields__.keys() & {"features", "size", "count", *also}}
    return {name: SMALL[name] for name in names & SMALL.keys()}


def _score(name: str) -> Any:
    kind = SCORES[name]
    return kind(**_given(kind, *(["width"] if kind.compact else [])))


def _attention(
    score: Any = "scaled_dot", name: str = "softmax", size: int = 0, train: bool = False, **options
) -> Entry:
    def make(dtype):
        module = build_attention(score=score, normalize=name, block_size=size, **options)
        mask = causal if size else causal_mask(LENGTH)
        positions = jnp.broadcast_to(jnp.arange(LENGTH), (1, LENGTH)) if "window" in options else None
        more = {} if positions is None else {"positions": positions}
        if "monotonic" in options:
            more["previous"] = initial_weights(jnp.ones((1, LENGTH, LENGTH), bool))
        if train:
            more |= {"train": True, "rng": RNG}
        return module, lambda params, x: module.apply(params, x, x, mask=mask, **more).context

    more = {"previous": jnp.ones((1, LENGTH, LENGTH))} if "monotonic" in options else {}
    more |= {"positions": jnp.zeros((1, LENGTH), int)} if "window" in options else {}
    return Entry(make, lambda x: ((x, x), more))


def _statistics(name: str) -> Entry:
    def call(params, x):
        found = blockwise_attention("scaled_dot", x, x, x, mask=causal, normalize=name, block_size=2)
        return found.context, found.rows([0, 3]), found.column_sums(), found.first(), found.entropy()

    return Entry(lambda dtype: (None, call), losses=True)


def _reading(name: str) -> Entry:
    def call(params, x):
        log_weights = log_of(jax.nn.softmax(x @ jnp.swapaxes(x, -1, -2)))
        sample = READINGS[name](RNG, log_weights)
        return sample.rows @ x[..., None, :, :]

    return Entry(lambda dtype: (None, call))


def _heads(mixer: str, *, wrappers: tuple = (), positions: str = "none", size: int = 0, kv: int = 0) -> Entry:
    """Heads of a table of mixers, with wrappers: a full pass, and a step with a cache."""

    def make(dtype):
        more = {}
        if mixer == "map":
            recipes = tuple(recipe_of(WRAPPERS[x], **_given(WRAPPERS[x])) for x in wrappers)
            more = dict(score=recipe_of(SCORES["scaled_dot"]), wrappers=recipes, block_size=size)
        encoding = POSITIONS[positions]()
        setting = HeadsSetting(2, kv, 8, dtype, causal=True, positions=encoding)
        module = MIXERS[mixer](**more).build_heads(setting)

        def call(params, x):
            wide = jnp.concatenate([x, jnp.sin(x)], axis=-1)
            places = jnp.zeros_like(x[..., 0], int) + jnp.arange(LENGTH)[None]
            key_mask = places < 4
            cache = _on_mesh_of(x, module.apply(params, len(x), LENGTH, method="start"))
            first = dict(key_mask=key_mask[:, :3], positions=places[:, :3])
            cache, some = module.apply(params, wide[:, :3], cache=cache, **first, method="extend")
            one = dict(key_mask=key_mask[:, 3:4], positions=places[:, 3:4])
            _, last = module.apply(params, wide[:, 3:4], cache=cache, **one, method="extend")
            _, whole = module.apply(params, wide, key_mask=key_mask, positions=places, method="extend")
            return whole.context, some.context, last.context

        return module, call

    def init(x):
        wide = jnp.concatenate([x, x], axis=-1)
        places = jnp.broadcast_to(jnp.arange(LENGTH), x.shape[:2])
        return (wide,), {"key_mask": places >= 0, "positions": places, "method": "extend"}

    return Entry(make, init)


def _on_mesh_of(x: Any, cache: Any) -> Any:
    """Puts the batch of an empty cache on the axis of an Explicit mesh where that of x is, as a caller has to."""
    axis = jax.typeof(x).sharding.spec[0]
    return cache if axis is None else jax.tree.map(lambda leaf: jax.reshard(leaf, P(axis)), cache)


def _written(rule: Any, form: Any) -> Entry:
    def call(params, x):
        writes = make_writes(x, jnp.sin(x), rates=jnp.abs(x[..., 0]), log_decay=-jnp.abs(x[..., :1]))
        return form(rule, jnp.cos(x), writes)

    return Entry(lambda dtype: (None, call), losses=True)


def _cell(name: str) -> Entry:
    def make(dtype):
        module = Recurrence(cell=CELLS[name], features=3, dtype=dtype)
        here = lambda x: jnp.zeros_like(x[..., 0], int) + jnp.arange(LENGTH)[None] < 4  # noqa: E731
        return module, lambda params, x: module.apply(params, x, here(x))[1]

    return Entry(make, lambda x: ((x, jnp.ones(x.shape[:2], bool)), {}))


def _output(name: str) -> Entry:
    def make(dtype):
        kind = OUTPUTS[name]
        given = {
            key: SMALL[key] for key in ("num_samples", "chunk_size", "cutoffs") if key in kind.__dataclass_fields__
        }
        module = kind(**given).build(OutputSetting(vocab_size=20, counts=np.arange(20, 0, -1), dtype=dtype))

        def call(params, x):
            places = jnp.zeros_like(x[..., 0], int) + jnp.arange(LENGTH)[None]
            loss, _ = module.apply(params, x, places, rng=RNG, method="loss")
            return loss, module.apply(*jax.lax.stop_gradient((params, x)), 2, method="top_k")[0]

        return module, call

    return Entry(make, lambda x: ((x, jnp.ones(x.shape[:2], int)), {"rng": RNG, "method": "loss"}), losses=True)


def _paths() -> Entry:
    def call(params, x):
        mask = jnp.ones_like(x[..., 0], bool)
        return forward(log_transition(x, jnp.ones_like(x, bool), monotonic=True), jnp.abs(x), mask).nll

    return Entry(lambda dtype: (None, call), losses=True)


BY_BLOCKS = sorted(name for name, x in NORMALIZERS.items() if x.has_form)
ENTRIES = {f"normalize {name}": _attention(name=name) for name in NORMALIZERS}
ENTRIES |= {f"normalize {name} by blocks": _attention(name=name, size=2) for name in BY_BLOCKS}
ENTRIES |= {
    f"score {name}": _attention(_score(name), "kernel_sum" if kind.compact else "softmax")
    for name, kind in SCORES.items()
}
ENTRIES |= {f"statistics {name}": _statistics(name) for name in ("softmax", "entmax15")}
ENTRIES |= {f"read {name}": _reading(name) for name in READINGS}
ENTRIES |= {f"read {name} in attention": _attention(read=name, train=True) for name, x in READINGS.items() if x.one_row}
ENTRIES |= {f"wrapper {name}": _heads("map", wrappers=(name,)) for name in WRAPPERS}
ENTRIES |= {f"window {name}": _attention(window=kind(**_given(kind))) for name, kind in WINDOWS.items()}
ENTRIES["monotonic"] = _attention(monotonic=MonotonicSelection())
ENTRIES |= {f"heads {name}": _heads(name) for name in MIXERS}
ENTRIES |= {f"heads with positions {name}": _heads("map", positions=name) for name in POSITIONS}
ENTRIES["heads by blocks"] = _heads("map", size=2)
ENTRIES["heads that share keys"] = _heads("map", kv=1)
FORMS = {"recurrent": recurrent, "chunked": functools.partial(chunked, chunk_size=2), "dense": dense}
ENTRIES |= {
    f"{rule} {name}": _written(rule, form)
    for rule in (Linear(normalized=True), Delta(), Mesa(), Mesa(steps=3))
    for name, form in FORMS.items()
}
ENTRIES |= {f"cell {name}": _cell(name) for name in CELLS}
ENTRIES |= {f"output {name}": _output(name) for name in OUTPUTS}
ENTRIES["paths"] = _paths()


def _prepared(entry: Entry, dtype: Any = jnp.float32) -> tuple[Any, Any]:
    """(value and gradient of (params, x), parameters); the value is a number, with what the call returns."""
    module, call = entry.make(dtype)
    params = {}
    if module is not None:
        args, kwargs = entry.init(X)
        params = {"params": params_of(module, *args, **kwargs)}

    def total(params, x):
        found = call(params, x)
        return sum(jnp.sum(jnp.sin(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(found)), found

    return jax.value_and_grad(total, argnums=(0, 1), has_aux=True), params


def _assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def shard_map(entry: Entry, run: bool = False) -> None:
    """Traces value and gradient within jax.shard_map; with `run` also compares them with those of one device."""
    whole, params = _prepared(entry)
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,))

    def part(params, x):
        (value, _), gradients = whole(params, x)
        return jax.lax.psum(value, "x"), gradients

    specs = {"in_specs": (P(), P("x")), "out_specs": (P(), (P(), P("x")))}
    mapped = jax.shard_map(part, mesh=mesh, **specs)
    with jax.numpy_rank_promotion("raise"):
        assert jax.eval_shape(mapped, params, X)[1][1].shape == X.shape
    if run:
        alone = lambda *x: (whole(*x)[0][0], whole(*x)[1])  # noqa: E731
        _assert_close(*compiled(lambda *x: (mapped(*x), alone(*x)))(params, X))


def explicit(entry: Entry, run: bool = False) -> None:
    """Traces value and gradient where the batch is on an axis of an Explicit mesh; parameters are on every device.

    With `run` also compares them with those of one device.
    """
    whole, params = _prepared(entry)
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2], axis_types=(AxisType.Explicit,))
    on = lambda spec: lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))  # noqa: E731
    with jax.set_mesh(mesh):
        (_, found), gradients = jax.eval_shape(whole, jax.tree.map(on(P()), params), on(P("x"))(X))
    for leaf in (*jax.tree.leaves(found), gradients[1]):
        assert leaf.sharding.spec[0] == "x", leaf.sharding
    if run:
        place = lambda spec: lambda x: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
        with jax.set_mesh(mesh):
            divided = compiled(whole)(jax.tree.map(place(P()), params), place(P("x"))(X))
        _assert_close(divided, compiled(whole)(params, X))


def x64(entry: Entry, run: bool = False) -> None:
    """Traces value and gradient with 64 bits; no array of 64-bit floats may be made of those of 32 bits."""
    with jax.enable_x64(True):
        whole, params = _prepared(entry)
        jaxpr = jax.make_jaxpr(whole)(params, jnp.asarray(X))
        wide = sorted({str(x) for x in _arrays(jaxpr.jaxpr)})
        assert not wide, f"64 bits: {wide}"


def _arrays(jaxpr: Any) -> Any:
    """Yields the equations of a jaxpr, and of those within it, whose result is an array of 64-bit floats."""
    for equation in jaxpr.eqns:
        for out in equation.outvars:
            if getattr(out.aval, "dtype", None) == np.float64 and not out.aval.weak_type:
                yield f"{equation.primitive} -> {out.aval}"
        for inner in jaxprs_in_params(equation.params):
            yield from _arrays(inner)


def bfloat16(entry: Entry, run: bool = False) -> None:
    """Computes values in bfloat16, with `run` also gradients; they have its type, and are near those of float32."""
    half = jnp.bfloat16
    found, expected = [], []
    for dtype, results in ((half, found), (jnp.float32, expected)):
        whole, params = _prepared(entry, dtype)
        x = X.astype(dtype)
        assert jax.eval_shape(whole, params, x)[1][1].dtype == dtype
        values = lambda *x, whole=whole: whole(*x)[0][1]  # noqa: E731
        results += jax.tree.leaves(compiled(values)(params, x))
        if run:
            results += jax.tree.leaves(compiled(whole)(params, x)[1])
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == half or run or (entry.losses and one.dtype == np.float32), one.dtype
        one = one.astype(np.float32)
        assert np.isfinite(one).all() or not np.isfinite(other).all()
        # A sample at the border of two keys may be the other one.
        far = np.abs(one - other) > 0.1 * max(1.0, np.abs(other).max(initial=0))
        assert np.mean(far) <= 0.05, (one, other)


# One of each kind of loop: their values, and gradients, are compared under conditions where others are only traced.
RUN = ["normalize entmax", "normalize learned_entmax by blocks", "normalize fusedmax", "normalize stick_breaking"]
RUN += ["Mesa(ridge=1.0, steps=3) chunked", "Delta() recurrent", "cell peephole_lstm", "paths", "wrapper line"]
RUN += ["output chunked", "output sampled", "output adaptive", "output hierarchical"]
CONDITIONS = {check.__name__: check for check in (shard_map, explicit, x64, bfloat16)}


def main() -> None:
    for name, check in CONDITIONS.items():
        failed = {}
        for label, entry in ENTRIES.items():
            try:
                check(entry)
            except Exception as error:
                failed[label] = f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]
        print(f"{name}: {len(ENTRIES) - len(failed)} of {len(ENTRIES)} entries", flush=True)
        for label, why in failed.items():
            print(f"    {label}: {why}", flush=True)


if __name__ == "__main__":
    main()
