"""Word vectors from text files: what is found, and one line of error for each thing that can be wrong."""

import numpy as np
import pytest

from attn_jax.data.word_vectors import read_vectors
from attn_jax.errors import UserError
from attn_jax.token_ids import SPECIAL

TOKENS = [*SPECIAL, "the", "Cat", "New York", "unseen"]


def write(tmp_path, text):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("header", ["", "5 2\n", "\ufeff", "\ufeff5 2\n"], ids=["glove", "word2vec", "bom", "both"])
def test_words_get_their_vectors_and_capitals_those_of_small_letters(tmp_path, header):
    lines = "the 1 2\ncat 3 4\nNew York 5 6\nthe 7 8\n<unk> 9 9\n"
    rows, found = vectors = read_vectors(write(tmp_path, header + lines), TOKENS)
    np.testing.assert_array_equal(rows[4:], [[1, 2], [3, 4], [5, 6], [0, 0]])
    np.testing.assert_array_equal(found, [False] * 4 + [True, True, True, False])
    assert str(vectors) == "3 of 8 tokens"


def test_the_word_itself_comes_before_its_small_letters(tmp_path):
    for lines in ("cat 3 4\nCat 1 2\n", "Cat 1 2\ncat 3 4\n"):
        np.testing.assert_array_equal(read_vectors(write(tmp_path, lines), TOKENS).rows[5], [1, 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\ncat 1 x\n", "line 2: expected a word and 2 finite numbers, got 'cat 1 x'"),
        ("the 1 2\ncat 1 nan\n", "line 2: expected a word and 2 finite numbers"),
        ("the 1 2\n3\n", "line 2: expected a word and 2 finite numbers, got '3'"),
        ("the\n", "line 1: expected a word and 1 finite numbers"),
        ("the 1 2 3\nCat 1\n", "line 2: expected a word and 3 finite numbers, got 'Cat 1'"),
        ("x 1 2 3\nthe 1 2\n", "line 2: expected a word and 3 finite numbers, got 'the 1 2'"),
        ("9 3\nthe 1 2\n", "line 2: expected a word and 3 finite numbers, got 'the 1 2'"),
        ("2 ²\ndog 1\n", "has no vector"),
        ("dog 1 2\n", "has no vector of any of the 8 tokens, such as the, Cat"),
        ("", "has no vector"),
        (b"\xff\xfe\x00", "not valid UTF-8"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=message) as error:
        read_vectors(path, TOKENS)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nothing.txt: cannot be read .*expected a file of word vectors"):
        read_vectors(tmp_path / "nothing.txt", TOKENS)
