"""Stories: statements, then a question about them. Reading them from files of bAbI's format, or line by line.

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary? TAB bathroom TAB 1
    4 Daniel went back to the hallway.
    5 Where is Daniel? TAB hallway TAB 4

A number 1 begins a new story. A question is about every statement before it in its story, and its last column has the
line numbers of those that its answer rests on. Each question becomes one pair:

    source     "daniel went back to the hallway . mary moved to the bathroom . where is mary ?"   (statements in order)
    target     "bathroom", always one token; several things are joined by commas: "apple,milk"
    evidence   (2,): the numbers of the statements that the answer rests on, counted among the source's statements

All in lower case, one space between tokens; a comma is a token of its own.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_jax.errors import UserError
from attn_jax.tasks.task import Pairs
from attn_jax.tasks.text import Path, read_lines
from attn_jax.tasks.vocabulary import StoryWords

PERIOD, QUESTION = StoryWords.first
LINE = "NUMBER STATEMENT. or NUMBER QUESTION? TAB ANSWER TAB NUMBERS"
NUMBERED = re.compile(r"(\d+)\s+(.*)")


def join_story(statements: Iterable[str], question: str) -> str:
    """The source of statements and a question, which are given without their last token."""
    return " ".join([*(f"{statement} {PERIOD}" for statement in statements), f"{question} {QUESTION}"])


def split_story(source: str) -> tuple[list[str], str]:
    """The statements and the question of a source, without their last token."""
    *statements, question = source.removesuffix(f" {QUESTION}").split(f" {PERIOD} ")
    return statements, question


def read_questions(path: Path) -> Pairs:
    """Every question of a file as a pair, with its evidence.

    Raises:
        UserError: as attn_jax.tasks.text.read_lines; or a line's number does not follow the one before it, a statement
            does not end in ".", a question has not three columns or does not end in "?", its answer is empty or more
            than one word, or one of its last numbers is not that of a statement before it; or there is no question.
    """
    source, target, evidence = [], [], []
    statements: list[str] = []
    lines_to_statements: dict[int, int] = {}
    before = 0
    for count, line in enumerate(read_lines(path, expected=LINE), 1):
        where = f"{path}, line {count}"
        match = NUMBERED.fullmatch(line.strip(" "))
        if match is None:
            raise UserError(f"{where}: no number and text; expected {LINE}")
        number, text = int(match[1]), match[2]
        if number == 1:
            statements, lines_to_statements = [], {}
        elif number != before + 1 or count == 1:
            raise UserError(f"{where}: the number {number}; expected {_following(before)}")
        before = number
        columns = [column.strip() for column in text.split("\t")]
        if len(columns) == 1:
            statements.append(_sentence(columns[0], PERIOD, where))
            lines_to_statements[number] = len(statements)
            continue
        if len(columns) != 3:
            raise UserError(
                f"{where}: a question with {len(columns)} columns; expected 3, QUESTION? TAB ANSWER TAB NUMBERS"
            )
        question, answer, supports = columns
        if not statements:
            raise UserError(f"{where}: a question without a story; expected statements before it")
        source.append(join_story(statements, _sentence(question, QUESTION, where)))
        if len(answer.split()) != 1:
            wrong = f"the answer {answer!r} is more than one word" if answer else "the answer is empty"
            raise UserError(f"{where}: {wrong}; expected one word, or several joined by commas, such as apple,milk")
        target.append(answer.lower())
        evidence.append(tuple(_support(n, lines_to_statements, where) for n in supports.split()))
    if not source:
        raise UserError(
            f"{path}: there is no question in this file; expected lines such as 3 Where is Mary? TAB bathroom TAB 1"
        )
    return Pairs(source, target, evidence)


def read_story(lines: Iterable[str], max_sentences: int = 0) -> Iterator[str]:
    """The source of every question of lines that someone types, as soon as its line is there.

    A sentence that ends in "?" is a question about all statements since the beginning of its story; what follows a TAB
    is not looked at. The first line, one after an empty line, and one with the number 1 begin a story. Numbers may be
    left out, and the "." at the end of a line too. A line with statements and a question, such as a source itself, is
    a story of its own.

    Args:
        lines: with or without their line ends.
        max_sentences: keep only so many last statements of each source; 0 keeps all.

    Raises:
        UserError: a number is neither 1 nor that of the line in its story, a line has nothing but its number, a
            question is about nothing, or there is no question.
    """
    asked = False
    statements: list[str] = []
    place = 0
    for count, line in enumerate(lines, 1):
        where = f"line {count}"
        text = line.split("\t")[0].strip()
        if not text:
            statements, place = [], 0
            continue
        place += 1
        if match := re.fullmatch(r"(\d+)(?:\s+(.*))?", text):
            number, text = int(match[1]), match[2] or ""
            if number == 1:
                statements, place = [], 1
            elif number != place:
                raise UserError(f"{where}: the number {number}; expected {_following(place - 1)}")
        sentences = re.findall(r"[^.?]*[.?]|[^.?]+$", text) or [PERIOD]
        whole = sentences[0].endswith(PERIOD) and sentences[-1].endswith(QUESTION)
        statements = [] if whole else statements
        for sentence in sentences:
            if not sentence.endswith(QUESTION):
                statements.append(_sentence(sentence.removesuffix(PERIOD) + PERIOD, PERIOD, where))
                continue
            if not statements:
                raise UserError(f"{where}: a question without a story; expected statements before it")
            asked = True
            yield join_story(statements[-max_sentences:], _sentence(sentence, QUESTION, where))
        if whole:
            statements, place = [], 0
    if not asked:
        raise UserError('no question; expected statements line by line, then a question that ends in "?"')


def keep_last(pairs: Pairs, max_sentences: int) -> tuple[Pairs, int, int]:
    """The pairs with only so many last statements of each story, and how many statements and pieces of evidence went.

    Evidence is numbered anew; what points to a statement that is not kept is dropped. 0 keeps all.

    Raises:
        UserError: a negative number.
    """
    if max_sentences < 0:
        raise UserError(f"task.max_sentences {max_sentences}: expected 0 (all), or a number of statements such as 50")
    if not max_sentences:
        return pairs, 0, 0
    source, evidence, cut, lost = [], [], 0, 0
    for text, numbers in zip(pairs.source, pairs.evidence, strict=True):
        statements, question = split_story(text)
        gone = max(0, len(statements) - max_sentences)
        kept = tuple(n - gone for n in numbers if n > gone)
        source.append(join_story(statements[gone:], question))
        evidence.append(kept)
        cut, lost = cut + gone, lost + len(numbers) - len(kept)
    return Pairs(source, pairs.target, evidence), cut, lost


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """The pairs of several, which all have evidence, one after the other."""
    columns = zip(*((part.source, part.target, part.evidence) for part in parts), strict=True)
    return Pairs(*([row for part in column for row in part] for column in columns))


def _sentence(text: str, end: str, where: str) -> str:
    """Lower-cased tokens, one space between them, without the last one, which has to be `end`."""
    what = "statement" if end == PERIOD else "question"
    if not text.endswith(end):
        raise UserError(f'{where}: a {what} without "{end}" at its end; expected {LINE}')
    tokens = text.removesuffix(end).replace(",", " , ").lower().split()
    if not tokens:
        raise UserError(f"{where}: an empty {what}; expected {LINE}")
    if {PERIOD, QUESTION} & {token[-1] for token in tokens}:
        raise UserError(f"{where}: two sentences in one line; expected one")
    return " ".join(tokens)


def _support(text: str, lines_to_statements: dict[int, int], where: str) -> int:
    number = int(text) if text.isdecimal() else None
    if number not in lines_to_statements:
        raise UserError(f"{where}: the supporting number {text} is not that of a statement before it in this story")
    return lines_to_statements[number]


def _following(before: int) -> str:
    return f"{before + 1}, or 1 for a new story" if before else "1"
