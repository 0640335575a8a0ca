"""The figure of docs/formula.md has the weights of the package; skipped without chromium, chromedriver or selenium."""

import pathlib
import re

import chromium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn_jax
from attn_jax.attention.scores import Boxcar, Epanechnikov, Gaussian, Triangular
from attn_jax.attention.signed import LocalLine

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
NAMES = {"jax": jax, "attn_jax": attn_jax, "LocalLine": LocalLine}
NAMES |= {kernel.__name__: kernel for kernel in (Boxcar, Epanechnikov, Gaussian, Triangular)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    (block,) = re.findall(
        r"^```\{raw\} html\n(.*?)^```", (DOCS / "formula.md").read_text(encoding="utf-8"), re.M | re.S
    )
    page = tmp_path_factory.mktemp("page") / "formula.html"
    head = f'<!doctype html><meta charset="utf-8"><title>page</title><base href="{DOCS.as_uri()}/">'
    page.write_text(f'{head}<meta name="viewport" content="width=device-width">{block}', encoding="utf-8")
    driver = chromium.start()
    driver.get(page.as_uri())
    yield driver
    log = driver.get_log("browser")
    driver.quit()
    assert log == []


@pytest.fixture(scope="module")
def points(browser):
    """Queries, x and y as columns, in float64."""
    found = browser.execute_script("const { queries, keys, values } = attnFormula; return [queries, keys, values]")
    with jax.enable_x64(True):
        return [jnp.asarray(column, jnp.float64)[:, None] for column in found]


@pytest.fixture(scope="module")
def cases(browser):
    """All choices that the figure offers, with their code and their weights."""
    return browser.execute_script("""
        const { SCORES, NORMALIZERS, READINGS, refusal, code, program, weights } = attnFormula, found = [];
        for (const score in SCORES) for (const normalize in NORMALIZERS) for (const read in READINGS) {
          const choice = { score, normalize, read, width: 0.5, temperature: 1 };
          const written = { code: code(choice), program: program(choice) };
          found.push({ choice, refusal: refusal(choice), weights: weights(choice), ...written });
        }
        for (const temperature of [0.25, 4]) for (const score of ["dot", "gaussian"]) {
          const choice = { score, normalize: "entmax15", read: "expectation", width: 2, temperature };
          found.push({ choice, refusal: "", code: code(choice), weights: weights(choice) });
        }
        return found;""")


def attended(code, points):
    """Runs the code under the figure: the value of its last line."""
    *lines, last = code.splitlines()
    names = NAMES | dict(zip(("query", "x", "y"), points, strict=True))
    exec("\n".join(lines), names)
    return eval(last, names)


@pytest.mark.slow
def test_the_weights_are_those_of_the_code_under_the_figure(cases, points):
    offered = [case for case in cases if not case["refusal"] and case["choice"]["read"] != "sample"]
    results = {}
    with jax.enable_x64(True):
        for case in offered:
            code = case["code"]
            results[code] = results.get(code) or attended(code, points)
            np.testing.assert_allclose(np.array(case["weights"]), results[code].weights, atol=1e-5, err_msg=code)
    assert len(results) > 40


@pytest.mark.parametrize("score", ["dot", "triangular"])
def test_a_sample_is_one_of_the_values(cases, points, score):
    choice = {"score": score, "normalize": "kernel_sum", "read": "sample", "width": 0.5, "temperature": 1}
    (case,) = (case for case in cases if case["choice"] == choice)
    with jax.enable_x64(True):
        result = attended(case["code"], points)
    np.testing.assert_allclose(np.array(case["weights"]), result.weights, atol=1e-5)
    assert np.all(np.isin(result.context, points[2]))


def test_what_the_figure_does_not_offer_the_package_refuses(cases, points):
    refused = [case for case in cases if case["refusal"]]
    assert refused
    for case in refused:
        if case["choice"]["read"] == "expectation":
            with pytest.raises(ValueError, match="kernel_sum"):
                attended(case["code"], points)
        else:
            normalize = attn_jax.NORMALIZERS[case["choice"]["normalize"]]
            compact = "out of reach" in case["refusal"]
            assert compact or not normalize.sums_to_one


@pytest.mark.parametrize(("score", "read"), [("boxcar", "expectation"), ("gaussian", "line")])
def test_the_program_under_the_figure_can_be_pasted(cases, points, score, read):
    choice = {"score": score, "normalize": "kernel_sum", "read": read, "width": 0.5, "temperature": 1}
    (case,) = (case for case in cases if case["choice"] == choice)
    *lines, last = case["program"].splitlines()
    names = {}
    exec("\n".join(lines), names)
    for name, column in zip(("query", "x", "y"), points, strict=True):
        np.testing.assert_allclose(names[name], column, atol=6e-5)
    np.testing.assert_allclose(eval(last, names).weights, np.array(case["weights"]), atol=2e-3)


def test_samples_have_the_frequencies_of_the_weights(browser):
    """Equally spaced numbers in place of random ones: each key as often as its weight, a key of weight 0 never."""
    row = [0.0, 0.125, 0.0, 0.5, 0.375, 0.0]
    counted = browser.execute_script(
        "const counts = arguments[0].map(() => 0);"
        "for (let i = 0; i < 80; i++) counts[attnFormula.sample(arguments[0], (i + 0.5) / 80)]++; return counts",
        row,
    )
    assert counted == [80 * weight for weight in row]
    assert browser.execute_script("return attnFormula.sample([0, 0], 0.5)") == -1
    assert browser.execute_script("return attnFormula.sample([0.5, 0.5, 0], 1)") == 1  # what rounding may lead to


def test_the_effective_number_of_equal_weights_is_their_number(browser):
    count = "return attnFormula.effectiveKeys(arguments[0])"
    assert browser.execute_script(count, [0.25, 0, 0.25, -0.25, 0.25]) == pytest.approx(4)
    assert browser.execute_script(count, [0, 0]) == 0


def test_a_line_keeps_the_sum_of_the_weights_at_every_width(browser):
    sums = browser.execute_script("""
        const { weights, sum } = attnFormula, choice = { score: "gaussian", normalize: "softmax", read: "line" };
        return [0.01, 0.05, 0.3, 5].flatMap((width) => weights({ ...choice, width }).map(sum));""")
    np.testing.assert_allclose(sums, 1, atol=1e-6)


def press(browser, *keys):
    from selenium.webdriver.common.keys import Keys

    for key in keys:
        browser.switch_to.active_element.send_keys(getattr(Keys, key))


def facts(browser):
    """The numbers under the figure, by their names."""
    pairs = "dt => [dt.textContent, dt.nextSibling.textContent]"
    return dict(browser.execute_script(f"return [...document.querySelectorAll('#formula dt')].map({pairs})"))


def count(browser, selector):
    return len(browser.find_elements("css selector", selector))


def choose(browser, name, value):
    browser.find_element("css selector", f"#formula select[name={name}] option[value={value}]").click()


@pytest.mark.parametrize("width", [390, 1200])
def test_the_walk_fits_the_page_and_shows_the_right_numbers(browser, width):
    chromium.resize(browser, width)
    seen = []
    for button in browser.find_elements("css selector", ".walk button"):
        button.click()
        assert button.get_attribute("aria-pressed") == "true" and count(browser, ".walk [aria-pressed=true]") == 1
        assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        seen.append(facts(browser))
    assert seen[0]["effective number of keys"] == "40" and seen[0]["squared distance from the true curve"] == "0.938"
    assert all(each["sum of weights"] == "1" for each in seen)
    assert count(browser, "#formula .points .drawn") == 1  # the last is the sample
    browser.find_element("css selector", ".again").click()
    assert "of the mean of 2 draws" in facts(browser)["squared distance from the true curve"]


def test_negative_weights_have_another_colour(browser):
    choose(browser, "score", "gaussian")
    choose(browser, "normalize", "kernel_sum")
    choose(browser, "read", "expectation")
    assert count(browser, "#formula .less") == 0
    choose(browser, "read", "line")
    assert count(browser, "#formula .cells .less") > 100


def test_the_arrow_keys_move_the_query(browser):
    browser.execute_script("document.querySelector('#formula svg[role=slider]').focus()")
    press(browser, "HOME", "ARROW_RIGHT", "ARROW_RIGHT", "ARROW_LEFT")
    assert facts(browser)["query"] == "0.1"
    press(browser, "END")
    assert facts(browser)["query"] == "4.9"
    assert browser.switch_to.active_element.get_attribute("aria-valuetext").startswith("query 4.9, context ")


def test_a_kernel_of_finite_reach_offers_what_takes_it(browser):
    choose(browser, "normalize", "sparsemax")
    choose(browser, "score", "boxcar")
    enabled = browser.find_elements("css selector", "select[name=normalize] option:not([disabled])")
    assert [option.get_attribute("value") for option in enabled] == ["uniform", "kernel_sum"]
    assert browser.find_element("css selector", "select[name=normalize]").get_attribute("value") == "kernel_sum"
