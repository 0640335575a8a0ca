"""Images as vectors: what a cell sees, which cells there are, where positions go, and how words follow the cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.layers.pictures import (
    ConvolutionGrid,
    LearnedPlaces,
    NoPlaces,
    PatchGrid,
    PictureEmbedding,
    SinusoidalPlaces,
    Unchanged,
)
from attn_jax.types import Picture

CNN = ConvolutionGrid(features=5, channels=(4, 3), kernels=(3, 3), strides=(2, 1))


def image(seed=0, size=(1, 12, 10, 3)):
    return jnp.asarray(np.random.default_rng(seed).normal(size=size), jnp.float32)


def of_cell(grid):
    """(sum of the cell in row and column 4, shape of the grid)."""
    return grid[0, 4, 4].sum(), jnp.array(grid.shape)


@pytest.mark.slow
def test_a_cell_of_the_network_depends_on_its_receptive_field_alone():
    x = image(size=(1, 16, 16, 3))
    params = {"params": params_of(CNN, x)}
    gradient, shape = compiled(jax.grad(lambda x: of_cell(CNN.apply(params, x)), has_aux=True))(x)
    assert tuple(shape) == (1, *CNN.cells(16, 16), 5) == (1, 8, 8, 5)
    seen = np.abs(gradient)[0].sum(-1) > 0
    rows, columns = (np.flatnonzero(seen.any(axis)) for axis in (1, 0))
    sides = [places[-1] - places[0] + 1 for places in (rows, columns)]
    assert sides == [CNN.receptive_field] * 2 == [7, 7]
    # An even side is padded below and to the right, so the window of cell i begins at pixel 2 i - 2.
    assert rows[0] == columns[0] == 2 * 4 - 2


@pytest.mark.slow
@pytest.mark.parametrize("size", [17, 31])
def test_the_middle_of_what_a_cell_sees_is_nearest_to_no_other_cell(size):
    net = ConvolutionGrid(features=1, channels=(2, 2, 2), kernels=(5, 3, 4), strides=(2, 2, 1))
    x = image(size=(1, size, size, 1))
    params, (count, _), (edges, _) = {"params": params_of(net, x)}, net.cells(size, size), net.edges(size, size)
    assert edges[0] == 0 and edges[-1] == size and len(edges) == count + 1 and np.all(np.diff(edges) > 0)
    seen = compiled(jax.jacrev(lambda x: net.apply(params, x)[0, :, count // 2].sum(-1)))(x)
    seen = np.abs(seen)[..., 0].sum((1, 3)) > 0  # [cell, y]
    begins, ends = seen.argmax(1), size - seen[:, ::-1].argmax(1)
    whole = (begins > 0) & (ends < size)  # others are cut off by the border
    assert whole.sum() >= 2 or size < 31
    middles = ((begins + ends) / 2)[whole]
    for middle, cell in zip(middles, np.flatnonzero(whole), strict=True):
        assert ends[cell] - begins[cell] == net.receptive_field
        centres = middle + 4.0 * (np.arange(count) - cell)
        np.testing.assert_allclose(edges[1:-1], (centres[1:] + centres[:-1]) / 2)


def test_a_patch_is_mapped_on_its_own():
    x, grid = image(), PatchGrid(features=4, patch_size=2)
    params = {"params": params_of(grid, x)}
    out = compiled(lambda x: grid.apply(params, x))(x)
    assert out.shape == (1, *grid.cells(12, 10), 4) == (1, 6, 5, 4)
    dense = params["params"]["Dense_0"]
    expected = np.asarray(x)[0, 4:6, 6:8].reshape(-1) @ dense["kernel"] + dense["bias"]
    np.testing.assert_allclose(out[0, 2, 3], expected, rtol=1e-5, atol=1e-6)
    for edges, expected in zip(grid.edges(12, 10), ([0, 2, 4, 6, 8, 10, 12], [0, 2, 4, 6, 8, 10]), strict=True):
        np.testing.assert_array_equal(edges, expected)
    with pytest.raises(ValueError, match="patches of 4 pixels do not divide an image of 10 x 12"):
        PatchGrid(features=4, patch_size=4).cells(12, 10)


@pytest.mark.parametrize("places", [SinusoidalPlaces(features=8), LearnedPlaces(features=8)])
def test_places_tell_all_cells_apart_and_are_sums_of_row_and_column(places):
    zeros = jnp.zeros((1, 4, 3, 8))
    added = compiled(lambda zeros: places.apply({"params": params_of(places, zeros)}, zeros))(zeros)[0]
    flat = added.reshape(-1, 8)
    assert len({tuple(row) for row in flat.round(5).tolist()}) == 12
    np.testing.assert_allclose(added[2, 1] - added[0, 1], added[2, 2] - added[0, 2], atol=1e-6)


def test_sinusoids_of_the_row_come_first_and_those_of_the_column_second():
    zeros = jnp.zeros((1, 4, 3, 8))
    added = np.asarray(SinusoidalPlaces(features=8).apply({}, zeros))[0, 3, 2]
    expected = [function(n / scale) for n in (3, 2) for scale in (1, 100) for function in (np.sin, np.cos)]
    np.testing.assert_allclose(added, expected, atol=1e-6)


def test_without_places_cells_alike_are_embedded_alike():
    grid = PatchGrid(features=8, patch_size=2)
    picture = Picture(jnp.full((1, 4, 6, 3), 7, jnp.uint8), jnp.zeros((1, 0), jnp.int32))
    module = PictureEmbedding(grid=grid, places=NoPlaces(features=8), features=8)
    embedded, mask = compiled(lambda: module.apply({"params": params_of(module, picture)}, picture))()
    assert embedded.shape == (1, 6, 8) and mask.all()
    np.testing.assert_allclose(embedded, np.broadcast_to(embedded[:, :1], embedded.shape), rtol=1e-6)


@pytest.mark.slow
def test_words_follow_the_cells_and_their_padding_is_masked():
    words = jnp.array([[4, 5, 3, 0], [6, 3, 0, 0]], jnp.int32)
    pixels = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, 4, 6, 1)), jnp.uint8)
    grid, places = PatchGrid(features=8, patch_size=2), LearnedPlaces(features=8)
    module = PictureEmbedding(grid=grid, places=places, features=8, num_words=7)
    params = {"params": params_of(module, Picture(pixels, words))}
    call = compiled(lambda pixels: module.apply(params, Picture(pixels, words)))
    embedded, mask = call(pixels)
    assert embedded.shape == (2, 10, 8)
    assert mask.tolist() == [[True] * 9 + [False], [True] * 8 + [False] * 2]
    other, _ = call(255 - pixels)
    np.testing.assert_array_equal(embedded[:, 6:], other[:, 6:])
    assert not np.allclose(embedded[:, :6], other[:, :6])
    embedded = jnp.asarray(embedded)
    mean, states = Unchanged().apply({}, embedded, jnp.asarray(mask))
    np.testing.assert_allclose(mean[1], embedded[1, :8].mean(0), rtol=1e-5, atol=1e-6)
    assert states is embedded
