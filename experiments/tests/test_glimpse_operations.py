"""Operations of glimpses are those of their formula, do not grow with the image, and make a page."""

import pytest

from attn_jax.runs.options import change
from configs import scenes_glimpses
from experiments import glimpse_operations as experiment
from experiments import raw


@pytest.mark.slow
def test_operations_are_those_of_the_layers_and_the_same_for_larger_images():
    config = change(scenes_glimpses.get_config(), {"model.num_glimpses": 2, "model.num_scales": 2})
    width, hidden = config.model.glimpse_features, config.model.hidden_size
    sensor = 2 * 12 * 12 * 3 * width + 2 * width + 2 * width * width
    glimpse = hidden * 2 + sensor + 4 * hidden * (width + hidden)
    expected = 2 * glimpse + hidden * experiment.WORDS
    assert [experiment.products(config, side) for side in (48, 80)] == [expected, expected]
    assert experiment.pixels(config) == 2 * (12 * 12 + 24 * 24)


@pytest.mark.slow
def test_the_page_shows_that_the_others_grow_with_the_area(tmp_path):
    results = experiment.measure(sides=(48, 96))
    few, whole, network = (results["products"][name] for name in ("glimpses", experiment.WHOLE, experiment.NETWORK))
    assert few[0] == few[1] and whole[1] - whole[0] == 3 * 48 * 48 * 3 * 256
    assert 3.5 < network[1] / network[0] < 4
    begun = raw.begin(tmp_path / "x.json")
    page = experiment.page(raw.write(tmp_path / "x.json", results, command="python x.py", begun=begun))
    assert "| glimpses | 4.8 | 4.8 | 1.0 |" in page
