"""A page is one file, whose data are read as data: nothing in them becomes HTML, nothing is loaded."""

import base64
import hashlib
import html.parser
import json
import re

import pytest

from attn_jax.inspection.report import page, run

EVIL = "</script><img src=x onerror=alert(1)><!-- \u2028 {{script}} 令和８年\ud800"


class Reader(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], {"script": [], "style": []}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag if tag in self.texts else None
        if self.inside:
            self.texts[tag].append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside][-1] += data


def test_text_of_the_data_is_never_html():
    text = page.render({"kind": "run", "title": EVIL})
    read = Reader(text)
    assert [tag for tag, _ in read.elements].count("script") == 2
    assert "img" not in [tag for tag, _ in read.elements] and "<img" not in text
    assert json.loads(read.texts["script"][0])["title"] == EVIL


def test_only_the_scripts_and_styles_of_the_page_may_run_and_nothing_is_loaded():
    text = page.render({"kind": "run", "title": "x"})
    read = Reader(text)
    (policy,) = [own["content"] for tag, own in read.elements if own.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    for kind, content in (("script", read.texts["script"][1]), ("style", read.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    loading = [(tag, name) for tag, own in read.elements for name in own if name in ("src", "href", "style")]
    assert not loading and not re.search(r"@import|url\(", read.texts["style"][0])
    assert "http" not in read.texts["script"][1].replace("http://www.w3.org/2000/svg", "")


def test_scripts_and_data_agree_on_the_digits_of_weights():
    source = (page.FOLDER / "weights.js").read_text(encoding="utf-8")
    assert f'const DIGITS = "{bytes(run.DIGITS).decode()}";' in source
    assert f"const OFFSET = {run.OFFSET};" in source and f"const RUNS = {run.RUNS};" in source


@pytest.mark.parametrize("name", page.SCRIPTS)
def test_a_script_sets_texts_alone(name):
    source = (page.FOLDER / name).read_text(encoding="utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    assert not re.search(forbidden, source)
    assert "</script" not in source.lower() and "<!--" not in source


def test_numbers_are_short():
    numbers = [0.123456, 2.0, 123456.7, float("nan"), float("inf"), None, -1e-7]
    assert [page.rounded(x) for x in numbers] == [0.1235, 2, 123500, None, None, None, -1e-7]
