"""Files and typed lines of stories become one source a question; whatever is wrong with a line is told in one line."""

import re

import pytest

from attn_jax.errors import UserError
from attn_jax.tasks.stories.format import join_pairs, join_story, keep_last, read_questions, read_story, split_story
from attn_jax.tasks.task import Pairs

FILE = """1 Mary moved to the bathroom.
2 John, and Sandra went to the hallway.
3 Where is Mary? \tBathroom\t1
4 Daniel went back to the hallway.
5 Where is Daniel?\thallway,kitchen\t4 2
1 Sumit is tired.
2 Where will sumit go?\tbedroom\t
"""
SOURCES = [
    "mary moved to the bathroom . john , and sandra went to the hallway . where is mary ?",
    "mary moved to the bathroom . john , and sandra went to the hallway . daniel went back to the hallway . "
    "where is daniel ?",
    "sumit is tired . where will sumit go ?",
]


@pytest.fixture
def read(tmp_path):
    def of_text(text):
        (tmp_path / "qa1.txt").write_text(text, encoding="utf-8")
        return read_questions(tmp_path / "qa1.txt")

    return of_text


def test_each_question_is_a_pair_whose_evidence_counts_statements(read):
    # Line 4 is the third statement, for line 3 is a question.
    pairs = Pairs(SOURCES, ["bathroom", "hallway,kitchen", "bedroom"], [(1,), (3, 2), ()])
    assert read(FILE) == read(FILE.replace("\n", "\r\n")) == pairs
    assert read(FILE.replace("bedroom\t", "bedroom")) == pairs  # without the column of supporting facts


def test_a_source_is_split_into_what_it_was_joined_from():
    for source in SOURCES:
        assert join_story(*split_story(source)) == source
    assert split_story(SOURCES[2]) == (["sumit is tired"], "where will sumit go")
    assert split_story("where is mary ?") == ([], "where is mary")


@pytest.mark.parametrize(
    "line, now, message",
    [
        (1, "Mary moved to the bathroom.", "line 1: no number and text; expected NUMBER STATEMENT"),
        (2, "2", "line 2: no number and text"),
        (1, "2 Mary moved to the bathroom.", "line 1: the number 2; expected 1"),
        (4, "5 Daniel went back to the hallway.", "line 4: the number 5; expected 4, or 1 for a new story"),
        (2, "2 John went to the hallway", 'line 2: a statement without "." at its end'),
        (2, "2 .", "line 2: an empty statement"),
        (2, "2 John went. Mary left.", "line 2: two sentences in one line"),
        (3, "3 Where is Mary?", 'line 3: a statement without "." at its end; expected .* QUESTION\\? TAB ANSWER'),
        (3, "3 Where is Mary\tbathroom\t1", 'line 3: a question without "\\?" at its end'),
        (3, "3 Where is Mary?\tbathroom\t1\t2", "line 3: a question with 4 columns; expected QUESTION"),
        (3, "3 Where is Mary?\t\t1", "line 3: the answer is empty"),
        (3, "3 Where is Mary?\tbath room\t1", "line 3: the answer 'bath room' is more than one word"),
        (3, "3 Where is Mary?\tbathroom\t4", "line 3: the supporting number 4 is not that of a statement before it"),
        (3, "3 Where is Mary?\tbathroom\t0", "line 3: the supporting number 0 is not"),
        (3, "3 Where is Mary?\tbathroom\tone", "line 3: the supporting number one is not"),
        (5, "5 Where is Daniel?\thallway\t3", "line 5: the supporting number 3 is not"),
        (7, "2 Where will sumit go?\tbedroom\t4", "line 7: the supporting number 4 is not"),
        (4, "", "line 4: the line is empty; expected NUMBER STATEMENT"),
    ],
)
def test_wrong_lines(read, line, now, message):
    lines = FILE.splitlines()
    lines[line - 1] = now
    with pytest.raises(UserError, match=rf"qa1\.txt, {message}") as error:
        read("\n".join(lines) + "\n")
    assert "\n" not in str(error.value)


def test_wrong_files(read):
    long = 5000 * "1"
    for text, message in (
        ("1 Mary moved to the bathroom.\n", ": there is no question in this file"),
        ("1 Where is Mary?\tbathroom\t\n", ", line 1: a question without a story"),
        (f"{long} Mary went home.\n", ", line 1: no number and text"),
        (f"1 Mary went home.\n2 Where is Mary?\thome\t{long}\n", ", line 2: the supporting number 1+ is not that of"),
    ):
        with pytest.raises(UserError, match=rf"qa1\.txt{message}"):
            read(text)
    assert list(read_story([f"{long} Mary went home.", "Where is Mary?"]))  # a word, as any that is unknown


def test_typed_lines_give_what_a_file_gives(read):
    numbered = FILE.splitlines(keepends=True)
    assert list(read_story(numbered)) == read(FILE).source
    bare = [re.sub(r"^\d+ ", "", line.split("\t")[0]).removesuffix(".\n") for line in numbered]
    assert list(read_story([*bare[:5], "", "\n", *bare[5:]])) == read(FILE).source
    assert list(read_story(numbered, max_sentences=2)) == keep_last(read(FILE), 2)[0].source


def test_a_line_with_statements_and_a_question_is_a_story_of_its_own(read):
    sources = read(FILE).source
    more = [*sources, "Mary left. John came", "Where is Mary?"]
    assert list(read_story(more)) == [*sources, "mary left . john came . where is mary ?"]


def test_a_typed_question_is_there_as_soon_as_its_line():
    lines = iter(["Mary left.", "Where is Mary?", "John came."])
    assert next(read_story(lines)) == "mary left . where is mary ?"
    assert list(lines) == ["John came."]


@pytest.mark.parametrize(
    "lines, message",
    [
        ([], 'no question; expected statements line by line, then a question that ends in "?"'),
        (["Mary left."], "no question"),
        (["Where is Mary?"], "line 1: a question without a story"),
        (["Mary left.", "", "Where is Mary?"], "line 3: a question without a story"),
        (["1 Mary left.", "3 Where is Mary?"], "line 2: the number 3; expected 2, or 1 for a new story"),
        (["4 Mary left.", "5 Where is Mary?"], "line 1: the number 4; expected 1"),
        (["1", "Where is Mary?"], "line 1: an empty statement"),
        (["Mary left.", "?"], "line 2: an empty question"),
    ],
)
def test_wrong_typed_lines(lines, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        list(read_story(lines))
    assert "\n" not in str(error.value)


def test_the_last_statements_keep_their_evidence_under_new_numbers(read):
    pairs = read(FILE)
    assert keep_last(pairs, 0) == keep_last(pairs, 3) == (pairs, 0, 0)
    kept, cut, lost = keep_last(pairs, 1)
    assert kept.source[1] == "daniel went back to the hallway . where is daniel ?"
    assert kept.evidence == [(), (1,), ()] and kept.target == pairs.target
    assert (cut, lost) == (1 + 2, 1 + 1)
    with pytest.raises(UserError, match=r"task\.max_sentences -1: expected 0"):
        keep_last(pairs, -1)


def test_pairs_of_several_files_stand_one_after_the_other(read):
    pairs = read(FILE)
    joined = join_pairs([pairs, pairs.select([2])])
    assert joined.source == [*SOURCES, SOURCES[2]] and joined.evidence == [(1,), (3, 2), (), ()]
