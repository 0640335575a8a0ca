"""An index holds what the texts do, its batches are those of a shuffled corpus, and neither needs memory for it."""

import dataclasses
import json
import shutil
import tracemalloc

import numpy as np
import pytest
from tasks_by_name import make
from tiny_run import tiny_config, train, write_pairs

from attn_jax.cli import index as command
from attn_jax.data import indexing, token_index
from attn_jax.data.batching import FILL, EncodedPairs, Ragged, encode_pairs
from attn_jax.data.indexing import IndexOptions, write_index
from attn_jax.data.pairs import Pairs
from attn_jax.data.streaming import StreamedBatches
from attn_jax.data.text import read_parallel
from attn_jax.data.token_index import INDEX, MEMBERS, OFFSETS, PROGRESS, open_index, verify
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError
from attn_jax.runs.build import build_task
from attn_jax.runs.options import resolve

OPTIONS = IndexOptions(min_count=1, buckets=(6, 9))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("texts"), count=300)


@pytest.fixture(scope="module")
def folder(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    assert write_index(*texts, folder, OPTIONS) == 300
    for name in ("valid.source", "valid.target"):
        shutil.copy(texts[0].with_name(name.replace("valid", "train")), folder / name)
    return folder


def ids_of(pairs):
    """The tokens of each pair."""
    return [[r.tokens[a:b].tolist() for a, b in zip(r.offsets, r.offsets[1:], strict=False)] for r in pairs[:2]]


def assert_same_files(found, folder):
    for path in folder.iterdir():
        if not path.name.startswith("valid"):
            assert (found / path.name).read_bytes() == path.read_bytes(), path.name


def test_an_index_is_the_encoded_text(folder, texts):
    index, pairs = open_index(folder), Pairs(*read_parallel(*texts))
    vocabularies = [Words.train(lines, vocab_size=8000) for lines in (pairs.source, pairs.target)]
    assert [v.to_json() for v in index.vocabularies] == [v.to_json() for v in vocabularies]
    assert ids_of(index.pairs) == ids_of(encode_pairs(pairs, *vocabularies))
    assert index.pairs.source.tokens.dtype == np.uint16 and index.longest == 8
    assert index.vocabularies[1].counts[3] == 300  # eos
    assert index.vocabularies[1].counts.sum() == len(index.pairs.target.tokens)
    found = np.concatenate(index.members)
    lengths = np.maximum(index.pairs.source.lengths, index.pairs.target.lengths)
    np.testing.assert_array_equal(np.sort(found), np.arange(300))
    assert all(lengths[m].max() <= bucket[0] for m, bucket in zip(index.members, index.buckets, strict=True))
    assert lengths[index.members[1]].min() > 6
    task = make("indexed_text", folder)
    assert task.splits["train"].source == pairs.source and task.stats["train"] == 300
    assert verify(folder) > 0


def test_every_epoch_has_every_pair_once_and_a_batch_depends_on_seed_and_step_alone(folder):
    index = open_index(folder)

    def batches(**options):
        arguments = dict(longest=8, seeds=(3,)) | options
        return StreamedBatches(index.pairs, index.buckets, index.members, 32, **arguments)

    made, expected = batches(), sorted(map(tuple, ids_of(index.pairs)[0]))
    orders = []
    for epoch in range(2):
        rows = []
        for step in range(epoch * made.steps_per_epoch, (epoch + 1) * made.steps_per_epoch):
            batch = made.batch_at(step)
            assert batch["source"].dtype == np.int32 and len(batch["source"]) == 32
            rows += [tuple(row[row != 0].tolist()) for row in batch["source"] if row.any()]
        assert sorted(rows) == expected
        orders.append(rows)
    assert orders[0] != orders[1]
    step = made.steps_per_epoch + 1
    fresh, two = batches().batch_at(step), batches(seeds=(3, 4)).batch_at(step)
    for name, array in made.batch_at(step).items():
        np.testing.assert_array_equal(fresh[name], array)
        np.testing.assert_array_equal(two[name][0], array)
    assert not np.array_equal(two["source"][0], two["source"][1])


def test_processes_read_disjoint_rows_that_are_the_batch_together(folder):
    index = open_index(folder)
    read = []

    class Watched(EncodedPairs):
        def batch(self, indices, shape):
            read.append(indices[indices != FILL].tolist())
            return super().batch(indices, shape)

    def batch(share):
        made = StreamedBatches(Watched(*index.pairs), index.buckets, index.members, 32, share=share, longest=8)
        return made.batch_at(1)

    whole, parts = batch((0, 1)), [batch((number, 4)) for number in range(4)]
    assert sorted(row for rows in read[1:] for row in rows) == sorted(set(read[0]))
    for name, array in whole.items():
        np.testing.assert_array_equal(np.concatenate([p[name][8 * i : 8 * i + 8] for i, p in enumerate(parts)]), array)


def test_an_interrupted_index_goes_on_and_is_the_same(texts, folder, tmp_path, monkeypatch, stop_after=3):
    monkeypatch.setattr(indexing, "PART", 70)

    def stop(what, done, total):
        if what == "pairs" and done >= 70 * stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(*texts, tmp_path, OPTIONS, stop)
    with pytest.raises(UserError, match="is not finished; run the same command again"):
        open_index(tmp_path)
    with open(tmp_path / "source.tokens", "ab") as file:
        file.write(b"what a killed process had not yet reported")
    with pytest.raises(UserError, match="begun with min_count 1, now 2"):
        write_index(*texts, tmp_path, dataclasses.replace(OPTIONS, min_count=2))
    done = []
    assert write_index(*texts, tmp_path, OPTIONS, lambda *progress: done.append(progress)) == 300
    assert ("pairs", 70 * stop_after, 300) not in done and ("pairs", 300, 300) in done
    assert_same_files(tmp_path, folder)
    assert not (tmp_path / PROGRESS).exists()


def test_wrong_buckets_do_not_cost_the_encoding(texts, folder, tmp_path):
    """Nothing depends on them before the end."""
    with pytest.raises(UserError, match="no pair fits any of the buckets"):
        write_index(*texts, tmp_path, dataclasses.replace(OPTIONS, buckets=(1,)))
    assert write_index(*texts, tmp_path, OPTIONS) == 300
    assert_same_files(tmp_path, folder)


def test_a_damaged_index_is_noticed(folder, tmp_path):
    for name in json.loads((folder / INDEX).read_text())["files"]:
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 4
        (copy / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name} was changed since it was written"):
            verify(copy)
        (copy / name).write_bytes(content[:-1])
        with pytest.raises(UserError, match=f"{name} has .* bytes; expected"):
            open_index(copy)


@pytest.mark.parametrize("vocabulary", ["words", "sentencepiece"])  # in Python, and by a library
@pytest.mark.parametrize(
    "source, target, words",
    [
        (b"a\nb\n", b"a\n", "has 2 lines but .* has 1"),
        (b"a\n\n", b"a\nb\n", "source, line 2: the line is empty"),
        (b"a\n\xff\n", b"a\nb\n", "source, line 2: not valid UTF-8"),
        (b"", b"a\n", "the file is empty"),
    ],
)
def test_a_wrong_text_is_one_line(tmp_path, source, target, words, vocabulary):
    for name, content in (("source", source), ("target", target)):
        (tmp_path / name).write_bytes(content)
    arguments = [f"--source={tmp_path}/source", f"--target={tmp_path}/target", f"--out={tmp_path}/out"]
    with pytest.raises(UserError, match=words) as error:
        command.main([*arguments, "--min_count=1", f"--vocabulary={vocabulary}"])
    assert "SentencePiece" not in str(error.value)
    with pytest.raises(UserError, match="source: no such file"):
        command.main([f"--source={tmp_path}/none/source", *arguments[1:]])


def test_the_command_writes_the_same_index(folder, texts, tmp_path, capsys):
    arguments = [f"--source={texts[0]}", f"--target={texts[1]}", f"--out={tmp_path}/index", "--min_count=1"]
    command.main([*arguments, "--buckets", "6", "9"])
    command.main([f"--check={tmp_path}/index"])
    assert "300 pairs" in capsys.readouterr().out
    for name in ("index.json", "source.tokens", "members.1"):
        assert (tmp_path / "index" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.slow
def test_a_run_never_goes_on_over_another_index(texts, tmp_path, monkeypatch):
    """Of the same vocabularies, sizes and first pairs."""
    monkeypatch.setattr("attn_jax.tasks.text.indexed_text.SHOWN", 10)
    other = [tmp_path / path.name for path in texts]
    for path, copy in zip(texts, other, strict=True):
        *lines, before, last = path.read_text().splitlines(keepends=True)
        copy.write_text("".join([*lines, last, before]))
    for paths in (texts, other):
        folder = tmp_path / "index"
        shutil.rmtree(folder, ignore_errors=True)
        write_index(*paths, folder, OPTIONS)
        for path in texts:
            shutil.copy(path, folder / path.name.replace("train", "valid"))
        options = dict(task__batch_size=32, train__num_steps=2)
        config = tiny_config(data_dir=str(folder), task__name="indexed_text", **options)
        if paths is texts:
            assert train(config, tmp_path / "run")[1].step == 2
        else:
            with pytest.raises(UserError, match="was trained with other index data than is there now"):
                train(config, tmp_path / "run")


def test_a_file_of_frequencies_beside_the_counts_of_an_index_is_refused(folder, tmp_path):
    """It would not be read. A run of before goes on with the counts that it has stored."""
    options = dict(model__output="hierarchical")
    config = tiny_config(data_dir=str(folder), task__name="indexed_text", **options)
    counts = build_task(resolve(config)).target_vocabulary.counts
    config.model.output.frequencies = "counts.tsv"
    with pytest.raises(UserError, match=r"^model.output.frequencies counts.tsv: task.name indexed_text has the counts"):
        build_task(resolve(config))
    again = build_task(resolve(config), open_index(folder).vocabularies).target_vocabulary
    np.testing.assert_array_equal(again.counts, counts)


def test_millions_of_pairs_are_streamed_with_flat_memory(tmp_path):
    count, length = 2_000_000, 4
    for side in token_index.SIDES:
        (np.arange(count * length, dtype=np.uint32) % 5000 + 4).astype("<u2").tofile(tmp_path / f"{side}.tokens")
        (np.arange(count + 1) * length).astype(OFFSETS).tofile(tmp_path / f"{side}.offsets")
    np.arange(count).astype(MEMBERS).tofile(tmp_path / "members.0")
    mapped = lambda name, kind: np.memmap(tmp_path / name, kind, "r")  # noqa: E731
    sides = [Ragged(mapped(f"{side}.tokens", "<u2"), mapped(f"{side}.offsets", OFFSETS)) for side in token_index.SIDES]
    members = [mapped("members.0", MEMBERS)]
    tracemalloc.start()
    try:
        made = StreamedBatches(EncodedPairs(*sides), ((4, 4),), members, 64, longest=length)
        for step in (0, 1, made.steps_per_epoch - 1, made.steps_per_epoch, 5 * made.steps_per_epoch + 7):
            batch = made.batch_at(step)
            assert batch["source"].shape == (64, 4) and batch["source"].min() >= 4
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # bytes; one number for each pair would be 16 MB
    finally:
        tracemalloc.stop()
    assert made.steps_per_epoch == count // 64
