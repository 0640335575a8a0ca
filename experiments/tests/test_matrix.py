"""Cells of the matrix: members of one program, each measured once, with statistics that are right."""

import base64
import itertools
import json
import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from attn_jax.errors import UserError
from attn_jax.models.metrics import Mean
from experiments.matrix import __main__ as matrix
from experiments.matrix import (
    again,
    analysis,
    cell,
    columns,
    page,
    picture,
    ranks,
    recalls,
    regression,
    summaries,
    tables,
)

SMALL = {"task.num_examples": 60, "task.valid_size": 10, "task.batch_size": 8}
TINY = {
    "softmax": [90.0, 91.0, 92.0, 95.0, 96.0],
    "delta": [10.0, 11.0, 12.0, 95.0, 96.0],
    "mesa": [90.0, 91, 92, 95, 96],
}


@pytest.mark.parametrize("table", tables.TABLES.values(), ids=tables.TABLES)
def test_every_cell_has_options(table):
    for row, name in table.cells:
        column = table.columns[name]
        if isinstance(column, columns.Sequences):
            options = column.options(table.rows[row])
            assert options.model.build(options.kind.any_sizes, options.setting)
    for column in (x for x in table.columns.values() if isinstance(x, columns.Sequences)):
        for test in column.tests:
            assert column.options({}, test).task.batch_size == column.options({}).task.batch_size


@pytest.mark.parametrize(
    ("row", "name"), [("summary_64", "dates"), ("summary_64", "scenes"), ("summary_128", "translation")]
)
def test_the_rows_beside_the_second_table_have_options(row, name):
    options = tables.SOURCE.columns[name].options(summaries.ROWS[row])
    assert options.model.decoder.summary and not options.model.has_weights
    assert options.model.build(options.kind.any_sizes, options.setting)


@pytest.mark.parametrize("name", recalls.COLUMNS)
def test_a_column_beside_the_first_table_differs_from_recall_in_one_thing(name):
    ours, table = recalls.COLUMNS[name], tables.COLUMNS["recall"]
    options = [column.options({}).model for column in (ours, table)]
    assert (ours.steps == table.steps) != (options[0] == options[1])
    assert ours.changes == table.changes and ours.seeds == table.seeds


FROM_FILES = [name for name, column in tables.SOURCE.columns.items() if column.reads_files]


@pytest.mark.parametrize("name", FROM_FILES)
def test_forms_and_sentences_that_choose_are_neither_trained_on_nor_reported(name, tmp_path):
    write_lines(tmp_path, {"train.en": "a b{}", "train.ja": "c d{}", "dev.en": "a b c{}", "dev.ja": "c d e{}"})
    write_lines(tmp_path, {"german-train-high": "a{0}\tab{0}\tV;PST", "german-dev": "b{0}\tbb{0}\tV;PST"})
    changes = {"task.num_examples": 40, "task.valid_size": 10, "data_dir": str(tmp_path)}
    splits = columns.build_task(tables.SOURCE.columns[name].options({}, "test", **changes)).splits
    texts = {split: set(map(str, pairs.source)) for split, pairs in splits.items()}
    assert {split: len(of) for split, of in texts.items()} == {"train": 40, "valid": 10, "test": 52}
    assert not texts["valid"] & (texts["train"] | texts["test"])


def write_lines(folder, files):
    for name, line in files.items():
        folder.joinpath(name).write_text("".join(line.format(letter) + "\n" for letter in string.ascii_letters))


def test_every_row_is_the_same_model_in_columns_without_a_config():
    for row in tables.ROWS.values():
        assert (
            columns.language_model(row) == tables.COLUMNS["recall"].options(row, **{"model.short_convolution": 0}).model
        )


