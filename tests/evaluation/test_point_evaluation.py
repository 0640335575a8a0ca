"""Runs of points: trained, measured, kept in their work directory, used from it alone, and wrong inputs told."""

import io
import json

import jax
import numpy as np
import pytest

from attn_jax.attention.scores.kernels import KERNELS
from attn_jax.cli import commands
from attn_jax.cli.commands import Files
from attn_jax.cli.modes import MODES
from attn_jax.data.pairs import Pairs
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Evaluator, Predictor
from attn_jax.evaluation.kinds import find_metric
from attn_jax.evaluation.points import r2
from attn_jax.runs import training
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.checks import best_metric
from attn_jax.runs.options import change, resolve
from attn_jax.runs.results import read_result
from attn_jax.tasks.points.curves import true_curve
from attn_jax.tasks.points.points import PointsTask
from configs import kernel_classification, kernel_csv, kernel_learned_width

NO_FILES = Files()
X = np.random.default_rng(0).uniform(0, 5, 30)


def small(config=kernel_learned_width, **changes):
    config = config.get_config()
    values = {"train__num_steps": 4, "train__eval_every": 4, "task__num_examples": 20, "decode__batch_size": 64}
    return change(config, {key.replace("__", "."): value for key, value in (values | changes).items()})


def setup_of(config, task=None):
    """(setup, parameters) as at the start."""
    setup = build_setup(resolve(config), task or build_task(resolve(config)))
    return setup, jax.device_get(setup.model.init(jax.random.key(0), setup.example))


