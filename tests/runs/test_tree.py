"""A change of a config: keys follow the choices, what fits is kept, and what is dropped is said."""

import itertools

import pytest
from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.parts import Recipe
from attn_jax.runs.options import RunOptions, change, resolve
from attn_jax.runs.tree import Bare, Text, nest, part, plain, resolve_tree, sequence
from configs import quickstart

WRAPPERS = "model.attention.wrappers"


def changed(values, config=None):
    """(config, notes)."""
    notes = []
    return change(quickstart.get_config() if config is None else config, values, notes), notes[0]


def test_a_name_brings_the_keys_of_its_part_and_takes_those_of_the_other():
    config, _ = changed({"model.encoder": "conv"})
    assert set(config.model.encoder) == {"name", "num_layers", "kernel_size", "positions"}
    assert set(config.model.encoder.positions) == {"name"}
    config, _ = changed({"model.encoder.positions": "learned"}, config)
    assert set(config.model.encoder.positions) == {"name", "max_length"} and config.is_locked
    config, _ = changed({"model.encoder": "none"}, config)
    assert set(config.model.encoder) == {"name"}


def test_the_order_of_changes_makes_no_difference():
    values = {
        "model.encoder.positions.max_length": 9,
        "model.encoder.positions": "learned",
        "model.encoder": "conv",
        f"{WRAPPERS}.parts.top_keys.count": 4,
        WRAPPERS: ("softcap", "top_keys"),
    }
    found = [changed(dict(order))[0].to_dict() for order in itertools.permutations(values.items())]
    assert all(one == found[0] for one in found)
    assert found[0]["model"]["encoder"]["positions"] == {"name": "learned", "max_length": 9}
    assert found[0]["model"]["attention"]["wrappers"]["parts"]["top_keys"]["count"] == 4


def test_what_two_parts_have_alike_is_kept_and_the_rest_is_said():
    config, notes = changed({"model.encoder.num_layers": 3, "model.encoder.recurrent_dropout": 0.5})
    assert str(notes) == ""
    config, notes = changed({"model.encoder": "conv"}, config)
    assert config.model.encoder.num_layers == 3
    assert str(notes) == "kept model.encoder.num_layers; dropped model.encoder.recurrent_dropout"
    config, notes = changed({"model.encoder": "gru", "model.encoder.num_layers": 2}, config)
    assert (config.model.encoder.num_layers, config.model.encoder.recurrent_dropout) == (2, 0.0)
    _, notes = changed({"model.encoder": "gru"}, config)
    assert str(notes) == ""  # the same name again


def test_a_key_that_goes_with_another_choice_is_said():
    config, _ = changed({"model.attention.normalize": "entmax", "model.attention.normalize.alpha": 1.25})
    config, notes = changed({"model.decoder": "none"}, config)
    assert "attention" not in config.model and "model.attention" in notes.dropped
    config, notes = changed({WRAPPERS: ("gate", "top_keys"), f"{WRAPPERS}.parts.top_keys.count": 2})
    config, notes = changed({WRAPPERS: ("gate",)}, config)
    assert f"{WRAPPERS}.parts.top_keys" in notes.dropped and set(config.model.attention.wrappers.parts) == {"gate"}


def test_parts_of_a_sequence_are_built_in_their_order():
    names = ("softcap", "top_keys", "gate")
    for order in itertools.permutations(names):
        options = resolve(changed({WRAPPERS: order})[0])
        assert [type(wrapper) for wrapper in options.model.attention.wrappers] == [Recipe] * 3
        assert [wrapper.key.rpartition(".")[2] for wrapper in options.model.attention.wrappers] == list(order)


def test_a_file_writes_parts_and_values_below_them():
    config = quickstart.get_config()
    config.model.encoder = part("gru", num_layers=2)
    config.model.encoder.bidirectional = False
    config.model.attention.wrappers = sequence("top_keys", "gate", top_keys={"count": 4})
    found = change(config, {}).model
    assert found.encoder.to_dict() == {"name": "gru", "num_layers": 2, "bidirectional": False, "recurrent_dropout": 0.0}
    assert found.attention.wrappers.pattern == ("top_keys", "gate")
    assert found.attention.wrappers.parts.top_keys.count == 4


def test_a_config_is_copied():
    config = quickstart.get_config()
    before = config.to_dict()
    other = change(config, {"model.hidden_size": 3})
    assert config.to_dict() == before and other.model.hidden_size == 3 and other.task is not config.task
    given = {"a": {"b": [1]}}
    copied = plain(given)
    copied["a"]["c"] = 3
    assert given == {"a": {"b": [1]}} and plain(ConfigDict(given)) == given and plain(None) is None
    assert nest({"a.b.c": 1, "a.b": "x"}) == {"a": {"b": {"name": "x", "c": 1}}}
    assert nest({"a.b.name": "x", "a.b": "y"}) == {"a": {"b": "y"}}
    assert nest({"a.b": "y", "a.b.name": "x"}) == {"a": {"b": {"name": "x"}}}
    assert nest({"a.b.pattern": ("x",), "a.b": ("y",)}) == {"a": {"b": ("y",)}}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model.tie_embeddings", "True", True),
        ("model.tie_embeddings", "no", False),
        ("model.hidden_size", "12", 12),
        ("model.dropout", "1e-1", 0.1),
        ("optimizer.learning_rate", "2", 2.0),
        ("name", "3", "3"),
        ("name", "", ""),
        ("seeds", "1,2", (1, 2)),
        ("seeds", "[1, 2]", (1, 2)),
        ("seeds", "()", ()),
        ("eval.metrics", "bleu, chrf", ("bleu", "chrf")),
        ("eval.metrics", "bleu", ("bleu",)),
        ("eval.metrics", "('bleu', 'chrf')", ("bleu", "chrf")),
        ("task.buckets.shapes", "[[1, 2], 3]", ((1, 2), 3)),
        ("model.encoder.name", "gru", "gru"),
        (f"{WRAPPERS}.pattern", "softcap,gate", ("softcap", "gate")),
    ],
)
def test_a_text_is_read_in_the_type_of_its_option(key, text, value):
    config, _ = changed({key: Text(text)})
    assert config[key] == value and type(config[key]) is type(value)


def test_a_key_without_a_value_is_true_where_it_can_be():
    assert changed({"model.tie_embeddings": Bare("true")})[0].model.tie_embeddings is True
    with pytest.raises(UserError, match=r"^--config.name has no value; expected a text, such as 'base'$"):
        changed({"name": Bare("true")})


def test_what_a_stored_config_has_too_much_is_left_out_and_named():
    stored = plain(quickstart.get_config()) | {"gone": 3}
    stored["model"]["encoder"]["gone"] = {"a": 1}
    config, notes = resolve_tree(RunOptions, stored, lenient=True)
    assert sorted(notes.unknown) == ["gone", "model.encoder.gone"] and str(notes) == ""
    assert config.to_dict() == change(quickstart.get_config(), {}).to_dict()
    with pytest.raises(UserError, match=r"unknown config key model.encoder.gone; known: "):
        resolve_tree(RunOptions, stored)
