"""True alignments of generated tasks: the source tokens that each target token is made from.

Each function takes the tokens of a source and of its target and returns (sure, possible): links (target token, source
token), counted from 0; possible links include the sure ones (Och & Ney 2003, section 5). A target token that is made
from no particular token, such as a hyphen, has no link.
"""

import difflib
import re
from collections.abc import Sequence

Links = frozenset[tuple[int, int]]

KANJI_DIGITS = "〇一二三四五六七八九"
NUMBER = f"[0-9０-９]+|[{KANJI_DIGITS}十]+|元"
MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
WITH_NAME = re.compile(rf"(?P<d>{NUMBER})[^0-9]*?(?P<m>{MONTH})\D*(?P<y>{NUMBER})", re.IGNORECASE)
NAME_FIRST = re.compile(rf"(?P<m>{MONTH}) (?P<d>{NUMBER})\D+(?P<y>{NUMBER})", re.IGNORECASE)
YEAR_FIRST = re.compile(
    rf"(?P<y>[0-9]{{4}}|[RHSTM][0-9]+|(?:令和|平成|昭和|大正|明治)?(?:{NUMBER})(?=年))\D(?P<m>{NUMBER})\D(?P<d>{NUMBER})"
)
DAY_FIRST = re.compile(rf"(?P<d>{NUMBER})[/.](?P<m>{NUMBER})[/.](?P<y>{NUMBER})")
ISO = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
ISO_FIELDS = {"y": range(4), "m": range(5, 7), "d": range(8, 10)}  # characters of YYYY-MM-DD


def align_date(source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
    """Aligns the characters of a date with YYYY-MM-DD; None for a date in another style, or another target.

    Each character of the year has possible links to all characters of the year in the source; likewise month and day.
    The link to an equal digit at the same position, counted from the right, is sure.
    """
    text = "".join(source)
    if not ISO.fullmatch("".join(target)):
        return None
    for style in (YEAR_FIRST, DAY_FIRST, NAME_FIRST, WITH_NAME):
        if found := style.search(text):
            break
    else:
        return None
    sure, possible = set(), set()
    for field, places in ISO_FIELDS.items():
        start, end = found.span(field)
        possible |= {(t, s) for t in places for s in range(start, end)}
        for back in range(1, min(len(places), end - start) + 1):
            t, s = places[-back], end - back
            digit = str(KANJI_DIGITS.find(text[s])) if text[s] in KANJI_DIGITS else text[s]
            if "十" in text[start:end] or not digit.isdecimal() or int(digit) != int(target[t]):
                break
            sure.add((t, s))
    return frozenset(sure), frozenset(possible)


def align_letters(source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links]:
    """Aligns the letters of an inflected form with its lemma: the longest common parts of both, in order."""
    blocks = difflib.SequenceMatcher(None, source, target, autojunk=False).get_matching_blocks()
    links = frozenset((block.b + i, block.a + i) for block in blocks for i in range(block.size))
    return links, links