def use(mode, config, workdir, capsys, monkeypatch, stdin="", files=NO_FILES):
    """(standard output, standard error) of a command."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    capsys.readouterr()
    getattr(commands, MODES[mode].command)(resolve(config), workdir, files)
    return capsys.readouterr()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(config, work directory) of two seeds of a table with two inputs, trained by the command."""
    folder = tmp_path_factory.mktemp("regression")
    rows = [f"{x:.6f},{x % 1:.6f},{true_curve(x):.6f}" for x in X]
    (folder / "points.csv").write_text("x,part,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    changes = {"data_dir": str(folder), "seeds": (0, 1), "task__num_examples": 0, "task__valid_size": 5}
    config = small(kernel_csv, eval__metrics=("rmse", "r2", "mae"), **changes)
    commands.train(resolve(config), folder / "run", Files())
    (folder / "points.csv").rename(folder / "others.csv")  # the work directory has to be enough
    return config, folder / "run"


@pytest.mark.slow
def test_a_run_leaves_a_work_directory_that_is_enough(trained, capsys, monkeypatch):
    config, workdir = trained
    for name in "config.json points.npz metrics.jsonl curves.png attention/fit.png attention/weights.png".split():
        assert (workdir / name).stat().st_size > 50, name
    before = json.loads((workdir / "result.json").read_text())
    assert before["points"] == 5 and list(before["metrics"]) == ["loss", "rmse", "r2", "mae"]
    assert len(before["metrics"]["rmse"]["seeds"]) == 2
    out, _ = use("eval", config, workdir, capsys, monkeypatch)
    assert out.startswith("test          loss ") and "(SD " in out
    after = json.loads((workdir / "eval.json").read_text())
    assert after["metrics"] == before["metrics"]
    kept = PointsTask.load(workdir)
    assert kept.columns.inputs == ("x", "part") and kept.splits["train"].inputs.shape == (2, 25, 2)
    out, _ = use("train", config, workdir, capsys, monkeypatch)
    assert "finished      4 steps are done already" in out
    with pytest.raises(UserError, match=r"--mode=score is for models of text"):
        use("score", config, workdir, capsys, monkeypatch)


@pytest.mark.slow
def test_eval_of_another_file_takes_its_columns_by_name(trained, capsys, monkeypatch):
    config, workdir = trained
    rows = [f"{true_curve(x):.6f},{x:.6f},0,{x % 1:.6f}" for x in X[:7]]
    path = workdir.parent / "new.csv"
    path.write_text("y,x,more,part\n" + "\n".join(rows) + "\n", encoding="utf-8")
    before = (workdir / "result.json").read_text()
    out, _ = use("eval", config, workdir, capsys, monkeypatch, files=Files(str(path)))
    result = json.loads((workdir / "eval.json").read_text())
    assert (workdir / "result.json").read_text() == before
    assert result["points"] == 7 and result["metrics"]["rmse"]["mean"] < 1 and out.startswith("files ")
    with pytest.raises(UserError, match=r"takes --source=FILE.csv alone, with the target as one of its columns"):
        use("eval", config, workdir, capsys, monkeypatch, files=Files("", str(path)))
    path.write_text("x,part,y\n1,0.5,2\n2,0.25,2\n", encoding="utf-8")  # of equal targets
    _, err = use("eval", config, workdir, capsys, monkeypatch, files=Files(str(path)))
    assert "r2 is not a finite number here: it is left out of the result" in err
    assert "r2 is not defined here: all 2 targets are equal" in err
    assert read_result(workdir / "eval.json")["metrics"].keys() == {"loss", "rmse", "mae"}


@pytest.mark.slow
def test_predict_is_a_filter_that_knows_headers(trained, capsys, monkeypatch):
    config, workdir = trained
    plain, err = use("predict", config, workdir, capsys, monkeypatch, "1.5,0.5\n\n2.25,0.25\n")
    lines = plain.split("\n")
    assert err == "" and len(lines) == 4 and lines[1] == ""
    assert abs(float(lines[0]) - true_curve(1.5)) < 1
    headed, _ = use("predict", config, workdir, capsys, monkeypatch, "part, z ,x\n0.5,9,1.5\n\n0.25,9,2.25\n")
    assert headed == plain
    quoted, _ = use("predict", config, workdir, capsys, monkeypatch, '"part"," z, all ","x"\n"0.5",9,1.5\n\n.25,9,2.25')
    assert quoted == plain
    config.decode.with_scores = True
    scored, _ = use("predict", config, workdir, capsys, monkeypatch, "1.5,0.5\n100,0.5\n")
    config.decode.with_scores = False
    near, far = ([float(cell) for cell in line.split("\t")] for line in scored.splitlines())
    assert near[1] == float(lines[0]) and near[0] > far[0]
    for text, message in (
        ("1.5\n", r"input, line 1: 1 cells; expected x,part"),
        ("1,2\n3,four\n", r"input, line 2, column 'part': 'four' is not a number"),
        ("nan,2\n", r"input, line 1, column 'x': nan is not a finite number"),
        ("1,2\n1_0,2\n", r"input, line 2, column 'x': '1_0' is not a number"),
        ('1,2\n"1,2\n3",4\n', r'input, line 2: a quote is not closed; expected a second " in this line'),
        ("1,2\n1,-1e300\n", r"input, line 2, column 'part': -1e300 is too large to be squared in float32"),
        ("\npart,x\n\n", r"input: there is no row of data after the names of the columns"),
    ):
        with pytest.raises(UserError, match=message):
            use("predict", config, workdir, capsys, monkeypatch, text)


def test_predict_reads_lines_as_the_training_file_and_drops_a_byte_order_mark(tmp_path, capsys, monkeypatch):
    rows = [f"{x:.6f};{x % 1:.6f};{true_curve(x):.6f}" for x in X]
    (tmp_path / "points.csv").write_text("x;part;y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    config = small(kernel_csv, data_dir=str(tmp_path), task__num_examples=0, task__valid_size=5, eval__num_pictures=0)
    task = build_task(resolve(config))
    task.save(tmp_path)
    setup, params = setup_of(config, PointsTask.load(tmp_path))
    (_, [printed]), *_ = setup.predictor.predict(params, task.examples, 10)
    assert np.isfinite(float(printed))
    (_, headed), *_ = setup.predictor.predict(params, ["part;x", ";".join(reversed(task.examples[0].split(";")))], 10)
    assert headed == [printed]
    with pytest.raises(UserError, match=r"^input, line 1: 1 cells; expected x;part$"):
        list(setup.predictor.predict(params, ["1,2"], 10))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\ufeffx;part\r\n1;\ufeff2\n".encode())))
    assert list(commands.lines_of(NO_FILES)) == ["x;part", "1;\ufeff2"]


def test_visualize_plots_each_line(trained, capsys, monkeypatch):
    config, workdir = trained
    out, err = use("visualize", config, workdir, capsys, monkeypatch, "1.5,0.5\n4,0\n")
    assert err == f"weights       as numbers in {workdir}/visualize/000.json ...\n"
    assert out.split() == [str(workdir / "visualize" / f"00{i}.png") for i in range(2)]
    assert (workdir / "visualize" / "001.png").read_bytes().startswith(b"\x89PNG")
    kept, shown = PointsTask.load(workdir).splits["train"], json.loads((workdir / "visualize" / "000.json").read_text())
    assert shown["query"] == {"x": 1.5, "part": 0.5} and len(shown["weights"]) == len(shown["source"]) == 25
    assert [shown["source"][7][name] for name in ("x", "part")] == kept.inputs[0, 7].tolist()
    read = sum(weight * point["y"] for weight, point in zip(shown["weights"], shown["source"], strict=True))
    np.testing.assert_allclose([read, sum(shown["weights"])], [shown["prediction"], 1], rtol=1e-4)
    out, _ = use("visualize", config, workdir, capsys, monkeypatch, "\npart,x\n\n0.5,1.5\n")  # as predict reads it
    assert len(out.split()) == 1
    assert json.loads((workdir / "visualize" / "000.json").read_text())["query"] == {"x": 1.5, "part": 0.5}
    with pytest.raises(UserError, match=r"input, line 3, column 'part': 'foo' is not a number"):
        use("visualize", config, workdir, capsys, monkeypatch, "\n\n1.5,foo\n")


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_batches_and_are_left_out_in_their_order():
    config = small()
    setup, params = setup_of(config)
    regressor = setup.predictor.regressor
    train = regressor.train
    whole, _ = regressor.predict(params, train.inputs[0], left_out=True)
    config.decode.batch_size = 7
    parts, _ = setup_of(config)[0].predictor.regressor.predict(params, train.inputs[0], left_out=True)
    np.testing.assert_allclose(parts, whole, rtol=1e-5)
    batch = {name: x[0] for name, x in regressor.points.memory.items()} | {"index": np.arange(20)}
    loss, _ = setup.model.loss_fn(params, batch)
    mean = setup.evaluator.measure([params], build_task(resolve(config)).splits["valid"], ["mse"]).values["mse"]["mean"]
    np.testing.assert_allclose(mean, loss / 20 * regressor.points.target_scale[0, 0] ** 2, rtol=1e-4)


def test_inputs_and_targets_may_have_any_scale():
    config = small()
    task = build_task(resolve(config))
    setup, params = setup_of(config)
    points = task.splits["train"]
    far = type(points)(points.inputs * 1e-3 + 2026, points.targets * 1e6 - 1e7)
    moved, _ = setup_of(config, type(task)(task.name, task.splits | {"train": far}, task.columns))
    expected, _ = setup.predictor.regressor.predict(params, task.splits["test"].inputs[0])
    found, _ = moved.predictor.regressor.predict(params, task.splits["test"].inputs[0] * 1e-3 + 2026)
    np.testing.assert_allclose((found + 1e7) / 1e6, expected, atol=1e-3)


TABLES = {  # (inputs, targets) far from zero, close together, or tiny
    "a price": (np.arange(60.0), 1234567.25 + np.arange(60) / 2),
    "a wave on a mountain": (np.arange(60.0), 1e9 + np.sin(np.arange(60) / 10)),
    "seconds of 2026": (1.7672e9 + np.arange(60), np.cos(np.arange(60.0) / 9)),
    "a mass of electrons": (np.arange(60.0) / 7e8, 9.1e-31 * (1 + np.arange(60))),
}


@pytest.mark.slow
@pytest.mark.parametrize("inputs, targets", TABLES.values(), ids=TABLES)
def test_a_printed_prediction_reads_back_as_the_prediction(tmp_path, inputs, targets):
    """And the example of a command, which is read back as well, is a point of the data."""
    rows = [f"{x!r},{y!r}" for x, y in zip(inputs.tolist(), targets.tolist(), strict=True)]
    (tmp_path / "points.csv").write_text("x,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    config = small(kernel_csv, data_dir=str(tmp_path), task__num_examples=0, task__valid_size=9, eval__num_pictures=0)
    config.task.train = ("points.csv", "")
    task = build_task(resolve(config))
    setup, params = setup_of(config, task)
    asked = task.splits["test"].inputs[0]
    (_, printed), *_ = setup.predictor.predict(params, [repr(float(x)) for (x,) in asked], 64)
    found, _ = setup.predictor.regressor.predict(params, asked)
    assert [float(text) for text in printed] == found[:, 0].tolist() and len(set(printed)) == 9
    assert min(abs(float(task.examples[0]) - asked[:, 0])) <= 1e-5 * np.ptp(inputs)
    shown = setup.collector.collect(params, task.splits["train"])
    assert len({one.source for one in shown}) == len(set(shown[0].maps[0].columns)) == len(shown) == 51


def test_numbers_that_are_not_finite_are_never_predicted():
    """Points far closer together than to what is asked: its distance to them overflows when it is squared."""
    config = small(decode__with_scores=True)
    _, params = setup_of(config)
    task = build_task(resolve(config))
    points = task.splits["train"]
    near = type(points)(points.inputs * 1e-12, points.targets)
    setup, _ = setup_of(config, type(task)(task.name, task.splits | {"train": near}, task.columns))
    predictor = setup.predictor
    (_, printed), *_ = predictor.predict(params, ["1e-12", "1e18"], 10)
    assert np.isfinite([float(cell) for cell in printed[0].split("\t")]).all()
    assert printed[1] == f"-inf\t{predictor.regressor.points.target_center[0, 0]}" and predictor.unreached == 1
    wrong = lambda _, query, *__, **___: (np.where(query < 1e29, query, np.nan), np.ones(len(query), bool))  # noqa: E731
    predictor.regressor._predict = wrong
    with pytest.raises(UserError, match=r"the prediction at x 1e\+18 is not a finite number"):
        list(predictor.predict(params, ["1e-12", "1e18"], 10))
    far = type(points)(near.inputs[:, :1] + 1e18, near.targets[:, :1])
    with pytest.raises(UserError, match=r"the prediction at x 1e\+18 is not a finite number"):
        setup.evaluator.measure([params], far, ["rmse"])


def test_the_roles_and_the_metrics_of_points():
    setup, params = setup_of(small())
    assert isinstance(setup.evaluator, Evaluator) and isinstance(setup.predictor, Predictor)
    predictor, pairs = setup.predictor, Pairs(["1"], ["2"])
    for use in (predictor.read_pairs, lambda p: predictor.accept(p, "f"), lambda p: predictor.log_probs(params, p)):
        with pytest.raises(ValueError, match="a regression predicts no text"):
            use(pairs)
    metrics = setup.evaluator.metrics
    assert {name for name, metric in metrics.items() if metric.best == "max"} == {"r2", "accuracy"}
    assert best_metric(resolve(small(train__best_metric="r2"))) == ("r2", "max")
    with pytest.raises(UserError, match=r"decode.with_scores prints the density of the inputs"):
        projected = {"model__projection": "learned", "model__projection__size": 1, "model__degrees": (0,)}
        setup_of(small(decode__with_scores=True, **projected))


def test_r2_of_equal_targets_whose_mean_is_another_number_is_not_defined():
    targets = np.full((3, 1), 0.1)
    assert targets.mean() != 0.1  # rounding
    assert np.isnan(r2(targets + 1, targets)) and r2(targets, np.array([[0.1], [0.1], [0.2]])) < 0
    assert r2(targets * [1, 2], np.array([[0.1, 0.1], [0.1, 0.2], [0.1, 0.3]])) == pytest.approx(0)


def test_a_given_width_is_one_in_the_units_of_the_inputs_and_stays(capsys):
    config = small(model__attention__score="boxcar", model__attention__score__width=(0.25,))
    setup, params = setup_of(config)
    regressor = setup.predictor.regressor
    place = 2.0
    near = np.abs(regressor.train.inputs[0, :, 0] - place) <= 0.25
    found, reach = regressor.predict(params, np.array([[place], [50.0]]))
    assert near.sum() > 0
    np.testing.assert_allclose(found[0, 0], regressor.train.targets[0, near].mean(), rtol=1e-5)
    np.testing.assert_allclose(found[1, 0], regressor.train.targets[0].mean(), rtol=1e-5)
    np.testing.assert_array_equal(reach, [True, False])
    narrow = change(config, {"model.attention.score.width": (0.01,)})
    setup_of(narrow)[0].evaluator.measure([params], build_task(resolve(config)).splits["test"], [])
    err = capsys.readouterr().err
    assert "of 50 points have no training point within reach of the kernel; they get the mean of all" in err


def test_classes_are_predicted_by_name_and_probabilities_sum_to_one():
    config = small(kernel_classification, task__num_examples=60)
    setup, params = setup_of(config)
    test = build_task(resolve(config)).splits["test"]
    found, _ = setup.predictor.regressor.predict(params, test.inputs[0])
    np.testing.assert_allclose(found.sum(-1), 1)
    assert setup.evaluator.measure([params], test, ["accuracy"]).values["accuracy"]["mean"] > 50
    (_, printed), *_ = setup.predictor.predict(params, ["0.1,0.2", "1,1"], 10)
    assert set(printed) <= set("abc")


def test_probabilities_of_a_local_line_are_cut_off_at_0_and_1():
    config = small(kernel_classification, task__num_examples=60, model__degrees=(1,))
    setup, params = setup_of(config)
    regressor = setup.predictor.regressor
    outside = 2 * regressor.train.inputs[0]
    lines = regressor.weights(params, outside) @ regressor.train.targets[0]
    assert lines.min() < -0.1 and lines.max() > 1.1
    inside = np.clip(lines, 0, 1)
    found, _ = regressor.predict(params, outside)
    np.testing.assert_allclose(found, inside / inside.sum(-1, keepdims=True), atol=2e-3)


def test_the_density_of_the_inputs_is_in_their_units():
    setup, params = setup_of(small())
    regressor = setup.predictor.regressor
    assert abs(regressor.points.scale[0, 0] - 1) > 0.1
    x = np.linspace(-20, 25, 640)
    density = np.exp(regressor.log_density(params, x[:, None]))
    np.testing.assert_allclose(density.sum() * (x[1] - x[0]), 1, rtol=1e-3)


def test_minibatches_go_over_all_points_in_an_order_of_the_seed():
    config = small(task__batch_size=8, seeds=(0, 1))
    setup, _ = setup_of(config)
    batches = build_task(resolve(config)).batches(**setup.batch_options, seeds=(0, 1))
    assert batches.steps_per_epoch == 3
    index = np.concatenate([batches.batch_at(step)["index"] for step in range(3)], axis=1)
    assert index.shape == (2, 24) and not np.array_equal(*index)
    for row in index:
        assert set(row) == set(range(20))
    assert np.array_equal(batches.batch_at(1)["index"], batches.batch_at(1)["index"])


TRIANGLE = {"model__attention__score": "triangular"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model__attention__score": "gausian"}, r"did you mean gaussian\?"),
        ({"model__attention__score": "additive"}, r"unknown model.attention.score 'additive'; known: boxcar"),
        ({"model__attention__normalize": "sparsemax"}, r"unknown model.attention.normalize 'sparsemax'; known: kernel"),
        (TRIANGLE | {"model__attention__normalize": "softmax"}, r"a kernel regression needs kernel_sum"),
        ({"model__attention__score": "boxcar"}, r"boxcar has no gradient; set model.attention.score.width"),
        ({"model__attention__score__width": (0.0,)}, r"attention.score.width \(0.0,\): expected one finite number abo"),
        ({"model__attention__score__width": (-2.0,)}, r"attention.score.width \(-2.0,\): expected one finite number a"),
        ({"model__criterion": "loo"}, r"unknown model.criterion 'loo'"),
        ({"model__degrees": (-1,)}, r"model.degrees \(-1,\): expected one or more integers of 0 to 5"),
        ({"model__degrees": (1,), "model__projection": "learned"}, r"model.projection needs model.degrees \(0,\)"),
        ({"task__batch_size": 8, "model__criterion": "aicc"}, r"set task.batch_size to at least 20"),
        ({"task__num_examples": 1}, r"1 training points; expected at least 2"),
        ({"eval__metrics": ("bleu",)}, r"unknown metric 'bleu'"),
        ({"train__best_metric": "bleu"}, r"unknown train.best_metric 'bleu'"),
        ({"parallel": "pmap"}, r"trains on one device; set --config.parallel=single"),
        ({"model__num_widths": 0}, r"model.num_widths is 0; expected at least 1"),
    ],
)
def test_what_is_wrong_with_a_config_is_one_line_and_leaves_no_work_directory(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        training.open_run(resolve(small(**changes)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_kernel_predicts():
    for name in KERNELS:
        width = () if name == "gaussian" else (1.0,)
        setup, params = setup_of(small(model__attention__score=name, model__attention__score__width=width))
        found, _ = setup.predictor.regressor.predict(params, np.array([[2.0]]))
        assert abs(found[0, 0] - true_curve(2.0)) < 2, name
    assert find_metric("accuracy").unit == " %"
