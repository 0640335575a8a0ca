"""Models of images on the command line: lines in, captions out, where they looked, and pictures of it."""

import base64
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import fill
from PIL import Image
from tiny_run import fitted

from attn_jax.cli import commands
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Evaluator, Predictor
from attn_jax.evaluation.collect import Collector
from attn_jax.figures.overlays import Look, looks_figure, shaded
from attn_jax.figures.places import covered, measure_places
from attn_jax.figures.trajectories import stops_of, trajectory_figure
from attn_jax.inspection.report.run import examples_of
from attn_jax.layers.glimpses import crop
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.checks import check
from attn_jax.runs.options import default_config, resolve
from attn_jax.tasks import Pairs

TASK = {"canvas": 16, "sizes": (6,), "num_objects": (1, 2), "num_examples": 8, "valid_size": 4, "batch_size": 4}
TINY = {f"task.{key}": value for key, value in TASK.items()} | {"model.encoder": "none"}
TINY |= {f"model.{part}_size": 8 for part in ("embedding", "hidden", "readout", "decoder.readout")}
TINY |= {
    f"model.picture.grid.{key}": value for key, value in {"channels": (4,), "kernels": (3,), "strides": (4,)}.items()
}
TINY |= {
    "decode.max_length": 6,
    "decode.batch_size": 4,
    "eval.metrics": ("touch", "point", "strict", "uniform", "cells"),
}


def setup_of(family="seq2seq", **changes):
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    config = fitted(default_config("scenes", family), TINY, changes)
    check(resolve(config))
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    example = jax.tree.map(jnp.asarray, setup.example)
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), example), 1, 0.3)
    return task, setup, params


@pytest.fixture(scope="module")
def captions():
    return setup_of()


@pytest.fixture(scope="module")
def questions():
    return setup_of("classifier", task__form="questions", model__pooling="structured", model__pooling__num_queries=2)


@pytest.fixture(scope="module")
def glimpses():
    sizes = {"task__num_objects": (1, 1), "model__glimpse_size": 6, "model__num_glimpses": 3, "model__grid": (4, 4)}
    return setup_of("glimpses", task__form="read", **sizes)


@pytest.mark.slow
def test_where_a_model_looks_is_the_mean_over_words_with_a_box(captions):
    task, setup, params = captions
    assert isinstance(setup.evaluator, Evaluator) and isinstance(setup.predictor, Predictor)
    split = task.splits["valid"]
    found = setup.evaluator.measure([params], split, ["touch", "point", "cells", "exact_match"]).values
    grids = setup.predictor.grids(params, split)
    assert [grid.shape for grid in grids] == [(len(t.split()) + 1, 4, 4) for t in split.target]
    values = [
        measure_places(grid[i], boxes, setup.predictor.edges)
        for grid, own in zip(grids, split.boxes, strict=True)
        for i, boxes in enumerate(own)
    ]
    assert found["touch"]["mean"] == pytest.approx(100 * np.mean([value["touch"] for value in values]), abs=1e-3)
    assert found["point"]["mean"] == pytest.approx(100 * np.mean([value["point"] for value in values]), abs=1e-3)
    assert 1 <= found["cells"]["mean"] <= 16 and "exact_match" in found
    with pytest.raises(UserError, match="metrics touch need the true boxes of words, which these images lack"):
        setup.evaluator.measure([params], Pairs(split.source, split.target), ["touch"])


@pytest.mark.slow
def test_a_model_without_weights_looks_nowhere_and_a_choice_of_two_keys_at_no_more_than_two():
    task, setup, params = setup_of(model__decoder="none")
    found = setup.evaluator.measure([params], task.splits["valid"], ["touch", "cells"]).values
    assert np.isnan([found["touch"]["mean"], found["cells"]["mean"]]).all()
    task, setup, params = setup_of(model__objective="top", model__objective__num_samples=2)
    found = setup.evaluator.measure([params], task.splits["valid"], ["cells"]).values
    assert 1 <= found["cells"]["mean"] <= 2 + 1e-4


@pytest.mark.slow
def test_boxes_are_those_of_the_words_that_are_right(captions):
    task, setup, _ = captions
    split = task.splits["valid"]
    words = split.target[0].split()
    assert setup.predictor.known_boxes(split, 0, [*words, "<eos>"]) == list(split.boxes[0])
    wrong = ["other", *words[1:], "<eos>"]
    assert setup.predictor.known_boxes(split, 0, wrong) == [(), *split.boxes[0][1:]]


