"""The benchmark of large corpora reads what it wrote, and ends what does not end by itself."""

import sys
import time

import pytest

from attn_jax.data.indexing import IndexOptions, write_index
from experiments.benchmarks import large_corpus
from experiments.benchmarks.page import corpora


def test_batches_of_the_written_texts_are_read_and_divided(tmp_path, monkeypatch):
    monkeypatch.setattr(large_corpus, "BATCHES", 80)
    texts = large_corpus.write_texts(tmp_path, 1000)
    assert [len(path.read_text().splitlines()) for path in texts] == [1000, 1000]
    index = tmp_path / "index"
    write_index(*texts, index, IndexOptions())
    for side in ("source", "target"):
        (index / f"valid.{side}").write_text("w1 w2\n")
    found = large_corpus.read(str(index))
    assert found["pairs_per_second"] > 0 and found["after_mb"] > 0
    row = {"pairs": 1000, "text_mb": 1.0, "index_seconds": 2.0, "index_mb": 3.0, "check_seconds": 4.0, **found}
    assert corpora({"batches": 80, "rows": [row]})[-1].startswith("| 1,000 | 1 | 2 | 3 | 4 |")


def test_a_command_is_killed_when_asked():
    begun = time.monotonic()
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    seconds, most = large_corpus.watched(command, lambda: time.monotonic() > begun + 1)
    assert 1 <= seconds < 30 and most > 0


@pytest.mark.slow
def test_the_encoding_is_killed_on_its_way_and_goes_on(tmp_path):
    row = large_corpus.measure(100_000, tmp_path)
    assert 0 < row["killed_after"] < row["index_seconds"] and row["index_mb"] > 0
