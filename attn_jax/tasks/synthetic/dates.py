"""Translates dates written in many English and Japanese styles to ISO 8601; the data is generated.

    Saturday 21 November 2026    21/11/26    令和8年11月21日    二〇二六年十一月二十一日   ->   2026-11-21

The days are from 1900 to 2050. Numbers with slashes are day first (21/11/2026), or year first with four digits
(2026/11/21). Two-digit years mean 1970 to 2069. Japanese eras change on the first day of the new era: 1926-12-24 is
大正15年, 1926-12-25 昭和元年. The days of the validation and the test split never occur in training, in any style.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attn_jax.data.alignments import KANJI_DIGITS, Links, align_date
from attn_jax.data.vocabulary import Characters
from attn_jax.parts import option
from attn_jax.tasks.options import SEED, TextOptions
from attn_jax.tasks.task import Pairs, Task

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2050, 12, 31)
PIVOT = 1970  # two-digit years mean PIVOT to PIVOT + 99
NUM_EXAMPLES = 30_000  # training pairs by default
TEST_SIZE = 1000
HELD_OUT_SHARE = 0.05  # share of all days for validation, and the same for the test
EXAMPLES = ("令和8年11月21日", "Saturday 21 November 2026", "21/11/26", "昭和39年10月10日", "Nov 21, 2026", "R8.11.21")


class Era(NamedTuple):
    """A Japanese era: its name, its letter, and its first day."""

    name: str
    letter: str
    first: datetime.date


# A new era begins on its first day, so the last day of an era is the day before the next era.
ERAS = (
    Era("令和", "R", datetime.date(2019, 5, 1)),
    Era("平成", "H", datetime.date(1989, 1, 8)),
    Era("昭和", "S", datetime.date(1926, 12, 25)),
    Era("大正", "T", datetime.date(1912, 7, 30)),
    Era("明治", "M", datetime.date(1868, 10, 23)),
)

MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
KANJI_WEEKDAYS = "月火水木金土日"
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")


def era_of(day: datetime.date) -> tuple[Era, int]:
    """Returns the era of a day and the year of the era, counted from 1."""
    era = next(era for era in ERAS if day >= era.first)
    return era, day.year - era.first.year + 1


def kanji_number(n: int) -> str:
    """Writes 1 to 99 in kanji: 21 is 二十一, 10 is 十."""
    tens, ones = divmod(n, 10)
    return (KANJI_DIGITS[tens] if tens > 1 else "") + ("十" if tens else "") + (KANJI_DIGITS[ones] if ones else "")


def _ordinal(n: int) -> str:
    return f"{n}{'th' if n in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def _kanji_year(day: datetime.date) -> str:
    return "".join(KANJI_DIGITS[int(digit)] for digit in str(day.year))


def _era_year(day: datetime.date, number=str) -> str:
    era, year = era_of(day)
    return f"{era.name}{'元' if year == 1 else number(year)}年"


def _month(day: datetime.date) -> str:
    return MONTHS[day.month - 1]


def _weekday(day: datetime.date) -> str:
    return WEEKDAYS[day.weekday()]


def _kanji_day(day: datetime.date) -> str:
    return f"{kanji_number(day.month)}月{kanji_number(day.day)}日"


# Each style writes a day as text. The comment shows 2026-11-21.
ENGLISH = (
    lambda d: f"{_weekday(d)} {d.day} {_month(d)} {d.year}",  # Saturday 21 November 2026
    lambda d: f"{_weekday(d)}, {_month(d)} {d.day}, {d.year}",  # Saturday, November 21, 2026
    lambda d: f"{_weekday(d)[:3]}, {d.day} {_month(d)[:3]} {d.year}",  # Sat, 21 Nov 2026
    lambda d: f"{_month(d)[:3]} {d.day}, {d.year}",  # Nov 21, 2026
    lambda d: f"{_month(d)} {d.day}, {d.year}",  # November 21, 2026
    lambda d: f"{d.day} {_month(d)} {d.year}",  # 21 November 2026
    lambda d: f"{d.day}-{_month(d)[:3]}-{d.year}",  # 21-Nov-2026
    lambda d: f"{_ordinal(d.day)} of {_month(d)} {d.year}",  # 21st of November 2026
    lambda d: f"{_month(d)} {_ordinal(d.day)}, {d.year}",  # November 21st, 2026
    lambda d: f"{_month(d)} {d.day} {d.year}".lower(),  # november 21 2026
    lambda d: f"{d.day} {_month(d)[:3]} {d.year}".upper(),  # 21 NOV 2026
    lambda d: f"{d.day}/{d.month}/{d.year}",  # 21/11/2026
    lambda d: f"{d.day:02}.{d.month:02}.{d.year}",  # 21.11.2026
    lambda d: d.isoformat(),  # 2026-11-21
)
TWO_DIGITS = (
    lambda d: f"{d.day:02}/{d.month:02}/{d.year % 100:02}",  # 21/11/26
    lambda d: f"{d.day} {_month(d)[:3]} '{d.year % 100:02}",  # 21 Nov '26
)
JAPANESE = (
    lambda d: f"{d.year}年{d.month}月{d.day}日",  # 2026年11月21日
    lambda d: f"{d.year}年{d.month}月{d.day}日({KANJI_WEEKDAYS[d.weekday()]})",  # 2026年11月21日(土)
    lambda d: f"{d.year}年{d.month}月{d.day}日{KANJI_WEEKDAYS[d.weekday()]}曜日",  # 2026年11月21日土曜日
    lambda d: f"{d.year}年{d.month}月{d.day}日".translate(FULL_WIDTH),  # ２０２６年１１月２１日
    lambda d: f"{_kanji_year(d)}年{_kanji_day(d)}",  # 二〇二六年十一月二十一日
    lambda d: f"{d.year}/{d.month}/{d.day}",  # 2026/11/21
)
JAPANESE_ERA = (
    lambda d: f"{_era_year(d)}{d.month}月{d.day}日",  # 令和8年11月21日
    lambda d: f"{_era_year(d)}{d.month}月{d.day}日({KANJI_WEEKDAYS[d.weekday()]})",  # 令和8年11月21日(土)
    lambda d: f"{_era_year(d)}{d.month}月{d.day}日".translate(FULL_WIDTH),  # 令和８年１１月２１日
    lambda d: f"{_era_year(d, kanji_number)}{_kanji_day(d)}",  # 令和八年十一月二十一日
    lambda d: f"{era_of(d)[0].letter}{era_of(d)[1]}.{d.month}.{d.day}",  # R8.11.21
)
STYLES = (*ENGLISH, *TWO_DIGITS, *JAPANESE, *JAPANESE_ERA)


def _sample_pairs(rng: np.random.Generator, days: np.ndarray, num_pairs: int) -> Pairs:
    """Samples `num_pairs` styles, each with a random day from `days` (counted from FIRST) that the style can write."""
    days = np.sort(days)
    starts = [(era.first - FIRST).days for era in ERAS]
    ends = [int(days[-1]) + 1, *starts[:-1]]  # an era ends where the next begins; the newest era has no end
    eras = [days[(days >= start) & (days < end)] for start, end in zip(starts, ends, strict=True)]
    first_years = [day for day in days if era_of(FIRST + datetime.timedelta(days=int(day)))[1] == 1]
    eras.append(np.array(first_years))  # 元年 would be too rare to learn otherwise
    recent = days[days >= (datetime.date(PIVOT, 1, 1) - FIRST).days]
    pools = (
        [[days]] * len(ENGLISH) + [[recent]] * len(TWO_DIGITS) + [[days]] * len(JAPANESE) + [eras] * len(JAPANESE_ERA)
    )
    source, target = [], []
    samples = zip(rng.integers(len(STYLES), size=num_pairs), *rng.random((2, num_pairs)), strict=True)
    for style, which_pool, which_day in samples:
        pool = pools[style][int(which_pool * len(pools[style]))]
        day = FIRST + datetime.timedelta(days=int(pool[int(which_day * len(pool))]))
        source.append(STYLES[style](day))
        target.append(day.isoformat())
    return Pairs(source, target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatesOptions(TextOptions):
    """Options of the task of writing dates as YYYY-MM-DD.

    All styles are equally frequent. Within a style with Japanese eras, the eras and the first years (元年) are equally
    frequent; otherwise days are uniform. The held-out days are always the same. The texts of validation and test also
    depend on the sizes of the splits before them, so runs with different `num_examples` have different test sets.
    """

    name: ClassVar[str] = "dates"

    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        rng = np.random.default_rng(SEED)
        num_days = (LAST - FIRST).days + 1
        days = rng.permutation(num_days)
        held_out = int(num_days * HELD_OUT_SHARE)
        splits = {
            "train": _sample_pairs(rng, days[2 * held_out :], self.num_examples or NUM_EXAMPLES),
            "valid": _sample_pairs(rng, days[:held_out], self.valid_size),
            "test": _sample_pairs(rng, days[held_out : 2 * held_out], TEST_SIZE),
        }
        sides = (splits["train"].source, splits["train"].target)
        vocabularies = kept or [Characters.train(lines, vocab_size=1000) for lines in sides]
        stats = {name: len(split) for name, split in splits.items()}
        return Task("dates", splits, *vocabularies, stats=stats, examples=EXAMPLES)

    def align(self, source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
        """Returns the links from each character of the ISO date to the characters of the source that determine it."""
        return align_date(source, target)
