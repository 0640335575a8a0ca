"""The built site in Chromium, without a network; skipped where build/site is not there.

python -m sphinx -j 2 -b html docs build/site
"""

import json
import pathlib

import chromium
import pytest

SITE = pathlib.Path(__file__).resolve().parents[2] / "build" / "site"
CHAPTER = SITE / "book" / "03_soft_attention.html"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHAPTER.exists(), reason="the site is not built")]


@pytest.fixture(scope="module")
def browser():
    driver = chromium.start()
    yield driver
    driver.quit()


def wait(browser, condition):
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(f"return {condition}"))


def pages():
    """All pages, of alike ones (the zoo, the code) two of each folder."""
    found = []
    for folder in sorted({path.parent for path in SITE.rglob("*.html")} - {SITE / "_static"}):
        inside = sorted(folder.glob("*.html"))
        found += inside[:2] if folder.is_relative_to(SITE / "zoo") or folder.is_relative_to(SITE / "files") else inside
    return found


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(browser, width):
    chromium.resize(browser, width)
    wide = {}
    for page in pages():
        browser.get(page.as_uri())
        needed = browser.execute_script("return document.documentElement.scrollWidth")  # innerWidth of a phone grows
        wide |= {str(page.relative_to(SITE)): needed} if needed > width else {}
    assert wide == {}


def test_equations_are_typeset(browser):
    browser.get(CHAPTER.as_uri())
    assert wait(browser, "document.querySelectorAll('.math mjx-container').length") >= 10
    assert "\\frac" not in browser.find_element("css selector", "article").text


def test_a_chapter_can_be_downloaded_copied_and_has_folded_answers(browser):
    browser.get(CHAPTER.as_uri())
    (link,) = browser.find_elements("css selector", "a.btn-download-notebook-button")
    file = pathlib.Path(link.get_attribute("href").removeprefix("file://"))
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert sum(cell["cell_type"] == "code" for cell in cells) >= 5
    assert not any("](repository:" in "".join(cell["source"]) for cell in cells)
    assert wait(browser, "document.querySelectorAll('.cell_input button.copybtn').length") >= 5
    answers = browser.find_elements("css selector", "article details")
    assert len(answers) == 4 and not any(answer.get_attribute("open") for answer in answers)


@pytest.mark.parametrize(
    "words", ["flash attention", "cross attention", "KV cache", "padding mask", "GQA", "multi-head"]
)
def test_the_search_leads_from_the_names_of_others_to_the_glossary(browser, words):
    browser.get(f"{(SITE / 'search.html').as_uri()}?q={words}")
    wait(browser, "document.getElementById('search-results').textContent.includes('Search finished')")
    found = [link.get_attribute("href") for link in browser.find_elements("css selector", "#search-results li a")]
    assert any("/glossary.html" in link for link in found) and len(found) <= 15
