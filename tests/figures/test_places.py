"""Where attention looks: shares of cells that boxes cover, against counting pixels."""

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.figures.places import covered, equal_parts, measure_places


def equal(cells):
    return equal_parts((8, 12), cells)


BOXES = [[(3, 2, 9, 7)], [(0, 0, 12, 8)], [(1, 1, 3, 3), (2, 2, 7, 8)], [(4, 4, 8, 8)], []]


@pytest.mark.parametrize("boxes", BOXES)
@pytest.mark.parametrize("cells", [(2, 3), (8, 12), (5, 7), (1, 1)])
def test_the_share_that_boxes_cover_is_that_of_the_pixels(boxes, cells):
    fine = np.zeros((8 * 5, 12 * 7), bool)
    for left, top, right, bottom in boxes:
        fine[top * 5 : bottom * 5, left * 7 : right * 7] = True
    rows, columns = (np.arange(side) * count // side for side, count in zip(fine.shape, cells, strict=True))
    expected = np.zeros(cells)
    np.add.at(expected, (rows[:, None], columns), fine)
    np.testing.assert_allclose(covered(boxes, equal(cells)), expected / (fine.size / np.prod(cells)), atol=1e-9)


def test_a_cell_of_another_size_is_covered_by_its_own_area():
    edges = np.array([0.0, 3.5, 8.0]), np.array([0.0, 12.0])
    np.testing.assert_allclose(covered([(0, 3, 6, 8)], edges), [[0.5 * 0.5 / 3.5], [0.5]])


def test_measures_of_a_word():
    weights = np.zeros((2, 3), np.float32)
    weights[0, 1], weights[1, 2] = 0.75, 0.25
    found = measure_places(weights, [(4, 0, 6, 4)], equal((2, 3)))
    assert found == {"touch": 0.75, "point": 1.0, "strict": 0.375, "uniform": 1 / 6}
    found = measure_places(weights, [(8, 4, 12, 8)], equal((2, 3)))
    assert found == {"touch": 0.25, "point": 0.0, "strict": 0.25, "uniform": 1 / 6}


def test_all_weight_on_the_box_is_one_and_equal_weights_are_uniform():
    share = covered([(2, 1, 11, 7)], equal((4, 4)))
    inside = (share > 0) / (share > 0).sum()
    found = measure_places(inside, [(2, 1, 11, 7)], equal((4, 4)))
    assert found["touch"] == pytest.approx(1) and found["point"] == 1
    found = measure_places(np.full((4, 4), 1 / 16), [(2, 1, 11, 7)], equal((4, 4)))
    assert found["touch"] == pytest.approx(found["uniform"])
    assert found["strict"] == pytest.approx(9 * 6 / 96)
    assert measure_places(np.asarray(jnp.zeros((4, 4))), [(2, 1, 11, 7)], equal((4, 4)))["point"] == 0
