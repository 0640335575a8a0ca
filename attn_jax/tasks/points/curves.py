"""Generated points: a curve with noise, and spiral arms.

The curve comes from the chapter on Nadaraya-Watson regression in "Dive into Deep Learning": y = 2 sin x + x + noise
with x uniform on [0, 5]. The arms, three spirals in the plane, are for classification.
"""

import numpy as np

NUM_CLASSES = 3


def curve(count: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Samples sorted x [n, 1], uniform on [0, 5], and y [n, 1] = 2 sin x + x + noise times a standard normal number."""
    x = np.sort(rng.uniform(0, 5, count))
    return x[:, None], (true_curve(x) + noise * rng.normal(size=count))[:, None]


def true_curve(x: np.ndarray | float) -> np.ndarray | float:
    """Returns 2 sin x + x."""
    return 2 * np.sin(x) + x


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Test points of the chapter: x = 0, 0.1, ... 4.9 with the curve without noise."""
    x = np.arange(50) / 10
    return x[:, None], true_curve(x)[:, None]


def spirals(count: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Samples points [n, 2] with noise on three spiral arms of one turn, and their one-hot arm [n, 3]."""
    arm = np.arange(count) % NUM_CLASSES
    along = rng.uniform(0.15, 1, count)
    angle = 2 * np.pi * (along + arm / NUM_CLASSES)
    places = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return places + noise * rng.normal(size=places.shape), np.eye(NUM_CLASSES)[arm]
