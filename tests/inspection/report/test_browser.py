"""Clicks and keys on a page in headless Chromium; skipped where chromium, chromedriver or selenium is missing."""

import re

import chromium
import numpy as np
import pytest

from attn_jax.evaluation.collect import Collected, Image, Map
from attn_jax.inspection.report import run
from attn_jax.inspection.report.page import render
from attn_jax.inspection.report.sweep import sweep_data

EVIL = "</script><img src=x onerror=alert(1)>"
SOURCE, OUTPUT = ("平", "成", "<eos>"), ("1", "9", "-", "<eos>")


def weights(*shape, seed):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1])


def collected(seed):
    """A pair with heads, a story with evidence, and hard attention with negative weights."""
    heads = Map("source", ("layer", "head"), OUTPUT, SOURCE, weights(2, 3, 4, 3, seed=seed))
    own = Map("own", ("layer", "head"), SOURCE, SOURCE, weights(2, 3, 3, 3, seed=seed + 1))
    statements = ("mary went home", "john " + "slept " * 9 + "well", "sandra moved to the hallway")
    hops = Map("memory", (), ("hop 1", "hop 2"), statements, np.array([[0.0, 1.0, 0.0], [0.6, 0.2, 0.2]]))
    signed = np.array([[0.75, 0.5, -0.25]])
    hard = Map("source", (), ("q",), ("a", "b", "c"), signed, np.array([[1], [0]]))
    return [
        Collected("平成", "19-", "19-", 0.5, (heads, own)),
        Collected(EVIL if seed else "of seed 3", "home", "garden", 2.5, (hops,), (1,)),
        Collected("abc", "q", "", float("nan"), (hard,)),
    ]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    result = {"seeds": [3, 8], "metrics": {"bleu": {"mean": 2.0, "std": 0.1, "seeds": [1.9, 2.1]}}, "chosen_seed": 8}
    line = {"name": "training", "steps": [1, 5, 9], "values": [[3, 2, 1], [4, 2, None]]}
    page = run.run_data(
        title="a run",
        description=EVIL,
        facts=[("task", EVIL)],
        config=[("model.name", "seq2seq", False)],
        result=result,
        curves=[{"title": "loss", "lines": [line]}],
        examples=run.examples_of([collected(0), collected(5)], ["3", "8"], "nats", True),
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(page), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    driver = chromium.start()
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    """The page, opened again; nothing may be in the log of the browser at the end."""
    resize(browser, 1200)
    browser.get(address)
    yield Page(browser)
    assert browser.get_log("browser") == []


def resize(browser, width):
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


class Page:
    def __init__(self, browser):
        self.browser = browser

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def text(self, selector):
        return self.browser.find_element("css selector", selector).text

    def choose(self, name, text):
        """Chooses an option of a select by its text."""
        for option in self.all(f"[data-name={name}] option"):
            if option.text == text:
                option.click()
                return
        raise AssertionError(f"{name} has no {text}")

    def press(self, *keys):
        """Presses keys where the focus is."""
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            self.browser.switch_to.active_element.send_keys(getattr(Keys, key))

    def focused(self):
        return self.browser.execute_script("return document.activeElement.textContent")


def test_text_of_the_data_stays_text(page):
    assert page.all("img") == [] and page.text(".lead") == EVIL
    page.all(".example")[1].click()
    assert page.text("dd .source") == EVIL == page.text(".example[aria-selected=true] .text")
    page.choose("seed", "3")
    assert page.text("dd .source") == "of seed 3"
    assert "＜" not in page.text("body") and page.browser.title == "a run – attn_jax"


def test_a_token_shows_the_weights_of_the_place_that_was_chosen(page):
    expected = weights(2, 3, 4, 3, seed=5)  # of the chosen seed, 8
    page.choose("layer", "1")
    page.all(".thumbnail")[2].click()  # layer 1, head 3
    assert page.all(".thumbnail")[2].get_attribute("aria-pressed") == "true"
    page.all(".queries .token")[1].click()
    shown = {token.text for token in page.all(".keys .token .weight") if token.text}
    assert shown <= {f"{weight:.2f}" for weight in expected[0, 2, 1]} and shown
    best = int(np.argmax(expected[0, 2, 1]))
    first = page.text(".explorer .readout").split(", ")[0]
    assert first.startswith(f"‘9’ looked at ‘{SOURCE[best]}’ ")
    assert float(first.split()[-1]) == pytest.approx(expected[0, 2, 1, best], abs=1e-3)
    page.choose("seed", "3")
    page.choose("map", "own")
    assert [token.text for token in page.all(".queries .label")] == list(SOURCE)


def test_the_keyboard_alone_reads_examples_tokens_and_cells(page):
    page.browser.execute_script("document.querySelector('.example').focus()")
    page.press("ARROW_DOWN")
    assert page.text("dd .output") == "home" and page.focused().startswith("2")
    page.press("ARROW_UP")
    page.browser.execute_script("document.querySelector('.queries .token').focus()")
    page.press("ARROW_DOWN", "ARROW_DOWN")
    assert page.focused() == "-"
    page.press("ARROW_LEFT")  # to the key with the largest weight
    row = weights(2, 3, 4, 3, seed=5)[1, 0, 2]
    assert page.focused().startswith(SOURCE[int(np.argmax(row))])
    page.browser.execute_script("document.querySelector('.heat canvas').focus()")
    page.press("ARROW_RIGHT", "ARROW_RIGHT", "ARROW_DOWN", "ARROW_DOWN")
    assert page.text(".explorer .readout").startswith("‘-’ looked at ‘成’: ")
    page.browser.execute_script("document.querySelector('.thumbnail[tabindex=\"0\"]').focus()")
    page.press("ARROW_RIGHT", "ENTER")
    chosen = page.all(".thumbnail")[4]
    assert chosen.get_attribute("aria-pressed") == "true"
    assert chosen.get_attribute("aria-label").startswith("layer 2, head 2: uses ")


def test_evidence_is_marked_and_negative_weights_and_samples_are_shown(page):
    page.all(".example")[1].click()
    marked = [token.text for token in page.all(".keys .evidence")]
    assert marked == ["mary went home"] and page.text("dd .wrong") == "✗ differs"
    page.browser.execute_script("document.querySelector('.heat canvas').focus()")  # its rows are statements
    page.press("ARROW_DOWN", "ARROW_DOWN")
    assert re.fullmatch("‘hop 1’ looked at ‘john slept slept .*…’: 1", page.text(".explorer .readout"))
    page.all(".example")[2].click()
    assert len(page.all(".link.less")) == 1 and len(page.all(".link")) == 3
    page.choose("samples", "sample 2")
    assert len(page.all(".link")) == 1 and page.all(".link.less") == []
    page.all(".queries .token")[0].click()
    assert page.text(".explorer .readout") == "‘q’ looked at ‘a’ 1"


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_moves_away_from_the_pointer(page, width):
    """What is said of a token, and the weights beside its links, must not move any token."""
    resize(page.browser, width)
    page.browser.refresh()
    page.all(".example")[1].click()
    place = lambda: [token.rect["y"] for token in page.all(".token")]  # noqa: E731
    before = place()
    page.all(".queries .token")[1].click()
    assert place() == before and page.focused().startswith("hop 2")
    assert page.text(".explorer .readout").startswith("‘hop 2’ looked at ‘mary went home")


def test_examples_are_sorted(page):
    count = lambda: [one.text for one in page.all(".example .count")]  # noqa: E731
    page.choose("order", "largest loss")
    assert count() == ["2", "1", "3"]
    page.choose("order", "wrong outputs first")
    assert count()[-1] == "1"


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_its_width_and_draws_curves(page, width):
    resize(page.browser, width)
    page.browser.refresh()
    wide = page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    (box,) = page.all(".chart")
    assert len(box.find_elements("css selector", "path.seed")) == 2
    page.browser.execute_script("document.querySelector('.chart').focus()")
    page.press("ARROW_RIGHT", "ARROW_RIGHT")
    assert page.text("figure .readout") == "step 5: training 2"


def test_the_page_of_a_sweep_links_to_its_runs(browser, tmp_path):
    values = {"mean": 2.0, "std": 1.0, "seeds": [1.0, 3.0]}
    results = {name: {"metrics": {"bleu": values}, "seeds": [0, 1]} for name in ("c,a=1", EVIL)}
    path = tmp_path / "report.html"
    path.write_text(render(sweep_data("s", results, {"c,a=1": "c%2Ca%3D1/report.html"})), encoding="utf-8")
    browser.get(path.as_uri())
    page = Page(browser)
    assert [link.text for link in page.all("#results a")] == ["c,a=1"]
    assert len(page.all(".chart .interval")) == 6 and page.all("img") == []
    assert browser.get_log("browser") == []


def test_an_image_is_dark_where_a_word_has_little_weight_and_has_the_path_of_glimpses(browser, tmp_path):
    pixels = np.full((8, 8, 3), 200, np.uint8)
    looked = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]])
    map_ = Map("places looked at", (), ("glimpse 1", "glimpse 2"), ("1.1", "1.2", "2.1", "2.2"), looked)
    path = ((5, 5, 8, 8), (0, 0, 2, 2))
    one = Collected("test:1", "7", "7", 0.5, (map_,), image=Image(pixels, (2, 2)), path=path)
    other = Collected("平成", "19-", "19-", 0.5, (Map("source", (), OUTPUT, SOURCE, weights(4, 3, seed=0)),))
    examples = run.examples_of([[one, other]], ["0"], "nats", True)
    result = {"seeds": [0], "metrics": {}}
    data = run.run_data(title="t", description="", facts=[], config=[], result=result, curves=[], examples=examples)
    (tmp_path / "report.html").write_text(render(data), encoding="utf-8")
    resize(browser, 1200)
    browser.get((tmp_path / "report.html").as_uri())
    page = Page(browser)
    assert [panel.text for panel in page.all(".overlays .panel")] == ["image", "glimpse 1", "glimpse 2"]
    red = """
        const canvas = document.querySelectorAll(".overlays canvas")[arguments[0]];
        const [x, y] = [arguments[1] * canvas.width, arguments[2] * canvas.height].map(Math.round);
        return canvas.getContext("2d").getImageData(x, y, 1, 1).data[0];
    """
    places = (0.45, 0.3), (0.8, 0.3), (0.3, 0.8), (0.53, 0.58)  # one in each cell, off the line of the path
    light = [[browser.execute_script(red, i, x, y) for x, y in places] for i in range(3)]
    assert light == [[200] * 4, [200, 50, 50, 50], [50, 50, 100, 200]]
    assert browser.execute_script(red, 0, 0.13, 0.0) == 255 != light[0][0]  # the edge of the second square
    page.all(".overlays button")[1].click()
    assert page.text(".explorer .readout").startswith("‘glimpse 2’ looked at ‘2.2’ 0.75")
    page.all(".example")[1].click()
    assert not page.all(".overlays")[0].is_displayed()
    told = [entry for entry in browser.get_log("browser") if "getImageData" not in entry["message"]]  # asked for above
    assert told == []