@pytest.mark.slow
def test_a_member_trains_as_it_would_alone():
    """With its own seed and its own learning rate; Adam makes much of gradients that are rounding errors alone."""
    opened, members = tables.COLUMNS["recall"].open({}, **SMALL), [(0, 1e-3), (1, 1e-2)]
    begun, _ = cell.train(opened, (0, 1), (1e-3, 1e-2), 0)
    together, curve = cell.train(opened, (0, 1), (1e-3, 1e-2), 2)
    assert curve.shape == (0, 2)
    for member, (seed, rate) in enumerate(members):
        ((alone,), _) = cell.train(opened, (seed,), (rate,), 2)
        ours, theirs = (flat(one) - flat(begun[member]) for one in (together[member], alone))
        assert np.linalg.norm(ours - theirs) < 0.05 * np.linalg.norm(theirs)
        assert rate / 3 < np.abs(theirs).max() < 3 * rate


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dates", "scenes"])
def test_attention_to_a_source_is_measured_and_shown(name):
    measured = cell.measure({}, tables.SOURCE.columns[name], steps=2, rates=(1e-2,), **SMALL)
    weights, beside = measured["weights"], measured["beside"]["test"]
    if name == "dates":
        assert weights["shape"] == (len(weights["queries"]), len(weights["tokens"])) and not beside
    else:  # five numbers of each measure of where it attends; at the start all cells have about the same weight
        assert {key: len(values) for key, values in beside.items()} == dict.fromkeys(("touch", "point", "cells"), 5)
        np.testing.assert_allclose(beside["cells"], weights["shape"][1], rtol=0.1)
    page.data_of({("additive", name): {"row": "additive", "column": name} | measured}, tables.SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["regression", "characters"])
def test_columns_without_a_config_are_measured_and_shown(name, tmp_path):
    (tmp_path / "input.txt").write_text("abcdefgh" * 400)
    measured = cell.measure({}, tables.COLUMNS[name], data_dir=str(tmp_path), steps=30, rates=(1e-2,), batch_size=8)
    tests = tables.COLUMNS[name].tests
    assert {test: len(values) for test, values in measured["tests"].items()} == dict.fromkeys(tests, 5)
    assert len(measured["losses"]) == 5 and measured["rate"] == 1e-2
    if name == "characters":
        assert min(measured["tests"]["test"]) > 50
    data = page.data_of({("softmax", name): {"row": "softmax", "column": name} | measured}, tables.SELF)
    shown = page.render(data)
    assert json.loads(shown.partition('type="application/json">')[2].partition("</script>")[0])["rows"] == ["softmax"]


@pytest.mark.slow
@pytest.mark.parametrize("row", ["softmax", "local_line", "mesa"])
def test_padding_of_pairs_changes_no_prediction(row):
    model, task = regression.build(tables.ROWS[row]), tables.COLUMNS["regression"].task
    short = task.sample(5, np.random.default_rng(0), num_pairs=2)
    padded = short._replace(
        inputs=np.pad(short.inputs, ((0, 0), (0, 2), (0, 0)), constant_values=3.0),
        outputs=np.pad(short.outputs, ((0, 0), (0, 2)), constant_values=3.0),
    )
    params = model.init(jax.random.key(0), *regression.arrays(short))
    found = [model.apply(params, *regression.arrays(examples)) for examples in (short, padded)]
    np.testing.assert_allclose(*found, atol=1e-3)  # the local line of two pairs is nearly singular


def test_the_posterior_mean_explains_all(monkeypatch):
    column = tables.COLUMNS["regression"]
    rng = np.random.default_rng((1, 1))  # of the first test
    best = column.task.bayes(column.task.sample(column.test_size, rng, column.task.num_pairs)).mean
    opened = column.open({})
    monkeypatch.setattr(jax, "jit", lambda _: lambda *_: best)
    assert opened.score([{}], "trained") == {"explained": [100.0]}


def test_packed_weights_are_the_weights():
    maps = np.random.default_rng(0).normal(size=(2, 5, 5)).astype(np.float32)
    packed = cell.kept({"tokens": list("abcde"), "maps": maps})
    for layer, text in zip(maps, packed["layers"], strict=True):
        again = np.frombuffer(base64.b64decode(text), np.int8).reshape(5, 5) * packed["scale"]
        np.testing.assert_allclose(again, layer, atol=packed["scale"])


