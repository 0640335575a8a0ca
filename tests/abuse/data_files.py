"""Files to train on that are wrong, told with the line; and unusual ones that are right."""

import gzip
import os
import pathlib
from collections.abc import Callable

from case import Case, Result
from command_line import says, writes
from PIL import Image
from sandbox import ROOT, labels, stories, table, words

ON_ITS_SIDE = Image.Exif()
ON_ITS_SIDE[0x0112] = 6
# Of data/train.source: (name, (good content) -> content, words of the refusal)
TEXT = [
    ("a line more", lambda good: good + b"one more\n", "has 61 lines but"),
    ("a line less", lambda good: good.split(b"\n", 1)[1], "has 59 lines but"),
    ("nothing", lambda good: b"", "the file is empty"),
    ("one end of line", lambda good: b"\n", "line 1: the line is empty"),
    ("an empty line", lambda good: good.replace(b"\n", b"\n\n", 1), "line 2: the line is empty"),
    ("a line of spaces", lambda good: good.replace(b"\n", b"\n  \t \n", 1), "line 2: the line is empty"),
    ("a line of wide spaces", lambda good: good.replace(b"\n", b"\n\xe3\x80\x80\n", 1), "line 2: the line is empty"),
    ("no UTF-8", lambda good: good.replace(b"\n", b"\n\xff", 3), "line 2: not valid UTF-8 (byte 0xff)"),
    ("a surrogate", lambda good: good.replace(b"\n", b"\n\xed\xa0\x80", 3), "line 2: not valid UTF-8 (byte 0xed)"),
    ("cut in a character", lambda good: good[:-1] + "日".encode()[:2], "line 60: not valid UTF-8"),
    ("Latin-1", lambda good: good.replace(b"a", "ä".encode("latin-1"), 9), "not valid UTF-8 (byte 0xe4)"),
    ("UTF-16", lambda good: good.decode().encode("utf-16"), "line 1: not valid UTF-8"),
    ("gzip", gzip.compress, "line 1: not valid UTF-8 (byte 0x8b)"),
    ("carriage returns alone", lambda good: good.replace(b"\n", b"\r"), "lines but"),
    ("one line", lambda good: b"a bird\n", "has 1 lines but"),
    ("only long lines", lambda good: good.replace(b"\n", b" a" * 30 + b"\n"), "no pair fits any of the buckets"),
]
# Other ways for the two files not to be there; (name, value of task.train, words)
NAMES = [
    ("misspelt", "('trainn.source', 'train.target')", "did you mean train.source?"),
    ("a folder", "('folder', 'train.target')", "folder: is a directory"),
    ("one name", "('train.source',)", "task.train"),
    ("no names", "('', '')", "task.train names no files"),
    ("outside", "('../../nowhere/x', 'train.target')", "no such file"),
    ("a NUL in a name", "('a\\x00b', 'train.target')", "task.train|null|no such file"),
    ("a very long name", f"('{'a' * 300}', 'train.target')", "name too long|no such file"),
]
COMMA = "write a point for the decimal comma|cells|not a number"
CLASSES = {"task__classification": True, "eval__metrics": "('accuracy',)"}
# points.csv: (name, (good text) -> text, more options, words)
CSV = [
    ("a word", lambda t: t.replace("\n", "\nx,1,2\n", 1), {}, "line 2, column 'a': 'x' is not a number"),
    ("an empty cell", lambda t: t.replace("\n", "\n,1,2\n", 1), {}, "line 2, column 'a': '' is not a number"),
    ("nan", lambda t: t.replace("\n", "\n1,nan,2\n", 1), {}, "line 2, column 'b': nan is not a finite number"),
    ("inf", lambda t: t.replace("\n", "\n1,2,-inf\n", 1), {}, "line 2, column 'y': -inf is not a finite number"),
    ("1e300", lambda t: t.replace("\n", "\n1e300,2,3\n", 1), {}, "line 2, column 'a': 1e300 is too large"),
    ("1e400", lambda t: t.replace("\n", "\n1e400,2,3\n", 1), {}, "line 2, column 'a'"),
    ("1e300 to predict", lambda t: t.replace("\n", "\n1,2,1e300\n", 1), {}, "line 2, column 'y': 1e300 is too large"),
    ("a cell more", lambda t: t.replace("\n", "\n1,2,3,4\n", 1), {}, "line 2: 4 cells"),
    ("a cell less", lambda t: t + "1,2\n", {}, "line 42: 2 cells"),
    ("decimal commas", lambda t: t.replace(",", ";").replace(".", ","), {}, COMMA),
    ("one column", lambda t: "y\n1\n2\n", {}, "one column only"),
    ("a column twice", lambda t: t.replace("a,b,y", "a,a,y"), {}, "2 columns are called 'a'"),
    ("a column without a name", lambda t: t.replace("a,b,y", "a,,y"), {}, "column 2 has no name; name it, or choose"),
    ("a target without a name", lambda t: t.replace("a,b,y", "a,b,"), {}, "the last column has no name"),
    ("text after a quote", lambda t: t.replace("\n", '\n"1"2,3,4\n', 1), {}, "line 2: not a row of a CSV file"),
    ("header alone", lambda t: "a,b,y\n", {}, "there are 0 rows|0 training points"),
    ("empty", lambda t: "", {}, "the file is empty"),
    ("empty lines", lambda t: "\n\n\n", {}, "only empty lines"),
    ("one row", lambda t: "a,b,y\n1,2,3\n", {}, "task.valid_size 5"),
    ("a constant column", lambda t: "a,b,y\n" + "".join(f"1,{i},{i}\n" for i in range(20)), {}, "'a' has one value"),
    ("a constant target", lambda t: "a,b,y\n" + "".join(f"{i},{i * i},1\n" for i in range(20)), {}, "one value only"),
    ("a quote that is not closed", lambda t: t + '"1,2,3\n', {}, "line 42"),
    ("an unknown target", lambda t: t, {"task__target": "price"}, "unknown column"),
    ("an unknown input", lambda t: t, {"task__inputs": "('aa',)"}, "did you mean a?|unknown column"),
    ("target among the inputs", lambda t: t, {"task__inputs": "('a','y')"}, "besides the target"),
    ("an empty class", lambda t: t + "1,2,\n", CLASSES, "empty"),
    ("too much held out", lambda t: t, {"task__valid_size": 40}, "task.valid_size 40"),
    ("no UTF-8", lambda t: t.encode("utf-16"), {}, "not valid UTF-8"),
]
# labels.tsv: (name, (good text) -> text, more options, words)
LABELLED = [
    ("no tab", lambda t: t + "a bird\n", {}, "line 61: expected text TAB label, with one tab, got 0"),
    ("two tabs", lambda t: t + "a\tb\tc\n", {}, "line 61: expected text TAB label, with one tab, got 2"),
    ("no label", lambda t: t + "a bird\t\n", {}, "line 61: the label is empty"),
    ("no text", lambda t: t + "\tgood\n", {}, "line 61: the text is empty"),
    ("two words", lambda t: t + "a bird\tvery good\n", {}, "such as very_good"),
    ("one label", lambda t: t.replace("\tbad", "\tgood"), {}, "only the label 'good'"),
    ("one text, each label once", lambda t: "a\tx\na\ty\na\tz\n", {"task__valid_size": 1}, "no training"),
    ("all held out", lambda t: "a\tx\n" * 30 + "a\ty\n", {"task__valid_size": 5}, "no training|only the label"),
    ("a label of no training line", lambda t: t, {"task__test": ("other.tsv", "")}, "is not in the training file"),
    ("nothing seen often", lambda t: t, {"task__vocabulary__min_count": 1000}, "seen 1000 times"),
]
# Images of a folder: (name, format and options of the file, words)
IMAGES = [
    ("a GIF called .png", {"format": "GIF"}, "1.png: a GIF image; expected a PNG or JPEG file"),
    ("a TIFF called .png", {"format": "TIFF"}, "1.png: a TIFF image; expected a PNG or JPEG file"),
    ("an animation", {"format": "PNG", "save_all": True}, "1.png: an animation of 2 images"),
    ("a photo on its side", {"format": "JPEG", "exif": ON_ITS_SIDE}, "8 x 12 pixels|12 x 8 pixels"),
]
QUESTION = "3 Where is Mary?\toffice\t1\n"
TWO = "1 Mary moved to the office.\n2 John went to the garden.\n"
# own.txt, stories of one's own: (name, text, words)
STORIES = [
    ("no number", "Mary moved.\n", "line 1: no number"),
    ("begins at two", "2 Mary moved.\n", "line 1: the number 2"),
    ("a number left out", TWO.replace("2 ", "3 ") + QUESTION, "line 2: the number 3"),
    ("no period", TWO.replace("office.", "office"), 'line 1: a statement without "."'),
    ("no question mark", TWO + QUESTION.replace("?", ""), "line 3: a question without|line 3"),
    ("four columns", TWO + "3 Where is Mary?\toffice\t1\t2\n", "line 3: a question with 4 columns"),
    ("no answer", TWO + "3 Where is Mary?\t\t1\n", "line 3: the answer is empty"),
    ("two answers", TWO + "3 Where is Mary?\tthe office\t1\n", "line 3: the answer 'the office' is more than one"),
    ("evidence of the future", TWO + QUESTION.replace("\t1", "\t9"), "line 3: the supporting number 9"),
    ("evidence a word", TWO + QUESTION.replace("\t1", "\tone"), "line 3: the supporting number one"),
    ("a question first", "1 Where is Mary?\toffice\t\n", "line 1: a question without a story"),
    ("no question", TWO, "there is no question in this file"),
    ("one question", TWO + QUESTION, "has 1 training questions"),
    ("nothing", "", "the file is empty"),
    ("two sentences", TWO.replace("office.", "office. He left."), "line 1: two sentences in one line"),
    ("no UTF-8", b"1 Mary moved.\n2 \xff\n", "line 2: not valid UTF-8"),
]


