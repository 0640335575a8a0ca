"""The chart of mechanisms: every entry of the tables is in it, and what it counts and tries out is so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention import NORMALIZERS, SCORES
from attn_jax.attention.recurrent.heads import RECURRENT
from attn_jax.attention.signed import FITS
from experiments import atlas, raw

MECHANISMS = atlas.mechanisms()


def test_every_entry_of_the_tables_is_in_it_with_an_equation():
    expected = {
        *SCORES,
        *NORMALIZERS,
        *(name for name, kind in FITS.items() if kind),
        *(f"memory_{n}" for n in RECURRENT),
    }
    assert expected < set(MECHANISMS)
    assert len({mechanism.key for mechanism in MECHANISMS.values()}) == len(MECHANISMS)
    assert all(0 < len(mechanism.equation) < 150 for mechanism in MECHANISMS.values())
    assert MECHANISMS["dot"].equation == "query . key"
    assert MECHANISMS["memory_delta"].key == "model.attention=delta"


def test_operations_are_those_of_products_of_numbers_and_of_loops():
    def run(a, b):
        product = jnp.tanh(a @ b).T.reshape(-1)  # [3, 4] @ [4, 5]
        return jax.lax.scan(lambda carry, x: (carry * x + 1, None), product, jnp.ones(6))[0], jnp.sum(a)

    program = jax.make_jaxpr(run)(jnp.ones((3, 4)), jnp.ones((4, 5))).jaxpr
    assert atlas.operations(program) == 2 * 3 * 4 * 5 + 15 + 6 * 2 * 15 + 12


@pytest.mark.slow
def test_what_is_kept_and_done_in_decoding():
    """Keys grow with the tokens before, and a memory that is written does not."""
    found = {name: [atlas.decoding(MECHANISMS[name], n) for n in (8, 16)] for name in ("dot", "memory_delta")}
    assert [kept for kept, _ in found["dot"]] == [8 * 2 * atlas.WIDTH, 16 * 2 * atlas.WIDTH]
    assert found["memory_delta"][0] == found["memory_delta"][1] and found["memory_delta"][0][0] == atlas.WIDTH**2
    projections = 4 * 2 * atlas.WIDTH**2
    per_key = (found["dot"][1][1] - found["dot"][0][1]) / 8
    assert 4 * atlas.WIDTH < per_key < 5 * atlas.WIDTH  # a score and a weighted value, and softmax
    assert projections < found["dot"][0][1] - 8 * per_key < 1.1 * projections


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [("softmax", (True, False, False)), ("stick_breaking", (False, False, True)), ("parallax", (True, True, False))],
)
def test_sums_signs_and_order_are_tried_out(name, expected, monkeypatch):
    monkeypatch.setattr(atlas, "LENGTHS", (4, 6, 8))
    assert atlas.facts(MECHANISMS[name])[2:] == expected


def test_growth_is_linear_unless_its_square_counts():
    assert atlas.growth([7 + 3 * n for n in atlas.LENGTHS]) == (7, 3, 0)
    assert atlas.growth([7 + 2 * n**2 for n in atlas.LENGTHS]) == (7, 0, 2)
    assert atlas.growth([n * np.log2(n) for n in atlas.LENGTHS])[2] == 0
    assert atlas._growth((7.0, 1234.4, 2.0)) == "7 + 1,234 n + 2 n²"
    assert atlas._growth((0.0, 64.0, 0.0)) == "64 n" and atlas._growth((0.0, 0.0, 0.0)) == "0"


@pytest.mark.slow
def test_the_page_is_made_of_the_json_file_and_a_measurement_goes_on(tmp_path, monkeypatch):
    weights = np.tril(np.full((16, 16), 0.5))
    learned = []

    def learn(mechanism, steps):
        learned.append(mechanism.key)
        return atlas.Example(97.0, weights, np.ones((1, 16, atlas.WIDTH), np.float32), {})

    monkeypatch.setattr(atlas, "learn", learn)
    monkeypatch.setattr(atlas, "weights_of", lambda *_: -weights)
    monkeypatch.setattr(atlas, "facts", lambda _: atlas.Facts((7, 64.0), (3, 0.0), True, True, False))
    atlas.main(["--only", "dot", "selective", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)])
    text = (tmp_path / "atlas.md").read_text(encoding="utf-8")
    assert "| dot | `model.attention.score=dot` | query . key | 1 | both | no | 7 + 64 n | 3 |" in text
    assert "97.0 % sorted right" in text and "python experiments/atlas.py --only dot selective" in text
    assert (tmp_path / "atlas.png").stat().st_size > 1000
    atlas.main(["--only", "dot", "--each", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)])
    atlas.main(["--only", "dot", "--each", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)])
    assert learned == ["model.attention.normalize=softmax", "model.attention.score=dot"]
    monkeypatch.setattr(atlas, "BATCH_SIZE", 2)  # what is kept under this name is of another size
    atlas.main(["--only", "dot", "--each", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)])
    assert learned[2:] == ["model.attention.score=dot"]
    record = raw.read(tmp_path / "atlas.json")
    assert record["results"]["mechanisms"]["dot"]["accuracy"] == 97 and "sorted right, %" in atlas.page(record)
