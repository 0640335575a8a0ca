"""The masks of attention: what they mean, and that none is taken for what it is not, in the whole package."""

import importlib
import inspect
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

import attn_jax
from attn_jax.attention import MultiHead, build_attention
from attn_jax.attention.blockwise import blockwise_attention
from attn_jax.attention.fused import fused_attention
from attn_jax.attention.hard.monotonic import log_transition
from attn_jax.attention.masks import AXES, causal, causal_mask
from attn_jax.attention.normalizers import softmax
from attn_jax.attention.selection import top_keys_mask

# What checks masks and makes one mask of others, the names of fields, and a mask of pixels.
OTHERS = {
    *(f"attn_jax.attention.arguments.{name}" for name in ("check_memory", "check_no_more")),
    *(f"attn_jax.attention.masks.{name}" for name in ("check_boolean", "check_key_mask", "check_mask", "joint_mask")),
    *("attn_jax.attention.masks.mask_at", "attn_jax.attention.core.Attention.normalize"),
    *("attn_jax.tasks.images.scene.paint", "attn_jax.models.metrics.Mean.of"),
}
B = Q = K = 4
RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (jnp.asarray(RNG.normal(size=(B, Q, 8)), jnp.float32) for _ in range(3))
LENGTHS = jnp.arange(K) < jnp.arange(1, B + 1)[:, None]  # [b, k] with as many rows as queries


def entries():
    """(name, function) of each public function and method of the package with a parameter of the name of a mask."""
    found = {}
    for info in pkgutil.walk_packages(attn_jax.__path__, "attn_jax."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                continue
            inside = {f".{key}": x for key, x in vars(value).items()} if inspect.isclass(value) else {"": value}
            for key, function in inside.items():
                public = key == ".__call__" or not key.startswith("._")
                if public and inspect.isfunction(function) and set(AXES) & set(inspect.signature(function).parameters):
                    found[f"{module.__name__}.{name}{key}"] = function
    return found


ENTRIES = {name: function for name, function in entries().items() if name not in OTHERS}
BY_NAME = [
    name
    for name, function in ENTRIES.items()
    if any(x.name in AXES and x.kind is x.KEYWORD_ONLY for x in inspect.signature(function).parameters.values())
]


def test_the_entries_are_found_and_those_of_attention_take_masks_by_name():
    assert len(ENTRIES) >= 60 and len(BY_NAME) >= 15
    readers = "Attention MultiHead RecurrentHeads attend blockwise_attention fused_attention make_writes Pooling LocalP"
    for reader in readers.split():
        assert any(reader in name for name in BY_NAME), reader
    for name in BY_NAME:
        kinds = {x.kind for x in inspect.signature(ENTRIES[name]).parameters.values() if x.name in AXES}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_numbers_are_no_mask(name):
    """An additive mask of 0 and -inf would be read the other way round."""
    numbers = np.float32([0, -np.inf])
    parameters = inspect.signature(ENTRIES[name]).parameters
    for of in set(AXES) & set(parameters):
        if parameters[of].kind is inspect.Parameter.KEYWORD_ONLY:
            before = [x for x in parameters.values() if x.kind is x.POSITIONAL_OR_KEYWORD and x.default is x.empty]
            call = lambda f, before=before, of=of: f(*[jnp.ones(2)] * len(before), **{of: jnp.asarray(numbers)})  # noqa: E731
        else:
            before = list(parameters).index(of)
            call = lambda f, before=before: f(*[jnp.ones(2)] * before, jnp.asarray(numbers))  # noqa: E731
        with pytest.raises(ValueError, match=r"mask must be boolean .*mask=x > 0, .*bias=") as error:
            call(ENTRIES[name])
        assert "\n" not in str(error.value)


def of_heads(query, keys, **masks):
    module = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=2, features=8)
    return module.init(jax.random.key(0), query, keys, **masks)


@pytest.mark.parametrize(
    ("reader", "shape", "masks", "advice"),
    [
        (attn_jax.attend, (2, 6, 8), dict(mask=(2, 6)), r"does not fit \(2, 6, 6\).*; .*keys alone is key_mask="),
        (attn_jax.attend, (2, 6, 4, 2), dict(mask=(6, 6)), r"; heads come before positions: .*swapaxes\(x, -2, -3\)"),
        (attn_jax.attend, (2, 6, 4, 2), dict(key_mask=(2, 6)), r"; heads come before positions"),
        (of_heads, (2, 6, 8), dict(mask=(2, 6)), "keys alone is key_mask="),
        (of_heads, (2, 6, 8), dict(mask=(2, 1, 6, 6)), "MultiHead adds the axis of heads by itself"),
        (of_heads, (2, 6, 8), dict(key_mask=(2, 1, 6)), r"expected \(2, 6\)"),
    ],
)  # fmt: skip
def test_a_mask_of_another_shape_is_told_with_advice(reader, shape, masks, advice):
    with pytest.raises(ValueError, match=advice) as error:
        reader(jnp.ones(shape), jnp.ones(shape), **{name: jnp.ones(of, bool) for name, of in masks.items()})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_mask_given_by_its_place_is_refused(name):
    parameters = inspect.signature(ENTRIES[name]).parameters.values()
    places = [jnp.ones(2)] * sum(x.kind is x.POSITIONAL_OR_KEYWORD for x in parameters)
    with pytest.raises(TypeError, match=r"key_mask=.*mask=") as error:
        ENTRIES[name](*places, jnp.ones(2, bool))
    assert "\n" not in str(error.value)


