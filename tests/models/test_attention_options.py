"""Options reach the scores, normalizers, wrappers and baselines that have them, and no field of one is missed."""

import dataclasses

import pytest

from attn_jax.attention import NORMALIZERS, SCORES
from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.maps import Fitted, Hopfield
from attn_jax.attention.normalizing import TopKeys
from attn_jax.attention.parts import Part
from attn_jax.attention.scores import Dot, Score
from attn_jax.models.attention_options import WINDOWS, WRAPPERS, AttentionOptions, MapOptions, Same
from attn_jax.models.memory_networks.episodes import GATE_SCORES, GATES
from attn_jax.models.mixer_options import MIXERS
from attn_jax.models.seq2seq.options import SourceAttentionOptions
from attn_jax.parts import fields_of, read, recipe_of
from attn_jax.runs.tree import resolve_tree

# Fields that the builders set from the model, and fields that are constants of a method: they are no options.
FACTS = {"query_features", "num_heads", "num_scaled", "all_terms"}
INSIDE = {"of", "score"}  # of a wrapper
CONSTANTS = {"scale", "delta", "gamma_range", "use_bias", "initial", "exact", "seed", "offset"}
TABLES = (SCORES, GATE_SCORES, NORMALIZERS, GATES, WRAPPERS, WINDOWS, BASELINES, {"monotonic": MonotonicSelection})
PARTS = {name: part for table in TABLES for name, part in table.items() if isinstance(part, type)}
OPTIONS = [(name, key) for name, part in PARTS.items() for key in fields_of(part)]
OTHER = {bool: lambda x: not x, int: lambda x: x + 1, float: lambda x: x + 0.125, tuple: lambda x: (0.5,)}


@pytest.mark.parametrize("name", PARTS)
def test_every_field_of_a_part_is_an_option_a_fact_or_a_constant(name):
    """A misspelt field would keep its default without a word."""
    fields = {field.name for field in dataclasses.fields(PARTS[name])} - {"parent", "name"}
    assert fields - set(fields_of(PARTS[name])) <= FACTS | CONSTANTS | (INSIDE if name in WRAPPERS else set())


def parts_of(part):
    """All modules in an attention: parts with the parts inside, and what these hold."""
    yield part
    for field in dataclasses.fields(part):
        value = getattr(part, field.name, None)
        if isinstance(value, Part | Score) or (
            dataclasses.is_dataclass(value) and field.name not in ("parent", "name")
        ):
            yield from parts_of(value)


@pytest.mark.parametrize(("name", "key"), OPTIONS)
def test_every_option_of_a_part_reaches_it(name, key):
    """From a section of a config to the module that is built."""
    option, kind = fields_of(PARTS[name])[key], PARTS[name]
    value = OTHER[option.kind](option.default)
    if name in BASELINES:
        assert getattr(recipe_of(kind, **{key: value}).build(), key) == value
        return
    if name in GATE_SCORES:
        built = recipe_of(kind, **{key: value}).build(all_terms=True)
        assert getattr(built, key) == value and built.all_terms
        return
    slot = "score" if name in SCORES else "normalize" if name in NORMALIZERS else f"wrappers.parts.{name}"
    changes = {"score": "dot", f"{slot}.{key}": value}
    changes |= {"wrappers": (name,)} if slot.startswith("wrappers") else {slot: name}
    if "width" in fields_of(kind):  # a kernel; not all have a gradient, by which a width could be learned
        changes = {"score.width": (1.0,), "normalize": "kernel_sum"} | changes
    options = read(SourceAttentionOptions, resolve_tree(SourceAttentionOptions, changes=changes)[0])
    attention = options.build(4, num_heads=2)
    (found,) = [part for part in (*parts_of(attention.map), *parts_of(attention.read)) if type(part) is kind]
    assert getattr(found, key) == value


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if hasattr(part, "num_heads")])
def test_every_part_gets_the_number_of_heads(name):
    changes = {"normalize": name} if name in NORMALIZERS else {"wrappers": (name,)}
    options = read(MapOptions, resolve_tree(MapOptions, changes=changes)[0])
    (found,) = [part for part in parts_of(options.build(4, num_heads=2).map) if type(part) is PARTS[name]]
    assert found.num_heads == 2


def test_wrappers_are_put_around_from_the_inside():
    for order in (("top_keys", "hopfield", "line"), ("line", "top_keys", "hopfield")):
        wrappers = tuple(recipe_of(WRAPPERS[name]) for name in order)
        attention = AttentionOptions(score=recipe_of(Dot), wrappers=wrappers).build(4)
        assert isinstance(attention.map, Fitted if order[-1] == "line" else Hopfield)
        assert isinstance(attention.map.of, Hopfield if order[-1] == "line" else Fitted)
        assert isinstance(attention.map.base.normalize, TopKeys)


def test_a_place_has_the_main_attention_or_its_own():
    main, own = MapOptions(dropout=0.5), MapOptions(dropout=0.25)
    assert Same().over(main) is main and own.over(main) is own
    assert all(kind().over(main) == kind() for kind in MIXERS.values())
