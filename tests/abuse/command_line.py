"""The command line: unknown options, options that do not go together, modes without what they need, config files."""

import pathlib
from collections.abc import Callable

from case import Case, Result
from sandbox import LABELS, QUICKSTART, ROOT, RUNS, STORIES, TABLE, words

DATA = "{words_data}"
# (name, arguments, words of the refusal); Q, T and L are configs, eval:words is a mode and a run, .key is --config.key
OPTIONS = [
    ("nothing", "", "nothing to do"),
    ("no such option", "--cofnig=x.py", "did you mean config?"),
    ("no such file of options", "Q --flagfile={here}/none", "{here}/none: no such file or directory"),
    ("a folder of options", "Q --flagfile={here}", "{here}: is a directory"),
    ("no file of options", "Q --flagfile=", "--flagfile= names no file"),
    ("an option of absl", "Q --verbosity=1", "unknown option --verbosity"),
    ("an option of absl, off", "Q --noshowprefixforinfo", "unknown option --noshowprefixforinfo"),
    ("a home without a run", ["--mode=predict", "--workdir=~/no such run"], "is not the work directory of a run"),
    ("no such mode", "Q --mode=predikt", "did you mean predict?"),
    ("empty mode", "Q --mode=", "--mode="),
    ("a stray word", "Q train", "unexpected argument 'train'"),
    ("a stray file", "configs/quickstart.py", "unexpected argument"),
    ("empty config", "--config=", "names no file"),
    ("config without a value", "--config", "config"),
    ("config misspelt", "--config=configs/quikstart.py", "did you mean quickstart.py?"),
    ("config is a folder", "--config=configs", "there is no file configs"),
    ("config in no folder", "--config=/nowhere/at/all.py", "there is no file /nowhere/at/all.py"),
    ("config is text", "--config=README.md", "README.md"),
    ("a section", "Q .train=3", "train is a section"),
    ("a part that there is not", "Q .model=3", "unknown model '3'"),
    ("an unknown key", "Q .model.encodr=gru", "did you mean model.encoder?"),
    ("a key with an empty name", "Q .=1", "--config.=1: expected a key and a value"),
    ("a key below a value", "Q .train.num_steps.x=1", "train.num_steps has a value, and no keys"),
    ("a key below a name", "Q .model.name.x.y=1", "model.name has a value, and no keys"),
    ("a part without its name", "Q .model.encoder", "has no value; expected one of rnn"),
    (
        "an option of another part",
        "Q .model.encoder=none .model.encoder.num_layers=2",
        "it is an option of model.encoder rnn",
    ),
    (
        "an option of a part that is not there",
        "Q .model.decoder=none .model.attention.score=dot",
        "it is for a model.decoder that attends",
    ),
    (
        "a wrapper that is not there",
        "Q .model.attention.wrappers.parts.top_keys.count=3",
        "it is for model.attention.wrappers=top_keys",
    ),
    ("a key of Python", "Q .__class__=1", "unknown config key __class__"),
    ("code as a number", "Q .model.hidden_size=__import__('os').getpid()", "expected an integer"),
    ("code as seeds", "Q .seeds=__import__('os').getpid()", "seeds has|expected a tuple"),
    ("workdir missing", "--mode=predict --workdir={here}/none", "is not the work directory of a run"),
    ("workdir is a file", "--mode=predict --workdir={here}/file", "{here}/file"),
    ("workdir empty text", "--mode=eval --workdir=", "nothing to do|needs --workdir"),
    ("config and no workdir", "Q --mode=predict", "--mode=predict needs --workdir=DIR"),
    ("sweep missing", "--sweep=nowhere.py", "there is no file nowhere.py"),
    ("sweep without a function", "--sweep=configs/quickstart.py", "has no function sweep()"),
    ("runs at once without a sweep", "Q --at_once=2", "is for --sweep=FILE"),
    ("no runs at once", "--sweep=x.py --at_once=0", "at least 1|no file x.py"),
    ("process id alone", "Q --process_id=3", "--process_id=3 is for several processes"),
    ("coordinator alone", "Q --process_id=3 --coordinator=zz", "is for several processes"),
    ("processes negative", "Q --num_processes=-3 --process_id=9", "expected at least 1"),
    ("processes none", "Q --num_processes=0", "expected at least 1"),
    ("processes a word", "Q --num_processes=two", "expected an integer"),
    ("processes without a coordinator", "Q --num_processes=2", "needs --coordinator=HOST:PORT"),
    ("process id too large", "Q --num_processes=2 --process_id=2 --coordinator=a:1", "0 to 1"),
    ("processes in eval", "eval:words --num_processes=2", "needs --coordinator"),
    ("source in training", "Q --source=x", "takes no --source"),
    ("target in training", "Q --target=x", "takes no --target"),
    ("target in predict", "predict:words --target=x", "takes no --target"),
    ("eval of a source alone", "eval:words --source=x", "together, or neither"),
    ("eval of a target alone", "eval:words --target=x", "--target=x has no --source"),
    ("score of a source alone", "score:words --source=x", "--target=FILE together"),
    ("score of a table", "score:table", "is for models of text"),
    ("no such source", "predict:words --source=/nowhere", "/nowhere: no such file"),
    ("a source that is a folder", "predict:words --source={here}", "{here}: is a directory"),
    ("an empty source", "predict:words --source={here}/file", "is empty"),
    ("score of an empty file", "score:words --source={here}/file --target={here}/file", "empty"),
    ("eval of missing files", "eval:words --source=x --target=y", "x: no such file"),
    ("visualize nothing", "visualize:words", "is empty"),
    ("another model", "predict:words .model.hidden_size=16", "model.hidden_size is 8"),
    ("another score", "eval:words .model.attention.score=additive", "attention.score"),
    ("another seed", "eval:words .seed=3", "seed is 0 there and 3 here"),
    ("other seeds", "eval:stories .seeds=(1,2)", "seeds is [0, 1] there"),
    ("another config", "Q --workdir={words}", "holds the run of another config"),
    ("config of another run", "T predict:words", "holds the run of another config"),
    ("config of a text run", "L predict:table", "holds the run of another config"),
    ("an unknown metric", "eval:words .eval.metrics=('blue',)", "did you mean bleu?"),
    ("an unknown method", "predict:words .decode.method=beem", "did you mean beam?"),
    ("several of greedy", "predict:words .decode.n_best=3", "n_best"),
    ("a beam for labels", "predict:labels .decode.top_k=3", "with decode.method=sample"),
    ("a temperature of greedy", "predict:words .decode.temperature=0.5", "decode.tem"),
    ("a beam on numbers", "predict:table .decode.method=beam", "decode.method"),
    ("metrics of text on numbers", "eval:table .eval.metrics=('bleu',)", "metric"),
]
# What a config file does instead of giving a config; (name, its text, words of the refusal)
GET = "def get_config():\n    "
BASE = f"from configs import base\n\n{GET}c = base.get_config()\n"
FILES = [
    ("syntax", "def get_config(:\n", "cannot load {here}/config.py"),
    ("no function", "x = 1\n", "has no function get_config()"),
    ("exit", "import sys\n\nGET sys.exit(7)\n", "ends the process"),
    ("exit at import", "raise SystemExit(7)\n", "ends the process"),
    ("division", "GET return 1 / 0\n", "division by zero"),
    ("key error", "GET return {}['x']\n", "KeyError"),
    ("assertion", "GET assert False\n", "AssertionError"),
    ("import", "import nonsense\n", "No module named 'nonsense'"),
    ("a dict", "GET return {}\n", "gave a dict; expected a ConfigDict"),
    ("nothing", "GET pass\n", "gave a NoneType"),
    (
        "a key that no part has",
        "from ml_collections import ConfigDict\n\nGET return ConfigDict({'nam': 'x'})\n",
        "unknown config key nam; did you mean name?",
    ),
    ("one key too many", "BASE     c.unlock()\n    c.cel = 1\n    return c\n", "unknown config key cel"),
    ("a slip in a key", "BASE     c.model.cel = 1\n    return c\n", "cannot load {here}/config.py"),
    ("a wrong type", "BASE     c.unlock()\n    c.model.hidden_size = None\n    return c\n", "hidden_size|NoneType"),
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
