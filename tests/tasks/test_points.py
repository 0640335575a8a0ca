"""Points from CSV files and points that the package makes; whatever is wrong with a file is one line with its place."""

import dataclasses

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.data.tables import cells_of, find_separator
from attn_jax.errors import UserError
from attn_jax.runs.build import build_task
from attn_jax.runs.options import resolve
from attn_jax.tasks.points.curves import curve, spirals, true_curve
from configs import kernel_regression

TABLE = "rooms, age ,price\n1,2,10\n2,1.5,11\n\n3,7,12.5\n4,-1e1,9\n"

# A quote that is not closed, and the next one, three lines later: csv.reader makes one cell of what is between them.
SWALLOWED = 'name,x,y\n"Best,1,2\nfoo,3,4\nbar",5,6\nbaz,7,8\n'


def task(folder, text=TABLE, **changes):
    """The regression task of a file with this text; numbers of changes are fields of config.task."""
    (folder / "points.csv").write_text(text, encoding="utf-8")
    return make("regression", folder, **{"train": ("points.csv", ""), "valid_size": 1} | changes)


def test_the_last_column_is_predicted_from_the_others(tmp_path):
    made = task(tmp_path)
    assert made.columns == type(made.columns)(("rooms", "age"), "price")
    train, test = made.splits["train"], made.splits["test"]
    assert train.inputs.shape == (1, 3, 2) and test.targets.shape == (1, 1, 1)
    rows = np.concatenate([np.concatenate([s.inputs[0], s.targets[0]], axis=1) for s in (train, test)])
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], [[1, 2, 10], [2, 1.5, 11], [3, 7, 12.5], [4, -10, 9]])
    assert made.splits["valid"].left_out and len(made.splits["valid"]) == 3 and not test.left_out


def test_columns_are_chosen_by_name_and_in_that_order(tmp_path):
    made = task(tmp_path, inputs=("price", "rooms"), target="age")
    train = made.splits["train"]
    order = np.argsort(train.inputs[0, :, 1])
    every = {1: (10, 2), 2: (11, 1.5), 3: (12.5, 7), 4: (9, -10)}
    for (price, rooms), (age,) in zip(train.inputs[0, order], train.targets[0, order], strict=True):
        assert every[rooms] == (price, age)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_cells_may_be_in_quotes_which_count_inside_of_one_alone(tmp_path, end):
    text = TABLE.replace("rooms", '"rooms, all"').replace("1.5", '"1.5"').replace("age", 'age in "years"')
    made, expected = task(tmp_path, text.replace("\n", end), valid_size=2), task(tmp_path, valid_size=2)
    assert made.columns.inputs == ("rooms, all", 'age in "years"')
    np.testing.assert_array_equal(made.splits["train"].inputs, expected.splits["train"].inputs)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_cells_may_be_separated_by_something_else_than_commas(tmp_path, separator):
    expected, made = task(tmp_path), task(tmp_path, TABLE.replace(",", separator))
    assert made.columns == dataclasses.replace(expected.columns, separator=separator)
    assert made.splits.keys() == expected.splits.keys()
    for name, points in made.splits.items():
        np.testing.assert_array_equal(points.inputs, expected.splits[name].inputs)
        np.testing.assert_array_equal(points.targets, expected.splits[name].targets)
    assert made.examples == (expected.examples[0].replace(",", separator),)
    made = task(tmp_path, TABLE.replace(",", separator).replace("12.5", "b"), classification=True)
    assert made.columns.separator == separator and len(made.columns.classes) == 4


UNUSED = {  # the same points beside columns that nobody asks for
    "row numbers of pandas and R": ",x,y\n0,1,2.5\n1,2,3.5\n2,3,5\n",
    "commas at the end": "x,y,\n1,2.5,\n2,3.5,\n3,5,\n",
    "names twice": "note,x,note,y,,\n?,1,a,2.5,,\n?,2,,3.5,,\n?,3,a,5,,\n",
    "a byte order mark": "\ufeff,y,x\n0,2.5,1\n0,3.5,2\n0,5,3\n",
    "tabs": "\tx\ty\n0\t1\t2.5\n0\t2\t3.5\n0\t3\t5\n",
    "quotes": '"";"x";"a, b; c";"y"\n"1";1;"";2.5\n"2";2;", ; ""x"" ";3.5\n"3";3;;"5"\n',
}


