"""Pictures: there is something in them, in the right place, and all of it can be read."""

import importlib.util
import io
import json
import warnings
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.font_manager import fontManager, get_font
from matplotlib.image import imread

from attn_jax.errors import UserError
from attn_jax.figures import plots, point_plots
from attn_jax.tasks.points.points import Columns

SOURCE = [*"令和8年 11月21日", "<eos>"]
TARGET = [*"2026-11-21", "<eos>"]


def pixels(path):
    return imread(path)[..., :3]


def diagonal(t, s):
    return np.exp(-8 * np.abs(np.linspace(0, 1, t)[:, None] - np.linspace(0, 1, s))).astype(np.float32)


def changed_box(before, after):
    """(top, bottom, left, right) of the pixels that differ."""
    rows, columns = np.nonzero((before != after).any(-1))
    return rows.min(), rows.max(), columns.min(), columns.max()


def test_a_story_has_a_row_for_each_statement_and_its_evidence_is_marked(tmp_path):
    statements = ["mary moved to the garden", "john went to the $5 office"]
    weights = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    for name, hops, evidence in (("plain", weights, ()), ("marked", weights, (2,)), ("other", 1 - weights, ())):
        plots.plot_story(hops, statements, "where is john?  office", tmp_path / f"{name}.png", evidence)
    plain, marked, other = (pixels(tmp_path / f"{name}.png") for name in ("plain", "marked", "other"))
    assert marked.shape != plain.shape or (marked != plain).any()
    assert (other != plain).any()
    with pytest.raises(UserError, match="expected \\[hops, 3\\]"):
        plots.plot_story(weights, [*statements, "more"], "", tmp_path / "wrong.png")


def test_each_weight_has_its_cell(tmp_path):
    source, target = ["年", "月", "日", " ", "<eos>"], ["year", "month", "day", "<eos>"]
    weights = diagonal(4, 5)
    plots.plot_weights(weights, source, target, tmp_path / "new" / "0.png")
    before = pixels(tmp_path / "new" / "0.png")
    assert before.std() > 0.05
    boxes = {}
    for row, column in ((2, 3), (2, 4), (3, 3)):
        other = weights.copy()
        other[row, column] = 1 - other[row, column]
        plots.plot_weights(other, source, target, tmp_path / "1.png")
        boxes[row, column] = changed_box(before, pixels(tmp_path / "1.png"))
    here, right, below = boxes.values()
    assert here[:2] == right[:2] and here[2:] == below[2:]  # target tokens down, source tokens to the right
    assert 0 < right[2] - here[3] < 5 and 0 < below[0] - here[1] < 5  # a thin line between neighbours
    height, width = here[1] - here[0], here[3] - here[2]
    assert abs(height - width) <= 2 and height * 4 > 0.6 * before.shape[0]


def test_negative_weights_are_red_and_others_stay_blue(tmp_path):
    weights = np.array([[1.4, -0.4, 0.0], [0.2, 0.8, 0.0]])
    with plots.styled():
        figure = plots.weights_figure(weights, list("abc"), list("de"))
    image = figure.axes[0].images[0]
    colors = image.cmap(image.norm(weights))[..., :3]
    red, blue = colors[..., 0], colors[..., 2]
    assert red[0, 1] > blue[0, 1] and blue[0, 0] > red[0, 0] and blue[1, 1] > red[1, 1]
    assert np.ptp(colors[:, 2], axis=-1).max() < 0.02  # nothing for nothing
    plots.plot_story(weights, ["a", "b", "c"], "", tmp_path / "0.png")
    assert pixels(tmp_path / "0.png").std() > 0.05


@pytest.mark.skipif(not importlib.util.find_spec("matplotlib_fontja"), reason="matplotlib-fontja is not installed")
def test_every_character_can_be_read():
    words = ["▁フランス", "語", "▁", "　", " ", "々ー。", "$100$", "a_b^c", "tab\there", "\x07", "長" * 50]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with plots.styled():
            figure = plots.weights_figure(diagonal(11, 11), words, words, title="$私$は")
            figure.savefig(io.BytesIO(), bbox_inches="tight")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:9] == ["▁フランス", "語", "▁", "␣", "␣", "々ー。", "$100$", "a_b^c", "tab␣here"]
    assert labels[9] == "\\u0007" and len(labels[10]) == plots.LONGEST_LABEL
    assert labels == [label.get_text() for label in figure.axes[0].get_xticklabels()]
    fonts = [get_font(fontManager.findfont(family)) for family in plots.font_families()]
    for character in "".join(labels):
        assert any(font.get_char_index(ord(character)) for font in fonts), character