def test_an_interval_is_the_bootstraps_and_stays_between_the_values():
    found = analysis.bootstrap([0.0, 100.0])  # means of the samples: 0, 50, 50, 100
    np.testing.assert_allclose([found.low, found.high], np.quantile([0, 50, 50, 100], [0.025, 0.975]))
    for values in itertools.product([0.0, 30.0, 100.0], repeat=3):
        assert min(values) <= analysis.bootstrap(values).low <= np.mean(values) <= analysis.bootstrap(values).high
    with pytest.raises(ValueError, match="7 values; expected 1 to 6"):
        analysis.bootstrap([1.0] * 7)


def test_differences_are_paired_and_corrected():
    found = analysis.differences(TINY, "softmax")
    apart = np.subtract(TINY["delta"], TINY["softmax"])
    assert found["delta"].interval.mean == np.mean(apart) and found.keys() == {"delta", "mesa"}
    assert found["delta"].p_value == pytest.approx(2 * scipy.stats.ttest_1samp(apart, 0).pvalue)
    assert found["mesa"].p_value == 1 and not found["mesa"].is_one
    # A difference as large as `smallest`, of the same spread, is just significant after Bonferroni.
    moved = apart - apart.mean() + found["delta"].smallest
    assert 2 * scipy.stats.ttest_1samp(moved, 0).pvalue == pytest.approx(0.05)


def test_a_file_of_ones_own_that_fails_is_one_clear_line(tmp_path):
    (tmp_path / "mine.py").write_text("ROWS = {")
    with pytest.raises(UserError, match=r"mine.py: SyntaxError: "):
        matrix.main([f"--own={tmp_path / 'mine.py'}"])


def test_a_member_that_has_diverged_is_no_number():
    """JSON.parse of the page refuses NaN; its score is 0, its other numbers are null."""

    class Diverged:
        tests, seeds, steps, score_name = {"test": {}}, (0, 1, 2, 3, 4), 2000, "right answers"

        def open(self, row, data_dir, **changes):
            loss = lambda params, batch, rng, step: (params["x"] * jnp.nan, {"loss": Mean.of(params["x"] * jnp.nan)})  # noqa: E731
            batches = lambda seeds: lambda step: {"x": np.zeros(len(seeds))}  # noqa: E731
            weights = lambda params: {"tokens": ["a"], "maps": np.full((1, 1, 1), np.nan)}  # noqa: E731
            score = lambda params, test: {"right": [float("nan")] * len(params)}  # noqa: E731
            return columns.Opened(lambda rng: {"x": jnp.zeros(())}, loss, batches, score, weights)

    measured = cell.measure({}, Diverged(), steps=50, rates=(1.0,))
    assert measured["tests"] == {"test": [0.0] * 5} and measured["rates"] == {"1.0": None}
    assert measured["losses"] == [[None]] * 5
    json.dumps(measured, allow_nan=False)


def test_seeds_that_have_learned_are_told_apart():
    assert [analysis.learned(x) for x in ([91, 100], [91, 90], [1, 2])] == ["all", "some", "none"]


def test_a_cell_is_measured_once(tmp_path, monkeypatch, capsys):
    measured = []

    def measure(row, column, **options):
        measured.append(column)
        return {"rate": 0.1, "tests": {"test": [1.0, 2.0]}, "minutes": 0.1}

    monkeypatch.setattr(matrix, "measure", measure)
    for _ in range(2):
        matrix.main(["--only=softmax,delta,recall", f"--out={tmp_path}"])
    assert len(measured) == 2 and json.loads((tmp_path / "delta,recall.json").read_text())["row"] == "delta"
    assert "test 1.0 2.0" in capsys.readouterr().out
    matrix.main(["--cell=delta,recall", f"--out={tmp_path}"])
    assert len(measured) == 3
    matrix.main(["--only=addition", "--budget=0", f"--out={tmp_path}"])
    assert len(measured) == 3 and "cells are left" in capsys.readouterr().err
    matrix.main(["--budget=0", f"--out={tmp_path}"])
    assert "characters, which needs --data_dir" in capsys.readouterr().err


