"""Numpy in, numpy out: random parameters without compiling `init`, and results that can be looked at freely."""

import jax
import numpy as np

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # to compile, not to run


def compiled(function):
    """jax.jit of the function with numpy results, since each new way to index a jax array is a program to compile."""
    call = jax.jit(function, compiler_options=FAST)
    return lambda *args: jax.device_get(call(*args))


def fill(shapes, seed=0, scale=0.5):
    """The same pytree with float32 normal numbers in place of each leaf."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(0, scale, leaf.shape).astype(leaf.dtype), shapes)


def params_of(module, *args, seed=0, scale=0.5, **kwargs):
    """Random parameters of a linen module called with these arguments; {} for one that has none."""
    init = lambda *args: module.init(jax.random.key(0), *args, **kwargs)  # noqa: E731
    return fill(jax.eval_shape(init, *args).get("params", {}), seed, scale)
