"""An ensemble is the mean of the distributions of its members, in evaluation, scores and decoding."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_run import tiny_config, train

from attn_jax.cli import commands
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

TRANSFORMER = {"model__name": "transformer", "model__decoder__num_heads": 2, "model__decoder__feed_forward_size": 8}
STORIES = {"task__name": "babi", "task__buckets": "automatic"}
# Models of sentences have one kind of ensemble, and networks for stories another.
FAMILIES = {"seq2seq": {}, "universal": STORIES | {"model__name": "universal", "model__num_heads": 2}}


@pytest.fixture(scope="module", params=FAMILIES)
def members(request):
    """(model, ensemble, stacked parameters of three seeds, a batch, what these say of it)."""
    config = tiny_config(**FAMILIES[request.param], decode__max_length=20)
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    batch = task.batches(**setup.batch_options, seeds=(0,), row_multiple=1).batch_at(0)
    batch = {name: jnp.asarray(value[:6]) for name, value in batch.items()}
    model, ensemble = setup.model, ensemble_of(setup.model)
    shapes = jax.eval_shape(model.init, jax.random.key(0), batch)
    params = stacked([fill(shapes, seed, scale=0.7) for seed in range(3)])

    def of_member(own):
        log_probs, best = steps(model, own, batch)
        return log_probs, best, model.eval_fn(own, batch), model.attention_weights(own, batch)

    @compiled
    def run(params):
        _, best = steps(ensemble, params, batch)
        found = ensemble.score(params, batch), best, ensemble.eval_fn(params, batch)
        return jax.vmap(of_member)(params), (*found, ensemble.attention_weights(params, batch))

    return model, ensemble, params, batch, run


def steps(model, params, batch):
    """(log-probabilities of all steps [b, t, v], best first tokens)."""
    memory, state = model.start(params, batch["source"])
    best = model.step_top_k(params, memory, state, batch["target_in"][:, 0], 1)[2]
    _, log_probs = jax.lax.scan(functools.partial(model.step, params, memory), state, batch["target_in"].T)
    return jnp.swapaxes(log_probs, 0, 1), best


def score_of(probs, batch):
    """The log-probability of each target, from probabilities [b, t, v]."""
    own = np.take_along_axis(probs, np.asarray(batch["target_out"])[..., None], axis=-1)[..., 0]
    real = np.asarray(batch["target_out"]) != 0
    return np.sum(np.where(real, np.log(np.maximum(own, 1e-300)), 0), axis=1)


@pytest.mark.slow
def test_an_ensemble_is_the_mean_of_probabilities_and_of_weights_and_of_equal_members_the_same(members):
    _, _, params, batch, run = members
    (log_probs, _, each, weights), (score, _, metrics, mean_weights) = run(params)
    mean = np.mean(np.exp(log_probs.astype(np.float64)), axis=0)
    np.testing.assert_allclose(score, score_of(mean, batch), rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(mean_weights, np.mean(weights, axis=0), atol=1e-5)
    assert metrics["loss"].compute() < np.mean(each["loss"].compute())
    _, (_, _, same, _) = run(jax.tree.map(lambda x: jnp.stack([x[1]] * 3), params))
    for name, value in each.items():
        np.testing.assert_allclose(same[name].compute(), value.compute()[1], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_it_does_not_matter_how_members_are_grouped(members):
    model, ensemble, together, batch, run = members
    if type(ensemble).__name__ != "Ensemble":
        pytest.skip("stories have one ensemble")
    mixed = MixedEnsemble(model.module, (ensemble, ensemble))
    grouped = tuple(jax.tree.map(lambda x: x[rows], together) for rows in (slice(2), slice(2, 3)))  # noqa: B023
    score, metrics = compiled(lambda params: (mixed.score(params, batch), mixed.eval_fn(params, batch)))(grouped)
    _, (expected, _, of_all, _) = run(together)
    np.testing.assert_allclose(score, expected, rtol=1e-4)
    for name, value in of_all.items():
        np.testing.assert_allclose(metrics[name].compute(), value.compute(), rtol=1e-4)
    maps = jax.eval_shape(mixed.maps, grouped, batch), jax.eval_shape(ensemble.maps, together, batch)
    assert maps[0].keys() == {f"run {number}: {name}" for number in (1, 2) for name in maps[1]}


@pytest.mark.slow
def test_of_equally_probable_tokens_the_first_is_right_as_in_greedy_decoding(members):
    """The layer of output gives the same to all tokens but two, which are those of a target."""
    model, _, params, batch, run = members
    first, other = sorted({int(token) for token in np.asarray(batch["target_out"])[:, 0]} - {0})[:2]
    if "output" not in params:
        pytest.skip("its layer of output is another one")
    layer = params["output"]["dense"]
    bias = jnp.zeros_like(layer["bias"]).at[:, jnp.array([first, other])].set(9.0)
    dense = {"kernel": jnp.zeros_like(layer["kernel"]), "bias": bias}
    targets = np.asarray(batch["target_out"])
    targets = targets[:, :1] if model.one_token else targets
    expected = np.mean(targets[targets != 0] == first)
    assert expected < np.mean(np.isin(targets[targets != 0], (first, other)))
    (_, best, each, _), (_, best_of_all, metrics, _) = run(params | {"output": params["output"] | {"dense": dense}})
    np.testing.assert_allclose([*each["accuracy"].compute(), metrics["accuracy"].compute()], expected, rtol=1e-6)
    assert np.all(best == first) and np.all(best_of_all == first)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Work directories of a recurrent model, a Transformer, and one that reads other data."""
    folder = tmp_path_factory.mktemp("runs")
    train(tiny_config(decode__max_length=12), folder / "rnn")
    train(tiny_config(**TRANSFORMER, seeds=(0, 1), decode__max_length=20), folder / "transformer")
    open_run(resolve(tiny_config(task__num_examples=90)), folder / "fewer").checkpoints.close()
    return folder