def test_a_row_of_ones_own_is_one_line(tmp_path, monkeypatch):
    own = tmp_path / "mine.py"
    own.write_text('ROWS = {"mine": {"attention.normalize": "entmax", "attention.normalize.alpha": 1.3}}\n')
    seen = []

    def measure(row, column, **options):
        seen.append((row, options["rates"]))
        return {"rate": 1, "tests": {}, "minutes": 0}

    monkeypatch.setattr(matrix, "measure", measure)
    matrix.main(["--cell=mine,recall", f"--own={own}", f"--out={tmp_path}", "--rates=0.1,0.2"])
    ((row, rates),) = seen
    assert row["attention.normalize.alpha"] == 1.3 and tables.COLUMNS["recall"].options(row)
    assert rates == (0.1, 0.2)


@pytest.mark.parametrize(
    ("main", "argument", "message"),
    [
        (matrix.main, "--cell=delta", "expected a row, a comma and a column"),
        (matrix.main, "--cell=delta,recal", "unknown column 'recal'; did you mean recall?"),
        (matrix.main, "--cell=delt,recall", "unknown row 'delt'; did you mean delta?"),
        (matrix.main, "--table=source --cell=local_p,scenes", "local_p,scenes: it moves along the words of a text"),
        (matrix.main, "--only=sofmax", "unknown row or column 'sofmax'; did you mean softmax"),
        (matrix.main, "--cell=softmax,characters", "no file input.txt; expected the folder"),
        (matrix.main, "--own=nothing.py", "there is no such file; expected a Python file"),
        (matrix.main, f"--own={__file__}", "expected a dictionary ROWS or COLUMNS"),
        (
            lambda argv: matrix.main(argv[:2]),
            "--cell=delta,recall --rates=0.1",
            "--rates: expected --out=FOLDER as well",
        ),
        (page.main, "--cells=nothing", "there is no cell; measure some"),
        (picture.main, "--cells=nothing", "there is no cell; measure some"),
    ],
)
def test_wrong_input_is_one_clear_line(main, argument, message, tmp_path):
    with pytest.raises(UserError, match=message):
        main([*argument.split(), f"--out={tmp_path}"])


