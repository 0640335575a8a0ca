"""Lines to texts and labels of one token: no leakage, nested subsets, and what is wrong with a line is told."""

from functools import partial

import pytest
from tasks_by_name import make

from attn_jax.data.batching import encode_pairs
from attn_jax.data.vocabulary import Characters, Words, from_json
from attn_jax.data.vocabulary_options import CharactersOptions, WordsOptions
from attn_jax.errors import UserError
from attn_jax.tasks.text.labelled_text import label_vocabulary, read_labelled
from attn_jax.token_ids import EOS, UNK

DEFAULTS = {"train": ("train.tsv", ""), "valid_size": 5, "vocabulary": WordsOptions(min_count=1)}
LABELS = ("good", "bad", "so_so")


def write(path, texts, labels=LABELS):
    path.write_text("".join(f"{text}\t{labels[i % len(labels)]}\n" for i, text in enumerate(texts)), encoding="utf-8")


@pytest.fixture
def task(tmp_path):
    write(tmp_path / "train.tsv", [f"x{i} is a text" for i in range(50)])
    write(tmp_path / "valid.tsv", [f"v{i} is a text" for i in range(7)])
    write(tmp_path / "test.tsv", [f"t{i} is a text" for i in range(6)])
    return partial(make, "labelled_text", tmp_path, **DEFAULTS)


def together(pairs):
    return set(zip(pairs.source, pairs.target, strict=True))


def test_held_out_lines_are_not_trained_on(task):
    splits = task().splits
    assert list(splits) == ["train", "valid"] and len(splits["valid"]) == 5
    assert not set(splits["train"].source) & set(splits["valid"].source)
    whole = {(f"x{i} is a text", LABELS[i % 3]) for i in range(50)}
    assert together(splits["train"]) | together(splits["valid"]) == whole
    assert task(num_examples=10).splits["valid"] == splits["valid"]


def test_repeated_texts_do_not_leak_whatever_their_label(task, tmp_path):
    texts = [f"x{i} is a text" for i in range(50)]
    write(tmp_path / "train.tsv", texts + texts)  # 50 is no multiple of 3, so the second time with other labels
    result = task()
    assert not set(result.splits["train"].source) & set(result.splits["valid"].source)
    left_out = result.stats["training lines with the text of a held-out one"]
    assert left_out > 0 and len(result.splits["train"]) == 100 - 5 - left_out
    write(tmp_path / "train.tsv", texts + [text.replace(" ", "  ") for text in texts])
    assert task().stats["training lines with the text of a held-out one"] == 5


def test_given_files_are_the_splits(task):
    result = task(valid=("valid.tsv", ""), test=("test.tsv", "ignored"), valid_size=0)
    assert result.splits["train"].source == [f"x{i} is a text" for i in range(50)]
    assert result.splits["valid"].target == [LABELS[i % 3] for i in range(7)]
    assert result.stats == {"train": 50, "valid": 7, "test": 6, "labels": 3}
    assert result.examples == tuple(result.splits["valid"].source[:3])
    assert task(test=("train.tsv",)).stats["test texts that training has too"] == 45


def test_fewer_lines_are_a_subset_in_the_order_of_the_file(task):
    small, large, whole = (task(num_examples=n).splits["train"] for n in (10, 20, 0))
    assert (len(small), len(large), len(whole)) == (10, 20, 45)
    assert together(small) < together(large) < together(whole)
    assert small.source == [text for text in whole.source if text in set(small.source)]


def test_a_label_is_one_known_token_also_if_the_subset_has_it_not(task, tmp_path):
    result = task(num_examples=1, valid=("valid.tsv", ""))
    assert isinstance(result.target_vocabulary, Words)
    assert label_vocabulary("cab", "x").to_json() == label_vocabulary("abcabc", "x").to_json()
    assert result.target_vocabulary.tokens(range(4, 7)) == sorted(LABELS)
    saved = from_json(result.target_vocabulary.to_json())
    for label in LABELS:
        (number,) = saved.encode(label)
        assert number > EOS and saved.decode([number, EOS]) == label
    encoded = encode_pairs(result.splits["valid"], result.source_vocabulary, result.target_vocabulary)
    assert set(encoded.target.lengths) == {2} and UNK not in encoded.target.tokens


