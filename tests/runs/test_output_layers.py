"""Runs with every output layer: they train, resume from their files, decode, and refuse what cannot be."""

import shutil

import jax
import numpy as np
import pytest
from tiny_run import tiny_config, train

from attn_jax.errors import UserError
from attn_jax.outputs import OUTPUTS
from attn_jax.parts import fields_of
from attn_jax.runs import training
from attn_jax.runs.build import build_setup, describe_decoding
from attn_jax.runs.checks import check
from attn_jax.runs.load import load
from attn_jax.runs.options import resolve
from attn_jax.runs.overrides import override

TASK = {"name": "zipf", "num_words": 40, "num_classes": 4, "length": 6, "num_examples": 60, "batch_size": 32}
SMALL = {f"task__{key}": value for key, value in TASK.items()} | {"task__buckets__shapes": ((4, 8),)}
SMALL |= {"model__name": "recurrent_language_model", "train__num_steps": 2, "eval__metrics": ("perplexity",)}
SAMPLES, GIVEN = {"model__output__num_samples": 8}, {"model__output__cutoffs": "given"}


def config_of(name, **changes):
    samples = SAMPLES if "num_samples" in fields_of(OUTPUTS[name]) else {}
    return tiny_config(**SMALL | {"model__output__name": name} | samples | changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chunked", "adaptive", "hierarchical", "sampled"])  # one of those that sample
def test_a_run_trains_stores_its_counts_and_decodes(name, tmp_path):
    lazy = {"train__lazy_rows": True} if name not in ("full", "chunked", "adaptive") else {}
    config = config_of(name, decode__method="beam", decode__method__beam_size=2, decode__max_length=5, **lazy)
    run, fitted = train(config, tmp_path)
    assert fitted.step == 2
    counts = run.task.target_vocabulary.counts
    assert (counts is not None) == OUTPUTS[name].needs_counts
    model = load(tmp_path)
    (text,) = model.predict(["1 2"])
    assert set(text.split()) <= {str(word) for word in range(40)}


@pytest.mark.slow
def test_a_resumed_run_is_one_that_never_stopped(tmp_path):
    options = {"train__lazy_rows": True, "train__checkpoint_every": 1, "train__keep": 9, "train__num_steps": 4}
    config = config_of("sampled", model__output__proposal="unigram", model__output__proposal__smoothing=1.0, **options)
    run, fitted = train(config, tmp_path)
    expected = run.parallel.get_state(fitted.state).params
    for step in (3, 4):
        shutil.rmtree(tmp_path / "checkpoints" / str(step))
    run, fitted = train(config, tmp_path)
    assert fitted.step == 4
    jax.tree.map(np.testing.assert_array_equal, run.parallel.get_state(fitted.state).params, expected)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sampled", dict(model__output__num_samples=45), "model.output.num_samples is 45, but the vocabulary has 44"),
        ("sampled", dict(model__output__proposal="unigram"), "words have the count 0"),
        ("adaptive", GIVEN | dict(model__output__cutoffs__words=(10, 44)), "expected less than 44, the number of word"),
        ("adaptive", GIVEN | dict(model__output__cutoffs__words=(10, 5)), "expected rising numbers of at least 1"),
        ("adaptive", dict(model__tie_embeddings=True), "has no vectors of words to share with an embedding"),
        ("sampled", dict(model__output__frequencies="nowhere.tsv"), "nowhere.tsv"),
    ],
)
def test_what_cannot_be_is_one_line(name, changes, message, tmp_path):
    with pytest.raises(UserError) as error:
        run = training.open_run(resolve(config_of(name, **changes)), tmp_path)
        run.checkpoints.close()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_file_of_frequencies_is_used(tmp_path):
    (tmp_path / "counts.tsv").write_text("".join(f"{word}\t{100 - word}\n" for word in range(40)))
    config = config_of("hierarchical", model__output__frequencies="counts.tsv", data_dir=str(tmp_path))
    run = training.open_run(resolve(config), tmp_path / "run")
    run.checkpoints.close()
    vocabulary = run.task.target_vocabulary
    counts = {vocabulary.tokens([i])[0]: count for i, count in enumerate(vocabulary.counts)}
    assert counts["0"] == 100 and counts["39"] == 61


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.output.num_samples=5"], "it is an option of model.output sampled, nce, negative_sampling or blackout"),
        (["model.output=sampled", "model.output.tree=balanced"], "it is an option of model.output hierarchical"),
        (["model.output=sampled", "model.output.proposal.power=0.5"], "it is an option of model.output.proposal unigr"),
        (["model.output=sampled", "train.label_smoothing=0.1"], "train.label_smoothing"),
        (["model.output.name=adaptiv"], "did you mean adaptive?"),
    ],
)
def test_an_option_that_the_layer_does_not_read_is_refused(changes, message):
    config = tiny_config(**SMALL)
    with pytest.raises(UserError) as error:
        config = override(config, [f"--config.{change}" for change in changes])
        check(resolve(config))
    assert message in str(error.value)


@pytest.mark.slow
def test_rows_that_no_model_reads_are_refused(tmp_path):
    config = tiny_config(task__name="babi", model__name="memn2n", task__buckets="automatic", train__lazy_rows=True)
    with pytest.raises(UserError, match=r"nothing reads train\.lazy_rows"):
        training.open_run(resolve(config), tmp_path).checkpoints.close()


def test_predictions_say_what_an_exact_search_costs(tmp_path):
    for name, expected in (("sampled", "each step computes all 44 words"), ("adaptive", "")):
        config = config_of(name)
        run = training.open_run(resolve(config), tmp_path / name)
        run.checkpoints.close()
        found = describe_decoding(resolve(config), build_setup(resolve(config), run.task.kept).predictor)
        assert expected in found and bool(found) == bool(expected)


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
def test_the_whole_gradient_of_a_table_is_counted_unless_its_rows_are_updated_alone(tmp_path, monkeypatch, lazy):
    class Measured(Exception):
        pass

    def measure(*_, by_rows, **__):
        raise Measured({path[0] for path in by_rows})

    monkeypatch.setattr("attn_jax.training.model_size.measure", measure)
    with pytest.raises(Measured) as caught:
        train(tiny_config(train__lazy_rows=lazy), tmp_path)
    assert caught.value.args[0] == ({"source_embedding", "target_embedding"} if lazy else set())