@pytest.mark.slow
def test_a_line_is_a_scene_or_a_file(captions, tmp_path):
    _, setup, params = captions
    pixels = setup.predictor.gallery.pixels("test:3")
    Image.fromarray(pixels).save(tmp_path / "a.png")
    ((_, printed),) = setup.predictor.predict(params, ["test:3", str(tmp_path / "a.png"), ""], 4)
    assert len(printed) == 3 and printed[0] == printed[1] and printed[2] == ""
    Image.fromarray(pixels[:8]).save(tmp_path / "b.png")
    for line, message in [
        (str(tmp_path / "b.png"), "b.png: 16 x 8 pixels; expected 16 x 16, as others"),
        ("no.png", "no.png: no such file"),
        ("test:1\twhat is it", "an image with a question, but the model describes images; expected no TAB"),
    ]:
        with pytest.raises(UserError, match=message):
            list(setup.predictor.predict(params, [line], 4))


def test_two_files_are_read_line_by_line(captions, tmp_path):
    source, target = tmp_path / "images", tmp_path / "texts"
    source.write_text("test:3\ntest:5\n")
    target.write_text("red disc\nblue cross\n")
    read = captions[1].predictor.read_files(str(source), str(target))
    assert (read.source, read.target) == (["test:3", "test:5"], ["red disc", "blue cross"])
    target.write_text("red disc\n")
    with pytest.raises(UserError, match=r"images has 2 lines but .*texts has 1; expected line i of one"):
        captions[1].predictor.read_files(str(source), str(target))


@pytest.mark.slow
def test_a_question_goes_with_an_image(questions):
    task, setup, params = questions
    source = task.splits["test"].source[0]
    ((_, (answer,)),) = setup.predictor.predict(params, [source], 4)
    assert len(answer.split()) == 1
    with pytest.raises(UserError, match="test:1: an image without a question; expected image TAB question"):
        setup.predictor.read_lines(["test:1"])
    assert setup.predictor.read_lines([source, "  "]) == [source]


@pytest.mark.slow
def test_pictures_have_a_panel_for_each_word_and_numbers_beside_them(captions, questions, tmp_path):
    task, setup, params = captions
    split = task.splits["test"].select([0])
    setup.predictor.plot(params, split, [tmp_path / "0.png"])
    found = json.loads((tmp_path / "0.json").read_text())
    assert np.asarray(found["weights"]).shape == (len(found["target"]), 4, 4) and found["source"] == "test:0"
    assert Image.open(tmp_path / "0.png").size[0] > 200
    task, setup, params = questions
    paths = setup.predictor.plot_overview(params, task, task.splits["test"], tmp_path, 1)
    found = json.loads(paths[0].with_suffix(".json").read_text())
    assert found["target"] == ["query 1", "query 2"] and found["question"] == task.splits["test"].source[0][7:]


def test_panels_and_boxes_of_a_figure():
    pixels = np.full((6, 9, 3), 100, np.uint8)
    weights = np.zeros((2, 3), np.float32)
    weights[0, 1], weights[1, 0] = 0.8, 0.2
    edges = np.array([0.0, 3.0, 6.0]), np.array([0.0, 3.0, 6.0, 9.0])
    looks = [Look("red", weights, ((3, 0, 6, 2), (0, 0, 1, 1))), Look("of", weights / 2)]
    figure = looks_figure(pixels, looks, edges, "a title")
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panels] == ["image", "red  0.80", "of  (all cells 0.50)"]
    assert [len(axes.patches) for axes in panels] == [0, 2, 0]
    image = shaded(pixels, weights, edges).astype(int)  # four times as fine
    assert image.shape == (24, 36, 3) and image[4, 16].sum() > image[16, 4].sum() > image[4, 4].sum()
    moved = shaded(pixels, weights, (edges[0], np.array([0.0, 3.25, 6.0, 9.0]))).astype(int)
    assert (image[4] != moved[4]).any(-1).nonzero()[0].tolist() == [12]
    photo = shaded(np.zeros((1000, 600, 3), np.uint8), np.ones((2, 3)), (500 * np.arange(3.0), 200 * np.arange(4.0)))
    assert photo.shape == (400, 240, 3) and photo.dtype == np.uint8


def test_what_is_for_texts_alone_is_refused_in_one_line(tmp_path):
    options = resolve(fitted(default_config("scenes", "seq2seq"), TINY))
    with pytest.raises(UserError, match="--mode=export is for models of text"):
        commands.export(options, tmp_path, commands.Files())
    with pytest.raises(UserError, match="--gold=file is for models of text"):
        commands.analyze(options, tmp_path, commands.Files(gold="file"))
    with pytest.raises(UserError, match=r"decode.unk replace takes words of the source, but the sources are images"):
        setup_of(decode__unk="replace")


