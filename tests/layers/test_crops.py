"""Crops at the borders of an image."""

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.layers.glimpses import PlaceGrid, corner, crop, looked_at

HEIGHT, WIDTH = 6, 9


@pytest.mark.slow
@pytest.mark.parametrize("side", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("place", [(-1.0, -1.0), (1.0, -0.4), (0.3, 1.0), (1.0, 1.0), (1.7, 1.2)])
def test_a_crop_reaches_as_far_over_each_border(place, side):
    """Seen in a mirror, it is the crop at the mirrored place."""
    image = np.random.default_rng(0).integers(1, 256, (HEIGHT, WIDTH, 2)).astype(np.uint8)
    found = crop(jnp.asarray(image), jnp.array(place), side, 2)
    mirrored = crop(jnp.asarray(image[::-1, ::-1]), -jnp.array(place), side, 2)
    np.testing.assert_allclose(found, mirrored[:, ::-1, ::-1], rtol=1e-6)


@pytest.mark.parametrize("place", [(-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("side", [1, 3])
def test_the_centre_of_a_crop_at_a_corner_is_in_the_image(place, side):
    top, left = np.asarray(corner(jnp.array(place), (HEIGHT, WIDTH), side))
    assert 0 <= top + side // 2 < HEIGHT and 0 <= left + side // 2 < WIDTH
    weights = looked_at(jnp.array(place), (HEIGHT, WIDTH), side, PlaceGrid(3, 3))
    np.testing.assert_allclose(jnp.sum(weights), 1.0, rtol=1e-6)
