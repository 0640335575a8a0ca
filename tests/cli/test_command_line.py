"""The command line: what it means, and that a slip is told in one line with the nearest right thing."""

import itertools
import os
import pathlib
import re
import sys

import jax
import pytest
from absl import flags

from attn_jax.cli import commands, main
from attn_jax.cli.command_line import parse
from attn_jax.cli.reference import describe
from attn_jax.data.files import save_json
from attn_jax.data.text_tables import is_text_table
from attn_jax.errors import UserError
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import change
from attn_jax.runs.python_files import load_file
from attn_jax.runs.workdir import plain
from configs import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = f"--config={ROOT}/configs/quickstart.py"
ENJA = f"--config={ROOT}/configs/enja_soft.py"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Flags as they are when a process begins."""
    monkeypatch.setattr(sys, "argv", ["launch.py"])
    yield
    for name in list(flags.FLAGS):
        if name.startswith("config."):
            delattr(flags.FLAGS, name)
    for name in "config mode workdir source target sweep seeds options num_processes process_id coordinator".split():
        flags.FLAGS[name].unparse()


def parsed(*argv):
    config, overrides, _ = parse(["launch.py", *argv])
    return config, overrides


def test_a_config_with_overrides():
    config, overrides = parsed(
        *(QUICKSTART, "--config.model.hidden_size=64", "--config.seeds=(1, 2)", "--config.task.buckets=fixed"),
        *("--config.task.buckets.shapes=(16, (24, 11))", "--config.optimizer.learning_rate=1e-2", "--mode=eval"),
        *("--config.eval.metrics=('bleu',)", "--config.model.decoder.input_feeding"),
        *("--noconfig.model.encoder.bidirectional", "--config.seed=4294967295"),
    )
    assert config.seed == 4294967295  # as large as it may be
    assert (config.name, config.model.hidden_size, config.seeds) == ("quickstart", 64, (1, 2))
    assert (config.task.buckets.shapes, config.eval.metrics) == ((16, (24, 11)), ("bleu",))
    decoder, encoder = config.model.decoder, config.model.encoder
    assert (config.optimizer.learning_rate, decoder.input_feeding, encoder.bidirectional) == (0.01, True, False)
    assert config.model.embedding_size == 64 and config.is_locked
    assert main.MODE.value == "eval"
    assert len(overrides) == 9 and "--noconfig.model.encoder.bidirectional" in overrides


def test_values_may_stand_apart():
    config, overrides = parsed(
        *("--config", f"{ROOT}/configs/quickstart.py", "--config.model.hidden_size", "64", "--mode", "predict"),
        *("--config.model.decoder.input_feeding", "--workdir", "here", "--config.name", "x"),
    )
    assert (config.model.hidden_size, config.model.decoder.input_feeding, config.name) == (64, True, "x")
    assert (main.MODE.value, main.WORKDIR.value) == ("predict", "here")
    assert overrides == ["--config.model.hidden_size=64", "--config.model.decoder.input_feeding", "--config.name=x"]


def test_of_a_key_given_twice_the_last_counts():
    config, overrides = parsed(QUICKSTART, "--config.seeds=(1, 2)", "--config.seed=3", "--config.seeds", "(4,)")
    assert (config.seeds, config.seed, overrides) == ((4,), 3, ["--config.seed=3", "--config.seeds=(4,)"])
    for given in itertools.permutations(["--config.model.encoder=gru", "--config.model.encoder.name=conv"]):
        config, _ = parsed(QUICKSTART, *given)  # two ways to write one key
        assert config.model.encoder.name == given[-1].partition("=")[2]


def test_options_may_be_in_files(tmp_path):
    """As absl reads them: an option a line, comments, empty lines and further files; what comes later counts."""
    (tmp_path / "inner").write_text("--config.train.num_steps=9\n--config.name=a b '#1'\n")
    options = f"  --mode=eval\n--flagfile={tmp_path}/inner\n--config.seeds=(1, 2)\n"
    (tmp_path / "outer").write_text(f"# a comment\n\n// another\n{options}")
    files = [f"--flagfile={tmp_path}/outer"], ["--flagfile", f"{tmp_path}/outer"]
    for given in files:
        config, overrides = parsed(QUICKSTART, "--config.train.num_steps=7", *given, "--config.seeds=(3,)")
        assert (config.train.num_steps, config.name, config.seeds) == (9, "a b '#1'", (3,))
        assert overrides == ["--config.train.num_steps=9", "--config.name=a b '#1'", "--config.seeds=(3,)"]
        assert flags.FLAGS["mode"].value == "eval"
    (tmp_path / "whole").write_text(f"{QUICKSTART}\n--config.model.hidden_size=64\n--workdir=x\n")
    assert parsed("--sweep=x.py", "--workdir=y") == (None, []) and main.SWEEP.value == ["x.py"]
    config, _ = parsed(f"--flagfile={tmp_path}/whole")
    assert config.model.hidden_size == 64 and flags.FLAGS["workdir"].value == "x"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("--config.train.num_stepz=9\n", "unknown config key train.num_stepz; did you mean train.num_steps?"),
        ("--config.train.num_steps=x\n", "--config.train.num_steps=x: expected an integer, such as "),
        ("--wrkdir=x\n", "unknown option --wrkdir; did you mean workdir?"),
        ("a word\n", "unexpected argument 'a word'; options look like --mode=eval"),
        ("--flagfile={folder}/none\n", "--flagfile: {folder}/none: no such file or directory"),
        (b"--config.name=\xff\n", "--flagfile: not valid UTF-8; expected a text file of options, one a line"),
    ],
)
def test_a_slip_in_a_file_of_options_is_one_clear_line(tmp_path, content, message):
    content = content if isinstance(content, bytes) else content.replace("{folder}", str(tmp_path)).encode()
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError) as error:
        parsed(QUICKSTART, f"--flagfile={tmp_path}/file")
    assert str(error.value).startswith(message.replace("{folder}", str(tmp_path)))


def test_a_work_directory_brings_its_config(tmp_path):
    config = base.get_config()
    config.seeds, config.eval.metrics, config.name = (3, 4), (), "stored"
    config = change(config, {"task.buckets": "fixed", "task.buckets.shapes": ((5, 6), (7, 8))})
    save_json(tmp_path / "config.json", plain(config))
    found, _ = parsed(f"--workdir={tmp_path}", "--config.decode.method=beam", "--mode=eval")
    assert found.decode.method.name == "beam"
    assert change(found, {"decode.method": config.decode.method.name}).to_dict() == config.to_dict()
    with pytest.raises(UserError, match=r"unknown config key decode.beam; did you mean decode.method=beam\?"):
        parsed(f"--workdir={tmp_path}", "--config.decode.beam=3")


SLIPS = [  # Q and E are configs, .key is --config.key, W model.attention.wrappers
    ("--confg=x.py", "unknown option --confg; did you mean config?"),
    ("--xyz=1", "unknown option --xyz; known: "),
    ("Q --mode=evall", "unknown --mode=evall; did you mean eval?"),
    (
        "Q --mode=x",
        "unknown --mode=x; known: analyze, compare, eval, export, predict, profile, report, score, train, visualize",
    ),
    ("Q predict", "unexpected argument 'predict'; options look like --mode=eval"),
    ("--config={ROOT}/configs/quikstart.py", "quikstart.py; did you mean quickstart.py?"),
    ("--config=nowhere/quickstar.py", "there is no file nowhere/quickstar.py; did you mean quickstart.py?"),
    ("--config={ROOT}/README.md", "README.md is no Python file"),
    ("--config={ROOT}/attn_jax/errors.py", "errors.py has no function get_config()"),
    ("--workdir=/nowhere", "/nowhere/config.json does not exist: /nowhere is not the work directory of a run"),
    ("Q .model.attention.scor=dot", "unknown config key model.attention.scor; did you mean model.attention.score?"),
    ("Q .hidden_size=3", "unknown config key hidden_size; did you mean model.hidden_size?"),
    ("Q .model.attention.normalize=entmax .model.attention.normalize.alpha=0.5", "alpha is 0.5; expected at least 1"),
    ("Q .model.attention.dropout=1.5", "model.attention.dropout is 1.5; expected 0 to 0.999"),
    ("Q .model=3", "unknown model '3'; known: classifier, dmn, "),
    ("Q .train=3", "train is a section of the config; set one of its keys: num_steps, "),
    ("Q .model.attention=3", "model.attention is a section of the config; set one of its keys: score, normalize, "),
    ("Q --flagfile=/nowhere/f", "--flagfile: /nowhere/f: no such file or directory"),
    ("Q --flagfile=", "--flagfile= names no file; expected a text file of options, one a line"),
    ("Q --flagfile", "--flagfile with no argument"),
    ("Q --verbosity=1", "unknown option --verbosity; did you mean version?"),
    ("Q -v 2", "unknown option --v; known: "),
    ("Q --helpfull", "unknown option --helpfull; known: "),
    ("Q --undefok=config.x .x=3", "unknown config key x; "),
    ("--config=", "--config= names no file; expected a config such as --config=configs/quickstart.py"),
    ("Q .train.num_steps=many", "--config.train.num_steps=many: expected an integer, such as "),
    ("Q .model.dropout=x", "--config.model.dropout=x: expected a number, such as "),
    ("Q .model.decoder.input_feeding=3", "input_feeding=3: expected true or false, such as"),
    ("Q .seeds=(1,", "--config.seeds=(1,: expected a tuple, such as (0, 1)"),
    ("Q --num_processes=two", "--num_processes=two: expected an integer"),
    ("Q --num_processes=-3 --process_id=9", "--num_processes=-3: expected at least 1"),
    ("Q --process_id=3", "--process_id=3 is for several processes; say how many: --num_processes=2 or"),
    ("Q --coordinator=zz", "--coordinator=zz is for several processes; say how many: --num_processes="),
    ("Q --num_processes=2 --coordinator=zz --process_id=2", "0 to 1; got 'zz' and 2"),
    ("Q --num_processes=2 --process_id=1", "needs --coordinator=HOST:PORT (of process 0) and --p"),
    ("Q --source=x", "--mode=train takes no --source; it is for --mode=eval or --mode=predict or --mod"),
    ("Q --mode=predict --target=x", "--mode=predict takes no --target; it is for --mode=eval or --m"),
    ("Q .train.goal=nan", "train.goal is nan; expected a finite number"),
    ("Q .optimizer.eps=inf", "optimizer.eps is inf; expected a finite number"),
    ("Q .model.attention.score=gaussian .model.attention.score.width=(1.0,1e999)", "is (1.0, inf); expected a finite"),
    ("Q .decode.max_length=3000000000", "max_length is 3000000000; expected integers of at mos"),
    ("Q .decode.method=beam .decode.method.beam_size=1000000000", "beam_size is 1000000000; expected 1 to 10000"),
    ("Q .task.buckets.shapes=((2147483648,3),)", "expected integers of at most 2,147,483,647"),
    ("Q .seed=BIG", "expected integers of at most 4,294,967,295"),
    ("Q .seeds=(0,BIG)", "expected integers of at most 4,294,967,295"),
    ("Q .model.encoder.num_layers=100000000", "encoder.num_layers is 100000000; expected 1 to 1000"),
    ("E .task.train=('a\\x00b','c')", "expected no NUL in a name"),
    ("Q .optimizer.b1=1.0", "optimizer.b1 is 1.0; expected 0 to 0.999999"),
    ("Q .eval.metrics={'bleu':1}", "expected a tuple, such as ('perplexity', "),
    ("Q .train.keep 0", "train.keep is 0; expected at least 1"),
    ("Q .train.num_epochs=nan", "train.num_epochs is nan; expected a finite number"),
    ("Q .eval.metrics=(1,)", "eval.metrics has 1; expected a text for each of its parts"),
    ("E .task.vocab_size=('a',1)", "task.vocab_size has 'a'; expected an integer for each"),
    ("Q .model.encoder=gruu", "unknown model.encoder 'gruu'; did you mean gru?"),
    ("Q .model.encoder", "--config.model.encoder has no value; expected one of rnn, relu_rnn,"),
    ("Q .model.encoder.nam=gru", "key model.encoder.nam; did you mean model.encoder.name?"),
    ("Q .model.encoder.name.x=gru", "key model.encoder.name.x; model.encoder.name has a value,"),
    ("Q .train.num_steps.x=3", "key train.num_steps.x; train.num_steps has a value, and no keys"),
    ("Q .=3", "--config.=3: expected a key and a value, such as --config.model.hidden_size=64"),
    ("Q .model.encoder=none .model.encoder.num_layers=2", "it is an option of model.encoder rnn, relu_rnn, sigmoid_rn"),
    ("Q .optimizer.momentum=0.5", "unknown config key optimizer.momentum; it is an option of optimizer sgd"),
    ("Q .model.num_layers=2", "key model.num_layers; did you mean model.encoder.num_layers or model.decoder.num_layer"),
    ("Q .decode.beam_size=3", "key decode.beam_size; did you mean decode.method.beam_size, with decode.method=beam?"),
    ("Q .model.attention.gate", "did you mean model.attention.wrappers=gate?"),
    ("Q .train.cell=gru", "unknown config key train.cell; did you mean model.decoder.cell?"),
    ("Q .model.decoder=none .model.attention.score=dot", "model.attention; it is for a model.decoder that attends to "),
    ("Q .model=kernel_regression", "model.name kernel_regression reads points, and task.name dates has "),
    ("Q .model.picture.grid=patches", "model.picture; it is for a task.name with images"),
    ("Q W=top_key", "unknown model.attention.wrappers.pattern 'top_key'; did you mean top_keys?"),
    ("Q W=", "wrappers.pattern=: expected a tuple, such as ('a', 'b')"),
    ("Q W=(1,)", "wrappers.pattern has 1; expected a text for each of its parts"),
    ("Q W.patern=gate", "wrappers.patern; did you mean model.attention.wrappers.pattern?"),
    ("Q W=gate W.parts.top_keys.count=4", "parts.top_keys; it is for model.attention.wrappers=top_keys, which is ('ga"),
    ("Q W=top_keys W.parts.top_key.count=4", "parts.top_key; did you mean model.attention.wrappers.parts.top_keys?"),
    ("Q W=top_keys W.top_keys.count=4", "wrappers.top_keys; did you mean model.attention.wrappers.parts.top_keys?"),
    ("Q W=top_keys W.parts.top_keys.cout=4", "cout; did you mean model.attention.wrappers.parts.top_keys.count?"),
    ("Q W=gate W.parts=4", "wrappers.parts is a section of the config; its keys"),
]


@pytest.mark.parametrize(("text", "message"), SLIPS)
def test_a_slip_is_one_clear_line(text, message):
    short = {"Q": QUICKSTART, "E": ENJA}
    for name, value in {"{ROOT}": str(ROOT), "BIG": f"1{'0' * 400}", " W": " .model.attention.wrappers"}.items():
        text = text.replace(name, value)
    with pytest.raises(UserError) as error:
        parsed(*(short.get(word, f"--config{word}" if word[0] == "." else word) for word in text.split(" ")))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("def get_config(:", "cannot load {path}: "),
        ("import numpyy", "cannot load {path}: No module named 'numpyy'"),
        ("GET return 3", "{path}: get_config() gave a int; expected a ConfigDict"),
        ("GET return nothing", "cannot load {path}: name 'nothing' is not defined"),
        ("BASE model.hiden_size = 3", 'Did you mean "hidden_size"'),
        ("BASE model.hidden_size = 'x'", "cannot load {path}: Could not override field"),
        ("BASE model.hidden_size = None", "model.hidden_size is None; expected an integer, "),
        ("BASE model.hidden_size = True", "model.hidden_size is True; expected an inte"),
        ("BASE seeds = 3", "cannot load {path}: Could not override field"),
        ("import sys\nsys.exit(7)", "cannot load {path}: it ends the process, with 7; expected a value from get_confi"),
        ("GET return {}['rate']", "cannot load {path}: KeyError 'rate'"),
        ("GET assert False", "cannot load {path}: AssertionError"),
        ("GET return open('/nowhere')", "cannot load {path}: /nowhere: no such file or directory"),
        ("BASE unlock()\n    config.model.hiden_size = 3", "{path}: unknown config key model.hiden_size; did you mean"),
        ("BASE model.encoder = None", "model.encoder is None; expected one of rnn, relu_rnn,"),
        ("BASE model.encoder = 'gru'", "cannot load {path}: encoder holds a part, got gru; expected part(NAME), or se"),
        ("BASE model.attention.wrappers = ('gate',)", "cannot load {path}: wrappers holds a part, got ('gate',); expe"),
        ("BASE model.encoder = part('gru', bidirektional=True)", "{path}: unknown config key model.encoder.bidirektio"),
        ("BASE model.attention.wrappers = sequence('gate', top_keys={'count': 4})", "wrappers.parts.top_keys; it is f"),
        ("BASE model.attention.wrappers = sequence('gate', gates={'count': 4})", "wrappers.parts.gates; did you mean "),
    ],
)
def test_a_slip_in_a_config_file_is_one_clear_line(tmp_path, lines, message):
    path = tmp_path / "own.py"
    if lines.startswith("BASE "):
        lines = f"config = base.get_config()\n    config.{lines.removeprefix('BASE ')}\n    return config"
        lines = f"from attn_jax.runs.tree import part, sequence\nfrom configs import base\nGET {lines}"
    path.write_text(lines.replace("GET ", "def get_config():\n    "))
    with pytest.raises(UserError) as error:
        parsed(f"--config={path}")
    assert message.format(path=path) in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_load_file_sees_what_was_changed_within_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "x.py"
    path.write_text("def f(a='1'):\n    return a + '2'")
    assert (load_file(path, "f"), load_file(path, "f", "3")) == ("12", "32")
    for value in "1", "2":
        path.write_text(f"def f():\n    return {value}")
        os.utime(path, (1e9, 1e9))
        assert load_file(path, "f") == int(value)


def test_want_of_memory_is_told_like_a_slip(monkeypatch, capsys):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nand more")

    monkeypatch.setattr(commands, "evaluation", fail)
    assert main.main(["launch.py", QUICKSTART, "--mode=eval", "--workdir=nowhere"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("launch.py: out of memory (Out of memory); in training")


def test_a_process_that_lost_the_others_does_not_wait_for_them(monkeypatch, capsys):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer")

    ends, joined = [], []
    monkeypatch.setattr(commands, "train", fail)
    monkeypatch.setattr(commands, "join", lambda *arguments: joined.append(arguments))
    monkeypatch.setattr(main.os, "_exit", ends.append)
    several = ["--num_processes=2", "--process_id=1", "--coordinator=host:1"]
    main.main(["launch.py", QUICKSTART, "--workdir=nowhere", *several])
    assert (ends, joined) == ([1], [("host:1", 2, 1)])
    assert capsys.readouterr().err.startswith("launch.py: another process of the training is gone: UNKNOWN: Gloo")


def test_options_are_those_that_have_the_text():
    config, _ = parsed(QUICKSTART, "--options", "--workdir=x")
    assert flags.FLAGS["options"].value == ""
    whole, some = (describe(config, text).splitlines() for text in ("", "Attention.Score"))
    assert {line.split()[0] for line in some} < {line.split()[0] for line in whole if line}
    assert some[0] == "model:" and all("model.attention.score" in line for line in some[1:]) and len(some) > 1
    with pytest.raises(UserError, match="--options=atention: no key or meaning of an option has it; did you mean att"):
        describe(config, "atention")


def test_a_key_of_another_part_names_the_choice_that_brings_it():
    with pytest.raises(UserError, match=r"it is an option of model\.objective hard, .*: set model\.objective=hard"):
        parsed(QUICKSTART, "--config.model.objective.reading=reinforce")


def test_the_config_to_begin_with_is_printed_and_is_one_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["launch.py", "--config=new"])
    assert main.main(sys.argv) == 0
    (tmp_path / "mine.py").write_text(text := capsys.readouterr().out)
    assert load_config_file(str(tmp_path / "mine.py")).name == "mine"
    (tmp_path / "theirs.py").write_text(text.replace('DATA = ""', 'DATA = "my_data"'))
    config = load_config_file(str(tmp_path / "theirs.py"))
    assert (config.task.name, config.data_dir) == ("parallel_text", "my_data") and is_text_table(config.task.train[0])
    assert main.main([*sys.argv, "--config.seed=1"]) == 1
    assert "--config=new prints a config to begin with; leave --config.seed=1 out" in capsys.readouterr().err


def test_seeds_are_short_for_those_of_the_config():
    config, overrides = parsed(QUICKSTART, "--seeds=0..2")
    assert config.seeds == (0, 1, 2) and overrides == ["--config.seeds=(0, 1, 2)"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--sweep=a=1,2"], "--sweep=a=1,2 needs --config=FILE, whose options it changes"),
        (["--sweep=x.py", QUICKSTART], "--sweep=x.py takes no --config="),
        (["--sweep=x.py", "--sweep=y.py"], "--sweep=x.py takes no --sweep=y.py"),
        (["--sweep="], "--sweep is empty; expected a file such as"),
        (["--sweep=a=1,2", QUICKSTART, "--mode=eval"], "--sweep=a=1,2 takes no --mode=eval"),
    ],
)
def test_a_wrong_sweep_is_one_line(given, words):
    with pytest.raises(UserError, match=re.escape(words)):
        parsed(*given)
