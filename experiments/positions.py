"""How do encodings of positions represent distance?

    python experiments/positions.py

Six pictures of the schemes in attn_jax/layers/positions.py, plotted from the functions that the models use. Nothing is
trained, and only the directions of the rotated vectors are random, with a fixed seed.

Answer (experiments/results/positions.md): with all schemes a score depends on the distance of query and key, not on
their absolute positions. Sinusoids and rotary positions use waves, so near positions are more alike only on average.
ALiBi and NAPE use straight lines without a longest distance. The relative buckets use a table, which resolves single
steps for near positions and octaves for far ones.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.attention.rotary import rotate  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.layers.positions import Alibi, HalfAlibi, Relative, sinusoids  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from experiments import raw  # noqa: E402

WIDTHS = (32, 128, 512)  # of the embeddings whose products are drawn
NUM_HEADS = 8  # of the biases
BLUES = ("#9ecae1", "#3182bd", "#08306b")


def products(places: np.ndarray, distance: np.ndarray, features: int) -> np.ndarray:
    """Returns sinusoids(place) . sinusoids(place + distance), divided by the number of waves; [places, distances].

    Since sin a sin b + cos a cos b = cos(a - b), it is the sum of cos(frequency distance) for every place.
    """
    here = sinusoids(jnp.asarray(places), features)
    there = sinusoids(jnp.asarray(places[:, None] + distance), features)
    return np.asarray(jnp.einsum("nd,nkd->nk", here, there)) / (features / 2)


def turned(query: np.ndarray, key: np.ndarray, places: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Returns rotated query . rotated key [..., places, distances], the key `distance` later; both are [..., d]."""

    def put(vector: np.ndarray, positions: np.ndarray):
        shape = (*vector.shape[:-1], positions.size, vector.shape[-1])
        x = jnp.broadcast_to(jnp.asarray(vector, jnp.float32)[..., None, :], shape)
        turned = rotate(x.reshape(-1, *shape[-2:]), jnp.asarray(positions.reshape(-1)))  # vectors as heads
        return turned.reshape(*vector.shape[:-1], *positions.shape, vector.shape[-1])

    there = put(key, places[:, None] + distance)
    return np.asarray(jnp.einsum("...nd,...nkd->...nk", put(query, places), there))


def unit_vectors(count: int, features: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, features))
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def buckets(distance: np.ndarray, causal: bool) -> np.ndarray:
    """Returns the bucket of key position - query position."""
    module = Relative(num_heads=1, causal=causal)
    found, _ = module.init_with_output(jax.random.key(0), jnp.asarray(distance), method="buckets")
    return np.asarray(found)


def biases(kind: type[Alibi], distance: np.ndarray) -> np.ndarray:
    """Returns the biases of scores for a query `distance` after the key, [h, distances]."""
    scheme = kind(num_heads=NUM_HEADS)
    length = int(distance.max()) + 1
    bias = scheme.of_distance(jnp.arange(length)[None] - (length - 1))[:, 0]  # [h, keys], of the last position
    return np.asarray(bias)[:, length - 1 - distance]


def draw_sinusoids(axes) -> None:
    values = np.asarray(sinusoids(jnp.arange(100), 64))
    image = axes.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.set(title="sinusoids", xlabel="dimension (of 64)", ylabel="position")
    bar = axes.figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], fraction=0.06, pad=0.03)
    bar.outline.set(edgecolor="0.6", linewidth=0.8)


def draw_products(axes) -> None:
    distance = np.arange(-100, 101)
    for features, color in zip(WIDTHS, BLUES, strict=True):
        axes.plot(distance, products(np.array([100]), distance, features)[0], color=color, label=f"{features}")
    axes.set(title="product of two sinusoids", xlabel="distance", ylabel="share of that at distance 0")
    axes.legend(title="width", title_fontsize=9)


def draw_rotary(axes) -> None:
    distance = np.arange(-100, 101)
    query, other = unit_vectors(200, 64), unit_vectors(200, 64, seed=1)
    place = np.array([100])
    for key, color, label in ((query, "tab:orange", "key = query"), (other, "0.45", "any key")):
        values = turned(query, key, place, distance)[:, 0]
        low, high = np.percentile(values, (5, 95), axis=0)
        axes.plot(distance, values.mean(0), color=color, label=label)
        axes.fill_between(distance, low, high, color=color, alpha=0.25, linewidth=0)
    axes.set(title="rotary: query · key", xlabel="distance", ylabel="product of unit vectors", ylim=(-0.4, 1.35))
    axes.legend(loc="upper center", ncols=2, columnspacing=1)


