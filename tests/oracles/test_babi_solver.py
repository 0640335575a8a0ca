"""The solver on the files themselves, and where a reader could think otherwise."""

import os
import pathlib

import pytest
from oracles.babi_solver import SOLVERS, explain, solve

from attn_jax.errors import UserError
from attn_jax.tasks.stories.babi import find
from attn_jax.tasks.stories.format import read_questions, split_story

FOLDER = os.environ.get("BABI_DIR", "")
FILES = (("en", "train"), ("en", "test"), ("en-10k", "train"))
# Questions with another answer than the file's: see tests/oracles/babi_solver.py.
OTHER_ANSWER = {(5, "en", "train"): 1, (5, "en", "test"): 2, (5, "en-10k", "train"): 18}
OTHER_EVIDENCE = {(18, "en", "train"): 98, (18, "en", "test"): 99, (18, "en-10k", "train"): 1188}


@pytest.mark.skipif(not FOLDER, reason="BABI_DIR does not name the folder of en and en-10k")
@pytest.mark.parametrize("folder, split", FILES, ids="-".join)
@pytest.mark.parametrize("number", SOLVERS)
def test_the_files_have_these_answers(number, folder, split):
    try:
        path = find(pathlib.Path(FOLDER) / folder, number, split)
    except UserError as error:
        pytest.skip(str(error))
    pairs = read_questions(path)
    wrong = other = 0
    for source, target, evidence in zip(pairs.source, pairs.target, pairs.evidence, strict=True):
        answer, why = explain(number, *split_story(source))
        wrong += answer != target
        other += answer == target and why != evidence
    assert len(pairs) == (10_000 if folder == "en-10k" else 1000)
    assert wrong == OTHER_ANSWER.get((number, folder, split), 0)
    assert other == OTHER_EVIDENCE.get((number, folder, split), 0)


@pytest.mark.parametrize(
    "number, story, answer, evidence",
    [
        (
            1,
            "mary moved to the garden . john went to the office . mary went back to the hallway . where is mary ?",
            "hallway",
            (3,),
        ),
        (
            2,
            "john went to the office . john got the milk there . john left the milk . "
            "john moved to the garden . where is the milk ?",
            "office",
            (3, 1),
        ),
        (
            2,
            "john went to the office . john got the milk there . john moved to the garden . where is the milk ?",
            "garden",
            (2, 3),
        ),
        (
            3,  # the hallway twice: before the last time, not before the first
            "john got the milk . john went to the office . john went to the hallway . john went to the garden . "
            "john went to the hallway . john put down the milk there . where was the milk before the hallway ?",
            "garden",
            (6, 5, 4),
        ),
        (
            4,
            "the office is north of the garden . the garden is north of the kitchen . what is the garden south of ?",
            "office",
            (1,),
        ),
        (
            4,
            "the office is north of the garden . the garden is north of the kitchen . what is south of the garden ?",
            "kitchen",
            (2,),
        ),
        (
            5,  # fred has the football no more, so the milk is what bill last gave to him
            "bill gave the milk to fred . bill passed the football to fred . fred gave the football to bill . "
            "what did bill give to fred ?",
            "milk",
            (1,),
        ),
        (
            5,  # of two things that were given, and stayed there, the one given last
            "bill gave the milk to fred . bill passed the football to fred . what did bill give to fred ?",
            "football",
            (2,),
        ),
        (
            7,
            "mary got the milk there . mary got the apple there . mary gave the milk to john . "
            "how many objects is mary carrying ?",
            "one",
            (1, 2, 3),
        ),
        (
            8,  # in the order of the first time
            "mary got the milk there . mary got the apple there . mary left the milk . mary took the milk there . "
            "what is mary carrying ?",
            "milk,apple",
            (1, 3, 4, 2),
        ),
        (9, "mary moved to the garden . mary is no longer in the garden . is mary in the garden ?", "no", (2,)),
        (10, "bill is in the park . bill is either in the park or the school . is bill in the park ?", "maybe", (2,)),
        (11, "mary moved to the garden . following that she went to the office . where is mary ?", "office", (1, 2)),
        (13, "mary and john moved to the garden . then they went to the office . where is john ?", "office", (1, 2)),
        (
            14,
            "julie went to the park this evening . this morning julie moved to the school . "
            "julie went back to the park yesterday . where was julie before the park ?",
            "school",
            (1, 2),
        ),
        (15, "mice are afraid of wolves . emily is a mouse . what is emily afraid of ?", "wolf", (2, 1)),
        (
            16,  # the last one of the kind, not most of them
            "greg is a swan . greg is gray . brian is a swan . brian is gray . lily is a swan . lily is white . "
            "julius is a swan . what color is julius ?",
            "white",
            (7, 5, 6),
        ),
        (
            17,
            "the triangle is above the red square . the red square is to the right of the red sphere . "
            "is the red sphere below the triangle ?",
            "yes",
            (2, 1),
        ),
        (
            18,
            "the box of chocolates fits inside the box . the chest is bigger than the box . "
            "does the chest fit in the box of chocolates ?",
            "no",
            (1, 2),
        ),
        (
            18,
            "the box of chocolates fits inside the box . the chest is bigger than the box . "
            "is the chest bigger than the box of chocolates ?",
            "yes",
            (2, 1),
        ),
        (
            18,  # it follows from two pairs, of which the first is named
            "the box fits inside the chest . the chest fits inside the suitcase . the box fits inside the crate . "
            "the crate fits inside the suitcase . does the box fit in the suitcase ?",
            "yes",
            (2, 1),
        ),
        (
            19,
            "the office is north of the garden . the kitchen is west of the garden . "
            "how do you go from the office to the kitchen ?",
            "s,w",
            (1, 2),
        ),
        (20, "yann is bored . yann went to the garden . why did yann go to the garden ?", "bored", (1,)),
        (20, "yann is tired . where will yann go ?", "bedroom", (1,)),
    ],
)
def test_small_stories(number, story, answer, evidence):
    assert explain(number, *split_story(story)) == (answer, evidence)


@pytest.mark.parametrize(
    "number, story, message",
    [
        (
            1,
            "mary moved to the garden . where is john ?",
            "task 1: the statements do not tell the answer to 'where is john'",
        ),
        (2, "john got the milk there . where is the milk ?", "task 2: the statements do not tell"),
        (5, "bill gave the milk to fred . who received the apple ?", "task 5: the statements do not tell"),
        (
            14,
            "julie went to the park yesterday . where was julie before the park ?",
            "task 14: the statements do not tell",
        ),
        (
            18,
            "the box fits inside the chest . is the chest bigger than the box ?",
            "task 18: the statements do not tell",
        ),
        (
            1,
            "mary flew to the garden . where is mary ?",
            "cannot read 'mary flew to the garden'; expected a sentence such as",
        ),
        (1, "mary moved to the garden . who is mary ?", "cannot read 'who is mary'"),
        (21, "mary moved to the garden . where is mary ?", "unknown bAbI task '21'"),
    ],
)
def test_what_cannot_be_answered(number, story, message):
    with pytest.raises(UserError, match=message) as error:
        solve(number, *split_story(story))
    assert "\n" not in str(error.value)