@pytest.mark.slow
def test_without_a_japanese_font_the_picture_comes_silently(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(plots, "font_families", lambda: [plots.LATIN])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.plot_weights(diagonal(11, 12), SOURCE, TARGET, tmp_path / "0.png")
    assert pixels(tmp_path / "0.png").std() > 0.05
    assert capfd.readouterr() == ("", "")


def test_global_state_stays(tmp_path):
    names = [name for name in matplotlib.rcParams if name != "backend"]  # looking at that one sets it
    before = {name: matplotlib.rcParams[name] for name in names}
    plots.plot_weights(diagonal(2, 3), list("abc"), list("de"), tmp_path / "0.png")
    assert {name: matplotlib.rcParams[name] for name in names} == before


@pytest.mark.parametrize("suffix, head", [(".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_vector_formats(tmp_path, suffix, head):
    plots.plot_weights(diagonal(3, 2), ["年", "<eos>"], ["▁a", "b", "<eos>"], tmp_path / f"0{suffix}")
    assert (tmp_path / f"0{suffix}").read_bytes().startswith(head)


@pytest.mark.slow
@pytest.mark.parametrize("t, s", [(1, 1), (1, 30), (90, 2)])
def test_any_number_of_tokens(tmp_path, t, s):
    plots.plot_weights(diagonal(t, s), ["語"] * s, ["word"] * t, tmp_path / "0.png")
    height, width, _ = pixels(tmp_path / "0.png").shape
    assert 30 * t < height < 150 * t + 400 and 30 * s < width < 150 * s + 400


@pytest.mark.slow
@pytest.mark.parametrize("t, s", [(2, 3000), (700, 3)])
def test_a_very_long_sentence_gives_a_picture_that_can_be_looked_at(tmp_path, t, s):
    plots.plot_weights(diagonal(t, s), ["語"] * s, ["word"] * t, tmp_path / "0.png")
    height, width, _ = pixels(tmp_path / "0.png").shape
    assert max(height, width) < 4100 and min(height, width) > 100
    with plots.styled():
        figure = plots.weights_figure(diagonal(t, s), [str(i) for i in range(s)], [str(i) for i in range(t)])
    labels = [label for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis) for label in axis.get_ticklabels()]
    assert 20 < len(labels) < 400 and min(label.get_size() for label in labels) >= plots.SMALLEST_LABEL
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == [
            str(int(place)) for place in axis.get_ticklocs()
        ]


def test_a_very_long_story_keeps_the_labels_of_its_evidence(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure))
    plots.plot_story(np.full((2, 900), 0.01), [f"s{i}" for i in range(1, 901)], "?", tmp_path / "0.png", (2, 441))
    labels = kept[0].axes[0].get_yticklabels()
    assert kept[0].get_size_inches()[1] <= plots.LARGEST_INCHES and len(labels) < 400
    red = [label.get_text().split()[0] for label in labels if label.get_color() == "tab:red"]
    assert red == ["s2", "s441"] and all(
        label.get_text().split()[0] == f"s{place + 1}"
        for label, place in zip(labels, kept[0].axes[0].get_yticks(), strict=True)
    )


def test_ticks_of_queries_are_round_numbers_in_their_rows():
    places = np.linspace(-0.039, 2.69, 101)
    with point_plots.styled():
        _, axes = point_plots.panel()
        point_plots.plot_heat_map(axes, np.eye(101), places)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["0", "0.5", "1", "1.5", "2", "2.5"]
    np.testing.assert_allclose(axes.get_yticks(), (np.arange(6) / 2 + 0.039) / 2.729 * 100)
    assert point_plots.round_numbers(3.0, 3.0).tolist() == [3.0]
    np.testing.assert_allclose(point_plots.round_numbers(2026.0, 2026.25), 2026 + np.arange(6) / 20)


def test_wrong_shapes(tmp_path):
    with pytest.raises(UserError, match=r"^attention weights of shape \[2, 3\] do not fit 3 target .* 2 source"):
        plots.plot_weights(diagonal(2, 3), ["a", "b"], ["c", "d", "e"], tmp_path / "0.png")
    with pytest.raises(UserError, match=r"shape \[3\] .*\[1, 3\]"):
        plots.plot_weights(np.ones(3), list("abc"), ["d"], tmp_path / "0.png")
    with pytest.raises(UserError, match=r"shape \[0, 1\] .*at least 1"):
        plots.plot_weights(np.ones((0, 1)), ["a"], [], tmp_path / "0.png")
    assert not list(tmp_path.iterdir())


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^cannot write .*file/0\.png: [a-z ]+$"):
        plots.plot_weights(np.ones((1, 1)), ["a"], ["b"], tmp_path / "file" / "0.png")
    with pytest.raises(UserError, match=r"^cannot plot .*0\.jpeg: .*\.png, \.svg, \.pdf$"):
        plots.plot_weights(np.ones((1, 1)), ["a"], ["b"], tmp_path / "0.jpeg")


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_line_that_no_run_has_written_is_no_obstacle(tmp_path):
    others = [{"step": 2, "note": "hello"}, {"step": 2, "train/loss": {}}, {"step": 2, "train/loss": [[1, 2]]}]
    others += [{"step": "x", "train/loss": 1.0}, {"step": True, "train/loss": 1.0}, {"step": 2, "train/loss": "1"}]
    lines = [{"step": 1, "train/loss": 2.0}, *others, {"step": 3, "train/loss": 1.0}]
    series = plots.read_series(write_lines(tmp_path / "metrics.jsonl", lines))
    assert list(series) == ["train/loss"]
    steps, values = series["train/loss"]
    assert steps.tolist() == [1, 3] and values.tolist() == [[2.0], [1.0]]


def test_curves_of_seeds_and_other_metrics(tmp_path):
    records = [{"step": s, "train/loss": [3 / s, 4 / s], "train/grad_norm": [1.0, 1.0]} for s in range(1, 9)]
    path = write_lines(tmp_path / "metrics.jsonl", records)
    assert plots.plot_curves(path, tmp_path / "loss.png")
    records += [{"step": s, "valid/loss": [5 / s, None], "valid/bleu": [s, 2 * s]} for s in (4, 8)]
    path = write_lines(tmp_path / "metrics.jsonl", records)
    with path.open("a") as file:
        file.write('{"step": 9, "train/lo')  # written by a run that is still going on
    assert plots.plot_curves(path, tmp_path / "both.png")
    one, two = pixels(tmp_path / "loss.png"), pixels(tmp_path / "both.png")
    assert one.std() > 0.05 and two.std() > 0.05
    assert two.shape[1] > 1.7 * one.shape[1]
    series = plots.read_series(path)
    assert series["train/loss"][1].shape == (8, 2) and list(series["valid/bleu"][0]) == [4, 8]
    assert np.isnan(series["valid/loss"][1]).tolist() == [[False, True], [False, True]]


@pytest.mark.parametrize("records", [[], [{"step": 1}], [{"step": 1, "train/loss": None}], [{"step": 1, "other": 2.0}]])
def test_nothing_to_draw_yet(tmp_path, records):
    path = write_lines(tmp_path / "metrics.jsonl", records)
    assert not plots.plot_curves(path, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def test_no_metrics_file(tmp_path):
    with pytest.raises(UserError, match=r"^cannot read .*metrics\.jsonl: no such file or directory$"):
        plots.plot_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")


INPUTS, TARGET_NAME, CLASSES = ("cost_$_per_$", "a $x$ {"), "$^$", ("$^$", "$_$ or $", "50 $")


def training_points(num_inputs, classes=()):
    """Six points in order, of numbers or of each class in turn."""
    inputs = np.stack([np.arange(6.0), np.arange(6.0) ** 2], axis=1)[:, :num_inputs]
    targets = np.eye(3)[np.arange(6) % 3] if classes else np.arange(6.0)[:, None]
    return point_plots.TrainingPoints(Columns(INPUTS[:num_inputs], TARGET_NAME, classes), inputs, targets)


def texts_of(path):
    """All texts that an SVG picture shows."""
    return {"".join(text.itertext()) for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")}


@pytest.mark.slow
@pytest.mark.parametrize("classes", [(), CLASSES], ids=["numbers", "classes"])
@pytest.mark.parametrize("num_inputs", [1, 2])
def test_names_with_two_dollar_signs_are_no_formulas(tmp_path, monkeypatch, num_inputs, classes):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    train = training_points(num_inputs, classes)
    inputs, targets, names = train.inputs, train.targets, INPUTS[:num_inputs]
    point_plots.plot_fit(train, inputs, targets, (inputs, targets), targets, tmp_path / "fit.svg")
    if num_inputs == 1:
        expected = {names[0], *(classes or (TARGET_NAME,))}
    else:
        expected = {*names, *classes, f"{TARGET_NAME} (rings: training)"} if classes else {TARGET_NAME}
        expected |= set() if classes else {f"prediction of {TARGET_NAME}"}
    assert expected <= texts_of(tmp_path / "fit.svg")
    point_plots.plot_query(train, inputs[2], np.eye(6)[2], targets[0], tmp_path / "query.svg")
    at = ", ".join(f"{name} {value:.4g}" for name, value in zip(names, inputs[2], strict=True))
    expected = {names[0], f"{at}:  {TARGET_NAME} {CLASSES[0] if classes else 0}"}
    expected |= {names[1]} if num_inputs == 2 else set(classes or (TARGET_NAME,))
    assert expected <= texts_of(tmp_path / "query.svg")
    point_plots.plot_weights(train, inputs, np.eye(6), tmp_path / "weights.svg")
    assert {f"training points, by {names[0]}", f"query {names[0]}"} <= texts_of(tmp_path / "weights.svg")
