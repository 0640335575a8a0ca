"""An ensemble is the mean of the distributions of its members, in evaluation, scores and decoding."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_run import tiny_config, train

from attn_jax.cli import commands
from attn_jax.decoding.decode import greedy
from attn_jax.errors import UserError
from attn_jax.inspection.attention_measures import measure_attention
from attn_jax.models.base import Model
from attn_jax.models.ensemble import MixedEnsemble, ensemble_of, stacked
from attn_jax.models.module import SequenceModule
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.load import load
from attn_jax.runs.options import change, default_config, resolve
from attn_jax.runs.overrides import override
from attn_jax.runs.snapshot import restore
from attn_jax.runs.training import open_run
from attn_jax.runs.workdir import load_config
from attn_jax.token_ids import BOS, EOS, PAD

FAMILIES = {
    "seq2seq": {},
    "transformer": {
        "model__name": "transformer",
        "model__decoder__num_heads": 2,
        "model__decoder__feed_forward_size": 8,
    },
    "memn2n": {"task__name": "babi", "model__name": "memn2n", "task__buckets": "automatic"},
    "universal": {
        "task__name": "babi",
        "model__name": "universal",
        "task__buckets": "automatic",
        "model__num_heads": 2,
    },
}


@pytest.fixture(scope="module", params=FAMILIES)
def members(request):
    """(model, ensemble, parameters of three seeds, a batch)."""
    config = tiny_config(**FAMILIES[request.param], decode__max_length=20)
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    batch = task.batches(**setup.batch_options, seeds=(0,), row_multiple=1).batch_at(0)
    batch = {name: jnp.asarray(value[:6]) for name, value in batch.items()}
    init = jax.jit(setup.model.init)
    params = [init(jax.random.key(seed), batch) for seed in range(3)]
    # Fresh models are nearly uniform, and the mean of equal distributions shows nothing.
    params = [jax.tree.map(lambda x: 3 * x, some) for some in params]
    return setup.model, ensemble_of(setup.model), params, batch


@pytest.mark.slow
def test_scores_are_those_of_the_mean_probability(members):
    model, ensemble, params, batch = members
    start, step = jax.jit(model.start), jax.jit(model.step)
    states = [start(some, batch["source"]) for some in params]
    total, length = 0.0, batch["target_out"].shape[1]
    real = np.asarray(batch["target_out"] != 0)
    for t in range(length):
        probs = []
        for i, some in enumerate(params):
            memory, state = states[i]
            state, log_probs = step(some, memory, state, batch["target_in"][:, t])
            states[i] = memory, state
            probs.append(np.exp(np.asarray(log_probs, np.float64)))
        own = np.take_along_axis(np.mean(probs, axis=0), np.asarray(batch["target_out"])[:, t, None], axis=1)[:, 0]
        total = total + np.where(real[:, t], np.log(np.maximum(own, 1e-300)), 0.0)
    np.testing.assert_allclose(jax.jit(ensemble.score)(stacked(params), batch), total, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_evaluation_is_at_least_as_likely_as_the_mean_and_of_equal_members_the_same(members):
    model, ensemble, params, batch = members
    evaluate, alone = jax.jit(ensemble.eval_fn), jax.jit(model.eval_fn)
    each = [alone(some, batch) for some in params]
    together = evaluate(stacked(params), batch)
    assert together["loss"].compute() < np.mean([metrics["loss"].compute() for metrics in each])
    for some, expected in zip(params, each, strict=True):
        same = evaluate(stacked([some] * 3), batch)
        for name, value in expected.items():
            np.testing.assert_allclose(same[name].compute(), value.compute(), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_weights_are_means(members):
    model, ensemble, params, batch = members
    weights = [jax.jit(model.attention_weights)(some, batch) for some in params]
    found = jax.jit(ensemble.attention_weights)(stacked(params), batch)
    np.testing.assert_allclose(found, np.mean(weights, axis=0), atol=1e-5)


@pytest.mark.slow
def test_it_does_not_matter_how_members_are_grouped(members):
    model, ensemble, params, batch = members
    if not type(ensemble).__name__ == "Ensemble":
        pytest.skip("stories have one ensemble")
    mixed = MixedEnsemble(model.module, (ensemble, ensemble))
    grouped, together = (stacked(params[:2]), stacked(params[2:])), stacked(params)
    np.testing.assert_allclose(
        jax.jit(mixed.score)(grouped, batch), jax.jit(ensemble.score)(together, batch), rtol=1e-4
    )
    for name, value in jax.jit(ensemble.eval_fn)(together, batch).items():
        np.testing.assert_allclose(jax.jit(mixed.eval_fn)(grouped, batch)[name].compute(), value.compute(), rtol=1e-4)
    assert jax.eval_shape(mixed.maps, grouped, batch).keys() == {
        f"run {number}: {name}" for number in (1, 2) for name in jax.eval_shape(ensemble.maps, together, batch)
    }


@pytest.mark.slow
def test_of_equally_probable_tokens_the_first_is_right_as_in_greedy_decoding(members):
    """The layer of output gives the same to all tokens but two, which are those of a target."""
    model, ensemble, params, batch = members
    if "output" not in params[0] or "dense" not in params[0]["output"]:
        pytest.skip("its layer of output is another one")
    first, other = sorted({int(token) for token in np.asarray(batch["target_out"])[:, 0]} - {0})[:2]
    size = len(params[0]["output"]["dense"]["bias"])
    bias = np.where(np.isin(np.arange(size), (first, other)), 9.0, 0.0).astype(np.float32)
    dense = {"kernel": jnp.zeros_like(params[0]["output"]["dense"]["kernel"]), "bias": jnp.asarray(bias)}
    tied = {**params[0], "output": {**params[0]["output"], "dense": dense}}
    targets = np.asarray(batch["target_out"])
    targets = targets[:, :1] if model.one_token else targets
    expected = np.mean(targets[targets != 0] == first)
    assert expected < np.mean(np.isin(targets[targets != 0], (first, other)))
    options = dict(max_length=1, limits=np.ones(len(targets), np.int32), bos=BOS, eos=EOS, pad=PAD)

    def run(one, params):
        found = greedy(functools.partial(one.step_top_k, params), *one.start(params, batch["source"]), **options)
        return one.eval_fn(params, batch)["accuracy"], found.tokens

    for one, own in ((model, tied), (ensemble, stacked([tied] * 3))):
        accuracy, tokens = compiled(functools.partial(run, one))(own)
        np.testing.assert_allclose(accuracy.compute(), expected, rtol=1e-6)
        np.testing.assert_array_equal(tokens, first)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Work directories of a recurrent model, a Transformer, and one that reads other data."""
    folder = tmp_path_factory.mktemp("runs")
    train(tiny_config(decode__max_length=12), folder / "rnn")
    train(tiny_config(**FAMILIES["transformer"], seeds=(0, 1), decode__max_length=20), folder / "transformer")
    open_run(
        resolve(tiny_config(task__num_examples=90)), folder / "fewer"
    ).checkpoints.close()  # has vocabularies and a config
    return folder