@pytest.mark.slow
def test_reports_and_analyses_have_names_of_cells(captions, questions):
    for task, setup, params in (captions, questions):
        collector = setup.collector
        assert isinstance(collector, Collector)
        (found,) = collector.collect(params, task.splits["test"].select([0]))
        columns = found.maps[0].columns
        assert columns[:5] == ("1.1", "1.2", "1.3", "1.4", "2.1")
        asked = found.source.partition("\t")[2].split()
        assert columns[16:] == ((*asked, "<eos>") if asked else ())
        assert found.maps[0].weights.shape[-1] == len(columns)


@pytest.mark.slow
def test_the_path_of_glimpses_is_measured_drawn_and_reported(glimpses, tmp_path):
    task, setup, params = glimpses
    split = task.splits["valid"].select([0, 1])
    found = setup.evaluator.measure([params], split, ["touch", "point", "cells", "exact_match"]).values
    weights = setup.predictor.query_weights(params, split)
    touch = [
        measure_places(each.mean(0).reshape(4, 4), boxes[0], setup.predictor.edges)["touch"]
        for each, boxes in zip(weights, split.boxes, strict=True)
    ]
    assert found["touch"]["mean"] == pytest.approx(100 * np.mean(touch), abs=1e-3)
    vocabulary = setup.predictor.translator.target_vocabulary
    paths, words = setup.predictor.paths(params, split.source), vocabulary.tokens(range(len(vocabulary)))
    for stops, each in zip(paths, weights, strict=True):
        for stop, cells in zip(stops, each, strict=True):
            counted = covered([tuple(map(int, stop.box))], setup.predictor.edges)
            np.testing.assert_allclose(cells.reshape(4, 4), counted / counted.sum(), atol=1e-5)
            assert stop.guess in words
    setup.predictor.plot(params, split, [tmp_path / "0.png", tmp_path / "1.png"])
    written = json.loads((tmp_path / "1.json").read_text())
    assert written["squares"] == [list(stop.box) for stop in paths[1]] and np.shape(written["weights"]) == (3, 4, 4)
    (one, _) = setup.collector.collect(params, split)
    assert one.path == tuple(stop.box for stop in paths[0])
    assert one.maps[0].rows == ("glimpse 1", "glimpse 2", "glimpse 3")
    item = examples_of([[one]], ["0"], "nats", True)["items"][0]
    assert item["image"]["cells"] == [4, 4] and item["of_seeds"][0]["path"] == [*map(list, one.path)]
    pixels = np.frombuffer(base64.b64decode(item["image"]["pixels"]), np.uint8).reshape(item["image"]["shape"])
    assert np.array_equal(pixels, setup.predictor.gallery.pixels(split.source[0]))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "image"), [(1, (13, 12)), (4, (12, 12)), (2, (12, 13)), (7, (13, 12))])  # odd, even
def test_a_panel_of_a_trajectory_shows_the_pixels_that_the_model_saw(size, image):
    """At places from edge to edge, and where a policy that has saturated puts them, exactly at an edge."""
    pixels = np.random.default_rng(0).integers(1, 256, (*image, 3), np.uint8)
    seen = jax.jit(jax.vmap(lambda place: crop(jnp.asarray(pixels), place, size, 1)[0]))
    ends = np.stack(np.meshgrid([-1, 1, 1.3], [-1, 0.999, 1]), axis=-1).reshape(-1, 2)[:8].astype(np.float32)
    along = np.stack([np.linspace(-1, 1, 16), np.linspace(1, -1, 16)], axis=-1).reshape(2, 8, 2).astype(np.float32)
    for places in (ends, *along):
        crops = np.rint(255 * np.asarray(seen(jnp.asarray(places)))).astype(np.uint8)
        stops = stops_of(places, image, size, [("", 0.0)] * len(places))
        for own, axes in zip(crops, trajectory_figure(pixels, stops).axes[1:], strict=True):
            np.testing.assert_array_equal(axes.images[0].get_array(), own)


def test_a_trajectory_has_the_image_and_a_panel_for_each_glimpse():
    pixels = np.full((8, 8, 1), 100, np.uint8)
    stops = stops_of(np.array([[-1.0, -1.0], [0.5, 0.0]]), (8, 8), 4, [("3", 0.25), ("7", 0.75)])
    assert [stop.box for stop in stops] == [(-2, -2, 2, 2), (2, 4, 6, 8)]
    figure = trajectory_figure(pixels, stops, "a title", [(1, 1, 3, 3)])
    image, first, second = figure.axes
    assert [axes.get_title() for axes in (first, second)] == ["1: 3 0.25", "2: 7 0.75"]
    shown = first.images[0].get_array()
    assert len(image.patches) == 3 and not shown[:2].any() and shown[3, 3].any()