def averaged(config, *workdirs, every_seed=False):
    """The config with an ensemble of the run and of these."""
    given = {"workdirs": tuple(map(str, workdirs)), "every_seed": every_seed}
    return change(config, {"decode.ensemble": "runs"} | {f"decode.ensemble.{key}": x for key, x in given.items()})


def mean_probs(snapshots, batch):
    """The mean of the probabilities of all seeds of these runs, in the pass that is given the targets: [b, t, v]."""
    members = [(one.model, params) for one in snapshots for params in one.params]
    run = compiled(
        lambda params: [steps(model, own, batch)[0] for (model, _), own in zip(members, params, strict=True)]
    )
    return np.mean(np.exp(np.array(run([params for _, params in members]), np.float64)), axis=0)


@pytest.mark.slow
def test_runs_of_different_models_are_averaged(runs):
    config = load_config(runs / "rnn")
    config = averaged(config, runs / "transformer", every_seed=True)
    mixed = restore(resolve(config), runs / "rnn")
    assert mixed.used.startswith("ensemble of 2 runs: best") and len(mixed.params) == 1
    alone = [restore(resolve(load_config(runs / name)), runs / name) for name in ("rnn", "transformer")]
    pairs = task_of(config)
    batch = jax.tree.map(jnp.asarray, alone[0].predictor.translator.encode(pairs).batch(np.arange(8), (32, 16)))
    found = mixed.predictor.log_probs(mixed.chosen, pairs)
    np.testing.assert_allclose(found, score_of(mean_probs(alone, batch), batch), rtol=1e-4)
    (printed,) = [lines for _, lines in mixed.predictor.predict(mixed.chosen, ["2 May 1999"], 10)]
    assert len(printed) == 1


@pytest.mark.slow
def test_every_layer_and_head_of_a_run_is_named_by_its_run(runs):
    config = averaged(load_config(runs / "rnn"), runs / "transformer")
    snapshot = restore(resolve(config), runs / "rnn")
    alone = restore(resolve(load_config(runs / "transformer")), runs / "transformer")
    pairs = task_of(config)
    found = snapshot.setup.collector.maps(snapshot.chosen, pairs)
    for maps, own in zip(found, alone.setup.collector.maps(alone.chosen, pairs), strict=True):
        mean, *others = maps
        assert mean.name == "attention to the source" and mean.axes == ()
        assert [one.name for one in others] == [f"run 2: {one.name}" for one in own] and len(own) > 1
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
        named = rows[f"run 2: {place}", *axes]
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
    with pytest.raises(UserError, match=r"fewer: its source vocabulary is another one"):  # before it is trained
        commands.train(resolve(averaged(config, runs / "fewer")), runs / "unlike", commands.Files())
    assert not any((runs / "unlike" / "checkpoints").glob("[0-9]*"))
    stories = averaged(tiny_config(**STORIES, model__name="memn2n"), runs / "rnn")
    message = r"^decode.ensemble runs averages models of texts or images.*expected decode.ensemble seeds$"
    with pytest.raises(UserError, match=message):
        train(stories, runs / "stories")


@pytest.mark.slow
def test_one_run_with_others_is_an_ensemble_and_not_a_seed(runs, tmp_path):
    shutil.copytree(runs / "rnn", tmp_path / "rnn")
    config = averaged(load_config(tmp_path / "rnn"), runs / "transformer")
    assert restore(resolve(config), tmp_path / "rnn").together
    assert not restore(resolve(load_config(runs / "rnn")), runs / "rnn").together
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
    batch = jax.tree.map(jnp.asarray, alone.predictor.translator.encode(pairs).batch(np.arange(8), (32, 16)))
    best, targets = np.argmax(mean_probs([alone], batch), axis=-1), np.asarray(batch["target_out"])
    expected = 100 * np.mean((best == targets)[targets != 0])
    assert found == pytest.approx(expected, rel=1e-5) and expected not in each
    (printed,) = [lines for _, lines in snapshot.predictor.predict(snapshot.chosen, ["2 May 1999"], 10)]
    assert len(printed) == 1
    assert load(tmp_path).config.decode.ensemble.name == "none"
    # It is evaluated token by token, however short its outputs may be: targets have 11 tokens.
    short = restore(resolve(change(config, {"decode.max_length": 3})), tmp_path)
    assert np.isfinite(short.evaluator.measure(short.params, pairs, []).values["loss"]["mean"])


def task_of(config):
    return build_task(resolve(config)).splits["valid"].select(range(8))


def test_what_cannot_be_an_ensemble(tmp_path):
    with pytest.raises(UserError, match="needs a run of several seeds"):
        train(tiny_config(decode__ensemble="seeds"), tmp_path)
    with pytest.raises(UserError, match=r"unknown config key decode\.ensemble"):
        override(default_config("regression", "kernel_regression"), ["--config.decode.ensemble=seeds"])
