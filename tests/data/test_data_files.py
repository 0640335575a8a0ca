"""Vocabularies and points come back as they were saved, or not at all."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from damage import flips, points, without_checksum

from attn_jax.data.data_files import data_checksums, has_checksums, load_kept, load_vocabularies, save_kept
from attn_jax.data.facts import Kept
from attn_jax.data.vocabulary import VOCABULARIES, Words
from attn_jax.errors import UserError
from attn_jax.tasks.points.points import PointsTask

OPTIONS = {"vocab_size": 22, "min_count": 1, "model_type": "bpe"}
LINES = ["a bird in a tree", "令和 in june"]
GOOD = {"kind": "words", "tokens": ["a"]}


def arrays(task):
    return [getattr(task.splits[split], side) for split in ("train", "test") for side in ("inputs", "targets")]


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_vocabularies_come_back(tmp_path, kind):
    both = tuple(VOCABULARIES[kind].train(lines, **OPTIONS) for lines in (LINES, LINES[::-1]))
    save_kept(tmp_path, Kept(*both))
    assert has_checksums(tmp_path)
    for legacy in (False, True):
        for before, after in zip(both, load_vocabularies(tmp_path), strict=True):
            assert type(after) is type(before) and after.to_json() == before.to_json()
            assert after.encode(LINES[0]) == before.encode(LINES[0])
        assert has_checksums(tmp_path) is not legacy
        without_checksum(tmp_path / "vocabularies.json")


def test_points_come_back(tmp_path):
    task = points()
    task.save(tmp_path)
    assert has_checksums(tmp_path)
    for legacy in (False, True):
        after = PointsTask.load(tmp_path)
        for x, y in zip(arrays(task), arrays(after), strict=True):
            assert x.dtype == y.dtype and np.array_equal(x, y)
        assert (after.columns, after.stats, after.examples) == (task.columns, task.stats, task.examples)
        assert has_checksums(tmp_path) is not legacy
        without_checksum(tmp_path / "points.npz")


def test_the_checksums_are_those_of_the_contents(tmp_path):
    assert data_checksums(tmp_path) == {}
    save_kept(tmp_path, Kept(Words(["a", "b"]), Words(["c"])))
    points().save(tmp_path)
    before = data_checksums(tmp_path)
    assert before.keys() == {"vocabularies.json", "points.npz"}
    for name in before:
        without_checksum(tmp_path / name)
    assert data_checksums(tmp_path) == before
    save_kept(tmp_path, Kept(Words(["b", "a"]), Words(["c"])))
    dataclasses.replace(points(), examples=("other",)).save(tmp_path)
    assert all(checksum != before[name] for name, checksum in data_checksums(tmp_path).items())


def check_bits(path, read, expected):
    """Of 200 flips of a bit in a file, most are refused in one line, and the others change nothing of what is read."""
    refused = 0
    for content in flips(path.read_bytes()):
        path.write_bytes(content)
        try:
            assert read() == expected
        except UserError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error)
    assert 100 < refused < 200  # white space, dates and the like do not count


def test_every_single_bit_of_the_vocabularies_counts(tmp_path):
    both = tuple(Words.train(lines, **OPTIONS) for lines in (LINES, LINES[::-1]))
    save_kept(tmp_path, Kept(*both))
    read = lambda: [vocabulary.to_json() for vocabulary in load_vocabularies(tmp_path)]  # noqa: E731
    check_bits(tmp_path / "vocabularies.json", read, [vocabulary.to_json() for vocabulary in both])


@pytest.mark.parametrize("legacy", [False, True])
def test_every_single_bit_of_the_points_counts(tmp_path, legacy):
    points().save(tmp_path)
    if legacy:
        without_checksum(tmp_path / "points.npz")
    facts = lambda task: ([x.tobytes() for x in arrays(task)], task.columns)  # noqa: E731
    check_bits(tmp_path / "points.npz", lambda: facts(PointsTask.load(tmp_path)), facts(points()))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "source is null; expected a vocabulary, with its kind and its tokens"),
        ({"tokens": ["a"]}, r"source is {\"tokens\": \[\"a\"\]}; expected a vocabulary, with its kind"),
        ({"kind": ["words"]}, "expected a vocabulary"),
        ({"kind": "wordz", "tokens": []}, "source: unknown vocabulary 'wordz'; did you mean words?"),
        ({"kind": "words"}, "source has no 'tokens'; expected a vocabulary of words"),
        ({"kind": "words", "tokens": "abc"}, 'source.tokens is "abc"; expected a list of texts'),
        ({"kind": "words", "tokens": ["a", 3]}, "source.tokens has 3 at place 2; expected a text, not empty"),
        ({"kind": "words", "tokens": ["a", ""]}, 'source.tokens has "" at place 2; expected a text, not empty'),
        ({"kind": "words", "tokens": ["\ud800"]}, r'source.tokens has "\\ud800" at place 1'),
        ({"kind": "words", "tokens": ["a", "a"]}, "source: a vocabulary of words with the same entry twice"),
        ({"kind": "sentencepiece", "model": "%"}, 'source.model is "%"; expected the base64 text of a model'),
        ({"kind": "sentencepiece", "model": 3}, "source.model is 3; expected the base64 text"),
    ],
    ids=str,
)
def test_a_malformed_vocabulary_is_one_clear_line(tmp_path, source, words):
    path = tmp_path / "vocabularies.json"
    path.write_text(json.dumps({"source": source, "target": GOOD}))  # as of an earlier version: no checksum
    with pytest.raises(UserError, match=f"^cannot read {path}: .*{words}") as error:
        load_vocabularies(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (3, "facts is 3; expected those of stories or images"),
        ({"kind": "story"}, "facts: unknown kind of facts 'story'; did you mean stories"),
        ({"kind": "stories", "longest": 1}, "facts: no 'shortest'; expected those of stories"),
        ({"kind": "stories", "longest": "x", "shortest": 1}, "facts: longest is 'x'; expected an integer, at least 0"),
        ({"kind": "images", "shape": [8, -8, 3], "world": {}}, "facts: images of .*; expected height, width"),
        ({"kind": "images", "shape": 8, "world": {}}, "facts: images of 8; expected height, width and channels"),
        ({"kind": "images", "shape": [8, 8, 3], "world": 1}, "facts: images of .*; expected height, width"),
    ],
    ids=str,
)
def test_malformed_facts_are_one_clear_line(tmp_path, facts, words):
    path = tmp_path / "vocabularies.json"
    path.write_text(json.dumps({"source": GOOD, "target": GOOD, "facts": facts}))
    with pytest.raises(UserError, match=f"^cannot read {path}: {words}") as error:
        load_kept(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("how", ["deleted", "emptied", "truncated", "a folder", "another file"])
@pytest.mark.parametrize("name", ["vocabularies.json", "points.npz"])
def test_a_file_that_is_lost_is_one_clear_line(tmp_path, name, how):
    save_kept(tmp_path, Kept(Words(["a", "b"]), Words(["c"])))
    points().save(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how != "deleted":
        path.write_bytes({"emptied": b"", "truncated": content[: len(content) // 2], "another file": b"abc"}[how])
    with pytest.raises(UserError, match=f"^(cannot read )?{path}") as error:
        load_vocabularies(tmp_path) if name == "vocabularies.json" else PointsTask.load(tmp_path)
    assert "\n" not in str(error.value)


def test_points_that_do_not_belong_together_are_one_clear_line(tmp_path):
    points().save(tmp_path / "good")
    with np.load(tmp_path / "good" / "points.npz") as stored:
        members = dict(stored)
    np.savez_compressed(tmp_path / "points.npz", **members | {"inputs": members["inputs"] + 1})
    with pytest.raises(UserError, match=r"points.npz was changed since the run wrote it"):
        PointsTask.load(tmp_path)
    without_checksum(tmp_path / "good" / "points.npz")
    members.pop("crc32")
    names = json.loads(str(members["names"]))
    for number, changes in enumerate(
        (
            {"inputs": members["inputs"][..., :0]},
            {"targets": members["targets"][:, 1:]},
            {"inputs": members["inputs"].astype(str)},
            {"test_inputs": members["test_inputs"][:1]},
            {"names": "[]"},
            {"names": json.dumps(names | {"columns": {"inputs": ["x", "y"], "target": "z"}})},
            {"names": json.dumps(names | {"columns": {"inputs": [3], "target": "z"}})},
        )
    ):
        workdir = tmp_path / str(number)
        shutil.copytree(tmp_path / "good", workdir)
        np.savez_compressed(workdir / "points.npz", **members | changes)
        with pytest.raises(UserError, match=f"^cannot read {workdir}/points.npz: .*(belong together|of a regression)$"):
            PointsTask.load(workdir)
