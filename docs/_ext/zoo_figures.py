"""Pictures of the zoo as SVG, written by hand: two maps, or bars and a map. For the gallery, one map as a small PNG."""

import base64
import io
from collections.abc import Sequence

import jax
import numpy as np
import PIL.Image
import PIL.ImageColor
import zoo_example as example
from zoo_code import construct
from zoo_entry import Entry

CELL, GAP, TOP, LEFT = 16, 40, 26, 30  # pixels: of a cell, between maps, above and to the left of a map
GREY, BLUE, RED = "#7a7a7a", (46, 93, 160), (170, 36, 52)  # of words, and of the strongest colours
SCORE = (52, 104, 78)


def draw(entry: Entry) -> str | None:
    """Returns the picture of an entry; None where it has none."""
    if entry.kind == "readings":
        return reading(entry.name)
    if entry.weights is None:
        return None
    left = scores_of(entry) if entry.kind == "scores" else np.asarray(example.SCORES)
    return maps(left, np.asarray(entry.weights()))


def thumbnail(entry: Entry) -> str:
    """Returns the address of a picture with a pixel for each weight of W, or of ten readings; "" where is none."""
    if entry.kind != "readings" and entry.weights is None:
        return ""
    weights = example.readings_of(entry.name).rows[:10] if entry.kind == "readings" else np.asarray(entry.weights())
    weights = weights.reshape(-1, *weights.shape[-2:])[0]  # of the first head
    shares = weights / max(float(np.abs(weights).max()), 1e-9)
    picture = PIL.Image.new("RGB", weights.shape[::-1])
    picture.putdata([PIL.ImageColor.getrgb(_mixed(BLUE if x < 0 else RED, abs(float(x)))) for x in shares.ravel()])
    picture.save(buffer := io.BytesIO(), "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def scores_of(entry: Entry) -> np.ndarray:
    """The scores of the example, by the score of an entry."""
    score = construct(entry.value)
    query = example.QUERY
    if score.own_width:
        query = jax.random.normal(example.RNG, (example.SIZE, score.features))
    method = lambda score, query, keys: score(query, score.project_keys(keys))  # noqa: E731
    return np.asarray(example.initialized(score, query, example.KEYS, method=method)[1])


def maps(scores: np.ndarray, weights: np.ndarray) -> str:
    """Draws scores and weights side by side, with the weights of several heads next to each other."""
    heads = weights if weights.ndim == 3 else weights[None]
    parts, x = [_map(scores, LEFT, "scores", SCORE, least=float(np.min(scores[np.isfinite(scores)])))], LEFT
    for i, head in enumerate(heads):
        x += example.SIZE * CELL + GAP
        parts.append(_map(head, x, "weights W" if len(heads) == 1 else f"weights W, head {i + 1}", RED))
    return _svg(parts, x + example.SIZE * CELL, TOP + example.SIZE * CELL + 24)


def reading(name: str) -> str:
    """Draws the weights of six keys, what is read of them on average, and the first readings."""
    rows = example.readings_of(name).rows
    weights = np.exp(example.LOGITS) / np.exp(example.LOGITS).sum()
    height, wide = 10 * CELL, 2 * CELL
    parts = [_text(LEFT, TOP - 8, "weights (bars), read on average (dots)")]
    for i, (weight, mean) in enumerate(zip(weights, rows.mean(axis=0), strict=True)):
        bar, dot = height * float(weight), height * float(np.clip(mean, 0, 1))
        parts.append(
            f'<rect x="{LEFT + i * wide}" y="{TOP + height - bar:.1f}" width="{wide - 4}" height="{bar:.1f}" '
            'fill="#a9bfd8"/>'
        )
        centre = LEFT + i * wide + wide / 2 - 2
        parts.append(f'<circle cx="{centre}" cy="{TOP + height - dot:.1f}" r="4" fill="rgb{RED}"/>')
        parts.append(_text(centre, TOP + height + 15, str(i), "middle"))
    x = LEFT + 6 * wide + GAP + 60
    parts.append(_map(rows[:10], x, "ten readings", RED, of="reading"))
    return _svg(parts, x + 6 * CELL + 20, TOP + height + 24)


def _map(values: np.ndarray, x: float, title: str, colour: Sequence[int], least: float = 0.0, of: str = "query") -> str:
    """A cell for each number: white at `least`, the colour at the largest, blue below zero; outlined where infinite."""
    finite = values[np.isfinite(values)]
    span = max(float(finite.max()) - least, -float(finite.min()) if least == 0 else 0.0, 1e-9)
    parts = [_text(x, TOP - 8, f"{title}, {finite.min():.2g} to {finite.max():.2g}")]
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            place = f'x="{x + j * CELL}" y="{TOP + i * CELL}" width="{CELL - 1}" height="{CELL - 1}"'
            if not np.isfinite(value):
                parts.append(f'<rect {place} fill="none" stroke="#c9c9c9"/>')
                continue
            share = (float(value) - least) / span
            parts.append(f'<rect {place} fill="{_mixed(BLUE if share < 0 else colour, abs(share))}"/>')
    rows, columns = values.shape
    middle = TOP + rows * CELL / 2
    parts.append(_text(x + columns * CELL / 2, TOP + rows * CELL + 15, "key", "middle"))
    parts.append(f'<g transform="rotate(-90 {x - 10} {middle})">{_text(x - 10, middle, of, "middle")}</g>')
    return "".join(parts)


def _mixed(colour: Sequence[int], share: float) -> str:
    share = min(share, 1.0)
    return "#" + "".join(f"{round(240 + (part - 240) * share):02x}" for part in colour)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def _svg(parts: list[str], width: float, height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    return f'{head} font-family="sans-serif" font-size="12" fill="{GREY}">{"".join(parts)}</svg>\n'
