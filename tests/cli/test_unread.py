"""Options that nothing reads are refused, and options that something reads are not."""

import pathlib

import jax
import numpy as np
import pytest

from attn_jax.cli.overrides import load_file, override
from attn_jax.cli.sweep import jobs
from attn_jax.cli.unread import check_read, same
from attn_jax.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]
SWEEPS = [path for path in sorted((ROOT / "experiments").glob("*.py")) if "def sweep(" in path.read_text("utf-8")]


def check(name, /, **changes):
    """Checks the options set on the command line of a config, "__" for a dot."""
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    config = load_file(ROOT / "configs" / f"{name}.py", "get_config")
    config = override(config, [f"--config.{key}={value}" for key, value in changes.items()])
    check_read(config, changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("quickstart", dict(model__positions="rotary"), "nothing reads model.positions with model.name seq2seq"),
        ("quickstart", dict(model__norm="post"), "nothing reads model.norm"),
        ("quickstart", dict(model__activation="gelu"), "nothing reads model.activation"),
        ("quickstart", dict(model__continue_source=True), "model.name language_model or recurrent_language_model, not"),
        (
            "quickstart",
            dict(model__num_hops=9),
            "unknown config key model.num_hops; it is an option of model.name memn2n",
        ),
        ("quickstart", dict(model__degrees=(1,)), "model.name kernel_regression, not of seq2seq"),
        ("quickstart", dict(model__pooling="structured"), "model.name classifier, not of seq2seq"),
        ("quickstart", dict(model__attention__width=(-1.0,)), "nothing reads model.attention.width"),
        (
            "quickstart",
            dict(model__attention__alpha=2.0),
            "score additive, model.attention.normalize softmax; leave it out",
        ),
        ("quickstart", dict(model__attention__temperature=3.0), "nothing reads model.attention.temperature"),
        ("quickstart", dict(model__attention__feed="read"), "model.objective soft"),
        ("enja_none", dict(model__attention__score="dot"), "model.decoder none"),
        (
            "quickstart_transformer",
            dict(model__cell="gru"),
            "model.name transformer",
        ),
        ("quickstart_transformer", dict(model__remat=True, model__cell="rnn"), "nothing reads model.cell"),
        (
            "babi_memn2n",
            dict(model__num_layers=7),
            "unknown config key model.num_layers; it is an option of model.name seq2seq",
        ),
        ("babi_memn2n", dict(model__encoder="conv"), "unknown config key model.encoder"),
        ("kernel_regression", dict(model__hidden_size=3), "nothing reads model.hidden_size"),
        ("kernel_regression", dict(dtype="bfloat16"), "nothing reads dtype with model.name kernel_regression"),
        ("kernel_regression", dict(decode__method="beam"), "unknown config key decode.method"),
        ("kernel_regression", dict(train__label_smoothing=0.1), "unknown config key train.label_smoothing"),
        (
            "quickstart",
            dict(decode__top_k=5),
            "read by decode.method sample, not by decode.method greedy",
        ),
        ("quickstart", dict(decode__method="beam", decode__temperature=0.5), "decode.temperature is read by decode.me"),
        ("quickstart", dict(train__num_epochs=0.5), "train.num_epochs is read by train.num_steps 0, not by train.num"),
        ("quickstart", dict(decode__beam_size=3), "decode.beam_size is read by decode.method beam"),
        (
            "quickstart",
            dict(task__block=5),
            "unknown config key task.block; it is an option of task.name plain_text, not of dates",
        ),
        (
            "quickstart",
            dict(task__joint_vocabulary=True),
            "unknown config key task.joint_vocabulary; it is an option of task.name parallel_text, not of dates",
        ),
        ("quickstart", dict(task__source_buckets=3), "task.source_buckets is read by task.buckets ()"),
        (
            "enja_soft",
            dict(task__sentencepiece="bpe"),
            "read by task.vocabulary sentencepiece",
        ),
        ("quickstart", dict(eval__tokenize="none"), "eval.tokenize is read by eval.metrics bleu"),
        ("quickstart_transformer", dict(model__positions="sinusoidal", model__max_length=3), "model.max_length"),
        ("language_id_conv", dict(model__penalty=0.5), "nothing reads model.penalty with model.name classifier"),
        ("quickstart", dict(optimizer__momentum=0.5), "nothing reads optimizer.momentum with optimizer.name adam"),
        ("quickstart", dict(optimizer__name="sgd", optimizer__b2=0.5), "nothing reads optimizer.b2"),
        ("quickstart", dict(optimizer__plateau_patience=5), "schedule cosine"),
        ("quickstart", dict(optimizer__halve_after=5), "nothing reads optimizer.halve_after"),
    ],
)
def test_an_option_that_nothing_reads_is_refused(name, changes, message):
    with pytest.raises(UserError) as error:
        check(name, **changes)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("quickstart", dict(model__attention__score="dot", model__hidden_size=64, model__dropout=0.1)),
        ("quickstart", dict(model__attention__normalize="entmax", model__attention__alpha=1.2)),
        ("quickstart", dict(decode__method="beam", decode__n_best=3, decode__beam_size=3, decode__replace_unk=True)),
        ("quickstart", dict(decode__method="sample", decode__top_k=3, decode__temperature=2.0)),
        ("quickstart", dict(optimizer__b1=0.5, optimizer__warmup_steps=5, task__batch_size=8, train__num_steps=3)),
        *((name, dict(dtype="bfloat16")) for name in ("quickstart", "zipf", "language_id_conv", "scenes_glimpses")),
        ("quickstart_transformer", dict(model__activation="gelu", model__norm="post", model__positions="alibi")),
        # What the default stands for, said in words.
        ("quickstart_transformer", dict(model__num_decoder_layers=2, model__num_kv_heads=4)),
        ("inflection_hard", dict(model__attention__baseline="learned")),
        ("babi_memn2n", dict(decode__method="beam", model__noise=0.1)),
        ("kernel_regression", dict(model__criterion="training", decode__batch_size=3, task__num_examples=7)),
        ("quickstart", dict(model__positions="sinusoidal")),  # its default: it changes nothing, and says nothing wrong
    ],
)
def test_an_option_that_something_reads_is_accepted(name, changes):
    check(name, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_sets_nothing_that_its_runs_do_not_read(path):
    for job in jobs(path):
        changes = {key.replace(".", "__"): value for key, value in job.overrides.items()}
        check(pathlib.Path(job.config).stem, **changes)


def test_what_was_built_is_compared_part_by_part():
    def make(number):
        return lambda x=number: x + number

    assert same({"a": (1, make(2), np.arange(3))}, {"a": (1, make(2), np.arange(3))})
    assert not same(make(2), make(3))
    assert not same((1, 2), (1, 2, 3)) and not same([1], (1,)) and not same({"a": 1}, {"b": 1})
    assert not same(np.arange(3), np.arange(3) + 1)
    assert not same(jax.nn.relu, jax.nn.gelu)
