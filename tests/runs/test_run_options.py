"""A config has the options of its task and family and no others, whatever way it came to them."""

import re

import pytest

from attn_jax.cli.reference import describe, reference
from attn_jax.errors import UserError
from attn_jax.models.families import FAMILIES
from attn_jax.parts import fields_of
from attn_jax.runs.checks import check
from attn_jax.runs.options import change, default_config, resolve, schema_of, switch
from attn_jax.runs.tree import keys
from attn_jax.tasks import TASKS
from configs import enja_transformer, quickstart

FITTING = {"kernel_regression": "regression", "glimpses": "scenes"} | dict.fromkeys(
    ("memn2n", "memnn", "dmn", "dmn_plus", "entnet", "universal"), "babi"
)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_defaults_of_a_family_are_sound(family):
    config = default_config(FITTING.get(family, "dates"), family)
    assert config.is_locked and set(keys(config)) == set(schema_of(config))
    options = resolve(config)
    if "hidden_size" in config.model and family != "dmn":
        assert resolve(change(config, {"model.hidden_size": 12})).model.hidden_size == 12
    assert options.model.name == family and options.task.name == config.task.name


@pytest.mark.parametrize("task", TASKS)
def test_the_defaults_of_a_task_are_sound(task):
    family = "kernel_regression" if task == "regression" else "seq2seq"
    assert resolve(default_config(task, family)).build_model() is not None


def test_a_regression_reads_the_defaults_of_the_options_that_it_does_not_have():
    points, texts = resolve(default_config("regression", "kernel_regression")), resolve(default_config())
    names = {key for key, field in fields_of(type(texts.train)).items() if field.where is not None}
    assert {"lazy_rows", "microbatches", "choose_seed", "start"} == names
    assert not names & set(default_config("regression", "kernel_regression").train)
    for name in names - {"start"}:
        assert getattr(points.train, name) == getattr(texts.train, name)
    assert points.train.start is None and points.decode.ensemble == texts.decode.ensemble


def test_another_family_brings_its_keys_and_keeps_the_values_that_both_have():
    config = change(quickstart.get_config(), {"model.encoder": "gru", "model.attention.score": "dot"})
    notes = []
    other = change(config, {"model": "transformer"}, notes)
    assert other.model.name == "transformer"
    assert "num_heads" in other.model.decoder and "cell" not in other.model.decoder
    assert "objective" not in other.model and other.model.encoder == config.model.encoder
    assert other.model.attention.score.name == "general"  # the default of another slot
    assert {"model.encoder", "model.hidden_size"} <= set(notes[0].kept) and "model.attention" in notes[0].dropped
    assert other.model.hidden_size == config.model.hidden_size and other.task == config.task
    for family, data, task in (("memn2n", "stories", "babi"), ("kernel_regression", "points", "regression")):
        words = f"^model.name {family} reads {data}, and task.name dates has text; expected task.name {task}, or "
        with pytest.raises(UserError, match=words):
            switch(config, model=family)


def test_a_default_is_that_of_the_new_task():
    config = switch(default_config("parallel_text", "seq2seq"), task="indexed_text")
    assert config.task.valid == ("valid.source", "valid.target")  # of texts: ("", "")


def test_each_place_of_a_transformer_may_have_attention_of_its_own():
    changes = {"model.decoder.source_attention": "map", "model.decoder.source_attention.normalize": "sparsemax"}
    changes |= {"model.decoder.source_attention.score": "scaled_dot"}
    changes |= {"model.decoder.attention": "map", "model.decoder.attention.score": "gaussian"}
    model = resolve(change(enja_transformer.get_config(), changes)).build_model().module
    layer = model.decoder.make_layer()
    own, source = layer.make_attention().attention, layer.make_source_attention().attention
    encoder = model.encoder.make_layer().make_attention().attention
    assert [type(part.score).__name__ for part in (encoder, own, source)] == ["ScaledDot", "Gaussian", "ScaledDot"]
    assert [part.normalize.label for part in (encoder, own, source)] == ["softmax", "softmax", "sparsemax"]


@pytest.mark.slow
def test_every_option_is_described_with_its_value():
    config = quickstart.get_config()
    text = describe(config)
    for key in keys(config):
        assert key in text, key
    assert "model.hidden_size = 128" in text and "; default 256" in text
    assert "kernel_size" not in text  # of another encoder


def test_the_reference_has_every_option_below_headings_of_one_part():
    page = reference()
    for family in FAMILIES:
        for key in schema_of(default_config(FITTING.get(family, "dates"), family)):
            key = key.removesuffix(".name").removesuffix(".pattern").rpartition(".")[2]
            assert f"`{key}`" in page, key
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert len(headings) == len(set(headings)) > 50
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert links <= {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("task", [name for name, kind in TASKS.items() if not getattr(kind, "has_sources", True)])
def test_a_task_without_sources_has_no_outputs_to_measure(task):
    config = switch(default_config(), task=task, model="language_model")
    assert config.eval.metrics == ("perplexity", "accuracy")
    check(resolve(config))
    assert "bleu" in switch(config, task="dates").eval.metrics
    set_by_hand = change(default_config(), {"eval.metrics": ("chrf",)})
    assert switch(set_by_hand, task="dates").eval.metrics == ("chrf",)
    config.eval.metrics = ("loss", "chrf")
    with pytest.raises(UserError, match=f"^eval.metrics chrf compares .*{task} has no sources .* expected loss, perpl"):
        check(resolve(config))
    config.eval.metrics, config.train.best_metric = ("loss",), "bleu"
    with pytest.raises(UserError, match=r"^train\.best_metric bleu compares "):
        check(resolve(config))
