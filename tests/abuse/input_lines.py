"""Lines that are predicted, scored and drawn: wrong ones are told with their number, strange ones are only text."""

import pathlib
from collections.abc import Callable

from case import RAW, Case, Result
from command_line import lines, says, writes
from sandbox import RUNS, question

PREDICT, SCORE = ["--mode=predict", "--workdir={words}"], ["--mode=score", "--workdir={words}"]
# (name, run, mode, standard input, words of the refusal)
WRONG = [
    ("no UTF-8", "words", "predict", b"a bird\n\xff\n", "standard input, line 2: not valid UTF-8"),
    ("a surrogate", "words", "predict", b"\xed\xa0\x80\n", "line 1: not valid UTF-8"),
    ("no tab", "words", "score", b"a\tb\na b\n", "line 2: expected source TAB target"),
    ("empty to score of labels", "labels", "score", b"a bird\n", "line 1: expected source TAB target"),
    ("a word", "table", "predict", b"1,2\nx,2\n", "line 2"),
    ("no question", "stories", "predict", b"mary moved to the office .\n", "no question"),
    ("NUL", "words", "predict", b"a\0b bird\n", "zero byte"),
    ("no UTF-8 to draw", "words", "visualize", b"\xff\n", "not valid UTF-8"),
    ("only empty lines to draw", "words", "visualize", b"\n\n", "got no sentence"),
    ("only names of columns to draw", "table", "visualize", b"a,b\n", "no row of data"),
    ("numbers to draw that are none", "table", "visualize", b"c,d\n", "line 1|not a number"),
]
# (name, standard input, lines of output)
STRANGE = [
    ("escapes", b"the \x1b]0;pwned\x07\x1b[2J\x1b[31mzebra .\n", 1),
    ("right to left", "مرحبا \u202e bird\n".encode(), 1),
    ("script", b"<script>alert(1)</script> a bird\n", 1),
    ("U+2028 and U+0085", "a\u2028bird\u0085can\n".encode(), 1),
    ("form feeds", b"a\x0cbird\x0bcan\x1cdance\n", 1),
    ("percent and braces", b"%s %d {} {0} \\n $(touch PWNED) `ls`\n", 1),
    ("empty lines", b"\na bird\n\n\ncan\n", 5),
    ("spaces", b"   \n\t\n", 2),
    ("no end of line", b"a bird", 1),
    ("CRLF", b"a bird\r\ncan\r\n", 2),
    ("special tokens", b"<s> </s> <unk> <pad> <eos>\n", 1),
    ("emoji", "👩‍👩‍👧 \U0010ffff a\n".encode(), 1),
    ("two thousand words", b"a bird " * 1000 + b"\n", 1),
    ("one long word", b"x" * 100_000 + b"\n", 1),
]


def cases() -> list[Case]:
    """All of these, and answers that must be the same however they are asked for."""
    found = [
        Case(
            "input_lines", f"{run} {mode}: {name}", [f"--mode={mode}", "--workdir={here}/run"], stdin, run=run
        )._replace(words=(told,))
        for name, run, mode, stdin, told in WRONG
    ]

    def right(name: str, argv: list[str], stdin: bytes, check: Callable, run: str = "") -> None:
        found.append(Case("right", name, argv, stdin, run=run, check=check))

    def ask(run: str, mode: str = "predict") -> list[str]:
        return [f"--mode={mode}", f"--workdir={{{run}}}"]

    for name, stdin, count in STRANGE:
        right(f"lines: {name}", PREDICT, stdin, quiet(lines(count)))
    for number, (content, count) in enumerate([(b"\xef\xbb\xbfa bird\r\ncan", 2), (b"\n\na\n", 3)]):
        argv = [*PREDICT, "--source={here}/mine.txt"]
        case = Case("right", f"file {number}", argv, prepare=writes("mine.txt", content), check=lines(count))
        found.append(case)
    sample = [*PREDICT, "--config.decode.method=sample", "--config.decode.method.temperature=3.0"]
    story, used = b"1 Mary moved to the office.\n2 Where is Mary?\n", "--workdir={here}/run"
    strange = "<script> $x^2$ \x1b[31m \0 日本 مرحبا\n".encode()
    for name, argv, stdin, check, *run in (
        ("score: a source with a tab", SCORE, b"a\tbird\tBIRD\n", lines(1)),
        ("score: an empty target", SCORE, b"a bird\t\n", lines(1)),
        ("table: far outside", ask("table"), b"1e6,-5e6\n", lines(1)),
        ("table: spaces", ask("table"), b" 0.5 , 0.25 \n", lines(1)),
        ("table: BOM", ask("table"), b"\xef\xbb\xbf0.5,0.25\n", near_two),
        ("labels: BOM", ask("labels"), b"\xef\xbb\xbfglad\n", lines(1)),
        ("stories: capitals and numbers", ask("stories"), story, lines(1)),
        ("visualize: strange words", ["--mode=visualize", used], strange, quiet(lines(1)), "words"),
        ("eval", ["--mode=eval", used], b"", says("eval.json"), "words"),
        ("eval of a table", ["--mode=eval", used], b"", says("rmse"), "table"),
        ("samples", [*sample, "--config.decode.method.seed=7"], b"a bird can\n" * 5, lines(5)),
        ("several samples", [*sample, "--config.decode.method.n_best=3"], b"a bird can\n", differ(3)),
    ):
        right(name, argv, stdin, check, *run)
    for name in RUNS:
        argv, stdin = question(name, f"{{{name}}}")
        right(f"{name} asked again", argv, stdin, lines(stdin.count(b"\n")))
    return found


def quiet(check: Callable) -> Callable:
    """A check that also looks at standard output: nothing that a terminal would obey."""
    return lambda here, result: "raw control characters" if RAW.search(result.out) else check(here, result)


def differ(count: int) -> Callable:
    """A check: so many lines, not all the same."""

    def check(here: pathlib.Path, result: Result) -> str:
        return lines(count)(here, result) or ("all the same" if len(set(result.out.splitlines())) == 1 else "")

    return check


def near_two(here: pathlib.Path, result: Result) -> str:
    """A check of y = 3 a - 2 b + 1 with a = 0.5, b = 0.25, so y = 2; the run is short."""
    return "" if abs(float(result.out) - 2.0) < 0.3 else f"expected about 2, got {result.out!r}"
