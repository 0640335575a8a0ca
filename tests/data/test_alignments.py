"""True alignments: every digit of a date is made from a digit, a name or an era of its own field."""

import datetime

import pytest

from attn_jax.data.alignments import align_date, align_letters
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.dates import STYLES, DatesOptions
from attn_jax.tasks.text.inflection import InflectionOptions


def fields(source, target):
    """The texts of the source that the year, the month and the day can come from, and the sure pairs of characters."""
    sure, possible = align_date(list(source), list(target))
    assert sure <= possible
    texts = ["".join(source[s] for s in sorted({s for t, s in possible if t == place})) for place in (0, 5, 8)]
    return texts, sorted((target[t], source[s]) for t, s in sure)


@pytest.mark.parametrize(
    ("source", "texts", "sure"),
    [
        ("Sat, 21 Nov 2026", ["2026", "Nov", "21"], "0 1 2 2 2 6"),
        ("November 21st, 2026", ["2026", "November", "21"], "0 1 2 2 2 6"),
        ("21 Nov '26", ["26", "Nov", "21"], "1 2 2 6"),
        ("21/11/26", ["26", "11", "21"], "1 1 1 2 2 6"),
        ("2026/11/21", ["2026", "11", "21"], "0 1 1 1 2 2 2 6"),
        ("令和8年11月21日(土)", ["令和8", "11", "21"], "1 1 1 2"),
        ("R8.11.21", ["R8", "11", "21"], "1 1 1 2"),
    ],
)
def test_the_fields_of_a_date(source, texts, sure):
    assert fields(source, "2026-11-21") == (texts, [(digit, digit) for digit in sure.split()])


def test_a_number_in_kanji_with_ten_has_no_sure_digit():
    assert TextOptions().align(["a"], ["b"]) is None  # other tasks know no alignment
    for source, target in (("tomorrow", "2026-11-21"), ("21/11/26", "21 Nov")):  # no dates
        assert align_date(list(source), list(target)) is None
    texts, sure = fields("二〇二六年十一月二十一日", "2026-11-21")
    assert texts == ["二〇二六", "十一", "二十一"] and len(sure) == 4
    assert fields("昭和元年12月5日", "1926-12-05") == (["昭和元", "12", "5"], [("1", "1"), ("2", "2"), ("5", "5")])


@pytest.mark.parametrize("day", [datetime.date(2026, 11, 21), datetime.date(1989, 1, 8), datetime.date(2003, 5, 9)])
def test_every_style_is_aligned_and_dashes_are_not(day):
    for style in STYLES:
        _, possible = DatesOptions().align(list(style(day)), list(day.isoformat()))
        assert {t for t, _ in possible} == {0, 1, 2, 3, 5, 6, 8, 9}
        for field in (range(4), range(5, 7), range(8, 10)):
            assert len({frozenset(s for t, s in possible if t == place) for place in field}) == 1
        columns = [{s for t, s in possible if t == place} for place in (0, 5, 8)]
        assert not columns[0] & columns[1] and not columns[1] & columns[2] and not columns[0] & columns[2]


def test_letters_of_a_form_are_those_of_its_lemma():
    source, target = ["<N>", "<ACC>", *"sölkit"], list("sölkidün")
    sure, possible = InflectionOptions().align(source, target)
    assert sure == possible == {(i, i + 2) for i in range(5)}
    assert align_letters(list("gehen"), list("xy"))[0] == frozenset()
