"""Files to splits: a real held-out split, nested subsets, vocabularies of the training split only."""

import re
from functools import partial

import pytest
from tasks_by_name import make
from tiny_run import files_config

from attn_jax.data.text_tables import FIELDS
from attn_jax.data.vocabulary import Words
from attn_jax.data.vocabulary_options import SampledPiecesOptions, WordsOptions
from attn_jax.errors import UserError
from attn_jax.token_ids import UNK


@pytest.fixture
def task(tmp_path):
    def write(name, n, prefix=""):
        for language in ("en", "ja"):
            lines = [f"{prefix}{language}{i} x" for i in range(n)]
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n")

    write("train", 50)
    write("valid", 7, "v")
    write("test", 6, "t")
    options = {"train": ("train.en", "train.ja"), "valid_size": 5, "vocab_size": (1000, 1000)}
    return partial(make, "parallel_text", tmp_path, **options, vocabulary=WordsOptions(min_count=1))


def together(pairs):
    return set(zip(pairs.source, pairs.target, strict=True))


def test_held_out_pairs_are_not_trained_on(task):
    splits = task().splits
    assert list(splits) == ["train", "valid"] and len(splits["valid"]) == 5
    assert not together(splits["train"]) & together(splits["valid"])
    assert together(splits["train"]) | together(splits["valid"]) == {(f"en{i} x", f"ja{i} x") for i in range(50)}
    assert together(task().splits["valid"]) == together(splits["valid"])
    assert together(task(num_examples=10).splits["valid"]) == together(splits["valid"])


def test_nothing_left_to_train_on_is_told(task, tmp_path):
    for count, message in (
        (4, "no training pairs are left: of 4 there are 2 held out for validation, and the others equal one of these"),
        (1, "^1 training pairs and no file for validation; expected at least 2$"),
    ):
        for language in ("en", "ja"):
            (tmp_path / f"train.{language}").write_text("x\n" * count)
        with pytest.raises(UserError, match=message):
            task(valid_size=2)


def test_repeated_pairs_do_not_leak(task, tmp_path):
    for language in ("en", "ja"):
        path = tmp_path / f"train.{language}"
        path.write_text(path.read_text() * 2)
    result = task()
    assert not together(result.splits["train"]) & together(result.splits["valid"])
    left_out = result.stats["training pairs equal to a held-out one"]
    assert left_out > 0 and len(result.splits["train"]) == 100 - 5 - left_out


def test_pairs_that_differ_in_spaces_do_not_leak(task, tmp_path):
    for language, space in (("en", " "), ("ja", "  ")):
        path = tmp_path / f"train.{language}"
        path.write_text((text := path.read_text()) + text.replace(" ", space + " ").replace("\n", " \n"))
    result = task()
    assert result.stats["training pairs equal to a held-out one"] == 5
    plain = lambda pairs: {(" ".join(a.split()), " ".join(b.split())) for a, b in together(pairs)}  # noqa: E731
    assert not plain(result.splits["train"]) & plain(result.splits["valid"])


def test_given_files_are_the_splits(task):
    result = task(valid=("valid.en", "valid.ja"), test=("test.en", "test.ja"))
    assert {name: len(split) for name, split in result.splits.items()} == {"train": 50, "valid": 7, "test": 6}
    assert result.splits["train"].source == [f"en{i} x" for i in range(50)]
    assert result.splits["test"].target == [f"tja{i} x" for i in range(6)]
    assert result.stats == {"train": 50, "valid": 7, "test": 6}
    assert set(result.examples) <= set(result.splits["valid"].source)


def test_pairs_of_given_files_that_training_has_are_counted(task, tmp_path):
    for name, first in (("valid", 0), ("test", 2)):
        for language in ("en", "ja"):  # of the sources four are in training, of the pairs three
            lines = [f"{language}{i} x" for i in range(first, first + 3)]
            lines.append(f"{language * (language == 'ja')}9 x")
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n")
    stats = task(valid=("valid.en", "valid.ja"), test=("test.en", "test.ja")).stats
    assert stats["valid pairs that training has too"] == stats["test pairs that training has too"] == 3
    assert stats["train"] == 50  # they are counted, not dropped


def test_fewer_examples_are_a_subset(task):
    small, large, everything = (together(task(num_examples=n).splits["train"]) for n in (10, 20, 0))
    assert len(small) == 10 and len(large) == 20 and len(everything) == 45
    assert small < large < everything