def heads(**options):
    module = MultiHead(attention=build_attention(score="scaled_dot", **options), num_heads=2, features=8)
    params = params_of(module, QUERY, KEYS)
    return lambda *arrays, **masks: module.apply({"params": params}, *arrays, **masks).context


dot = lambda query, keys: query @ jnp.swapaxes(keys, -1, -2)  # noqa: E731
READERS = {
    "attend": lambda *arrays, **masks: attn_jax.attend(*arrays, **masks).context,
    "sparsemax": lambda *arrays, **masks: attn_jax.attend(*arrays, normalize="sparsemax", **masks).context,
    "blockwise": lambda *arrays, **masks: blockwise_attention(dot, *arrays, block_size=3, **masks).context,
    "fused": lambda *arrays, **masks: fused_attention(*arrays, scale=0.3, **masks),
    "heads": heads(),
    "heads by blocks": heads(block_size=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_mask_of_keys_is_the_keys_without_those_that_it_leaves_out(name):
    """With as many rows as queries, where a padding mask was taken for one of queries and keys."""
    read = READERS[name]

    @compiled
    def run(*arrays):
        alone = []
        for row in range(B):
            query, keys, values = (x[row : row + 1] for x in arrays)
            alone.append(read(query, keys[:, : row + 1], values[:, : row + 1]))
        one = [read(*arrays, key_mask=LENGTHS[2]), read(*arrays, mask=LENGTHS[2:3])]
        return read(*arrays, key_mask=LENGTHS), read(*arrays, mask=LENGTHS[:, None]), jnp.concatenate(alone), one

    found, of_pairs, alone, one = run(QUERY, KEYS, VALUES)
    np.testing.assert_allclose(found, alone, atol=1e-5)
    np.testing.assert_allclose(of_pairs, found, atol=1e-6)
    np.testing.assert_allclose(*one, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_two_masks_are_their_conjunction(name):
    given = dict(key_mask=LENGTHS, mask=causal_mask(Q)), dict(key_mask=LENGTHS, mask=causal), dict(key_mask=LENGTHS)
    given += (dict(mask=LENGTHS[:, None] & causal_mask(Q)),)
    run = compiled(lambda *arrays: [READERS[name](*arrays, **masks) for masks in given])
    both, by_function, of_keys, joint = run(QUERY, KEYS, VALUES)
    np.testing.assert_allclose(by_function, both, atol=1e-6)
    np.testing.assert_allclose(joint, both, atol=1e-6)
    assert np.abs(both - of_keys).max() > 0.1


def test_no_meaning_is_guessed_from_a_shape():
    """Batch, heads, queries and keys are four each, so that numpy would broadcast all of these."""
    four = jnp.stack([QUERY] * 4, axis=1)  # [b, h, q, d]
    cases = {
        "a mask of keys alone": lambda: attn_jax.attend(QUERY, KEYS, mask=LENGTHS[0]),
        "[b, q, k] among heads": lambda: attn_jax.attend(four, four, mask=jnp.ones((4, 4, 4), bool)),
        "more axes than the scores": lambda: attn_jax.attend(QUERY[0], KEYS[0], mask=jnp.ones((4, 4, 4), bool)),
        "[b, k] among heads": lambda: attn_jax.attend(four, four, key_mask=LENGTHS),
        "[q, k] as keys": lambda: attn_jax.attend(QUERY[0], KEYS[0], key_mask=LENGTHS),
        "one entry for all keys": lambda: attn_jax.attend(QUERY, KEYS, key_mask=LENGTHS[:, :1]),
        "heads": lambda: READERS["heads"](four, four, mask=jnp.ones((4, 4, 4), bool)),
        "blocks": lambda: READERS["blockwise"](four, four, four, mask=jnp.ones((4, 4, 4), bool)),
        "kernel": lambda: READERS["fused"](four, four, four, mask=jnp.ones((4, 4, 4), bool)),
        "normalizer": lambda: softmax(jnp.zeros((4, 4, 4)), LENGTHS),
        "largest scores": lambda: top_keys_mask(jnp.zeros((4, 4, 4)), LENGTHS, 2),
        "transition": lambda: log_transition(jnp.zeros((4, 4, 4)), LENGTHS),
    }
    for name, call in cases.items():
        with pytest.raises(ValueError, match=r"mask of shape \(.*\) does not fit .*; expected") as error:
            call()
            pytest.fail(name)
        assert "\n" not in str(error.value), name


def test_a_memory_has_its_mask_of_keys_already():
    attention = build_attention(score="dot")
    memory = attention.apply({}, KEYS, key_mask=LENGTHS, method="prepare")
    with pytest.raises(ValueError, match="a Memory has its values and its key_mask already"):
        attention.apply({}, QUERY, memory, key_mask=LENGTHS)
