"""Attention of parts is Attention of fields, for every pair of fields that go together, to the last bit."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from attn_jax.attention import NORMALIZERS, SCORES
from attn_jax.attention import core as fields
from attn_jax.attention.composed import attention
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.local import LocalM, LocalP
from attn_jax.attention.scores.base import ScoreError
from attn_jax.attention.signed import Difference, LocalLine, Parallax

RNG = np.random.default_rng(0)
B, Q, K, D = 2, 3, 6, 4
QUERY, KEYS, VALUES = (jnp.asarray(RNG.normal(size=(B, n, D)), jnp.float32) for n in (Q, K, K))
KEY_MASK = jnp.asarray([[True] * K, [True, False, True, True, False, False]])
MASK = jnp.asarray(RNG.random((B, Q, K)) > 0.3).at[0, 1].set(False)  # a query without keys
BIAS = jnp.asarray(RNG.normal(size=(B, Q, K)), jnp.float32).at[1, 0, 2].set(-jnp.inf)
PREVIOUS = jnp.asarray(RNG.dirichlet(np.ones(K), (B, Q)), jnp.float32)
CALL = dict(positions=jnp.asarray([[0, 2, 5], [1, 1, 2]]), previous=PREVIOUS)
BY_PLACES = dict(mask=lambda query, key: key <= query + 2, bias=lambda query, key: (key - query) / 10.0)

# Values of each field, by a name; the modules are made anew for each test, since a module has one parent.
FIELDS = {
    "additive": lambda: dict(score=SCORES["additive"](features=3)),
    "epanechikov": lambda: dict(score=SCORES["epanechikov"](width=(3.0,)), normalize="kernel_sum"),
    "cosine": lambda: dict(score="cosine"),
    "sparsemax": lambda: dict(normalize="sparsemax"),
    "rela": lambda: dict(normalize="rela"),
    "linear": lambda: dict(normalize="linear"),
    "learned_entmax": lambda: dict(normalize="learned_entmax"),
    "scalable_entmax": lambda: dict(normalize=NORMALIZERS["scalable_entmax"]()),
    "top": lambda: dict(read="top"),
    "reinforce": lambda: dict(read="reinforce"),
    "gumbel_softmax": lambda: dict(read="gumbel_softmax"),
    "local_m": lambda: dict(window=LocalM(size=1)),
    "local_p": lambda: dict(window=LocalP(size=2, features=3)),
    "monotonic": lambda: dict(monotonic=MonotonicSelection()),
    "dropout": lambda: dict(dropout=0.4),
    "block_size": lambda: dict(block_size=4),
    "top_keys": lambda: dict(top_keys=2),
    "blocks of top keys": lambda: dict(top_keys=1, keys_per_block=2),
    "iterations": lambda: dict(iterations=3),
    "gate": lambda: dict(gate=True),
    "line": lambda: dict(fit=LocalLine()),
    "parallax": lambda: dict(fit=Parallax()),
    "difference": lambda: dict(difference=Difference()),
}
PAIRS = [*itertools.combinations(FIELDS, 2), *((name, name) for name in FIELDS)]
REFUSED_NOW = {
    ("linear", "top"): "never negative",  # the negative weights were left out without a word
    ("epanechikov", "reinforce"): "sum to one",  # as objectives of models refused it
    ("epanechikov", "gumbel_softmax"): "sum to one",
}


def options_of(pair):
    """The fields of a pair; None where both set the same one."""
    first, second = (FIELDS[name]() for name in pair)
    if pair[0] != pair[1] and set(first) & set(second):
        return None
    return dict(score="scaled_dot") | first | second


def new_parameters(old, new):
    """The old parameters, (field, ...), under the new paths, (..., slot, ...)."""
    slots = {"normalize": "function", "monotonic": "selection", "difference": "subtract"}
    old, new, moved = flatten_dict(old["params"]), flatten_dict(new["params"]), {}
    for (field, *rest), x in old.items():
        tail = (slots.get(field, field), *rest)
        (place,) = (path for path in new if path[-len(tail) :] == tail)
        moved[place] = x
    assert set(moved) == set(new)
    return {"params": unflatten_dict(moved)}


def old_and_new(pair, call, train):
    """What both give for the same parameters; None where the fields never went together."""
    try:
        old = fields.Attention(**options_of(pair))
    except ValueError:
        return None
    if pair in REFUSED_NOW:
        with pytest.raises(ValueError, match=f"needs weights that .*{REFUSED_NOW[pair]}"):
            attention(**options_of(pair))
        return None
    new = attention(**options_of(pair))
    arrays = QUERY, KEYS, VALUES
    rngs = {"rng": jax.random.key(1)} if old.needs_rng else {}
    call = dict(key_mask=KEY_MASK, train=train) | CALL | call | rngs
    try:
        params = old.init(jax.random.key(0), *arrays, **call | {"train": False})
    except ScoreError as error:
        with pytest.raises(ScoreError, match=re.escape(str(error))):
            new.init(jax.random.key(0), *arrays, **call | {"train": False})
        return None
    like = new.init(jax.random.key(0), *arrays, **call | {"train": False})
    like = new_parameters(params, like) if params else {}
    streams = {"rngs": {"dropout": jax.random.key(2)}} if train else {}
    return old.apply(params, *arrays, **call, **streams), new.apply(like, *arrays, **call, **streams)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if options_of(pair)], ids=" and ".join)
def test_a_pair_of_fields(pair):
    found = [old_and_new(pair, *each) for each in ((dict(mask=MASK, bias=BIAS), False), (BY_PLACES, False))]
    for both in filter(None, found):
        for old, new in zip(*map(jax.tree.leaves, both), strict=True):
            np.testing.assert_array_equal(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_in_training(name, monkeypatch):
    """The masks of dropout depend on the paths of modules, so one rng is taken for all."""
    monkeypatch.setattr("flax.core.scope.LazyRng.as_jax_rng", lambda self: self.rng)
    for pair in ((name, "dropout"), (name, "gate")):
        if options_of(pair) and (both := old_and_new(pair, dict(mask=MASK), True)):
            for old, new in zip(*map(jax.tree.leaves, both), strict=True):
                np.testing.assert_array_equal(old, new)
