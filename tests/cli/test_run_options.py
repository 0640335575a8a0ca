"""A config has the options of its task and family and no others, whatever way it came to them."""

import pytest

from attn_jax.cli.checks import check_metrics
from attn_jax.cli.options import change, default_config, families_with, resolve, schema, switch
from attn_jax.cli.reference import describe, reference
from attn_jax.errors import UserError
from attn_jax.models.families import FAMILIES
from attn_jax.options import keys, options_of
from attn_jax.tasks import TASKS
from attn_jax.training.options import TokenTrainOptions, TrainOptions
from configs import enja_transformer, quickstart

FITTING = {"kernel_regression": "regression", "glimpses": "scenes"} | dict.fromkeys(
    ("memn2n", "memnn", "dmn", "dmn_plus", "entnet", "universal"), "babi"
)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_defaults_of_a_family_are_sound(family):
    config = default_config(FITTING.get(family, "dates"), family)
    assert config.is_locked and set(keys(config)) == set(schema(config.task.name, family))
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
    for ours, theirs, names in (
        (points.train, texts.train, set(options_of(TokenTrainOptions)) - set(options_of(TrainOptions))),
        (points.decode, texts.decode, {"ensemble", "runs"}),
    ):
        assert {name: getattr(ours, name) for name in names} == {name: getattr(theirs, name) for name in names}


def test_another_family_brings_its_keys_and_keeps_the_values_that_both_have():
    config = quickstart.get_config()
    config.model.attention.score = "dot"
    other = switch(config, model="transformer")
    assert other.model.name == "transformer" and "num_decoder_layers" in other.model and "cell" in other.model
    assert "objective" not in other.model and other.model.attention.score == "dot"
    assert other.model.hidden_size == config.model.hidden_size and other.task == config.task
    with pytest.raises(UserError, match=r"model.name memn2n is for|answers questions about stories"):
        resolve(switch(config, model="memn2n")).build_model()
    with pytest.raises(UserError, match=r"^model.name kernel_regression is for task.name regression, got dates$"):
        switch(config, model="kernel_regression")


def test_a_default_is_that_of_the_new_task():
    config = switch(default_config("parallel_text", "seq2seq"), task="indexed_text")
    assert config.task.valid == ("valid.source", "valid.target")  # of texts: ("", "")


def test_each_place_of_a_transformer_may_have_attention_of_its_own():
    changes = {"model.source_attention.normalize": "sparsemax", "model.decoder_attention.score": "gaussian"}
    model = resolve(change(enja_transformer.get_config(), changes)).build_model().module
    layer = model.decoder.make_layer()
    own, source = layer.make_attention().attention, layer.make_source_attention().attention
    encoder = model.encoder.make_layer().make_attention().attention
    assert [type(part.score).__name__ for part in (encoder, own, source)] == ["ScaledDot", "Gaussian", "ScaledDot"]
    assert [part.normalize.label for part in (encoder, own, source)] == ["softmax", "softmax", "sparsemax"]


def test_families_with_an_option():
    assert families_with("model.num_slots") == ["entnet"] and families_with("model.nothing") == []


@pytest.mark.slow
def test_every_option_is_described_with_its_value():
    config = quickstart.get_config()
    text = describe(config)
    for key in keys(config):
        assert key in text, key
    assert "model.hidden_size = 128" in text and "; default 256" in text
    unread = text[text.index("nothing reads") :]
    assert "model.kernel_size" in unread and "model.kernel_size =" not in text


def test_the_reference_has_every_option():
    page = reference()
    for family in FAMILIES:
        for key in schema(FITTING.get(family, "dates"), family):
            assert f"`{key}`" in page or key.endswith(".name"), key


@pytest.mark.parametrize("task", [name for name, kind in TASKS.items() if not getattr(kind, "has_sources", True)])
def test_a_task_without_sources_has_no_outputs_to_measure(task):
    config = switch(default_config(), task=task, model="language_model")
    assert config.eval.metrics == ("perplexity", "accuracy")
    check_metrics(config)
    assert "bleu" in switch(config, task="dates").eval.metrics
    config.eval.metrics = ("loss", "chrf")
    with pytest.raises(UserError, match=f"^eval.metrics chrf compares .*{task} has no sources .* expected loss, perpl"):
        check_metrics(config)
    config.eval.metrics, config.train.best_metric = ("loss",), "bleu"
    with pytest.raises(UserError, match=r"^train\.best_metric bleu compares "):
        check_metrics(config)


def test_what_was_set_of_the_evaluation_stays_with_another_task():
    config = change(default_config(), {"eval.metrics": ("chrf",)})
    assert switch(config, task="dates").eval.metrics == ("chrf",)