def draw_buckets(axes) -> None:
    distance = np.arange(-200, 201)
    for causal, color, label in ((False, "tab:green", "both directions"), (True, "tab:purple", "causal")):
        shown = distance[distance <= 0] if causal else distance
        axes.step(shown, buckets(shown, causal), where="mid", color=color, label=label)
    axes.set(title="relative: 32 learned numbers", xlabel="key - query", ylabel="bucket", ylim=(-1, 44))
    axes.set_yticks([0, 8, 16, 24, 31])
    axes.legend(loc="upper right", ncols=2, columnspacing=1)


def draw_biases(axes, kind: type[Alibi], title: str) -> None:
    from matplotlib import colormaps

    distance, bottom, closest = np.arange(0, 65), -12.0, 0.9  # the last: heads that end closer share a label
    values, groups = biases(kind, distance), []
    for head in range(NUM_HEADS):
        blind = not values[head].any()
        color = "0.5" if blind else colormaps["viridis"](0.9 * head / (NUM_HEADS - 1))
        axes.plot(distance, values[head], color=color, zorder=3 if blind else 2)
        style = {"color": color, "fontsize": 9, "textcoords": "offset points"}
        if values[head, -1] < bottom:
            place = distance[np.argmax(values[head] < bottom)]
            axes.annotate(f"{head + 1}", (place, bottom), (2, 2), **style)
        elif not blind and groups and values[head, -1] - values[groups[-1][0], -1] < closest:
            groups[-1].append(head)
        elif not blind:
            groups.append([head])
    for group in groups:
        name = f"{group[0] + 1}" if len(group) == 1 else f"{group[0] + 1}-{group[-1] + 1}"
        place = distance[-1], values[group, -1].mean()
        color = axes.lines[group[0]].get_color()
        style = {"color": color, "fontsize": 9, "va": "center", "annotation_clip": False}
        axes.annotate(name, place, (3, 0), textcoords="offset points", **style)
    blind = np.flatnonzero(~values.any(axis=1))
    if len(blind):
        axes.annotate(f"heads {blind[0] + 1}-{blind[-1] + 1}", (2, 0.25), fontsize=9, color="0.4")
    axes.set(title=title, xlabel="|query - key|", ylabel="added to the score", ylim=(bottom, 1.2), xlim=(0, 64))


def draw() -> Figure:
    """Plots the six panels."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    panels = figure.subplots(2, 3)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
    draw_sinusoids(panels[0, 0])
    draw_products(panels[0, 1])
    draw_rotary(panels[0, 2])
    draw_buckets(panels[1, 0])
    draw_biases(panels[1, 1], Alibi, f"ALiBi, {NUM_HEADS} heads")
    draw_biases(panels[1, 2], HalfAlibi, f"NAPE, {NUM_HEADS} heads")
    for axes in panels.flat[1:]:
        axes.grid(color="0.9", linewidth=0.6)
        if legend := axes.get_legend():
            legend.set_frame_on(False)
    return figure


PAGE = f"""# {__doc__.splitlines()[0]}

![positional encodings](positions.png)

- **Sinusoids** (Vaswani 2017): a row is what is added to the embedding at a position. Each pair of columns is the sine
  and cosine of one wave; the wavelengths grow from 2 pi to almost 10,000 x 2 pi, so the right-hand columns hardly
  change within a sentence.
- **Product of two sinusoids**: a function of the distance alone, since sin a sin b + cos a cos b = cos(a - b), and the
  same in both directions. A wider embedding has more waves, and so a smoother product.
- **Rotary** (Su 2021): product of a query and a key of length 1 (64 columns) that are turned by their positions; mean
  and the middle 90 percent of 200 random pairs. It depends on the distance alone as well. Turning favours what is near
  only for vectors that are alike: for a key that has nothing to do with the query all distances are the same on
  average.
- **Relative** (Raffel 2020): which of 32 learned numbers is added to the score. Half of the buckets of a direction are
  single distances, the others grow logarithmically up to 128, beyond which all are one. The causal scheme has all 32
  for what came before.
- **ALiBi** (Press 2022): what is added to the scores by each head, whose number stands at its line; slopes 2^(-8 i / h)
  from 1/2 to 1/256. No distance is too long for it.
- **NAPE** (Vasylenko 2025): the first half of the heads is blind to positions, the others have slopes 1, 1/2, 1/3 ...

Learned vectors (Gehring 2017) have no picture: at the start they are noise. `python experiments/positions.py`
draws this from the functions of [attn_jax/layers/positions.py](../../attn_jax/layers/positions.py).
"""

# Nothing is measured: there are no numbers to keep.
PAGES = (raw.Page("positions", lambda record: PAGE, {"positions.png": lambda record: draw()}, measured=False),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    out = parser.parse_args(argv).out
    PAGES[0].save({}, out)
    print(f"{out / 'positions.png'} and positions.md")


if __name__ == "__main__":
    with one_line("positions.py"):
        main()
