"""Options reach the scores, normalizers, windows and baselines that have a field for them, and no field is missed."""

import dataclasses
import inspect

import pytest

from attn_jax.attention import NORMALIZERS, SCORES, WINDOWS, build_attention
from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.attention.scores import Softcap
from attn_jax.attention.signed import FITS
from attn_jax.models.attention_options import AttentionOptions, AttentionOverrides, HeadAttentionOptions
from attn_jax.models.memory_networks.episodes import GATE_SCORES, GATES
from attn_jax.models.memory_options import MemoryOptions, MemoryOverrides
from attn_jax.options import options_of

# Fields that the builders set from the model, and fields that are constants of a method: no option has their names.
FACTS = {"query_features", "num_heads", "num_scaled", "all_terms", "size"}
CONSTANTS = {"scale", "delta", "gamma_range", "use_bias", "initial", "exact", "seed"}
PARTS = {
    name: part
    for table in (FITS, SCORES, GATE_SCORES, NORMALIZERS, GATES, WINDOWS, BASELINES)
    for name, part in table.items()
    if isinstance(part, type)
}


def fields_of(part):
    return {field.name for field in dataclasses.fields(part)}


@pytest.mark.parametrize("name", PARTS)
def test_every_field_of_a_part_is_an_option_a_fact_or_a_constant(name):
    """A misspelt field would keep its default without a word."""
    fields = fields_of(PARTS[name]) - {"parent", "name"}
    assert fields <= set(options_of(AttentionOptions)) | FACTS | CONSTANTS


def test_every_option_of_a_part_reaches_one():
    choices = {"score", "normalize"}
    arguments = inspect.signature(build_attention).parameters
    for key in set(options_of(AttentionOptions)) - choices:
        assert key in arguments or any(key in fields_of(part) for part in (Softcap, *PARTS.values())), key


@pytest.mark.parametrize(
    ("kind", "overrides", "left_out"),
    [
        (HeadAttentionOptions, AttentionOverrides, {"read", "num_samples"}),
        (MemoryOptions, MemoryOverrides, {"read", "num_samples"}),
    ],
)
def test_overrides_have_all_options_but_those_of_reading(kind, overrides, left_out):
    assert {key for key in options_of(kind) if "." not in key} - options_of(overrides).keys() == left_out
    base = kind(score="dot", alpha=1.2)
    assert overrides(alpha=2.0).over(base) == kind(score="dot", alpha=2.0)