def cases() -> list[Case]:
    """Trainings on these files, in a folder of their own, and unusual files that are right."""
    found, new, here = [], "--workdir={here}/new", "{here}/data"

    def add(section: str, name: str, argv: list[str], prepare: Callable | None, told: str, data: str = "") -> None:
        found.append(Case(section, name, [*argv, new], data=data, prepare=prepare, words=(told,)))

    for name, change, told in TEXT:
        add("text_files", name, words(here), changes("train.source", change), told, "words")
    for name, names, told in NAMES:
        add("text_files", f"task.train {name}", words(here, task__train=names), make_folder, told, "words")
    add("text_files", "no such folder", words("/nowhere"), None, "does not exist either")
    for name, change, more, told in CSV:
        add("tables", name, table(here, **more), changes("points.csv", text(change)), told, "table")
    for name, change, more, told in LABELLED:
        add("labels", name, labels(here, **more), changes("labels.tsv", text(change)), told, "labels")
    for name, content, told in STORIES:
        add("stories", name, stories(here, **OWN), writes("data/own.txt", content), told, "stories")
    pictures = [f"--config={ROOT}/configs/images_folder.py", "--config.data_dir={here}", new]
    for name, how, told in IMAGES:
        case = Case("images", name, [*pictures, "--config.task.valid_size=1"], prepare=images(how), words=(told,))
        found.append(case)
    add("stories", "no folder en", stories("{here}"), None, "en")
    return found + right_ones()