@pytest.mark.parametrize("text", UNUSED.values(), ids=UNUSED)
def test_columns_that_are_not_used_may_have_any_names_and_cells(tmp_path, text):
    made = task(tmp_path, text, inputs=("x",), target="y", valid_size=1)
    both = map(made.splits.get, ("train", "test"))
    rows = np.concatenate([np.concatenate([s.inputs[0], s.targets[0]], 1) for s in both])
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], [[1, 2.5], [2, 3.5], [3, 5]])


LINES = [  # (separator, line, its cells)
    (";", '"x, m"; "y, z" ;"t\tu"', ["x, m", "y, z", "t\tu"]),
    (",", '"a;b" , c;d', ["a;b", " c;d"]),
    (",", "x,m;y", ["x", "m;y"]),
    ("\t", "a b\tc\t", ["a b", "c", ""]),
    (";", '"say ""x, y"" , z";2', ['say "x, y" , z', "2"]),
    (";", 'a 5" pipe;of 3" ', ['a 5" pipe', 'of 3" ']),
    (",", 'age in "years", all', ['age in "years"', " all"]),
    (",", '"";x'.replace(";", ","), ["", "x"]),
    (",", ",,", ["", "", ""]),
]


@pytest.mark.parametrize(("separator", "line", "cells"), LINES)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_separators_count_outside_of_quotes_alone(separator, line, cells, end):
    assert find_separator([line + end]) == separator
    assert cells_of(line + end, separator, "here") == cells


def test_a_semicolon_file_with_commas_in_a_name_is_read(tmp_path):
    made = task(tmp_path, '"x, m";y\n0;0.0\n1;2\n"2";3\n')
    assert made.columns.inputs == ("x, m",) and made.columns.separator == ";" and len(made.splits["train"]) == 2
    made = task(tmp_path, "x, m;y\n0;0.0\n1;2\n2;3\n")  # in a file with semicolons it needs no quotes
    assert made.columns.inputs == ("x, m",) and made.columns.separator == ";"


def test_classes_are_one_hot_in_alphabetical_order_and_those_of_the_training(tmp_path):
    text = "x,kind\n0,b\n1,a\n2,c\n3,a\n4,b\n"
    (tmp_path / "test.csv").write_text("kind,x\nc,9\n", encoding="utf-8")
    made = task(tmp_path, text, classification=True, test=("test.csv", ""))
    assert made.columns.classes == ("a", "b", "c")
    np.testing.assert_array_equal(made.splits["train"].targets[0].argmax(-1), [1, 0, 2, 0, 1])
    np.testing.assert_array_equal(made.splits["test"].inputs, [[[9]]])
    np.testing.assert_array_equal(made.splits["test"].targets, [[[0, 0, 1]]])
    (tmp_path / "test.csv").write_text("kind,x\nd,9\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"unknown class in .*test.csv, line 2, column 'kind': 'd'; known: a, b, c"):
        task(tmp_path, text, classification=True, test=("test.csv", ""))


def test_each_seed_holds_out_its_own_points_and_makes_its_own(tmp_path):
    text = "x,y\n" + "".join(f"{i},{i * i}\n" for i in range(20))
    made = task(tmp_path, text, valid_size=5, seeds=(0, 1))
    assert made.splits["train"].inputs.shape == (2, 15, 1)
    assert not np.array_equal(*made.splits["test"].inputs)
    for train, test in zip(made.splits["train"].inputs, made.splits["test"].inputs, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])[:, 0]), np.arange(20))
    config = kernel_regression.get_config()
    config.seeds = (3, 4)
    several = build_task(resolve(config)).splits["train"].targets
    config.seeds, config.seed = (), 4
    np.testing.assert_array_equal(build_task(resolve(config)).splits["train"].targets[0], several[1])


def test_the_curve_is_that_of_the_chapter():
    x, y = curve(20_000, 0.5, np.random.default_rng(0))
    assert 0 <= x.min() < 0.01 and 4.99 < x.max() <= 5 and (np.diff(x[:, 0]) >= 0).all()
    noise = y - true_curve(x)
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 0.5], atol=0.02)
    config = kernel_regression.get_config()
    made = build_task(resolve(config))
    np.testing.assert_allclose(made.splits["test"].inputs[0, :, 0], np.arange(0, 5, 0.1))
    np.testing.assert_allclose(made.splits["test"].targets[0, 10, 0], 2 * np.sin(1.0) + 1)
    assert len(made.splits["train"]) == 40


