"""Files to train on that are wrong, told with the line; and unusual ones that are right."""

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
    ("a line of wide spaces", lambda good: good.replace(b"\n", b"\n\xe3\x80\x80\n", 1), "line 2: the line is empty"),
    ("no UTF-8", lambda good: good.replace(b"\n", b"\n\xff", 3), "line 2: not valid UTF-8 (byte 0xff)"),
    ("a surrogate", lambda good: good.replace(b"\n", b"\n\xed\xa0\x80", 3), "line 2: not valid UTF-8 (byte 0xed)"),
    ("cut in a character", lambda good: good[:-1] + "日".encode()[:2], "line 60: not valid UTF-8"),
    ("carriage returns alone", lambda good: good.replace(b"\n", b"\r"), "lines but"),
    ("only long lines", lambda good: good.replace(b"\n", b" a" * 30 + b"\n"), "no pair fits any of the buckets"),
]
# Other ways for the two files not to be there; (name, value of task.train, words)
NAMES = [
    ("a folder", "('folder', 'train.target')", "folder: is a directory"),
    ("outside", "('../../nowhere/x', 'train.target')", "no such file"),
    ("a NUL in a name", "('a\\x00b', 'train.target')", "task.train|null|no such file"),
    ("a very long name", f"('{'a' * 300}', 'train.target')", "name too long|no such file"),
]
COMMA = "write a point for the decimal comma|cells|not a number"
# points.csv: (name, (good text) -> text, more options, words)
CSV = [
    ("1e300", lambda t: t.replace("\n", "\n1e300,2,3\n", 1), {}, "line 2, column 'a': 1e300 is too large"),
    ("a cell less", lambda t: t + "1,2\n", {}, "line 42: 2 cells"),
    ("decimal commas", lambda t: t.replace(",", ";").replace(".", ","), {}, COMMA),
    ("one row", lambda t: "a,b,y\n1,2,3\n", {}, "task.valid_size 5"),
    ("a quote that is not closed", lambda t: t + '"1,2,3\n', {}, "line 42"),
    ("no UTF-8", lambda t: t.encode("utf-16"), {}, "not valid UTF-8"),
]
# labels.tsv: (name, (good text) -> text, more options, words)
LABELLED = [
    ("one text, each label once", lambda t: "a\tx\na\ty\na\tz\n", {"task__valid_size": 1}, "no training"),
    ("all held out", lambda t: "a\tx\n" * 30 + "a\ty\n", {"task__valid_size": 5}, "no training|only the label"),
]
# Images of a folder: (name, format and options of the file, words)
IMAGES = [
    ("a GIF called .png", {"format": "GIF"}, "1.png: a GIF image; expected a PNG or JPEG file"),
    ("a photo on its side", {"format": "JPEG", "exif": ON_ITS_SIDE}, "8 x 12 pixels|12 x 8 pixels"),
]
QUESTION = "3 Where is Mary?\toffice\t1\n"
TWO = "1 Mary moved to the office.\n2 John went to the garden.\n"
# own.txt, stories of one's own: (name, text, words)
STORIES = [
    ("two answers", TWO + "3 Where is Mary?\tthe office\t1\n", "line 3: the answer 'the office' is more than one"),
    ("nothing", "", "the file is empty"),
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
