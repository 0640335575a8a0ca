"""What a run says of how its attention is computed."""

import pytest

from attn_jax.build import describe
from configs import enja_none, enja_transformer, language_id_conv, language_id_selfattentive, sort_entmax


def changed(module, **values):
    config = module.get_config()
    config.update_from_flattened_dict({key.replace("__", "."): value for key, value in values.items()})
    return config


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (changed(enja_transformer), "fused, XLA on cpu"),
        (changed(enja_transformer, model__attention__dropout=0.1), "fused, XLA on cpu, but as written in training"),
        (changed(enja_transformer, model__attention__read="top"), "as written: read(normalize(score"),
        (changed(sort_entmax), "as written: read(normalize(score"),
        (changed(language_id_selfattentive), "as written: read(normalize(score"),
    ],
)
def test_how_attention_is_computed_is_told(config, said):
    assert describe(config).startswith(said)


@pytest.mark.parametrize("module", [enja_none, language_id_conv])
def test_where_there_is_no_attention_nothing_is_said(module):
    assert describe(module.get_config()) == ""