def averaged(config, *workdirs, every_seed=False):
    """The config with an ensemble of the run and of these."""
    given = {"workdirs": tuple(map(str, workdirs)), "every_seed": every_seed}
    return change(config, {"decode.ensemble": "runs"} | {f"decode.ensemble.{key}": x for key, x in given.items()})


@pytest.mark.slow
def test_runs_of_different_models_are_averaged(runs):
    config = load_config(runs / "rnn")
    config = averaged(config, runs / "transformer", every_seed=True)
    mixed = restore(resolve(config), runs / "rnn")
    assert mixed.used.startswith("ensemble of 2 runs: best") and len(mixed.params) == 1
    alone = [restore(resolve(load_config(runs / name)), runs / name) for name in ("rnn", "transformer")]
    pairs = task_of(config)
    batch = alone[0].predictor.translator.encode(pairs).batch(np.arange(8), (32, 16))
    members = [(alone[0], alone[0].params[0]), *((alone[1], p) for p in alone[1].params)]
    probs = 0.0
    for one, params in members:
        start, step = jax.jit(one.model.start), jax.jit(one.model.step)
        memory, state = start(params, batch["source"])
        rows = []
        for token in batch["target_in"].T:
            state, log_probs = step(params, memory, state, token)
            rows.append(np.exp(np.asarray(log_probs, np.float64)))
        probs = probs + np.stack(rows, axis=1) / len(members)
    own = np.log(np.take_along_axis(probs, batch["target_out"][..., None], axis=-1)[..., 0])
    expected = np.sum(np.where(batch["target_out"] != 0, own, 0), axis=1)
    found = mixed.predictor.log_probs(mixed.chosen, pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    (printed,) = [lines for _, lines in mixed.predictor.predict(mixed.chosen, ["2 May 1999"], 10)]
    assert len(printed) == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", ["rnn", "transformer"])
def test_every_layer_and_head_of_a_run_is_named_by_its_run(runs, first):
    other = {"rnn": "transformer", "transformer": "rnn"}[first]
    config = averaged(load_config(runs / first), runs / other)
    snapshot, alone = (
        restore(resolve(config), runs / first),
        restore(resolve(load_config(runs / "transformer")), runs / "transformer"),
    )
    pairs = task_of(config)
    found = snapshot.setup.collector.maps(snapshot.chosen, pairs)
    expected = alone.setup.collector.maps(alone.chosen, pairs)
    number = 2 if first == "rnn" else 1
    for maps, own in zip(found, expected, strict=True):
        mean, *others = maps
        assert mean.name == "attention to the source" and mean.axes == ()
        assert [one.name for one in others] == [f"run {number}: {one.name}" for one in own] and len(own) > 1
        for one, same in zip(others, own, strict=True):
            assert one.axes == ("layer", "head") and one.columns == same.columns
            np.testing.assert_allclose(one.weights, same.weights, atol=1e-5)
    rows, same = (
        {
            (row.place, *row.axes.items()): row.values
            for row in measure_attention(one.setup.collector, [one.chosen], pairs)
        }
        for one in (snapshot, alone)
    )
    for (place, *axes), values in same.items():
        named = rows[f"run {number}: {place}", *axes]
        assert named.keys() == values.keys()
        for name in values.keys() - {"attended", "random", "error"}:  # of the weights alone
            np.testing.assert_allclose(named[name], values[name], rtol=1e-4)


def test_tags_stay_where_any_of_the_models_takes_them_apart():
    class Member(SequenceModule):
        reads_tags: bool = False

    whole, apart = (ensemble_of(Model(Member(reads_tags=reads))) for reads in (False, True))
    assert MixedEnsemble(whole.module, (whole, apart)).reads_tags
    assert not MixedEnsemble(whole.module, (whole, whole)).reads_tags


@pytest.mark.slow
def test_a_run_counts_once(runs):
    config = load_config(runs / "rnn")
    for names, message in (
        (["transformer", f"../{runs.name}/transformer"], r"it is named twice; a run counts once"),
        (["rnn"], r"it is the run itself, which is part of the ensemble already; leave it out"),
        (["transformer", f"../{runs.name}/rnn"], r"it is the run itself"),
    ):
        with pytest.raises(UserError, match=rf"^decode\.ensemble\.workdirs \S+: {message}"):
            restore(resolve(averaged(config, *(runs / name for name in names))), runs / "rnn")
    (runs / "new").mkdir()
    with pytest.raises(UserError, match=r"it is the run itself"):
        commands.train(resolve(averaged(config, runs / "new")), runs / "new", commands.Files())


@pytest.mark.slow
def test_runs_that_cannot_be_averaged(runs):
    config = load_config(runs / "rnn")
    for name, message in (
        ("fewer", "fewer: its source vocabulary is another one: .*; expected equal vocabularies, since"),
        ("none", r"none: there is no such folder; expected the work directory of a run$"),
        ("", r"does not exist: \S+ is not the work directory of a run"),
    ):
        with pytest.raises(UserError, match=f"^decode.ensemble.workdirs .*{message}") as error:
            restore(resolve(averaged(config, runs / name)), runs / "rnn")
        assert "\n" not in str(error.value)
    stories = averaged(tiny_config(**FAMILIES["memn2n"]), runs / "rnn")
    message = r"^decode.ensemble runs averages models of texts or images.*expected decode.ensemble seeds$"
    with pytest.raises(UserError, match=message):
        train(stories, runs / "stories")


@pytest.mark.slow
def test_a_run_with_other_vocabularies_is_told_before_the_training(runs, tmp_path):
    config = averaged(load_config(runs / "rnn"), runs / "fewer")
    with pytest.raises(UserError, match=r"^decode\.ensemble\.workdirs .*fewer: its source vocabulary is another one"):
        commands.train(resolve(config), tmp_path / "new", commands.Files())
    assert not any((tmp_path / "new" / "checkpoints").glob("[0-9]*"))


@pytest.mark.slow
def test_one_run_with_others_is_an_ensemble_and_not_a_seed(runs, tmp_path):
    shutil.copytree(runs / "rnn", tmp_path / "rnn")
    config = averaged(load_config(tmp_path / "rnn"), runs / "transformer")
    assert (
        restore(resolve(config), tmp_path / "rnn").together
        and not restore(resolve(load_config(runs / "rnn")), runs / "rnn").together
    )
    commands.report(resolve(config), tmp_path / "rnn", commands.Files(num_examples=1))
    page = (tmp_path / "rnn" / "report.html").read_text()
    data = json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
    assert data["examples"]["seeds"] == ["ensemble"]
    assert any(fact[0] == "attention of" and fact[1].startswith("ensemble of 2 runs") for fact in data["facts"])


@pytest.mark.slow
def test_a_run_is_evaluated_and_asked_as_an_ensemble(tmp_path):
    config = tiny_config(seeds=(0, 1, 2), decode__method="beam", decode__method__beam_size=2, decode__max_length=12)
    train(config, tmp_path)
    config = change(config, {"decode.ensemble": "seeds"})
    snapshot, alone = restore(resolve(config), tmp_path), restore(resolve(load_config(tmp_path)), tmp_path)
    assert len(snapshot.params) == 1 and snapshot.used.endswith("ensemble of 3 seeds")
    pairs = task_of(config)
    (found,) = snapshot.evaluator.measure(snapshot.params, pairs, ["accuracy"]).values["accuracy"]["seeds"]
    each = alone.evaluator.measure(alone.params, pairs, ["accuracy"]).values["accuracy"]["seeds"]
    batch = alone.predictor.translator.encode(pairs).batch(np.arange(8), (32, 16))
    best, real = np.argmax(mean_probs(alone, batch), axis=-1), batch["target_out"] != 0
    expected = 100 * np.mean((best == batch["target_out"])[real])
    assert found == pytest.approx(expected, rel=1e-5) and expected not in each
    (printed,) = [lines for _, lines in snapshot.predictor.predict(snapshot.chosen, ["2 May 1999"], 10)]
    assert len(printed) == 1
    assert load(tmp_path).config.decode.ensemble.name == "none"


def mean_probs(snapshot, batch):
    """The mean of the probabilities of all seeds of a run, in the pass that is given the targets: [b, t, v]."""
    start, step = jax.jit(snapshot.model.start), jax.jit(snapshot.model.step)
    total = 0.0
    for params in snapshot.params:
        memory, state = start(params, batch["source"])
        rows = []
        for token in batch["target_in"].T:
            state, log_probs = step(params, memory, state, token)
            rows.append(np.exp(np.asarray(log_probs, np.float64)))
        total = total + np.stack(rows, axis=1) / len(snapshot.params)
    return total


def task_of(config):
    return build_task(resolve(config)).splits["valid"].select(range(8))


@pytest.mark.slow
def test_what_cannot_be_an_ensemble(tmp_path):
    with pytest.raises(UserError, match="needs a run of several seeds"):
        train(tiny_config(decode__ensemble="seeds"), tmp_path / "one")
    config = tiny_config(seeds=(0, 1), decode__max_length=3)
    train(config, tmp_path / "short")
    snapshot = restore(resolve(change(config, {"decode.ensemble": "seeds"})), tmp_path / "short")
    # It is evaluated token by token, however short its outputs may be: targets have 11 tokens.
    assert np.isfinite(snapshot.evaluator.measure(snapshot.params, task_of(config), []).values["loss"]["mean"])
    with pytest.raises(UserError, match=r"unknown config key decode\.ensemble"):
        override(default_config("regression", "kernel_regression"), ["--config.decode.ensemble=seeds"])
