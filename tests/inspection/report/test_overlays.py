"""The image of a page, painted by Node without a browser; skipped where Node is missing."""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from attn_jax.figures.places import equal_parts
from attn_jax.inspection import report

NODE = shutil.which("node")
SCRIPT = pathlib.Path(report.__file__).with_name("overlays.js")
PAINT = """
const painted = [], { height, width, cells } = JSON.parse(process.argv[1]);
const context = { fillRect: () => painted.push(context.fillStyle) };
globalThis.sharp = () => context;
globalThis.css = (rgb) => rgb[0];
const image = { shape: [height, width, 1], cells };
const weightsOf = (query, count) => [...Array(count).keys()].map((cell) => (cell + 1) / count);
Overlays.prototype.paint.call({ image, weightsOf, path: [], pixels: Array(height * width).fill(1e6) }, {}, 0);
console.log(JSON.stringify(painted));
"""


@pytest.mark.skipif(not NODE, reason="needs node")
@pytest.mark.parametrize(("image", "cells"), [((12, 13), (5, 3)), ((8, 8), (2, 2)), ((7, 9), (5, 4))])
def test_a_pixel_of_a_page_belongs_to_the_cell_that_has_its_middle(image, cells):
    """As in the pictures of matplotlib, also where cells do not divide the image."""
    given = json.dumps({"height": image[0], "width": image[1], "cells": cells})
    done = subprocess.run([NODE, "-e", SCRIPT.read_text() + PAINT, given], capture_output=True, text=True, check=True)
    light = np.array(json.loads(done.stdout)).reshape(image) / 1e6
    count = cells[0] * cells[1]
    rows, columns = (
        np.searchsorted(lines, np.arange(side) + 0.5, side="right") - 1
        for lines, side in zip(equal_parts(image, cells), image, strict=True)
    )
    cell = rows[:, None] * cells[1] + columns
    np.testing.assert_allclose(light, 0.25 + 0.75 * (cell + 1) / count, rtol=1e-5)
