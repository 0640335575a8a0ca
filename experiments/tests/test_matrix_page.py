"""The page of the matrix in headless Chromium: sort, filter, open; skipped where chromium or selenium is missing."""

import chromium
import numpy as np
import pytest

from experiments.matrix import cell, page, tables

VALUES = {"softmax": [90.0, 91, 92, 95, 96], "sparsemax": [99.0, 99, 99, 99, 99], "delta": [10.0, 20, 30, 95, 96]}
EVIL = "</script><b>"


def measured(row, values):
    maps = np.random.default_rng(0).normal(size=(2, 4, 4))
    return {
        "row": row,
        "column": "recall",
        "tests": {"test": values},
        "changes": tables.ROWS[row],
        "losses": [[2.0, 1.0 / (seed + 1)] for seed in range(5)],
        "weights": cell.kept({"tokens": [EVIL, "b", "c", "d"], "maps": maps}),
        "rates": {"0.002": 90.0},
        "rate": 0.002,
        "seeds": list(range(5)),
        "steps": 2000,
        "num_parameters": 1000 if row == "softmax" else 1100,
        "minutes": 1.0,
        "megabytes": 1,
        "machine": "AMD EPYC",
        "date": "2026-11-28",
        "commit": "0123456789",
    }


def opened(cells, table, folder):
    path = folder / "matrix.html"
    path.write_text(page.render(page.data_of(cells, table)), encoding="utf-8")
    driver = chromium.start()
    driver.get(path.as_uri())
    return driver


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    cells = {(row, "recall"): measured(row, values) for row, values in VALUES.items()}
    driver = opened(cells, tables.SELF, tmp_path_factory.mktemp("page"))
    yield driver
    driver.quit()


def rows(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('tbody tr')].map((row) => row.innerText.trim())"
    )


@pytest.mark.slow
def test_it_sorts_filters_and_opens_a_cell(browser):
    click = lambda selector: browser.execute_script(f"document.querySelector('{selector}').click()")  # noqa: E731
    assert [row.split()[:3] for row in rows(browser)] == [
        ["softmax", "92.8", "◐"],
        ["sparsemax", "99.0", "●▲"],
        ["delta", "50.2", "◐"],
    ]
    click("thead button")
    assert [row.split()[0] for row in rows(browser)] == ["sparsemax", "softmax", "delta"]
    browser.execute_script("const f = document.getElementById('filter'); f.value = 'SPARSE'; f.oninput()")
    assert [row.split()[0] for row in rows(browser)] == ["sparsemax"]
    click("td button")
    opened = browser.execute_script("return document.getElementById('cell').innerText")
    assert "sparsemax on recall (right answers)" in opened and "10 % more than softmax" in opened
    assert 'model.attention.normalize = "sparsemax"' in opened and "--cell=sparsemax,recall" in opened
    assert browser.execute_script("return document.querySelectorAll('#cell canvas, #cell svg path').length") == 2 + 5
    click("#reset")
    assert len(rows(browser)) == 3
    assert not [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(width, browser):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_bleu_is_not_called_percent(tmp_path):
    cell_of = measured("softmax", [24.0, 25.0, 26.0]) | {"row": "additive", "column": "translation", "beside": {}}
    driver = opened({("additive", "translation"): cell_of}, tables.SOURCE, tmp_path)
    try:
        driver.execute_script("document.querySelector('tbody td button').click()")
        text = driver.execute_script("return document.body.innerText")
    finally:
        driver.quit()
    assert "translation, BLEU" in text and "25.0 BLEU [" in text and "90.0 BLEU in validation" in text
    assert "25.0 %" not in text and "in percent or in BLEU" in text
