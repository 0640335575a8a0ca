"""train.start vectors: rows of embeddings come from a file, all else stays as it is."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_start import first_state
from tiny_run import files_config, write_pairs

from attn_jax.data.word_vectors import WordVectors
from attn_jax.errors import UserError
from attn_jax.runs import training
from attn_jax.runs.options import change, resolve
from attn_jax.runs.vectors import with_vectors
from attn_jax.training.pytrees import flatten as arrays_of

ROWS, FOUND = jnp.arange(12.0).reshape(4, 3), jnp.array([True, False, True, False])


def params(*path, width=3):
    tree = jnp.ones((4, width))
    for name in reversed(path):
        tree = {name: tree}
    return tree | {"other": {"kernel": jnp.ones((4, 3))}}


@pytest.mark.parametrize(
    ("side", "path", "scale"),
    [
        ("source", ("source_embedding", "embedding"), 1),
        (
            "target",
            ("target_embedding", "table", "embedding"),
            3**-0.5,
        ),  # of a Transformer, which multiplies by sqrt(d)
        ("source", ("embedding", "embedding"), 1),
        ("source", ("reader", "words", "embedding"), 1),
    ],
)
def test_found_rows_are_taken_and_others_stay(side, path, scale):
    made = arrays_of(with_vectors(params(*path), {side: WordVectors(ROWS, FOUND)}))
    np.testing.assert_allclose(made[path], jnp.where(FOUND[:, None], scale * ROWS, 1.0), rtol=1e-6)
    np.testing.assert_array_equal(made["other", "kernel"], 1)


def test_another_width_or_no_embedding_is_an_error():
    vectors = {"source": WordVectors(ROWS, FOUND)}
    with pytest.raises(UserError, match=r"vectors of 3 numbers, and the embedding has 5; expected model.embedding_siz"):
        with_vectors(params("source_embedding", "embedding", width=5), vectors)
    with pytest.raises(UserError, match="no embedding of source tokens of its own; it has other, target_embedding"):
        with_vectors(params("target_embedding", "embedding"), vectors)


@pytest.mark.slow
def test_a_run_begins_with_the_vectors_of_a_file(tmp_path, capsys):
    write_pairs(tmp_path)
    numbers = " ".join(str(i) for i in range(8))
    (tmp_path / "vectors.txt").write_text(f"bird {numbers}\nunknown {numbers}\n", encoding="utf-8")
    config = files_config(tmp_path, task__valid_size=8, decode__max_length=8)
    plain = arrays_of(first_state(config, tmp_path / "plain").params)
    config = change(config, {"train.start": "vectors", "train.start.source": "vectors.txt"})
    made = arrays_of(first_state(config, tmp_path / "made", saved=True).params)
    with training.open_checkpoints(resolve(config), tmp_path / "made", read_only=True) as checkpoints:
        assert checkpoints.newest()[1]["splits"].keys() == {"train", "valid", "source_vectors"}
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("word vectors"))
    assert " 1 of " in line and line.endswith("tokens of the source from vectors.txt")
    for path, x in made.items():
        changed = np.any(x != plain[path], axis=-1) if x.ndim > 1 else np.any(x != plain[path])
        assert np.sum(changed) == (1 if path == ("source_embedding", "embedding") else 0)
    assert any((row == np.arange(8)).all() for row in made["source_embedding", "embedding"])
    (tmp_path / "vectors.txt").write_text("bird 1 2 3\n", encoding="utf-8")  # refused before anything is compiled
    capsys.readouterr()
    with pytest.raises(UserError, match=r"vectors of 3 numbers, and the embedding has 8"):
        first_state(config, tmp_path / "other")
    assert "compiling" not in capsys.readouterr().err
