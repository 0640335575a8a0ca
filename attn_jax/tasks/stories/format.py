"""The file format of bAbI: stories of statements and questions, read from files or line by line.

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary? TAB bathroom TAB 1
    4 Daniel went back to the hallway.
    5 Where is Daniel? TAB hallway TAB 4

The number 1 starts a new story. A question is about all statements before it in its story; its last column has the line
numbers of the statements that support its answer, and may be empty or left out. Each question becomes one pair:

    source     "daniel went back to the hallway . mary moved to the bathroom . where is mary ?"   (statements in order)
    target     "bathroom", always one token; commas join several things: "apple,milk"
    evidence   (2,): numbers of the supporting statements, counted among the statements of the source

All text is in lower case, with one space between tokens; a comma is a token.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_jax.data.text import Path, read_lines
from attn_jax.data.vocabulary import StoryWords
from attn_jax.errors import UserError
from attn_jax.tasks.task import Pairs

PERIOD, QUESTION = StoryWords.first
LINE = "NUMBER STATEMENT. or NUMBER QUESTION? TAB ANSWER TAB NUMBERS"
NUMBERED = re.compile(r"(\d{1,9})\s+(.*)")


def join_story(statements: Iterable[str], question: str) -> str:
    """Joins statements and a question, given without their last token, to a source."""
    return " ".join([*(f"{statement} {PERIOD}" for statement in statements), f"{question} {QUESTION}"])


def split_story(source: str) -> tuple[list[str], str]:
    """Splits a source into statements and the question, without their last token."""
    *statements, question = source.removesuffix(f" {QUESTION}").split(f" {PERIOD} ")
    return statements, question


def read_questions(path: Path) -> Pairs:
    """Reads every question of a file as a pair with evidence.

    Raises:
        UserError: as in attn_jax.data.text.read_lines; a line number does not follow the one before it; a statement
            does not end in "."; a question does not have two or three columns or does not end in "?"; an answer is not
            one word; a supporting number is not the number of an earlier statement in the story; or there is no
            question.
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
        if len(columns) > 3:
            raise UserError(
                f"{where}: a question with {len(columns)} columns; expected QUESTION? TAB ANSWER TAB NUMBERS, or the "
                "first 2 of these"
            )
        question, answer, supports = [*columns, ""][:3]
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
    """Yields the source of every question in typed lines, as soon as its line is read.

    A sentence that ends in "?" is a question about all statements since the start of its story; text after a TAB is
    ignored. The first line, a line after an empty line, and a line with the number 1 start a story. Numbers and the "."
    at the end of a line can be left out. A line with statements and a question, such as a source, is a complete story.

    Args:
        lines: lines with or without line ends.
        max_sentences: largest number of statements of a source, counted from the last; 0 means all.

    Raises:
        UserError: a number is neither 1 nor the number of the line in its story, a line has only a number, a question
            has no statements before it, or there is no question.
    """
    has_question = False
    statements: list[str] = []
    index = 0
    for count, line in enumerate(lines, 1):
        where = f"line {count}"
        text = line.split("\t")[0].strip()
        if not text:
            statements, index = [], 0
            continue
        index += 1
        if match := re.fullmatch(r"(\d{1,9})(?:\s+(.*))?", text):
            number, text = int(match[1]), match[2] or ""
            if number == 1:
                statements, index = [], 1
            elif number != index:
                raise UserError(f"{where}: the number {number}; expected {_following(index - 1)}")
        sentences = re.findall(r"[^.?]*[.?]|[^.?]+$", text) or [PERIOD]
        is_story = sentences[0].endswith(PERIOD) and sentences[-1].endswith(QUESTION)
        statements = [] if is_story else statements
        for sentence in sentences:
            if not sentence.endswith(QUESTION):
                statements.append(_sentence(sentence.removesuffix(PERIOD) + PERIOD, PERIOD, where))
                continue
            if not statements:
                raise UserError(f"{where}: a question without a story; expected statements before it")
            has_question = True
            yield join_story(statements[-max_sentences:], _sentence(sentence, QUESTION, where))
        if is_story:
            statements, index = [], 0
    if not has_question:
        raise UserError('no question; expected statements line by line, then a question that ends in "?"')


def keep_last(pairs: Pairs, max_sentences: int) -> tuple[Pairs, int, int]:
    """Keeps the last `max_sentences` statements of each story; 0 keeps all.

    Returns the pairs with renumbered evidence, the number of dropped statements, and how many of the dropped ones were
    evidence.

    Raises:
        UserError: max_sentences is negative.
    """
    if max_sentences < 0:
        raise UserError(f"task.max_sentences {max_sentences}: expected 0 (all), or a number of statements such as 50")
    if not max_sentences:
        return pairs, 0, 0
    source, evidence, cut, lost = [], [], 0, 0
    for text, numbers in zip(pairs.source, pairs.evidence, strict=True):
        statements, question = split_story(text)
        num_cut = max(0, len(statements) - max_sentences)
        renumbered = tuple(n - num_cut for n in numbers if n > num_cut)
        source.append(join_story(statements[num_cut:], question))
        evidence.append(renumbered)
        cut, lost = cut + num_cut, lost + len(numbers) - len(renumbered)
    return Pairs(source, pairs.target, evidence), cut, lost


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Concatenates pairs, which must all have evidence."""
    columns = zip(*((part.source, part.target, part.evidence) for part in parts), strict=True)
    return Pairs(*([row for part in column for row in part] for column in columns))


def _sentence(text: str, end: str, where: str) -> str:
    """Returns the tokens of a sentence in lower case, joined by spaces, without the last token, which must be `end`."""
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
    number = int(text) if text.isdecimal() and len(text) < 10 else None
    if number not in lines_to_statements:
        raise UserError(f"{where}: the supporting number {text} is not that of a statement before it in this story")
    return lines_to_statements[number]


def _following(before: int) -> str:
    return f"{before + 1}, or 1 for a new story" if before else "1"