def test_spirals_are_three_arms_that_a_turn_by_a_third_exchanges():
    places, arms = spirals(30_000, 0.0, np.random.default_rng(0))
    radius, angle = np.hypot(*places.T), np.arctan2(places[:, 1], places[:, 0])
    expected = 2 * np.pi * (radius + arms.argmax(-1) / 3)
    np.testing.assert_allclose(np.cos(expected - angle), 1, atol=1e-9)


@pytest.mark.parametrize(
    "text, changes, message",
    [
        (TABLE, {"target": "prise"}, r"unknown column of .*points.csv \(task.target\) 'prise'; did you mean price\?"),
        (TABLE, {"inputs": ("rom",)}, r"unknown column of .* \(task.inputs\) 'rom'; did you mean rooms\?"),
        (TABLE, {"inputs": ("price",)}, r"task.inputs .*: expected one or more columns, each once, besides the target"),
        (TABLE.replace("1.5", "old"), {}, r"points.csv, line 3, column 'age': 'old' is not a number"),
        (TABLE.replace("12.5", "NaN"), {}, r"points.csv, line 5, column 'price': NaN is not a finite number"),
        (TABLE.replace("12.5", "-1e300"), {}, r"line 5, column 'price': -1e300 is too large .* from -1e\+18 to 1e\+18"),
        (TABLE.replace("1.5", "1.1e18"), {}, r"points.csv, line 3, column 'age': 1.1e18 is too large to be squared"),
        ("x,y\n1e-300,1\n2e-300,2\n3e-300,3\n", {}, r"points.csv: column 'x' has one value only"),
        ("x y\n1 2\n", {}, r"line 1: one column only, 'x y'; expected several, with commas between them \(or, without"),
        ("x;y\n1,5;2\n", {}, r"line 2, column 'x': '1,5' is not a number; write a point for the decimal comma$"),
        (TABLE.replace("3,7,12.5", "3,7"), {}, r"points.csv, line 5: 2 cells, but the first line names 3 columns"),
        ("1,2.5\n3,4\n", {}, r"line 1: only numbers; expected a first line with the names of the columns"),
        ("x,y,x\n1,2,3\n", {"target": "y"}, r"points.csv: 2 columns are called 'x'; expected different names of those"),
        ("x,y\n", {}, r"there are 0 rows of data"),
        ("x,y\n1,2\n2,3\n", {}, r"points.csv: 1 training points; expected at least 2"),
        ("x,y\n1,2\n1,3\n1,4\n", {}, r"points.csv: column 'x' has one value only; leave it out of task.inputs"),
        ("x,y\n1,3\n2,3\n3,3\n", {}, r"the target 'y' has one value only"),
        ("x,y\n1,a\n2,a\n3,a\n", {"classification": True}, r"the target 'y' has one value only"),
        ("x,y\n1,a\n2,\n3,b\n", {"classification": True}, r"line 3, column 'y': the class is empty"),
        (TABLE, {"valid_size": 4}, r"task.valid_size 4 and task.num_examples 0: there are 4 rows"),
        (TABLE, {"num_examples": 4}, r"task.valid_size 1 and task.num_examples 4: there are 4 rows"),
        (TABLE, {"noise": -1.0}, r"task.noise -1.0: expected a finite number >= 0"),
        (TABLE, {"train": ("point.csv", "")}, r"point.csv: no such file; did you mean points.csv\?"),
        ("", {}, r"points.csv: the file is empty"),
        (SWALLOWED, {"inputs": ("x",)}, r'points.csv, line 2: a quote is not closed; expected a second " in this line'),
        (TABLE.replace("1.5", '"1.5\n"'), {}, r"points.csv, line 3: a quote is not closed"),
        (TABLE.replace("1.5", '"1."5'), {}, r"points.csv, line 3: not a row of a CSV file \(',' expected after the cl"),
        (TABLE.replace("1.5", "1_5"), {}, r"points.csv, line 3, column 'age': '1_5' is not a number$"),
        ("\n\n", {}, r"points.csv: only empty lines"),
        (",x,y\n0,1,2\n", {}, r"points.csv: column 1 has no name; name it, or choose columns with task.inputs$"),
        ("x,y,\n1,2,\n", {}, r"points.csv: the last column has no name; name it, or choose the target with task.t"),
        (",x,y\n0,1,2\n", {"inputs": ("",)}, r"unknown column of .* \(task.inputs\) ''; known: x, y"),
        ("x,y\n1,a\n\n2,\n", {"classification": True}, r"line 4, column 'y': the class is empty"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, changes, message):
    with pytest.raises(UserError, match=message):
        task(tmp_path, text, **changes)