def test_the_picture_has_a_number_for_each_cell_and_frames_what_differs():
    """Columns without the baseline are left out, and cells that are missing stay empty."""
    low, high = [10.0, 11.0, 9.0, 10.0, 10.5], [95.0, 96.0, 95.5, 96.5, 95.0]
    cells = {
        (row, column): {"tests": {"test": values}}
        for row, column, values in (
            ("softmax", "recall", low),
            ("delta", "recall", high),
            ("softmax", "characters", low),
            ("delta", "addition", high),
        )
    }
    (axes,) = picture.draw(cells, tables.SELF).axes
    assert sorted(text.get_text() for text in axes.texts) == ["10", "10", "96"]
    frames = [patch.get_xy() for patch in axes.patches]
    assert len(frames) == 1 and (round(frames[0][0]), round(frames[0][1])) == (0, 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["recall", "characters"]


def test_ones_own_cells_stand_beside_the_published_ones(tmp_path):
    own = {"row": "mine", "column": "recall", "mark": 1}, {"row": "softmax", "column": "recall", "mark": 2}
    for one in own:
        (tmp_path / f"{one['row']},recall.json").write_text(json.dumps(one))
    published = page.read_cells(matrix.folder_of("self"))
    found = page.read_cells(matrix.folder_of("self"), tmp_path)
    assert found.keys() == published.keys() | {("mine", "recall")} and found["softmax", "recall"]["mark"] == 2


def measured(date, **rows):
    facts = {"rate": 0.1, "commit": "c", "machine": "m", "date": date}
    return {(row, "recall"): {"tests": {"test": values}} | facts for row, values in rows.items()}


def test_a_second_measurement_is_told_apart_from_the_seeds():
    """Two measurements of x + e, with deviations of 8 between seeds and of 2 within one."""
    rng = np.random.default_rng(0)
    seeds = {f"row{i}": 50 + 8 * rng.normal(size=5) for i in range(200)}
    first, second = (
        measured(date, softmax=[1.0] * 5, **{row: list(x + 2 * rng.normal(size=5)) for row, x in seeds.items()})
        for date in ("monday", "tuesday")
    )
    found = again.compare(first, second, "softmax")["tests"]["recall, test"]
    assert found["cells"] == 201 and found["equal"] == 1
    assert found["within"] == pytest.approx(2, rel=0.1)
    assert found["between"] == pytest.approx((8**2 + 2**2) ** 0.5, rel=0.1)
    assert found["ratio"] == pytest.approx(2 / (8**2 + 2**2) ** 0.5, rel=0.2)  # without the cell that has no spread


def test_rows_that_say_something_else_in_the_second_measurement_are_named():
    same = [50.0, 51, 52, 53, 54]
    more = [x + 20 + x / 100 for x in same]
    first = measured("monday", softmax=same, delta=more, mesa=[91.0, 92, 93, 94, 95], linear=same)
    second = measured("tuesday", softmax=same, delta=[50.0, 49, 55, 50, 57], mesa=[80.0, 92, 93, 94, 95], cope=same)
    second |= measured("monday", linear=same)
    second["mesa", "recall"]["rate"] = 0.2
    found = again.compare(first, second, "softmax")
    assert found["cells"].keys() == {"softmax,recall", "delta,recall", "mesa,recall"}  # what was measured twice
    test = found["tests"]["recall, test"]
    assert test["learned"] == test["rates"] == ["mesa"] and test["differs"] == ["delta"]
    assert test["most"] == pytest.approx(20.32) and test["row"] == "delta"
    assert "| recall, test | 3 | 1 |" in again.lines(found["tests"])[-1]


@pytest.mark.parametrize(("given", "expected"), [(0, "0 folders"), (3, "3 folders")])
def test_two_measurements_are_two_folders(given, expected, tmp_path):
    with pytest.raises(UserError, match=expected):
        again.main([f"--cells={tmp_path}"] * given)


def test_ranks_are_those_of_scipy_and_do_not_depend_on_the_scale():
    rng = np.random.default_rng(0)
    values = {"recall": rng.normal(size=12)}
    values["sort"] = values["recall"] + 0.5 * rng.normal(size=12)
    values |= {"reverse": np.exp(values["recall"]), "addition": -values["sort"], "flip_flop": np.ones(12)}
    cells = {(f"row{i}", name): {"tests": {"test": [x, x]}} for name, of in values.items() for i, x in enumerate(of)}
    del cells["row3", "addition"]
    found = ranks.correlations(cells, tables.SELF)
    expected = scipy.stats.spearmanr(values["recall"], values["sort"])
    assert found["recall, sort"].coefficient == pytest.approx(expected.statistic)
    assert found["recall, reverse"][:3] == pytest.approx((1, 1, 1))
    assert found["sort, addition"][:3] == pytest.approx((-1, -1, -1)) and found["sort, addition"].rows == 11
    assert found["sort, reverse"].coefficient == found["recall, sort"].coefficient
    assert not [pair for pair in found if "flip_flop" in pair]  # all rows are alike
    left = np.delete(values["recall"], 3), np.delete(values["addition"], 3)
    raw = min(expected.pvalue, scipy.stats.spearmanr(*left).pvalue)  # the third of six p-values, after two of 0
    assert 0 < raw < 0.1
    assert min(pair.p_value for pair in found.values() if abs(pair.coefficient) < 1) == pytest.approx(4 * raw)
    assert found["recall, sort"].low < found["recall, sort"].coefficient < found["recall, sort"].high
    assert ranks.lines(found)[2].startswith("| recall, reverse | 1.00 [1.00 to 1.00] |")
