"""What a run says of how its attention is computed."""

import pytest

from attn_jax.data.facts import Kept
from attn_jax.data.vocabulary import Words
from attn_jax.decoding.options import BeamOptions, DecodeOptions
from attn_jax.errors import UserError
from attn_jax.runs.build import build_setup, describe
from attn_jax.runs.options import change, resolve
from configs import enja_none, enja_transformer, language_id_conv, language_id_selfattentive, sort_entmax, zipf


def changed(module, **values):
    return change(module.get_config(), {key.replace("__", "."): value for key, value in values.items()})


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
    assert describe(resolve(config)).startswith(said)


@pytest.mark.parametrize("module", [enja_none, language_id_conv])
def test_where_there_is_no_attention_nothing_is_said(module):
    assert describe(resolve(module.get_config())) == ""


def test_a_beam_is_at_most_as_wide_as_its_candidates_can_be_numbered():
    options = BeamOptions(beam_size=10_000)
    options.check_vocabulary(214_748)
    DecodeOptions().method.check_vocabulary(2**31 - 1)  # greedy
    with pytest.raises(UserError, match=r"beam_size 10000 times 214,749 target tokens .* of at most 9999$"):
        options.check_vocabulary(214_749)


def test_words_of_a_source_that_is_continued_replace_nothing():
    config = change(zipf.get_config(), {"decode.unk": "replace"})
    with pytest.raises(UserError, match=r"^decode\.unk replace .* but model\.continue_source continues it") as error:
        build_setup(resolve(config), Kept(Words("ab"), Words("ab")))
    assert "\n" not in str(error.value)
    assert build_setup(resolve(change(config, {"decode.unk": "keep"})), Kept(Words("ab"), Words("ab"))).predictor


def test_attention_to_the_source_has_no_bias_so_all_of_its_heads_are_scaled():
    options = dict(model__decoder__positions="nape", model__decoder__num_heads=4)
    config = changed(enja_transformer, **options, model__attention__normalize="scalable_entmax")
    layer = resolve(config).build_model().module.decoder.make_layer()
    assert layer.make_attention().attention.normalize.num_scaled == 2
    assert layer.make_source_attention().attention.normalize.num_scaled == 0