OWN = {"task__train": ("own.txt", ""), "task__num_examples": 0}


def right_ones() -> list[Case]:
    """Files that look strange and are nothing but text, trained on for a step or two."""
    short = {"train__num_steps": 1, "train__eval_every": 1, "eval__num_pictures": 0}
    here, step = "{here}/data", {"train__num_steps": 1}

    def both(change: Callable[[bytes], bytes]) -> Callable:
        return lambda here: [changes(f"train.{side}", change)(here) for side in ("source", "target")]

    def points(change: Callable[[bytes], bytes]) -> Callable:
        return changes("points.csv", change)

    def semicolons(text: bytes) -> bytes:
        return b"\xef\xbb\xbf" + text.replace(b",", b";").replace(b"a;b", b'"a";b').replace(b"\n", b"\r\n")

    def numbered(text: bytes) -> bytes:
        return b"".join(b"," + line + b",c,c,\n" for line in text.splitlines())

    strange = "the\0cat <script>alert(1)</script> مرحبا $x^2$ \u2028 %s {here} 👩‍👩‍👧\n".encode()
    names = "table: row numbers without a name, names twice, a comma at the end"
    chosen = {"task__inputs": "('a', 'b')", "task__target": "y"}
    rows: list[tuple[str, list[str], str, Callable | None]] = [
        (
            "text: BOM and CRLF",
            words(here, **short),
            "words",
            both(lambda t: b"\xef\xbb\xbf" + t.replace(b"\n", b"\r\n")),
        ),
        ("text: strange words", words(here, **short), "words", both(lambda good: good + strange)),
        ("text: no end of the last line", words(here, **short), "words", both(lambda good: good.rstrip(b"\n"))),
        ("table: semicolons, BOM, CRLF, quotes", table(here, **step), "table", points(semicolons)),
        (names, table(here, **chosen), "table", points(numbered)),
        ("table: seeds", table(here, **step, seeds="(3, 4)"), "table", None),
        ("own stories", stories(here, **OWN), "stories", None),
    ]
    return [
        Case("right", name, [*argv, "--workdir={here}/new"], data=data, prepare=prepare, check=trained)
        for name, argv, data, prepare in rows
    ]


def trained(here: pathlib.Path, result: Result) -> str:
    """A check: the training came to its end, with numbers."""
    if "nan" in result.out or not (here / "new" / "result.json").is_file():
        return f"no result, or nan: {result.out[-200:]!r}"
    return says("try ")(here, result)


def changes(name: str, change: Callable[[bytes], bytes]) -> Callable:
    """A preparation: a data file with another content."""

    def prepare(here: pathlib.Path) -> None:
        path = here / "data" / name
        path.write_bytes(change(path.read_bytes()))
        (here / "data" / "other.tsv").write_text("a bird\tugly\n")

    return prepare


def images(how: dict) -> Callable:
    """A preparation: two images of one size, the second one saved in this way, and their captions."""

    def prepare(here: pathlib.Path) -> None:
        image = Image.new("RGB", (12, 8), "red")
        image.save(here / "0.png")
        further = {"append_images": [Image.new("RGB", (12, 8), "blue")]} if "save_all" in how else {}
        image.save(here / "1.png", **how, **further)
        (here / "captions.tsv").write_text("0.png\ta red wall\n1.png\ta red door\n")

    return prepare


def text(change: Callable) -> Callable[[bytes], bytes]:
    """A change of a text as one of its bytes."""

    def changed(good: bytes) -> bytes:
        new = change(good.decode())
        return new.encode() if isinstance(new, str) else new

    return changed


def make_folder(here: pathlib.Path) -> None:
    os.makedirs(here / "data" / "folder")
