"""A page as one HTML file: data, template, style and scripts are inlined; it needs no network and no server.

The data are JSON in a <script type="application/json"> in which every "<" is escaped, and the scripts insert text only
by textContent, so no text of the data is ever read as HTML. A Content-Security-Policy with the hashes of the style and
of the script forbids everything else to run or to load.
"""

import base64
import hashlib
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

FOLDER = pathlib.Path(__file__).parent
SCRIPTS = ("elements.js", "charts.js", "weights.js", "links.js", "heat_map.js", "overlays.js", "explorer.js", "page.js")
STYLES = ("style.css",)


def render(data: Mapping[str, Any]) -> str:
    """Returns the HTML of a page that shows `data`, see run.run_data and sweep.sweep_data."""
    style, script = (
        "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names) for names in (STYLES, SCRIPTS)
    )
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    parts = {"{{policy}}": policy, "{{style}}": style, "{{data}}": to_json(data), "{{script}}": script}
    html = (FOLDER / "template.html").read_text(encoding="utf-8")
    # Each part is inserted once: names of other parts inside an inserted part are not replaced.
    before, *others = _split(html, list(parts))
    return before + "".join(parts[name] + rest for name, rest in others)


def to_json(data: Any) -> str:
    """Returns compact JSON for a script element: "<" and line separators are escaped.

    Raises:
        ValueError: the data contain nan or an infinity.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    escapes = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    for character, escape in escapes.items():
        text = text.replace(character, escape)
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate of a damaged file


def rounded(value: float | int | None, digits: int = 4) -> float | int | None:
    """Rounds a number to `digits` significant digits; None for a number that is not finite."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _split(html: str, names: list[str]) -> list[Any]:
    """Splits the template at the names, each of which occurs once and in this order: [before, (name, after), ...]."""
    found: list[Any] = []
    for name in names:
        before, html = html.split(name)
        found.append(before if not found else (names[len(found) - 1], before))
    return [*found, (names[-1], html)]