def test_the_text_has_the_vocabulary_asked_for(task):
    result = task(vocabulary=CharactersOptions(min_count=1), vocab_size=(9, 1))
    assert isinstance(result.source_vocabulary, Characters) and len(result.source_vocabulary) == 9
    vocabularies = (result.source_vocabulary, result.target_vocabulary)
    again = task(kept=vocabularies)
    assert (again.source_vocabulary, again.target_vocabulary) == vocabularies


@pytest.mark.parametrize(
    "options, message",
    [
        ({"train": ("train.tsw", "")}, "train.tsw: no such file; did you mean train.tsv"),
        ({"train": ("", "")}, "task.train names no file; expected one with lines text TAB label"),
        ({"train": ()}, "task.train names no file"),
        ({"valid_size": 50}, "task.valid_size 50: expected 1 to 49, as there are 50 training lines and no file for"),
        ({"valid_size": 0}, "task.valid_size 0: expected 1 to 49"),
        ({"num_examples": 46}, r"task.num_examples 46: expected 0 \(all\) to 45, the training lines there are$"),
        ({"num_examples": -1}, "task.num_examples -1: expected"),
        ({"vocab_size": (2, 1000)}, "vocab_size 2 is too small"),
    ],
)
def test_wrong_options(task, options, message):
    with pytest.raises(UserError, match=message) as error:
        task(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\tgood\nb\n", ", line 2: expected text TAB label, with one tab, got 0"),
        (b"a\tgood\tx\n", ", line 1: expected text TAB label, with one tab, got 2"),
        (b"a\tgood\n\tbad\n", ", line 2: the text is empty; expected text TAB label"),
        (b"a\t \r\n", ", line 1: the label is empty; expected text TAB label"),
        (b"a\tgood\n\nb\tbad\n", ", line 2: the line is empty; expected text TAB label"),
        (b"a\t\xe4\n", ", line 1: not valid UTF-8 (byte 0xe4); convert it to UTF-8"),
        (b"", ": the file is empty; expected text TAB label"),
        (b"a\tvery good\n", ", line 1: the label 'very good' is more than one word; expected a label without spaces"),
    ],
)
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_wrong_lines(task, tmp_path, split, content, message):
    (tmp_path / "wrong.tsv").write_bytes(content)
    with pytest.raises(UserError) as error:
        task(**{split: ("wrong.tsv", "")})
    assert str(error.value).removesuffix(", such as very_good") == f"{tmp_path / 'wrong.tsv'}{message}"


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_label_that_training_has_not_is_a_slip(task, tmp_path, split):
    (tmp_path / "wrong.tsv").write_text("a\tgood\nb\tgod\n")
    message = r"wrong.tsv, line 2: the label 'god' is not in the training file; did you mean good\?$"
    with pytest.raises(UserError, match=message):
        task(**{split: ("wrong.tsv", "")})


def test_one_label_is_none_and_nothing_left_to_train_on_is_told(task, tmp_path):
    for texts, labels, message in (
        ("abc", ("good",), r"train.tsv: only the label 'good'; expected at least two to tell apart$"),
        (["a text"] * 3, LABELS, "^no training lines are left: of 3 there are 1 held out for validation, and the othe"),
    ):
        write(tmp_path / "train.tsv", texts, labels)
        with pytest.raises(UserError, match=message):
            task(valid_size=1)
    (tmp_path / "train.tsv").write_text(" a  b \t good \r\nb text\tbad\n")
    assert len(task(valid_size=1).splits["train"]) == 1
    pairs = read_labelled(tmp_path / "train.tsv")  # the spaces of a text stay
    assert (pairs.source, pairs.target) == ([" a  b ", "b text"], ["good", "bad"])
