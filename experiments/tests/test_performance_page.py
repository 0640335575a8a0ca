"""The page of speeds is what its files say."""

from experiments.benchmarks import page


def test_the_committed_page_is_what_rendering_gives():
    assert page.PAGE.read_text(encoding="utf-8") == page.render()


def test_every_measurement_is_on_the_page():
    assert {path.stem for path in page.RESULTS.glob("*.json")} <= set(page.SECTIONS)
