"""The examples are the text: joined they give it back, and encoded they give its tokens; no leakage into training."""

import itertools

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.data.batching import Batches, encode_pairs, eval_batches
from attn_jax.data.buckets import choose_buckets
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.vocabulary_options import CharactersOptions, PiecesOptions, WordsOptions
from attn_jax.errors import UserError
from attn_jax.tasks.text import plain_text
from attn_jax.tasks.text.plain_text import PlainTextOptions, make_blocks, make_sentences
from attn_jax.token_ids import BOS, EOS, PAD, UNK

LINES = [f"{i}  of the {'grand ' * (i % 4)}houses, not x{i * i} ." for i in range(300)]
KINDS = {"words": WordsOptions(min_count=1), "characters": CharactersOptions(min_count=1)}
KINDS |= {"sentencepiece": PiecesOptions()}
DEFAULTS = {"train": ("train.txt", ""), "valid_size": 20}


def build(data_dir="", vocabulary="words", **options):
    sizes = {"vocab_size": (5, 60)} if vocabulary == "sentencepiece" else {}
    return make("plain_text", data_dir, vocabulary=KINDS[vocabulary], **DEFAULTS | sizes | options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_bytes("\ufeffein Satz\r\n\r\n \t\r\nnoch einer\r\n".encode())
    (tmp_path / "test.txt").write_text("one\u2028 line\n\nanother", encoding="utf-8")
    return tmp_path


def test_lines_are_the_examples(folder):
    task = build(folder)
    assert task.splits["train"].target == LINES[:-20] and task.splits["valid"].target == LINES[-20:]
    assert task.stats == {"train": 280, "valid": 20}
    assert all(set(split.source) == {""} for split in task.splits.values())


def test_given_files_are_the_splits(folder):
    task = build(folder, valid=("valid.txt", ""), test=("test.txt", ""), valid_size=0)
    assert task.splits["train"].target == LINES
    assert task.splits["valid"].target == ["ein Satz", "noch einer"]
    assert task.splits["test"].target == ["one\u2028 line", "another"]
    (folder / "valid.txt").write_text(f"{LINES[3]}\nein Satz\n", encoding="utf-8")
    stats = build(folder, valid=("valid.txt", ""), test=("test.txt", ""), valid_size=0).stats
    assert stats["valid lines that training has too"] == 1 and "test lines that training has too" not in stats


def test_blocks_of_characters_are_the_text(folder):
    splits = build(folder, vocabulary="characters", block=64).splits
    assert "".join(splits["train"].target + splits["valid"].target) == "\n".join(LINES) + "\n"
    assert {len(text) for text in splits["train"].target[:-1] + splits["valid"].target} == {64}


def test_blocks_of_words_are_the_words(folder):
    splits = build(folder, block=11).splits
    words = [text.split(" ") for split in splits.values() for text in split.target]
    assert [*itertools.chain(*words)] == " ".join(LINES).split()
    assert {len(some) for some in words[: len(splits["train"]) - 1] + words[-20:]} == {11}


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_blocks_of_pieces_are_full_and_encode_to_the_tokens_of_the_text(folder, model, monkeypatch):
    monkeypatch.setitem(KINDS, "sentencepiece", PiecesOptions(model=model))
    task = build(folder, vocabulary="sentencepiece", block=24)
    vocabulary, blocks = task.target_vocabulary, task.splits["train"].target
    text = " ".join(blocks)
    assert text == " ".join(" ".join(LINES).split()[: len(text.split())])
    assert [*itertools.chain(*map(vocabulary.encode, blocks))] == vocabulary.encode(text)
    lengths = [len(vocabulary.encode(some)) for some in blocks]
    assert max(lengths) <= 24
    for n, after in zip(lengths, blocks[1:], strict=False):
        assert n + len(vocabulary.encode(after.split()[0])) > 24


def divided(text, vocabulary, block):
    """(parts of the text, what is between them)."""
    if not block:
        return text.split("\n"), "\n"
    return (list(text), "") if vocabulary == "characters" else (text.split(), " ")


@pytest.mark.parametrize("block", [0, 24])
@pytest.mark.parametrize("vocabulary", KINDS)
def test_the_held_out_end_is_neither_trained_on_nor_in_the_vocabulary(folder, vocabulary, block):
    parts, between = divided("\n".join(LINES), vocabulary, block)
    end = (block or 1) * 20
    tasks = []
    for changed in (parts[-end:], [part.upper() for part in parts[-end:]]):
        (folder / "train.txt").write_text(between.join(parts[:-end] + changed), encoding="utf-8")
        tasks.append(build(folder, vocabulary=vocabulary, block=block))
        assert len(tasks[-1].splits["valid"]) == 20
        assert not set(tasks[-1].splits["train"].target) & set(tasks[-1].splits["valid"].target)
    trained, ends = ([task.splits[name].target for task in tasks] for name in ("train", "valid"))
    assert ends[0] != ends[1]
    assert trained[0] == [some for some in trained[1] if some not in ends[0]]
    assert tasks[0].target_vocabulary.to_json() == tasks[1].target_vocabulary.to_json()


def test_lines_that_differ_in_spaces_or_the_form_of_a_letter_do_not_leak(folder):
    lines = ["cafe\u0301 ", LINES[-1] + " ", LINES[-1], *LINES, "caf\u00e9"]
    (folder / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = build(folder)
    assert task.splits["valid"].target == [*LINES[-19:], "caf\u00e9"]
    assert task.splits["train"].target == LINES[:-19]
    assert task.stats["training examples equal to a held-out one"] == 3


@pytest.mark.parametrize("vocabulary", KINDS)
def test_fewer_examples_are_the_first_and_the_vocabulary_stays(folder, vocabulary):
    whole, few = (build(folder, vocabulary=vocabulary, block=24, num_examples=n) for n in (0, 7))
    assert few.splits["train"].target == whole.splits["train"].target[:7]
    assert few.splits["valid"] == whole.splits["valid"]
    assert few.target_vocabulary.to_json() == whole.target_vocabulary.to_json()
    assert few.source_vocabulary is few.target_vocabulary
    again = build(folder, vocabulary=vocabulary, block=24, kept=(whole.target_vocabulary,) * 2)
    assert again.splits == whole.splits and again.target_vocabulary is whole.target_vocabulary


@pytest.mark.parametrize("block", [0, 24])
@pytest.mark.parametrize("vocabulary", KINDS)
def test_examples_are_beginnings_of_validation_texts(folder, vocabulary, block):
    task = build(folder, vocabulary=vocabulary, block=block)
    assert len(task.examples) == 3
    texts = [" ".join(text.split()) for text in task.splits["valid"].target]
    for text in task.examples:
        assert text.strip() and "\n" not in text
        assert any(whole.startswith(" ".join(text.split())) for whole in texts)


def test_a_word_longer_than_a_block_is_a_block():
    vocabulary = SentencePiece.train(["ab cd efgh ijkl mnop"] * 9, vocab_size=22, model_type="unigram")
    words = ["a", "ponmlkjihgfedcba", "b"]
    assert len(vocabulary.encode(words[1])) > 4
    assert make_blocks(words, 4, vocabulary) == words


def test_batches_of_an_empty_source(folder):
    task = build(folder, vocabulary="characters", block=16)
    pairs = encode_pairs(task.splits["train"], task.source_vocabulary, task.target_vocabulary)
    assert set(pairs.source.lengths) == {1} and set(pairs.source.tokens) == {EOS}
    batches = Batches(pairs, choose_buckets(pairs.source.lengths, pairs.target.lengths), 8)
    assert batches.dropped == 0
    for batch in (batches.batch_at(0), next(eval_batches(pairs, 8))[1]):
        rows = batch["target_in"][:, 0] == BOS
        assert rows.any() and (batch["source"][rows, 0] == EOS).all() and (batch["source"][:, 1:] == PAD).all()
        after = batch["target_in"][:, 1:]
        assert (after == np.where(after == PAD, PAD, batch["target_out"][:, :-1])).all()


def phrase(words):
    """(number of the noun, the words after it) of a noun phrase at the beginning; number 0, 1 or both fit."""
    numbers = {n for n in (0, 1) if words[0] in plain_text.DETERMINERS[n]}
    words = words[2:] if words[1] in plain_text.ADJECTIVES else words[1:]
    (number,) = {n for n in numbers if words[0] in [noun[n] for noun in plain_text.NOUNS]}
    return number, words[1:]


def test_the_verb_agrees_with_its_subject_and_not_with_the_noun_between():
    sentences = make_sentences(2000, np.random.default_rng(1))
    attracted = 0
    for sentence in sentences:
        number, words = phrase(sentence.split())
        if words[0] in plain_text.PREPOSITIONS:
            between, words = phrase(words[1:])
            attracted += between != number
        if words[0] in [verb[number] for verb in plain_text.TRANSITIVE]:
            _, words = phrase(words[1:])
        else:
            assert words[0] in [verb[number] for verb in plain_text.INTRANSITIVE]
            words = words[1:]
        assert words == ["."]
    assert len(set(sentences)) == 2000 and attracted > 300
    assert make_sentences(50, np.random.default_rng(1)) == sentences[:50]
    task = build()
    assert task.stats == {"train": plain_text.NUM_SENTENCES - 20, "valid": 20, "test": plain_text.TEST_SIZE}
    every = [text for split in task.splits.values() for text in split.target]
    assert len(set(every)) == len(every) and all(UNK not in task.target_vocabulary.encode(text) for text in every)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"train": ("train.text", "")}, r"train.text: no such file; did you mean train.txt\?$"),
        ({"train": ("", "")}, "task.train names no file; expected a text file$"),
        ({"block": -1}, "task.block -1: expected the number of tokens of a block, or 0 for lines$"),
        ({"valid_size": 300}, "task.valid_size 300: expected 1 to 299, as the training text has 300 lines and there"),
        ({"valid_size": 0}, "task.valid_size 0: expected 1 to 299"),
        ({"valid_size": 30, "block": 100}, r"task.valid_size 30: expected 1 to 2\d, as the training text has \d+ word"),
        ({"valid_size": 10**6, "block": 1, "vocabulary": "characters"}, r"as the training text has \d+ characters and"),
        ({"num_examples": 281}, r"task.num_examples 281: expected 0 \(all\) to 280, the training examples there are$"),
        ({"num_examples": -1}, "task.num_examples -1: expected 0"),
        ({"vocab_size": (100, 3)}, "vocab_size 3 is too small"),
    ],
)
def test_wrong_options(folder, options, message):
    with pytest.raises(UserError, match=message) as error:
        build(**({"data_dir": folder} | options))
    assert "\n" not in str(error.value)


def test_wrong_files(folder):
    for content, message in (
        (b"", ": the file is empty; expected a text"),
        (b"\n \r\n\n", ": the file is empty; expected a text"),
        (b"a\n\nb\xe4\n", ", line 3: not valid UTF-8 (byte 0xe4); convert it to UTF-8"),
    ):
        (folder / "wrong.txt").write_bytes(content)
        with pytest.raises(UserError) as error:
            build(folder, test=("wrong.txt", ""))
        assert str(error.value) == f"{folder / 'wrong.txt'}{message}"
    with pytest.raises(UserError, match=r"new\.txt: .* expected --config\.task\.test=\"\('FILE', ''\)\"$"):
        PlainTextOptions().read_file(folder / "new.txt")


def test_nothing_left_to_train_on_is_told(folder):
    for text, options, message in (
        ("a b\n" * 30, {}, "^no training examples are left: of 30 there are 20 held out for validation, and"),
        ("a b\n", {}, "^the training text has 1 lines, too few to hold 1 of them out; name a validation file"),
        ("a b c\n", {"block": 5}, "^the training text has 3 words, too few to hold 5 of them out; .* task.block$"),
    ):
        (folder / "train.txt").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            build(folder, **options)
