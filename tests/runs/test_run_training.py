"""Whole trainings, very small ones: what is resumed, stopped, spread or seeded ends where it should."""

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model as tiny
from tiny_run import files_config, timeless, tiny_config, train, write_pairs

from attn_jax.cli import commands
from attn_jax.errors import UserError
from attn_jax.models.metrics import Mean
from attn_jax.runs import run as of_run
from attn_jax.runs import training
from attn_jax.runs.inputs import Files
from attn_jax.runs.options import change, resolve
from attn_jax.runs.workdir import save_config
from attn_jax.training import model_size
from attn_jax.training.loop import make_train_step
from attn_jax.training.optimizers import PlateauState, halve, plateau_scale

# Three steps an epoch: evaluated after 3, 6, 9 and 10 steps, logged after 4, 8 and 10.
WHOLE = {"train__keep": 1, "train__average": 2}


OF_FILES = {"task__num_examples": 0, "task__buckets": "automatic", "train__num_steps": 1, "task__train": ("train", "")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of ten steps that nothing interrupted."""
    return train(tiny_config(**WHOLE), tmp_path_factory.mktemp("whole"))


def on_host(run, fitted):
    return run.parallel.get_state(fitted.state)


def records(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def losses(workdir):
    return np.array([record["train/loss"] for record in records(workdir) if "train/loss" in record])


def contents(directory):
    """File -> content, of whatever is below a directory."""
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def stop_after(monkeypatch, last):
    """The next training gets its SIGTERM while it is at step `last`."""
    monkeypatch.setattr(
        training, "stop_on_signals", lambda: contextlib.nullcontext(lambda step: last is not None and step >= last)
    )


@pytest.mark.slow
def test_train_end_to_end(whole):
    run, fitted = whole
    assert (fitted.step, fitted.reason, run.num_steps) == (10, "done", 10)
    assert [record["step"] for record in records(run.workdir)] == [3, 4, 6, 8, 9, 10, 10]
    logged = [record for record in records(run.workdir) if "train/loss" in record]
    assert {"train/loss", "train/nll", "train/grad_norm"} < logged[0].keys() == logged[1].keys() == logged[2].keys()
    assert [record["train/learning_rate"] for record in logged] == [0.0004, 0.0008, 0.001]  # of 100 steps of warm-up
    assert 0 < logged[0]["seconds"] < logged[1]["seconds"] < logged[2]["seconds"] <= run.trained_seconds
    assert all(record["tokens_per_second"] > 0 for record in logged)
    assert records(run.workdir)[-1].keys() == {"step", "valid/loss"}
    assert records(run.workdir)[-1]["valid/loss"] < records(run.workdir)[0]["valid/loss"]
    state = on_host(run, fitted)
    assert state.step == 10
    assert all(np.isfinite(x).all() and x.dtype == np.float32 for x in jax.tree.leaves(state.params))
    assert (run.batches.dropped, run.batches.num_pairs, run.batches.steps_per_epoch) == (8, 192, 3)
    assert run.lock.name == str(run.workdir / "lock") and not run.lock.closed
    stored = json.loads((run.workdir / "config.json").read_text())
    assert stored["model"]["hidden_size"] == 8 and stored["task"]["buckets"] == {"name": "fixed", "shapes": [[24, 11]]}


@pytest.mark.slow
def test_resumed_is_bitwise_never_stopped(whole, tmp_path, monkeypatch, capsys):
    """Interrupted within an epoch and between two logs, twice; also what is averaged in the end is the same."""
    run, fitted = whole
    config = tiny_config(**WHOLE)
    for last, start in ((5, 0), (7, 5), (None, 7)):
        stop_after(monkeypatch, last)
        resumed, ended = train(config, tmp_path)
        err = capsys.readouterr().err
        assert (f"resuming      from step {start} of 10\n" in err) == (start > 0)
        assert (ended.step, ended.reason) == ((last, "interrupted") if last else (10, "done"))
        if last:
            assert resumed.checkpoints.latest_step() == last and not resumed.finished
    tiny.assert_same(on_host(resumed, ended), on_host(run, fitted))
    assert timeless(tmp_path) == timeless(run.workdir)
    for name in ("vocabularies.json", "config.json"):
        assert (tmp_path / name).read_bytes() == (run.workdir / name).read_bytes(), name

    finals = []
    for workdir in (run.workdir, tmp_path):
        with training.open_checkpoints(resolve(config), workdir, read_only=True) as checkpoints:
            finals.append(training.final_params(resolve(config), checkpoints, run.setup))
            assert checkpoints.best_step() == 10
    tiny.assert_same(finals[0][0], finals[1][0])
    assert finals[0][1] == finals[1][1] == "mean of 2 checkpoints (steps 10, 9)"
    with training.open_checkpoints(resolve(config), run.workdir, read_only=True) as checkpoints:
        ((mean,), _), sets = finals[0], []
        assert checkpoints.all_steps() == [9, 10]
        sets = [checkpoints.restore_params(mean, step=step)[0] for step in (9, 10)]
        (best,), used = training.final_params(resolve(tiny_config()), checkpoints, run.setup)
    tiny.assert_close(mean, jax.tree.map(lambda a, b: (a + b) / 2, *sets))
    tiny.assert_same(best, on_host(run, fitted).params)
    assert used == "best checkpoint (step 10)"


@pytest.mark.slow
def test_a_checkpoint_that_was_never_measured_is_not_called_the_best(tmp_path, monkeypatch):
    """And a run in a folder without checkpoints does not inherit the results there."""
    for name in ("result.json", "sentences.json", "eval.json", "eval_sentences.json", "analysis.json"):
        (tmp_path / name).write_text("{}")
    stop_after(monkeypatch, 1)
    run, _ = train(tiny_config(), tmp_path)
    assert not [path for word in ("result", "eval", "sentences", "analysis") for path in tmp_path.glob(f"*{word}*")]
    with training.open_checkpoints(resolve(tiny_config()), tmp_path, read_only=True) as checkpoints:
        assert training.final_params(resolve(tiny_config()), checkpoints, run.setup)[1] == "newest checkpoint (step 1)"


@pytest.mark.slow
def test_what_is_finished_is_left_alone(whole):
    run, _ = whole
    before = contents(run.workdir)
    again, fitted = train(tiny_config(**WHOLE), run.workdir)
    assert (fitted.step, fitted.reason) == (10, "finished before")
    assert contents(run.workdir) == before
    assert again.trained_seconds == again.seconds > 0  # as stored: the clock does not run


@pytest.mark.slow
def test_the_result_is_printed_even_if_it_cannot_be_written(whole, tmp_path, monkeypatch, capsys):
    def full(path, data):
        raise UserError(f"cannot write {path}: no space left")

    copy = shutil.copytree(whole[0].workdir, tmp_path / "run")
    monkeypatch.setattr(commands, "save_json", full)
    with pytest.raises(UserError, match=r"result.json: no space left"):
        commands.train(resolve(tiny_config(**WHOLE)), copy, commands.Files(overrides=("--config.train.keep=1",)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["quickstart", "test"] and "with" not in lines[0]


def test_the_run_of_another_config_is_refused_and_untouched(whole):
    run, _ = whole
    before = contents(run.workdir)
    for changes, words in (
        ({"model__hidden_size": 9}, "model.hidden_size is 8 there and 9 here; choose another --workdir"),
        ({"task__buckets__shapes": ((24, 11), (32, 11))}, r"task.buckets.shapes is \[\[24, 11\]\] there"),
        ({"seeds": (0, 1)}, r"seeds is \[\] there and \[0, 1\] here"),
    ):
        with pytest.raises(UserError, match=f"holds the run of another config: {words}"):
            training.open_run(resolve(tiny_config(**WHOLE | changes)), run.workdir)
    assert contents(run.workdir) == before


@pytest.mark.slow
def test_a_run_that_was_made_longer_is_one_of_that_length(whole, tmp_path, capsys):
    """To the bit; an evaluation at the former end changes no parameter."""
    run, fitted = whole
    for steps in (6, 10):
        capsys.readouterr()
        config = tiny_config(**WHOLE | {"train__num_steps": steps})
        commands.train(resolve(config), tmp_path / "run", commands.Files())
    assert (
        "longer        10 steps instead of 6; optimizer.schedule constant is the same before" in capsys.readouterr().err
    )
    longer, again = train(config, tmp_path / "run")
    assert again.step == 10 and again.reason == "finished before"
    states = (on_host(*each) for each in ((longer, again), (run, fitted)))
    jax.tree.map(np.testing.assert_array_equal, *((state.params, state.opt_state) for state in states))
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 10


@pytest.mark.parametrize(
    ("changes", "length", "words"),
    [
        ({"optimizer__schedule": name}, {"train__num_steps": 9}, None)
        for name in ("constant", "inverse_sqrt", "halving", "plateau")
    ]
    + [
        ({"optimizer__schedule": "cosine"}, {"train__num_steps": 9}, "cosine of 9 steps has other learning rates"),
        ({}, {"train__num_steps": 3}, "a run can be made longer, not shorter"),
        ({"train__patience": 2, "train__eval_every": 4}, {"train__num_steps": 9}, "patience counts evaluations, and"),
        ({"train__num_steps": 0, "train__num_epochs": 2.0}, {"train__num_epochs": 3.0}, None),
    ],
)
def test_a_run_becomes_longer_only_if_its_learning_rates_would_have_been_the_same(tmp_path, changes, length, words):
    changes = {"train__num_steps": 6, "train__eval_every": 3, "optimizer__warmup_steps": 1} | changes
    save_config(tmp_path, tiny_config(**changes))
    options = resolve(tiny_config(**changes | length))
    steps = options.train.steps(3)
    if words is None:
        training.check_length(options, tmp_path, steps, 3)
        return
    with pytest.raises(UserError, match=f"{words}.*--config.train.start.workdir={tmp_path} begins with"):
        training.check_length(options, tmp_path, steps, 3)


@pytest.mark.slow
def test_several_seeds_are_each_seed_alone(whole, tmp_path, capsys):
    """... in one program; the result has the value of each, their mean and standard deviation."""
    one, fitted = whole
    alone = {0: (one, fitted), 3: train(tiny_config(seed=3, **WHOLE), tmp_path / "3")}
    config = tiny_config(seeds=(3, 0), **WHOLE)
    capsys.readouterr()
    begin = time.monotonic()
    commands.train(resolve(config), tmp_path / "both", commands.Files())
    elapsed = time.monotonic() - begin
    out = capsys.readouterr().out
    both = losses(tmp_path / "both")
    assert both.shape == (3, 2)
    with training.open_checkpoints(resolve(config), tmp_path / "both", read_only=True) as checkpoints:
        sets, _ = training.final_params(resolve(config), checkpoints, one.setup)
    expected = []
    for i, seed in enumerate((3, 0)):
        run, _ = alone[seed]
        np.testing.assert_allclose(both[:, i], losses(run.workdir), rtol=2e-6)
        with training.open_checkpoints(resolve(config), run.workdir, read_only=True) as checkpoints:
            (params,), _ = training.final_params(resolve(tiny_config(seed=seed, **WHOLE)), checkpoints, run.setup)
        tiny.assert_close(sets[i], params, rtol=1e-4, atol=1e-5)
        encoded = run.setup.predictor.translator.encode(run.task.splits["test"])
        metrics = run.setup.evaluator.losses(params, encoded)
        expected.append(float(metrics["loss"].compute()))
    result = json.loads((tmp_path / "both" / "result.json").read_text())
    assert (result["split"], result["sentences"], result["seeds"], result["steps"]) == ("test", 1000, [3, 0], 10)
    loss = result["metrics"]["loss"]
    np.testing.assert_allclose(loss["seeds"], expected, rtol=1e-5)
    np.testing.assert_allclose([loss["mean"], loss["std"]], [np.mean(expected), np.std(expected, ddof=1)], rtol=1e-4)
    np.testing.assert_allclose(result["metrics"]["perplexity"]["seeds"], np.exp(expected), rtol=1e-5)
    assert 0 < result["train_seconds"] <= elapsed
    assert "seeds 3, 0" in out.splitlines()[0] and f"loss {loss['mean']:.4g} (SD {loss['std']:.3g})" in out
    assert (tmp_path / "both" / "curves.png").stat().st_size > 1000


@pytest.mark.slow
def test_plateau_halves_and_early_stopping_stops(tmp_path):
    """Nothing gets better with a learning rate of 0. Evaluated after 3, 6 and 9 steps."""
    never = {"optimizer__schedule": "plateau", "optimizer__learning_rate": 0.0, "train__patience": 2}
    for reason in ("stopped", "finished before"):
        run, fitted = train(tiny_config(**never, train__num_steps=100), tmp_path)
        assert (fitted.step, fitted.reason) == (9, reason)
        assert reason != "stopped" or run.checkpoints.measured.keys() == {3, 6, 9}
        found = jax.tree.leaves(on_host(run, fitted).opt_state, is_leaf=lambda node: isinstance(node, PlateauState))
        assert [float(node.scale) for node in found if isinstance(node, PlateauState)] == [0.25]
    assert run.finished


@pytest.mark.parametrize(
    ("metric", "values", "goal", "stops"),
    [
        ("accuracy", [100.0, 99.0], 99.0, True),  # the larger the better, in every seed
        ("accuracy", [100.0, 98.9], 99.0, False),
        ("loss", [0.1, 0.2], 0.2, True),  # the smaller the better
        ("loss", [0.1, 0.3], 0.2, False),
        ("loss", [0.0, 0.0], 0.0, False),  # no goal
        *(("loss", values, 0.2, False) for values in ([0.1, float("nan")], [float("nan"), 0.1])),
        *(("accuracy", values, 99.0, False) for values in ([100.0, float("nan")], [float("nan"), 100.0])),
    ],
)
def test_a_goal_is_reached_by_every_seed(metric, values, goal, stops):
    options = resolve(tiny_config(train__best_metric=metric, train__goal=goal))
    assert of_run.reached(options, values) is stops


def test_the_learning_rate_is_that_of_the_last_update_and_of_each_seed(tmp_path):
    """After a warm-up of two steps; the seed whose loss did not get better has half of it."""
    config = tiny_config(seeds=(3, 0), optimizer__schedule="plateau", optimizer__warmup_steps=2)
    run = training.open_run(resolve(config), tmp_path)
    run.checkpoints.close()
    assert run.learning_rate(1).tolist() == [0.005, 0.005]
    opt_state = PlateauState(np.ones(2, np.float32))
    run.scale = plateau_scale({"any": halve(opt_state, np.array([False, True]))})
    assert run.learning_rate(2).tolist() == run.learning_rate(9).tolist() == [0.01, 0.005]
    assert plateau_scale({"any": np.zeros(2)}) == 1


def test_a_model_too_large_for_the_memory_is_refused_before_it_is_made(tmp_path, capsys):
    with pytest.raises(UserError, match=r"does not fit into .* of memory: [\d,]{22} parameters; at least 960 PB with"):
        train(tiny_config(model__hidden_size=100_000_000), tmp_path)
    assert "compiling" not in capsys.readouterr().err
    training.open_run(resolve(tiny_config()), tmp_path).checkpoints.close()  # the next config may have the directory


@pytest.mark.slow
def test_a_loss_that_becomes_nan_names_the_step_and_keeps_the_last_good_checkpoint(tmp_path):
    diverging = {"optimizer": "sgd", "optimizer__learning_rate": 1e30, "optimizer__clip": "none"}
    config = tiny_config(**diverging, train__checkpoint_every=1)
    with pytest.raises(UserError, match=r"became (NaN|infinite) at step 2; .*; last good checkpoint: step 1$"):
        train(config, tmp_path)
    with training.open_checkpoints(resolve(config), tmp_path, read_only=True) as checkpoints:
        assert checkpoints.all_steps() == [1]
    # Nothing was good yet: the directory is free for the next attempt.
    with pytest.raises(UserError, match=r"last good checkpoint: none$"):
        train(tiny_config(**{**SGD, "optimizer__learning_rate": 1e30}), tmp_path / "none")
    training.open_run(resolve(tiny_config(**SGD)), tmp_path / "none").checkpoints.close()


@pytest.mark.slow
def test_a_model_that_diverged_in_its_last_step_is_one_line(tmp_path):
    """The loss of a step is that before its update."""
    changes = {"optimizer__learning_rate": 1e30, "train__num_steps": 1, "eval__metrics": ("exact_match",)}
    with pytest.raises(UserError, match=r"the loss on .* is not finite: the training has diverged;"):
        commands.train(resolve(tiny_config(**{**SGD, **changes})), tmp_path, Files())


@pytest.mark.slow
def test_other_data_under_the_same_name_is_told(tmp_path):
    """Of a run that has reached its goal, as any loss is as good as 1000, and is finished."""
    write_pairs(tmp_path)
    config = files_config(tmp_path, train__num_steps=100, train__goal=1000.0)
    for reason in ("stopped", "finished before"):  # by the first evaluation
        _, fitted = train(config, tmp_path / "run")
        assert (fitted.step, fitted.reason) == (3, reason)
    lines = (tmp_path / "train.source").read_text().splitlines()
    (tmp_path / "train.source").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with pytest.raises(UserError, match=r"was trained with other train data than is there now \(wrong checksum\)"):
        train(config, tmp_path / "run")


def poison(monkeypatch, steps):
    """Lets parameters and loss of these steps become NaN."""

    def make(*args, **options):
        step = make_train_step(*args, **options)

        def poisoned(state, batch):
            wrong = jnp.isin(state.step + 1, jnp.array(steps))
            after, metrics = step(state, batch)
            params = jax.tree.map(lambda x: jnp.where(wrong, jnp.nan, x), after.params)
            loss = metrics["loss"]
            total = jnp.where(wrong, jnp.nan, loss.total)
            return after.replace(params=params), {**metrics, "loss": Mean(total, loss.count)}

        return poisoned

    monkeypatch.setattr(training, "make_train_step", make)


@pytest.mark.slow
def test_a_run_that_rewinds_is_one_that_never_saw_the_batches(tmp_path, monkeypatch, capsys):
    """NaN before the first checkpoint and between two; interrupted and resumed, too."""
    config = tiny_config(train__on_nan="rewind")
    with monkeypatch.context() as context:
        poison(context, [2, 5])
        stop_after(context, 8)
        train(config, tmp_path / "rewound")
        told = capsys.readouterr().err
        assert "loss or the gradient of step 2 is not finite: going back to the beginning, without the batch" in told
        assert "step 5 is not finite: going back to step 3, without" in told
        stop_after(context, None)
        run, fitted = train(config, tmp_path / "rewound")
        never = training.open_run(resolve(config), tmp_path / "never")
        with never.checkpoints:
            never.skipped = {2, 5}
            expected = on_host(never, training.train(never))
    assert (fitted.step, fitted.reason, run.skipped) == (10, "done", {2, 5})
    tiny.assert_same(on_host(run, fitted), expected)
    assert run.learning_rate(2) == run.learning_rate(3) and run.learning_rate(5) == run.learning_rate(6)  # no updates
    assert timeless(tmp_path / "rewound") == timeless(tmp_path / "never")


@pytest.mark.slow
def test_a_run_rewinds_only_so_often(tmp_path, monkeypatch):
    poison(monkeypatch, list(range(1, 12)))
    with pytest.raises(UserError, match=r"became NaN at step 3; .*; 2 batches were left out before it; no more are"):
        monkeypatch.setitem(training.ON_NAN, "rewind", 2)
        train(tiny_config(train__on_nan="rewind"), tmp_path)


SGD = {"optimizer": "sgd", "optimizer__learning_rate": 0.5, "optimizer__clip": "none", "model__dropout": 0.0}
SGD |= {"train__num_steps": 4, "train__log_every": 1, "train__eval_every": 4}


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    run, fitted = train(tiny_config(**SGD), tmp_path_factory.mktemp("single"))
    return run.workdir, on_host(run, fitted).params


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"train__microbatches": 2}, {"parallel": "auto"}, {"parallel": "mesh"}],
    ids=["microbatches", "pmap", "mesh"],
)
def test_parts_and_devices_make_no_difference(one_device, tmp_path, changes):
    workdir, params = one_device
    run, fitted = train(tiny_config(**SGD | changes), tmp_path)
    np.testing.assert_allclose(losses(tmp_path), losses(workdir), rtol=1e-5)
    tiny.assert_close(on_host(run, fitted).params, params, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_divided_is_refused_and_claims_nothing(tmp_path):
    with pytest.raises(UserError, match=r"batch_size 60 cannot be shared equally by 8 devices; .* is 64"):
        training.open_run(resolve(tiny_config(parallel="auto", task__batch_size=60)), tmp_path)
    assert not any(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"train\.microbatches=3 does not divide the 64 rows"):
        training.open_run(resolve(tiny_config(train__microbatches=3)), tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.slow
def test_text_files(tmp_path, capsys):
    """Trained, measured and plotted through the command; a sentence that is too long is counted."""
    source, target = write_pairs(tmp_path)
    for path in (source, target):
        path.write_text(path.read_text() + "a bird " * 40 + "\n")
    vocabulary, changes = "sentencepiece", {"task__vocab_size": (40, 36), "task__buckets__shapes": ((64, 64),)}
    changes |= {
        "dtype": "bfloat16",
        "eval__metrics": ("bleu", "chrf", "exact_match", "accuracy", "bleu"),
        "eval__num_pictures": 1,
    }
    changes |= {"task__valid_size": 10, "train__num_steps": 3, "train__best_metric": "chrf", "decode__max_length": 6}
    config = change(files_config(tmp_path, **changes), {"task.vocabulary": vocabulary})
    commands.train(resolve(config), tmp_path / "run", commands.Files())
    out, err = capsys.readouterr()
    assert "data          1 of 51 training pairs are longer than any bucket and left out; see task.buckets\n" in err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["split"], result["sentences"]) == ("valid", 10)
    assert list(result["metrics"]) == ["loss", "accuracy", "bleu", "chrf", "exact_match"]
    assert all(len(values["seeds"]) == 1 and np.isfinite(values["mean"]) for values in result["metrics"].values())
    assert result["signatures"]["bleu"].startswith("nrefs:1|")
    assert (tmp_path / "run" / "attention" / "000.png").exists()
    first = (tmp_path / "train.source").read_text().splitlines()
    begun = [line.split()[0] for line in out.splitlines() if line[0] != " "]
    assert begun == ["quickstart", "example", "example", "example", "valid", "pictures", "try"]
    assert any(f"echo '{line}' | python launch.py" in out for line in first)
    stored = json.loads((tmp_path / "run" / "vocabularies.json").read_text())
    assert {stored[side]["kind"] for side in ("source", "target")} == {vocabulary}

    # The vocabulary is the stored one, whatever the files say now.
    with pytest.raises(UserError, match="holds the run of another config"):
        training.open_run(resolve(change(config, {"task.joint_vocabulary": True})), tmp_path / "run")
    before = source.read_text()
    source.write_text(before.replace("bird", "zebra"))
    again = training.open_run(resolve(config), tmp_path / "run")
    assert again.task.source_vocabulary.to_json() == stored["source"]
    with pytest.raises(UserError, match="was trained with other train data"):
        training.train(again)
    again.checkpoints.close()
    again.lock.close()
    source.write_text(before)
    assert train(config, tmp_path / "run")[1].reason == "finished before"


@pytest.mark.slow
def test_time_of_all_processes_is_added_up(tmp_path, monkeypatch):
    """On a clock that moves by 10 seconds when a step is done, and that starts anew."""
    clock, on_step = [0.0], training.Callbacks.on_step

    def slow(callbacks, step, metrics):
        clock[0] += 10.0
        on_step(callbacks, step, metrics)

    monkeypatch.setattr(training.Callbacks, "on_step", slow)
    monkeypatch.setattr(of_run, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    seconds = []
    for last in (1, 3, None):
        stop_after(monkeypatch, last)
        clock[0] = 500.0 * len(seconds)
        run, fitted = train(tiny_config(train__num_steps=4), tmp_path)
        seconds.append(run.trained_seconds)
    assert fitted.step == 4 and seconds == [10.0, 30.0, 40.0]
    finished, _ = train(tiny_config(train__num_steps=4), tmp_path)
    assert finished.trained_seconds == 40.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("task.name=date", "unknown task 'date'; did you mean dates?"),
        ("task.name=parallel_text task.vocabulary=word", "unknown task.vocabulary 'word'; did you mean words?"),
        ("task.buckets.shapes=(0,)", "bucket 0: expected a length such as 16"),
        ("task.batch_unit=words", "unknown task.batch_unit 'words'; known: sentences, tokens"),
        ("task.name=parallel_text task.vocab_size=(8000,)", "task.vocab_size is .8000,.; expected two sizes"),
        ("dtype=float23", "unknown dtype 'float23'; did you mean float32?"),
        ("model.decoder.cell=lstm", "bridge copy takes over the states of the encoder, 1 of each layer, and model.dec"),
        ("model.encoder=lstm model.decoder.bridge=dense", "2 of each layer, and model.decoder.cell gru has"),
        ("model.encoder.num_layers=2", "num_layers is 2, model.decoder.num_layers 1; expected equal numbers, or"),
        ("model.decoder.num_layers=2", "num_layers is 1, model.decoder.num_layers 2; expected equal numbers, or"),
        ("model.hidden_size=9 model.encoder.bidirectional=True", "hidden_size 9 is odd"),
        ("model.tie_embeddings=True model.decoder.readout_size=9", "model.tie_embeddings needs"),
        ("train.num_steps=-1", "train.num_steps is -1; expected at least 0"),
        ("train.num_steps=0 train.num_epochs=0.0", "are both 0"),
        ("train.log_every=0", "train.log_every is 0; expected at least 1"),
        ("train.best_metric=blue", "unknown train.best_metric 'blue'; did you mean bleu?"),
        ("train.best_metric=attention_entropy", "attention_entropy: neither a low nor a high value is better"),
        ("task.name=parallel_text eval.metrics=('bleu',) task.tokenize='14a'", "unknown BLEU tokenizer '14a'; did yo"),
        ("seeds=(1,1)", "seeds \\(1, 1\\): expected different integers from 0 to 4294967295"),
        ("seed=-1", "seeds \\(-1,\\): expected different integers from 0 to 4294967295"),
    ],
)
def test_a_wrong_option_is_one_clear_line_before_anything_is_read_or_written(tmp_path, text, words):
    changes = {}
    for key, _, value in (option.partition("=") for option in text.split()):
        is_word = value[0].isalpha() and value != "True"
        changes[key.replace(".", "__")] = value if is_word else ast.literal_eval(value)
    with pytest.raises(UserError, match=words) as error:
        training.open_run(resolve(tiny_config(**changes)), tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_signal_before_a_rewind_counts_after_it(tmp_path, monkeypatch):
    """The signal comes while the step that will be NaN is computed."""
    poison(monkeypatch, [5])

    class Parallel:
        def __init__(self, parallel):
            self.parallel, self.number = parallel, 0

        def __getattr__(self, name):
            return getattr(self.parallel, name)

        def put_batch(self, batch):
            self.number += 1
            if self.number == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return self.parallel.put_batch(batch)

    run = training.open_run(resolve(tiny_config(train__on_nan="rewind")), tmp_path)
    run.parallel = Parallel(run.parallel)
    with run.checkpoints:
        fitted = training.train(run)
    assert (fitted.reason, fitted.signal, run.skipped) == ("interrupted", signal.SIGTERM, {5}) and fitted.step < 10


@pytest.mark.slow
def test_a_signal_in_the_last_step_ends_the_run_before_its_measurement(tmp_path, monkeypatch):
    def evaluate(callbacks, step, state):
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluated(callbacks, step, state)

    evaluated = training.Callbacks.on_evaluation
    monkeypatch.setattr(training.Callbacks, "on_evaluation", evaluate)
    config = tiny_config(train__num_steps=2)
    _, fitted = train(config, tmp_path)
    assert (fitted.reason, fitted.signal, fitted.step) == ("interrupted", signal.SIGTERM, 2)
    _, again = train(config, tmp_path)
    assert (again.reason, again.step) == ("finished before", 2)


def test_the_best_checkpoint_by_a_metric_that_was_not_measured_is_told(whole):
    run, _ = whole
    config = tiny_config(**(WHOLE | {"train__average": 0, "train__best_metric": "edit_distance"}))
    told = pytest.raises(UserError, match=r"was measured by train\.best_metric edit_distance; expected")
    with training.open_checkpoints(resolve(config), run.workdir, read_only=True) as checkpoints, told:
        training.final_params(resolve(config), checkpoints, run.setup)


def test_the_logits_of_an_output_layer_in_chunks_are_those_of_a_chunk(tmp_path, capsys):
    """The full layer has the logits of all words."""
    told = []
    for changes in ({}, {"model__output__name": "chunked", "model__output__chunk_size": 2}):
        run = training.open_run(resolve(tiny_config(**changes)), tmp_path / str(len(told)))
        with run.checkpoints:
            state = {"params": {}, "opt_state": {}}
            batch = {"target_out": np.zeros((1000, 1000))}
            training.check_size(run, type("State", (), state), batch)
        told.append(re.search(r"at least (\S+ \S+)", capsys.readouterr().err)[1])
    words = len(run.task.target_vocabulary)
    assert told == [model_size.text_of(4_000_000 * words), model_size.text_of(4_000_000 * 2)]


@pytest.mark.parametrize(
    ("model", "option"),
    [
        ({"model__name": "memnn"}, "name memnn"),
        ({"model__name": "dmn", "model__attention__score": "general", "model__gate_weight": 1.0}, "gate_weight"),
        ({"model__name": "dmn", "model__attention__score": "general"}, ""),
    ],
)
def test_what_learns_from_supporting_facts_needs_some(tmp_path, model, option):
    story = "1 Mary went to the kitchen.\n2 Where is Mary?\tkitchen\n1 John is here.\n2 Where is John?\there\n"
    (tmp_path / "stories.txt").write_text(10 * story)
    of_files = OF_FILES | {"task__train": ("stories.txt", "")}
    config = tiny_config(task__name="babi", data_dir=str(tmp_path), **of_files, **model)
    refused = pytest.raises(UserError, match=f"^model.{option} learns from supporting facts, and no training question")
    with refused if option else contextlib.nullcontext():
        training.open_run(resolve(config), tmp_path / "run").checkpoints.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "line", "wrong"),
    [
        ({"task__name": "labelled_text", "model__name": "classifier"}, "gehen\tgerman", "gehen"),  # as forms are read
        ({"task__name": "babi", "model__name": "memn2n"}, "1 Mary is in it.\n2 Where is Mary?\tit\t1", "1 Mary"),
    ],
)
def test_eval_reads_a_file_of_the_task_by_itself(tmp_path, capsys, options, line, wrong):
    (tmp_path / "train").write_text(6 * f"{line}\n" + line.replace("gehen", "walk").replace("german", "english"))
    config = tiny_config(data_dir=str(tmp_path), task__valid=("train", ""), **OF_FILES, **options)
    commands.train(resolve(config), tmp_path / "run", Files())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    commands.evaluation(resolve(config), tmp_path / "run", Files(source=str(tmp_path / "train")))
    measured = json.loads((tmp_path / "run" / "eval.json").read_text())
    assert measured["metrics"] == result["metrics"] and measured["split"] == str(tmp_path / "train")
    (tmp_path / "wrong").write_text(wrong)
    with pytest.raises(UserError, match=r"wrong, line 1: |no question"):
        commands.evaluation(resolve(config), tmp_path / "run", Files(source=str(tmp_path / "wrong")))