def test_vocabularies_know_the_training_split_only(task):
    given = (Words(["en"]), Words(["ja"]))
    result = task(kept=given)
    assert (result.source_vocabulary, result.target_vocabulary) == given
    result = task()
    valid = result.splits["valid"]
    assert all(result.source_vocabulary.encode(text)[0] == UNK for text in valid.source)
    assert all(UNK not in result.target_vocabulary.encode(text) for text in result.splits["train"].target)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"train": ("train.en", "train.de")}, "train.de: no such file; did you mean train"),
        ({"train": ("", "")}, "task.train names no files"),
        ({"valid": ("valid.en", "")}, r"task.valid is \('valid.en', ''\); expected a source file and a target file"),
        ({"fields": ("a", "a")}, r"task.fields is \('a', 'a'\); expected two different names"),
        ({"train": ("train.en", "valid.ja")}, "train.en has 50 lines but .*valid.ja has 7"),
        ({"valid_size": 50}, "task.valid_size 50: expected 1 to 49, as there are 50 training pairs"),
        ({"valid_size": 0}, "task.valid_size 0: expected"),
        ({"num_examples": 46}, r"task.num_examples 46: expected 0 \(all\) to 45"),
        ({"num_examples": -1}, "task.num_examples -1: expected"),
        ({"vocab_size": (1000, 2)}, "the target vocabulary: vocab_size 2 is too small"),
        ({"vocabulary": WordsOptions(min_count=1000)}, "^the source vocabulary: no token is seen 1000 times, the comm"),
        (
            {"vocabulary": SampledPiecesOptions()},
            "the source vocabulary: vocab_size 1000 is too large .* is \\d+$",
        ),
    ],
)
def test_wrong_options(task, options, message):
    with pytest.raises(UserError, match=message):
        task(**options)


TABLES = {
    "a.jsonl": ('{"source": "a, b", "target": "x"}\n\n{"target": "z\\"", "source": "c", "more": 1}\n', FIELDS),
    "b.csv": ('more,to,from\n1,x,"a, b"\n2,"z""",c\n', ("from", "to")),
    "c.tsv": ('a, b\tx\nc\tz"\n', FIELDS),
    "d.tsv": ('target\tsource\r\nx\ta, b\r\nz"\tc\r\n', FIELDS),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_file_of_both_sides_is_two_files(task, tmp_path, name, capsys):
    text, fields = TABLES[name]
    (tmp_path / name).write_text(text)
    found = task(train=(name, ""), valid=(name, ""), fields=fields)
    assert together(found.splits["train"]) == {("a, b", "x"), ("c", 'z"')}
    told = f"read          train: 2 rows of {name}, {fields[0]} and {fields[1]}, longest 4 and 2 letters"
    assert told in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"sorce": "a", "target": "b"}', "line 1: no field 'source'; did you mean sorce?; see task.fields"),
        ("a.jsonl", '{"source": "a", "target": "b"}\n{', "line 2: not valid JSON"),
        ("a.jsonl", "[1]", "line 1: '[1]' is no object"),
        ("a.jsonl", '{"source": 3, "target": "b"}', "line 1: source is 3; expected a text of one line"),
        ("a.jsonl", '{"source": "a\\nb", "target": "b"}', "line 1: source is 'a\\nb'; expected a text of one line"),
        ("a.jsonl", "\n", "no rows; expected some with source and target"),
        (
            "a.csv",
            "id,src,target\n1,2,3\n",
            "line 1: the columns 'id', 'src', 'target'; expected 'source' and 'target'",
        ),
        ("a.csv", "source,target\na,b,c\n", "line 2: 3 columns; expected 2"),
        ("a.csv", 'source,target\na,"b"c\n', "line 2: "),
        ("a.tsv", "source\ttarget\na\t \n", "line 2: target is ' '; expected a text of one line"),
    ],
)
def test_a_wrong_row_is_one_line(task, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / name}") + ".*" + re.escape(words)):
        task(train=(name, ""))


def test_a_size_of_0_is_as_many_as_the_text_allows(task):
    with pytest.raises(UserError, match=r"largest possible is (\d+)") as told:
        task(vocabulary=SampledPiecesOptions())
    largest = int(re.search(r"possible is (\d+)", str(told.value))[1])
    for vocabulary, size in (
        (SampledPiecesOptions(), largest),
        (WordsOptions(min_count=1), len(task().source_vocabulary)),
    ):
        assert len(task(vocabulary=vocabulary, vocab_size=(0, 0)).source_vocabulary) == size


def test_a_joint_vocabulary_is_that_of_both_sides(task):
    result = task(joint_vocabulary=True)
    assert result.source_vocabulary is result.target_vocabulary
    target = result.splits["train"].target[0]
    assert UNK not in result.source_vocabulary.encode(target) and UNK in task().source_vocabulary.encode(target)


def test_a_text_takes_no_vocabulary_of_a_single_task(tmp_path):
    with pytest.raises(UserError, match=r"^unknown task\.vocabulary 'inflection'; known: characters, sentencepiece, w"):
        files_config(tmp_path, task__vocabulary="inflection")
