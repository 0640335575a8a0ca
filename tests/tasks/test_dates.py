"""Each style is checked against an independent reading of it; the splits share no day."""

import datetime
import re
import unicodedata

import pytest
from tasks_by_name import make

from attn_jax.tasks.synthetic.dates import EXAMPLES, FIRST, LAST, PIVOT, STYLES, TEST_SIZE, era_of, kanji_number

DAY = datetime.date(2026, 11, 21)
FIRST_YEARS = {"明治": 1868, "大正": 1912, "昭和": 1926, "平成": 1989, "令和": 2019}
FIRST_YEARS |= {"M": 1868, "T": 1912, "S": 1926, "H": 1989, "R": 2019}
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def number(text):
    """The value of ASCII digits, positional kanji, or kanji with tens."""
    if text.isdecimal():
        return int(text)
    if text == "元":
        return 1
    digits = ["〇一二三四五六七八九".find(c) for c in text]
    if "十" not in text:
        return int("".join(map(str, digits)))
    tens, ones = text.split("十")
    return 10 * (number(tens) if tens else 1) + (number(ones) if ones else 0)


def read(text):
    """A date by regular expressions, written apart from the styles. The day of the week, if given, must be right."""
    text = unicodedata.normalize("NFKC", text).lower()
    if match := re.fullmatch(
        r"(明治|大正|昭和|平成|令和|)([^年]+)年([^月]+)月([^日]+)日(?:\(?([月火水木金土日])\)?(?:曜日)?)?", text
    ):
        era, year, month, day, weekday = match.groups()
        date = datetime.date(number(year) + (FIRST_YEARS[era] - 1 if era else 0), number(month), number(day))
        assert weekday is None or "月火水木金土日".index(weekday) == date.weekday()
        return date
    if match := re.fullmatch(r"([mtshr])(\d+)\.(\d+)\.(\d+)", text):
        return datetime.date(int(match[2]) + FIRST_YEARS[match[1].upper()] - 1, int(match[3]), int(match[4]))
    if match := re.fullmatch(r"(\d{4})[-/](\d+)[-/](\d+)", text):
        return datetime.date(*map(int, match.groups()))
    if match := re.fullmatch(r"(\d+)[./](\d+)[./](\d+)", text):
        day, month, year = map(int, match.groups())
        return datetime.date(century(match[3], year), month, day)
    words = re.findall(r"[a-z]+|\d+", text)
    months = [MONTHS.index(word[:3]) + 1 for word in words if word[:3] in MONTHS]
    weekdays = [word for word in words if re.match("(mon|tue|wed|thu|fri|sat|sun)", word) and word[:3] not in MONTHS]
    day, year = [word for word in words if word.isdecimal()]
    date = datetime.date(century(year, int(year)), months[0], int(day))
    assert all(date.strftime("%A").lower().startswith(word) for word in weekdays)
    return date


def century(text, year):
    return year if len(text) == 4 else year + (1900 if year >= PIVOT % 100 else 2000)


@pytest.fixture(scope="module")
def task():
    return make("dates", num_examples=5000, valid_size=300)


def test_all_styles_of_one_day():
    found = {style(DAY) for style in STYLES}
    known = "Saturday 21 November 2026; Nov 21, 2026; 21/11/26; 21/11/2026; 21st of November 2026; 2026-11-21; "
    known += (
        "Sat, 21 Nov 2026; november 21 2026; 令和8年11月21日; 令和八年十一月二十一日; R8.11.21; 2026年11月21日(土); "
    )
    known += "2026/11/21; 二〇二六年十一月二十一日; ２０２６年１１月２１日"
    assert found >= set(known.split("; ")) and len(found) == len(STYLES)


def test_every_pair_says_its_date(task):
    for split in task.splits.values():
        for source, target in zip(split.source, split.target, strict=True):
            assert read(source).isoformat() == target


def test_examples_are_readable_and_in_the_vocabulary(task):
    for example in EXAMPLES:
        assert FIRST <= read(example) <= LAST
        assert 1 not in task.source_vocabulary.encode(example)
    assert task.examples == EXAMPLES


def test_eras_begin_on_the_day():
    days = "1900-01-01 明治 33, 1912-07-29 明治 45, 1912-07-30 大正 1, 1926-12-24 大正 15, 1926-12-25 昭和 1, "
    days += "1989-01-07 昭和 64, 1989-01-08 平成 1, 2019-04-30 平成 31, 2019-05-01 令和 1, 2026-11-21 令和 8"
    for day, name, year in map(str.split, days.split(", ")):
        era, number = era_of(datetime.date.fromisoformat(day))
        assert (era.name, number) == (name, int(year))


def test_kanji_numbers():
    known = {1: "一", 9: "九", 10: "十", 11: "十一", 19: "十九", 20: "二十", 21: "二十一", 64: "六十四", 99: "九十九"}
    assert known == {n: kanji_number(n) for n in known}
    assert all(number(kanji_number(n)) == n for n in range(1, 100))


def test_no_two_days_are_written_alike():
    readings = {}
    day = FIRST
    while day <= LAST:
        if day.day in (1, 12) and day.month in (1, 11):  # the days whose numbers could be swapped or run together
            for style in STYLES[:14] + STYLES[16:] + (STYLES[14:16] if day.year >= PIVOT else ()):
                assert readings.setdefault(style(day), day) == day
        day += datetime.timedelta(days=1)


def test_splits_share_no_day(task):
    days = {name: set(split.target) for name, split in task.splits.items()}
    assert not days["train"] & (days["valid"] | days["test"]) and not days["valid"] & days["test"]
    assert task.stats == {"train": 5000, "valid": 300, "test": TEST_SIZE}
    assert {len(target) for split in task.splits.values() for target in split.target} == {10}
    few = make("dates", num_examples=10, valid_size=300, kept=task.kept, seeds=(1,))
    assert few.source_vocabulary is task.source_vocabulary
    assert not set(few.splits["test"].target) & days["train"]
    assert make("dates", num_examples=5000, valid_size=300, seeds=(1,)).splits == task.splits


def test_styles_are_about_equally_frequent(task):
    source = task.splits["train"].source
    share = sum("年" in text and text[0] in "明大昭平令" for text in source) / len(source)
    assert abs(share - 4 / len(STYLES)) < 0.02
    first_year = sum("元年" in text for text in source) / len(source)
    assert 0.01 < first_year < 0.04
    assert sum(bool(re.fullmatch(r"\d\d/\d\d/\d\d", text)) for text in source) > len(source) / len(STYLES) / 2
