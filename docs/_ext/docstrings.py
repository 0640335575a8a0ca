"""Docstrings as Markdown: paragraphs, indented blocks as code, arguments as lists, links for papers on arXiv."""

import inspect
import re
import types
from typing import Any

SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):$")
ARXIV = re.compile(r"(?:arXiv |\()((?:cs/)?\d{4}\.?\d{3,5})(?=\W)")
CITATION = re.compile(r"arXiv (?:cs/)?\d|cs/\d{7}|doi\.org|\b[A-Z][a-z]+(?: & [A-Z][a-z]+| et al\.)? (?:19|20)\d\d\b")
FIELDS = re.compile(r"^ {4}(\w[\w, ]*): (.*)$")


def text_of(described: Any) -> str:
    """Returns the own docstring of an object, "" where it has none; that of dataclasses' fields is not one."""
    if not isinstance(described, type | types.FunctionType | types.MethodType | types.ModuleType):
        described = type(described)
    text = described.__dict__.get("__doc__") if isinstance(described, type) else described.__doc__  # not inherited
    return inspect.cleandoc(text) if text and not text.startswith(f"{getattr(described, '__name__', '')}(") else ""


def cites(text: str) -> bool:
    """Tells whether a text names a paper."""
    return bool(CITATION.search(text))


def escape(text: str) -> str:
    """Returns text as Markdown shows it, letter by letter, but for code in backticks and papers, which become links."""
    parts = re.split(r"(`[^`]+`)", text)
    shown = [part if part.startswith("`") else re.sub(r"([\\*_<>\[\]|$#~])", r"\\\1", part) for part in parts]
    return ARXIV.sub(_linked, "".join(shown))


def _linked(match: re.Match) -> str:
    number = match[1]
    if not re.fullmatch(r"\d{4}\.\d{4,5}|cs/\d{7}", number):
        return match[0]
    before = "(" if match[0].startswith("(") else ""
    return f"{before}[arXiv {number}](https://arxiv.org/abs/{number})"


def markdown(text: str, sections: bool = True) -> str:
    """Returns a docstring as Markdown, without its arguments, results and errors on request."""
    lines, found, section = text.splitlines(), [], ""
    if not sections:
        lines = lines[: next((i for i, line in enumerate(lines) if SECTION.match(line)), None)]
    i = 0
    while i < len(lines):
        line = lines[i]
        if match := SECTION.match(line):
            section = match[1]
            found.append(f"**{section}**\n")
            i += 1
        elif not line.strip():
            i += 1
        elif line.startswith(">>> ") or (line.startswith("    ") and not section):
            block = _while(lines, i, _filled if line.startswith(">>> ") else _indented)
            found.append("```python\n" + "\n".join(inspect.cleandoc("\n".join(block)).splitlines()) + "\n```\n")
            i += len(block)
        elif section:
            block = _while(lines, i, _filled)
            found.append(_list(block))
            i += len(block)
        else:
            block = _while(lines, i, lambda x: bool(x.strip()) and not x.startswith("    "))
            found.append(_paragraph(block))
            i += len(block)
    return "\n".join(found)


def _filled(line: str) -> bool:
    return bool(line.strip())


def _indented(line: str) -> bool:
    return line.startswith("    ") or not line.strip()


def _while(lines: list[str], start: int, good) -> list[str]:
    end = start
    while end < len(lines) and good(lines[end]):
        end += 1
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return lines[start:end]


def _paragraph(block: list[str]) -> str:
    """A list of "- " stays a list; all else is one paragraph."""
    if block[0].startswith("- "):
        items = re.split(r"\n- ", "\n" + "\n".join(block))[1:]
        return "\n".join(f"- {escape(' '.join(item.split()))}" for item in items) + "\n"
    return escape(" ".join(block)) + "\n"


def _list(block: list[str]) -> str:
    """Arguments and errors, one item for each; lines of more than four spaces continue the item before."""
    items: list[str] = []
    for line in block:
        if match := FIELDS.match(line):
            items.append(f"- `{match[1]}`: {escape(match[2])}")
        elif items:
            items[-1] += " " + escape(line.strip())
        else:
            items.append(escape(line.strip()))
    return "\n".join(items) + "\n"
