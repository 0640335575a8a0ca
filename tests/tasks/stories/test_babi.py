"""The twenty tasks from files: splits, the one vocabulary, what the note counts, and what is wrong with a folder."""

import itertools
import re
from functools import partial

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.data.batching import encode_pairs
from attn_jax.data.vocabulary import StoryWords
from attn_jax.errors import UserError
from attn_jax.tasks.stories.format import read_questions
from attn_jax.token_ids import EOS, UNK


def write(path, count, names=("Mary", "John"), places=("bathroom", "hallway", "kitchen")):
    """`count` stories of two statements and one question, no two alike where there are enough of them."""
    moves = itertools.product(names, places, ("moved", "went", "ran", "drove"), repeat=2)
    lines = []
    for _, (who, where, how, other, there, then) in zip(range(count), moves, strict=False):
        answer = there if who == other else where
        lines += [f"1 {who} {how} to the {where}.", f"2 {other} {then} to the {there}."]
        lines += [f"3 Where is {who}?\t{answer}\t{2 if who == other else 1}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def task(tmp_path):
    (tmp_path / "en").mkdir()
    for number, count in ((1, 50), (11, 30)):
        write(tmp_path / f"en/qa{number}_a-name_train.txt", count)
        write(tmp_path / f"en/qa{number}_a-name_test.txt", 7, names=("Fred",))
    return partial(make, "babi", tmp_path, numbers=(1,), size="1k")


def test_the_last_tenth_of_each_task_is_held_out(task):
    alone = {n: task(numbers=(n,)).splits for n in (1, 11)}
    assert [len(split) for split in alone[1].values()] == [45, 5, 7] and list(alone[1]) == ["train", "valid", "test"]
    joint = task(numbers=(11, 1))
    for name, split in joint.splits.items():
        for column in ("source", "target", "evidence"):
            assert getattr(split, column) == getattr(alone[11][name], column) + getattr(alone[1][name], column)
    assert joint.stats["train"] == 45 + 27
    few = task(num_examples=20).splits
    assert few["train"].source + few["valid"].source == alone[1]["train"].source[:20] and len(few["valid"]) == 2
    assert few["test"] == alone[1]["test"]


def test_both_sides_have_one_vocabulary_of_all_that_occurs_in_training(task, tmp_path):
    (tmp_path / "en/qa1_a-name_train.txt").write_text("1 A b.\n2 C d?\tElse,one\t1\n" * 10)
    result = task()
    assert result.source_vocabulary is result.target_vocabulary and isinstance(result.source_vocabulary, StoryWords)
    train = result.splits["train"]
    for text in (*train.source, *train.target):
        assert result.source_vocabulary.decode(result.source_vocabulary.encode(text)) == text
    encoded = encode_pairs(result.splits["test"], result.source_vocabulary, result.target_vocabulary)
    assert encoded.target.gather(np.array([0]), 2)[0].tolist() == [[UNK, EOS]]
    assert result.stats["test answers that training never has"] == 7
    assert "valid answers that training never has" not in result.stats
    assert result.stats["valid questions that training has too"] == 1
    again = task(kept=result.kept)
    assert again.source_vocabulary is result.source_vocabulary and again.stats == result.stats


def test_the_note_counts_test_questions_that_were_trained_on(task, tmp_path):
    text = (tmp_path / "en/qa1_a-name_train.txt").read_text().splitlines(keepends=True)
    with (tmp_path / "en/qa1_a-name_test.txt").open("a") as file:
        file.writelines([*text[:6], text[0], text[1], "3 Where is Sandra?\tkitchen\t1\n"])
    note = task().stats
    assert note["test"] == 10 and note["test questions that training has too"] == 2


def test_only_the_last_statements(task):
    whole, cut = task(), task(max_sentences=1)
    assert cut.stats["statements cut"] == 57
    supported = [bool(numbers) for split in cut.splits.values() for numbers in split.evidence]
    assert cut.stats["supporting statements cut"] == supported.count(False) > 0
    for name in whole.splits:
        for long, short in zip(whole.splits[name].source, cut.splits[name].source, strict=True):
            assert short == long.partition(" . ")[2]
    assert "statements cut" not in whole.stats and whole.stats == task(max_sentences=2).stats


@pytest.mark.parametrize(
    "options, message",
    [
        ({"size": "10k"}, "en-10k: no such folder; expected it to hold files such as"),
        ({"numbers": (2,)}, r"en: the file of task 2, qa2_\*_train.txt, is missing"),
        ({"numbers": ()}, "en: the file of task 2, "),
        ({"numbers": (0,)}, r"task.numbers \(0,\): expected different numbers from 1 to 20"),
        ({"numbers": (1, 21)}, r"task.numbers \(1, 21\): expected"),
        ({"numbers": (1, 1)}, r"task.numbers \(1, 1\): expected"),
        ({"numbers": ("1",)}, r"task.numbers \('1',\): expected"),
        ({"num_examples": 51}, r"task.num_examples 51: expected 0 \(all\), or 10 to 50, the training questions of t"),
        ({"num_examples": 9}, "task.num_examples 9: expected"),
        ({"max_sentences": -1}, "task.max_sentences -1: expected"),
    ],
)
def test_wrong_options(task, options, message):
    with pytest.raises(UserError, match=message) as error:
        task(**options)
    assert "\n" not in str(error.value)


def test_files_that_are_missing_too_few_or_too_many(task, tmp_path):
    write(tmp_path / "en/qa1_other_test.txt", 1)
    with pytest.raises(UserError, match=r"several files of task 1, qa1_a-name_test.txt, qa1_other_test"):
        task()
    (tmp_path / "en/qa11_a-name_test.txt").unlink()
    with pytest.raises(UserError, match=r"task 11, qa11_\*_test.txt, is missing"):
        task(numbers=(11,))
    write(tmp_path / "en/qa11_a-name_train.txt", 9)
    with pytest.raises(UserError, match="task 11 has 9 training questions; expected at least 10"):
        task(numbers=(11,))


def test_training_questions_without_facts_are_counted(task, tmp_path):
    write(tmp_path / "own.txt", 40)
    text = (tmp_path / "own.txt").read_text(encoding="utf-8")
    (tmp_path / "own.txt").write_text(re.sub("(\t.*)\t.*", r"\1", text), encoding="utf-8")
    told = {"train": 36, "training questions without supporting facts": 36, "valid": 4}
    assert task(train=("own.txt", "")).stats == told
    assert task(train=("own.txt", ""), max_sentences=1).stats.items() >= told.items()


def test_a_file_of_any_name_is_a_task(task, tmp_path):
    for name, count in (("own.txt", 40), ("held.txt", 9), ("asked.txt", 5)):
        write(tmp_path / name, count)
    own = {"train": ("own.txt", ""), "numbers": (7,), "size": "high"}
    alone = task(**own)
    assert alone.stats == {"train": 36, "valid": 4}
    assert alone.splits["valid"].source[-1] == read_questions(tmp_path / "own.txt").source[-1]
    assert alone.splits["train"].evidence is not None and len(alone.examples) == 3
    every = task(**own, valid=("held.txt", ""), test=("asked.txt",), num_examples=3)
    assert {name: len(split) for name, split in every.splits.items()} == {"train": 3, "valid": 9, "test": 5}
    assert task(**own, test=("asked.txt", "")).stats["test questions that training has too"] == 5


def test_what_is_wrong_with_a_file_of_any_name_is_told(task, tmp_path):
    write(tmp_path / "own.txt", 9)
    for options, message in (
        ({"train": ("own.txt", "")}, "^own.txt has 9 training questions; expected at least 10$"),
        ({"train": ("own.text", "")}, r"own.text: no such file; did you mean own.txt\?"),
        ({"train": ("own.txt", ""), "valid": ("own.txt",), "num_examples": 10}, "expected 0 .* or 1 to 9, .* own.txt$"),
        ({"test": ("own.txt", "")}, r"the file own.txt is for task.train=\('NAME', ''\), .*; got \('', ''\)$"),
    ):
        with pytest.raises(UserError, match=message):
            task(**options)
    (tmp_path / "own.txt").write_text("1 Mary left.\n3 Where is Mary?\there\t1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"own.txt, line 2: the number 3; expected 2, or 1 for a new story"):
        task(train=("own.txt", ""))


def test_stories_are_made_without_a_folder():
    build = partial(make, "babi", numbers=(4, 1), num_examples=200)
    made = build()
    assert [len(split) for split in made.splits.values()] == [360, 40, 2000]
    tested, trained = made.splits["test"], {*made.splits["train"].source, *made.splits["valid"].source}
    assert len(set(tested.source)) == 2000 and not set(tested.source) & trained
    assert "what is" in tested.source[0] and "where is" in tested.source[-1]
    assert made.splits == build(size="1k").splits
    with pytest.raises(UserError, match=r"task\.num_examples 5: expected at least 10"):
        build(num_examples=5)
