"""The command line: unknown options, options that do not go together, modes without what they need, config files."""

import pathlib
from collections.abc import Callable

from case import Case, Result
from sandbox import LABELS, QUICKSTART, ROOT, RUNS, STORIES, TABLE, words

DATA = "{words_data}"
# (name, arguments, words of the refusal); Q, T and L are configs, eval:words is a mode and a run, .key is --config.key
OPTIONS = [
    ("nothing", "", "nothing to do"),
    ("a folder of options", "Q --flagfile={here}", "{here}: is a directory"),
    ("an option of absl, off", "Q --noshowprefixforinfo", "unknown option --noshowprefixforinfo"),
    ("a home without a run", ["--mode=predict", "--workdir=~/no such run"], "is not the work directory of a run"),
    ("empty mode", "Q --mode=", "--mode="),
    ("a stray file", "configs/quickstart.py", "unexpected argument"),
    ("config without a value", "--config", "config"),
    ("config is a folder", "--config=configs", "there is no file configs"),
    ("config in no folder", "--config=/nowhere/at/all.py", "there is no file /nowhere/at/all.py"),
    ("an unknown key", "Q .model.encodr=gru", "did you mean model.encoder?"),
    ("a key of Python", "Q .__class__=1", "unknown config key __class__"),
    ("code as a number", "Q .model.hidden_size=__import__('os').getpid()", "expected an integer"),
    ("code as seeds", "Q .seeds=__import__('os').getpid()", "seeds has|expected a tuple"),
    ("workdir missing", "--mode=predict --workdir={here}/none", "is not the work directory of a run"),
    ("workdir is a file", "--mode=predict --workdir={here}/file", "{here}/file"),
    ("workdir empty text", "--mode=eval --workdir=", "nothing to do|needs --workdir"),
    ("sweep without a function", "--sweep=configs/quickstart.py", "has no function sweep()"),
    ("runs at once without a sweep", "Q --at_once=2", "is for --sweep=FILE"),
    ("no runs at once", "--sweep=x.py --at_once=0", "at least 1|no file x.py"),
    ("coordinator alone", "Q --process_id=3 --coordinator=zz", "is for several processes"),
    ("processes in eval", "eval:words --num_processes=2", "needs --coordinator"),
    ("source in training", "Q --source=x", "takes no --source"),
    ("eval of a target alone", "eval:words --target=x", "--target=x has no --source"),
    ("score of a table", "score:table", "is for models of text"),
    ("a source that is a folder", "predict:words --source={here}", "{here}: is a directory"),
    ("an empty source", "predict:words --source={here}/file", "is empty"),
    ("score of an empty file", "score:words --source={here}/file --target={here}/file", "empty"),
    ("another seed", "eval:words .seed=3", "seed is 0 there and 3 here"),
    ("other seeds", "eval:stories .seeds=(1,2)", "seeds is [0, 1] there"),
    ("config of another run", "T predict:words", "holds the run of another config"),
    ("config of a text run", "L predict:table", "holds the run of another config"),
    ("a beam for labels", "predict:labels .decode.top_k=3", "with decode.method=sample"),
    ("a temperature of greedy", "predict:words .decode.temperature=0.5", "decode.tem"),
    ("a beam on numbers", "predict:table .decode.method=beam", "decode.method"),
    ("metrics of text on numbers", "eval:table .eval.metrics=('bleu',)", "metric"),
]
# What a config file does instead of giving a config; (name, its text, words of the refusal)
GET = "def get_config():\n    "
BASE = f"from configs import base\n\n{GET}c = base.get_config()\n"
FILES = [
    ("exit", "import sys\n\nGET sys.exit(7)\n", "ends the process"),
    ("division", "GET return 1 / 0\n", "division by zero"),
    ("nothing", "GET pass\n", "gave a NoneType"),
    (
        "a key that no part has",
        "from ml_collections import ConfigDict\n\nGET return ConfigDict({'nam': 'x'})\n",
        "unknown config key nam; did you mean name?",
    ),
    ("needs an argument", "def get_config(x):\n    return x\n", "cannot load {here}/config.py"),
    ("no UTF-8", b"# \xff\n", "{here}/config.py"),
    ("a NUL", b"x = 1\x00\n", "cannot load {here}/config.py"),
]
SWEEPS = [
    ("numbers", "def sweep():\n    yield 3\n", "expected a dict of overrides"),
    ("none", "def sweep():\n    pass\n", "expected dicts of overrides"),
    ("no config", "def sweep():\n    yield {'seed': 1}\n", 'without a "config"'),
    ("twice", "def sweep():\n    yield {'config': 'a.py'}\n    yield {'config': 'a.py'}\n", "twice"),
    ("an error", "def sweep():\n    yield 1 / 0\n", "division by zero"),
]


def cases() -> list[Case]:
    """All of these, and a few that are right."""
    found = [Case("command_line", name, given(args), prepare=empty_file, words=(told,)) for name, args, told in OPTIONS]
    for name, text, told in FILES:
        text = text if isinstance(text, bytes) else text.replace("GET ", GET).replace("BASE ", BASE)
        config = ["--config={here}/config.py"]
        found.append(Case("config_files", name, config, prepare=writes("config.py", text), words=(told,)))
    for name, text, told in SWEEPS:
        argv = ["--sweep={here}/sweep.py", "--workdir={here}/runs"]
        found.append(Case("config_files", f"sweep: {name}", argv, prepare=writes("sweep.py", text), words=(told,)))
    finished, ask = [*words(DATA), "--workdir={words}"], ["--mode=predict", "--workdir={words}"]
    in_c = {"alone": {"LC_ALL": "C", "PYTHONUTF8": "0"}, "check": lines(1)}
    apart = ["--mode", "predict", "--workdir", "{words}"]
    found += [
        Case("right", "help", ["--help"], check=says("--workdir")),
        Case("right", "the same training again", finished, check=says("steps are done already")),
        Case("right", "spaces for equal signs", apart, b"a bird\n", check=lines(1)),
        Case("right", "a key twice", [*finished, "--config.seed=5", "--config.seed=0"], check=says("done already")),
        Case("right", "workdir with a slash", ["--mode=predict", "--workdir={words}/"], b"a\n", check=lines(1)),
        Case("right", "a process of its own, in C", ask, "a bird 日本\n".encode(), **in_c),
    ]
    assert all(pathlib.Path(config.removeprefix("--config=")).is_file() for config in (STORIES, LABELS, TABLE)), ROOT
    return found


def given(arguments: str | list[str]) -> list[str]:
    """The arguments that a row of OPTIONS stands for."""
    if isinstance(arguments, list):
        return arguments
    found = []
    for word in arguments.split():
        mode, _, run = word.partition(":")
        if run in RUNS:
            found += [f"--mode={mode}", f"--workdir={{{run}}}"]
        else:
            found.append(
                {"Q": QUICKSTART, "T": TABLE, "L": LABELS}.get(word, f"--config{word}" if word[0] == "." else word)
            )
    return found


def empty_file(here: pathlib.Path) -> None:
    (here / "file").touch()


def writes(name: str, content: str | bytes) -> Callable:
    """A preparation: a file of this content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda here: (here / name).write_bytes(data)


def says(text: str) -> Callable:
    """A check: this is on standard output."""
    return lambda here, result: "" if text in result.out else f"standard output lacks {text!r}"


def lines(count: int) -> Callable:
    """A check: so many lines on standard output, and no number in them that is none."""

    def check(here: pathlib.Path, result: Result) -> str:
        if "nan" in result.out.split() or result.out.count("\n") != count:
            return f"expected {count} lines, got {result.out[:200]!r}"
        return ""

    return check
