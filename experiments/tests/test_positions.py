"""What the panels show of the positional encodings are identities; and the page is drawn."""

import numpy as np
import pytest

from attn_jax.layers.positions import Alibi, HalfAlibi
from experiments import positions as experiment

DISTANCE = np.arange(-30, 31)
PLACES = np.array([30, 31, 500])


def test_product_of_sinusoids_is_a_function_of_the_distance():
    for features in (8, 64):
        products = experiment.products(PLACES, DISTANCE, features)
        np.testing.assert_allclose(products, np.broadcast_to(products[:1], products.shape), atol=2e-4)
        np.testing.assert_allclose(products[0], products[0, ::-1], atol=2e-5)
        assert products[0].argmax() == len(DISTANCE) // 2 and abs(products[0].max() - 1) < 1e-5


def test_product_of_turned_vectors_is_a_function_of_the_distance():
    query, key = experiment.unit_vectors(4, 16), experiment.unit_vectors(4, 16, seed=1)
    products = experiment.turned(query, key, PLACES, DISTANCE)
    assert products.shape == (4, len(PLACES), len(DISTANCE))
    np.testing.assert_allclose(products, np.broadcast_to(products[:, :1], products.shape), atol=2e-4)
    np.testing.assert_allclose(products[:, 0, len(DISTANCE) // 2], (query * key).sum(-1), atol=1e-5)


@pytest.mark.slow
def test_turned_ones_give_the_product_of_sinusoids():
    ones = np.full((1, 32), 32**-0.5)
    turned = experiment.turned(ones, ones, PLACES[:1], DISTANCE)[0]
    np.testing.assert_allclose(turned, experiment.products(PLACES[:1], DISTANCE, 32), atol=1e-5)


def test_buckets_are_monotonic_and_all_used():
    distance = np.arange(-300, 301)
    both, causal = (experiment.buckets(distance, causal) for causal in (False, True))
    back = distance <= 0
    assert (np.diff(both[back]) <= 0).all() and (np.diff(both[~back]) >= 0).all()
    assert set(causal[back]) == set(range(32)) and (causal[~back] == 0).all()
    # Distance 0 is not after the query, so the first bucket of that half stays free.
    assert set(both) == set(range(32)) - {16}
    assert (both[distance > 0] == 16 + both[distance < 0][::-1]).all()


def test_biases_are_straight_lines():
    distance = np.arange(20)
    for kind in (Alibi, HalfAlibi):
        values = experiment.biases(kind, distance)
        slopes = kind(num_heads=experiment.NUM_HEADS).slopes()
        np.testing.assert_allclose(values, -slopes[:, None] * distance, rtol=1e-6)
    assert (values[: experiment.NUM_HEADS // 2] == 0).all() and (values[experiment.NUM_HEADS // 2 :, 1:] < 0).all()


@pytest.mark.slow
def test_the_page_and_its_figure_are_written(tmp_path):
    experiment.main([f"--out={tmp_path / 'results'}"])
    assert (tmp_path / "results" / "positions.png").stat().st_size > 10_000
    assert "positions.png" in (tmp_path / "results" / "positions.md").read_text()
