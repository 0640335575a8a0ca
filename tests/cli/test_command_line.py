"""The command line: what it means, and that a slip is told in one line with the nearest right thing."""

import itertools
import os
import pathlib
import sys

import pytest
from absl import flags

from attn_jax.cli import main
from attn_jax.cli.command_line import parse
from attn_jax.data.files import save_json
from attn_jax.errors import UserError
from attn_jax.runs.config_files import load_file
from attn_jax.runs.options import change
from attn_jax.runs.workdir import plain
from configs import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = f"--config={ROOT}/configs/quickstart.py"
BEAM = ["--config.decode.method=beam"]
WRAPPERS = "--config.model.attention.wrappers"
ENJA = f"--config={ROOT}/configs/enja_soft.py"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Flags as they are when a process begins."""
    monkeypatch.setattr(sys, "argv", ["launch.py"])
    yield
    for name in list(flags.FLAGS):
        if name.startswith("config."):
            delattr(flags.FLAGS, name)
    for name in (
        "config",
        "mode",
        "workdir",
        "source",
        "target",
        "sweep",
        "num_processes",
        "process_id",
        "coordinator",
    ):
        flags.FLAGS[name].unparse()


def parsed(*argv):
    config, overrides, _ = parse(["launch.py", *argv])
    return config, overrides


def test_a_config_with_overrides():
    config, overrides = parsed(
        QUICKSTART,
        "--config.model.hidden_size=64",
        "--config.seeds=(1, 2)",
        "--config.task.buckets=fixed",
        "--config.task.buckets.shapes=(16, (24, 11))",
        "--config.optimizer.learning_rate=1e-2",
        "--config.eval.metrics=('bleu',)",
        "--config.model.decoder.input_feeding",
        "--noconfig.model.encoder.bidirectional",
        "--mode=eval",
    )
    assert (config.name, config.model.hidden_size, config.seeds) == ("quickstart", 64, (1, 2))
    assert (config.task.buckets.shapes, config.eval.metrics) == ((16, (24, 11)), ("bleu",))
    decoder, encoder = config.model.decoder, config.model.encoder
    assert (config.optimizer.learning_rate, decoder.input_feeding, encoder.bidirectional) == (0.01, True, False)
    assert config.model.embedding_size == 64 and config.is_locked
    assert main.MODE.value == "eval"
    assert len(overrides) == 8 and "--noconfig.model.encoder.bidirectional" in overrides


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
    (tmp_path / "outer").write_text(
        f"# a comment\n\n// another\n  --mode=eval\n--flagfile={tmp_path}/inner\n--config.seeds=(1, 2)\n"
    )
    files = [f"--flagfile={tmp_path}/outer"], ["--flagfile", f"{tmp_path}/outer"]
    for given in files:
        config, overrides = parsed(QUICKSTART, "--config.train.num_steps=7", *given, "--config.seeds=(3,)")
        assert (config.train.num_steps, config.name, config.seeds) == (9, "a b '#1'", (3,))
        assert overrides == ["--config.train.num_steps=9", "--config.name=a b '#1'", "--config.seeds=(3,)"]
        assert flags.FLAGS["mode"].value == "eval"
    (tmp_path / "whole").write_text(f"{QUICKSTART}\n--config.model.hidden_size=64\n--workdir=x\n")
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


def test_without_a_config():
    config, overrides = parsed("--sweep=x.py", "--workdir=y")
    assert (config, overrides) == (None, [])
    assert main.SWEEP.value == "x.py"


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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--confg=x.py"], "unknown option --confg; did you mean config?"),
        (["--xyz=1"], "unknown option --xyz; known: "),
        ([QUICKSTART, "--mode=evall"], "unknown --mode=evall; did you mean eval?"),
        (
            [QUICKSTART, "--mode=x"],
            "unknown --mode=x; known: analyze, compare, eval, export, predict, report, score, train, visualize",
        ),
        ([QUICKSTART, "predict"], "unexpected argument 'predict'; options look like --mode=eval"),
        ([f"--config={ROOT}/configs/quikstart.py"], "quikstart.py; did you mean quickstart.py?"),
        (["--config=nowhere/quickstar.py"], "there is no file nowhere/quickstar.py; did you mean quickstart.py?"),
        ([f"--config={ROOT}/README.md"], "README.md is no Python file"),
        ([f"--config={ROOT}/attn_jax/errors.py"], "errors.py has no function get_config()"),
        (["--workdir=/nowhere"], "/nowhere/config.json does not exist: /nowhere is not the work directory of a run"),
        (
            [QUICKSTART, "--config.model.attention.scor=dot"],
            "unknown config key model.attention.scor; did you mean model.attention.score?",
        ),
        ([QUICKSTART, "--config.hidden_size=3"], "unknown config key hidden_size; did you mean model.hidden_size?"),
        (
            [QUICKSTART, "--config.model.attention.normalize=entmax", "--config.model.attention.normalize.alpha=0.5"],
            "model.attention.normalize.alpha is 0.5; expected at least 1",
        ),
        ([QUICKSTART, "--config.model.attention.dropout=1.5"], "model.attention.dropout is 1.5; expected 0 to 0.999"),
        ([QUICKSTART, "--config.model=3"], "unknown model '3'; known: classifier, dmn, "),
        ([QUICKSTART, "--config.train=3"], "train is a section of the config; set one of its keys: num_steps, "),
        (
            [QUICKSTART, "--config.model.attention=3"],
            "model.attention is a section of the config; set one of its keys: score, normalize, ",
        ),
        ([QUICKSTART, "--flagfile=/nowhere/f"], "--flagfile: /nowhere/f: no such file or directory"),
        ([QUICKSTART, "--flagfile="], "--flagfile= names no file; expected a text file of options, one a line"),
        ([QUICKSTART, "--flagfile"], "--flagfile with no argument"),
        ([QUICKSTART, "--verbosity=1"], "unknown option --verbosity; known: "),
        ([QUICKSTART, "-v", "2"], "unknown option --v; known: "),
        ([QUICKSTART, "--nologtostderr"], "unknown option --nologtostderr; known: "),
        ([QUICKSTART, "--helpfull"], "unknown option --helpfull; known: "),
        ([QUICKSTART, "--undefok=config.x", "--config.x=3"], "unknown config key x; "),
        (["--config="], "--config= names no file; expected a config such as --config=configs/quickstart.py"),
        ([QUICKSTART, "--config.train.num_steps=many"], "--config.train.num_steps=many: expected an integer, such as "),
        ([QUICKSTART, "--config.model.dropout=x"], "--config.model.dropout=x: expected a number, such as "),
        ([QUICKSTART, "--config.model.decoder.input_feeding=3"], "input_feeding=3: expected true or false, such as"),
        ([QUICKSTART, "--config.seeds=(1,"], "--config.seeds=(1,: expected a tuple, such as (0, 1)"),
        ([QUICKSTART, "--num_processes=two"], "--num_processes=two: expected an integer"),
        ([QUICKSTART, "--num_processes=-3", "--process_id=9"], "--num_processes=-3: expected at least 1"),
        ([QUICKSTART, "--num_processes=0"], "--num_processes=0: expected at least 1"),
        ([QUICKSTART, "--process_id=3"], "--process_id=3 is for several processes; say how many: --num_processes=2 or"),
        ([QUICKSTART, "--coordinator=zz"], "--coordinator=zz is for several processes; say how many: --num_processes="),
        ([QUICKSTART, "--num_processes=2", "--coordinator=zz", "--process_id=2"], "0 to 1; got 'zz' and 2"),
        ([QUICKSTART, "--num_processes=2", "--process_id=1"], "needs --coordinator=HOST:PORT (of process 0) and --p"),
        (
            [QUICKSTART, "--source=x"],
            "--mode=train takes no --source; it is for --mode=eval or --mode=predict or --mod",
        ),
        (
            [QUICKSTART, "--mode=train", "--target=x"],
            "--mode=train takes no --target; it is for --mode=eval or --mode=s",
        ),
        (
            [QUICKSTART, "--mode=predict", "--target=x"],
            "--mode=predict takes no --target; it is for --mode=eval or --m",
        ),
        ([QUICKSTART, "--config.train.goal=nan"], "train.goal is nan; expected a finite number"),
        ([QUICKSTART, "--config.optimizer.eps=inf"], "optimizer.eps is inf; expected a finite number"),
        (
            [
                QUICKSTART,
                "--config.model.attention.score=gaussian",
                "--config.model.attention.score.width=(1.0, 1e999)",
            ],
            "attention.score.width is (1.0, inf); expected a finite",
        ),
        (
            [QUICKSTART, "--config.decode.max_length=3000000000"],
            "max_length is 3000000000; expected integers of at mos",
        ),
        ([QUICKSTART, "--config.decode.max_length=2000000000"], "max_length is 2000000000; expected 1 to 100000"),
        (
            [QUICKSTART, *BEAM, "--config.decode.method.beam_size=1000000000"],
            "beam_size is 1000000000; expected 1 to 10000",
        ),
        (
            [QUICKSTART, "--config.decode.method=sample", "--config.decode.method.top_k=-2147483648"],
            "decode.method.top_k is -2147483648; expected integers of at most",
        ),
        ([QUICKSTART, "--config.task.buckets.shapes=((2147483648, 3),)"], "expected integers of at most 2,147,483,647"),
        ([QUICKSTART, f"--config.model.hidden_size=1{'0' * 400}"], "expected integers of at most 2,147,483,647"),
        ([QUICKSTART, f"--config.seed=1{'0' * 400}"], "expected integers of at most 4,294,967,295"),
        ([QUICKSTART, f"--config.seeds=(0, 1{'0' * 400})"], "expected integers of at most 4,294,967,295"),
        (
            [QUICKSTART, "--config.model.encoder.num_layers=100000000"],
            "encoder.num_layers is 100000000; expected 1 to 1000",
        ),
        ([ENJA, "--config.task.train=('a\\x00b', 'c')"], "expected no NUL in a name"),
        ([QUICKSTART, "--config.optimizer.b1=1.0"], "optimizer.b1 is 1.0; expected 0 to 0.999999"),
        ([QUICKSTART, "--config.optimizer.b2=-7.5"], "optimizer.b2 is -7.5; expected 0 to 0.999999"),
        ([QUICKSTART, "--config.optimizer.eps=-7.5"], "optimizer.eps is -7.5; expected at least 1e-16"),
        ([QUICKSTART, "--config.task.num_examples=-7"], "task.num_examples is -7; expected at least 0"),
        ([QUICKSTART, "--config.eval.metrics={'bleu': 1}"], "expected a tuple, such as ('perplexity', "),
        ([QUICKSTART, "--config.model.dropout=-1"], "model.dropout is -1.0; expected 0 to 0.999"),
        ([QUICKSTART, "--config.train.keep", "0"], "train.keep is 0; expected at least 1"),
        ([QUICKSTART, "--config.train.num_epochs=nan"], "train.num_epochs is nan; expected a finite number"),
        ([QUICKSTART, "--config.train.num_epochs=inf"], "train.num_epochs is inf; expected a finite number"),
        (
            [QUICKSTART, "--config.model.objective=top", "--config.model.objective.num_samples=0"],
            "num_samples is 0; expected at least 1",
        ),
        ([QUICKSTART, "--config.eval.metrics=(1,)"], "eval.metrics has 1; expected a text for each of its parts"),
        ([ENJA, "--config.task.vocab_size=('a', 1)"], "task.vocab_size has 'a'; expected an integer for each"),
        # Parts: an unknown name, an option of another part, of a part that is not chosen, of a place below.
        ([QUICKSTART, "--config.model.encoder=gruu"], "unknown model.encoder 'gruu'; did you mean gru?"),
        ([QUICKSTART, "--config.model.encoder"], "--config.model.encoder has no value; expected one of rnn, relu_rnn,"),
        ([QUICKSTART, "--config.model.encoder.nam=gru"], "key model.encoder.nam; did you mean model.encoder.name?"),
        (
            [QUICKSTART, "--config.model.encoder.name.x=gru"],
            "key model.encoder.name.x; model.encoder.name has a value,",
        ),
        (
            [QUICKSTART, "--config.train.num_steps.x=3"],
            "key train.num_steps.x; train.num_steps has a value, and no keys",
        ),
        ([QUICKSTART, "--config.=3"], "--config.=3: expected a key and a value, such as --config.model.hidden_size=64"),
        (
            [QUICKSTART, "--config.model.encoder=none", "--config.model.encoder.num_layers=2"],
            "unknown config key model.encoder.num_layers; it is an option of model.encoder rnn, relu_rnn, sigmoid_rnn",
        ),
        (
            [QUICKSTART, "--config.optimizer.momentum=0.5"],
            "unknown config key optimizer.momentum; it is an option of optimizer sgd",
        ),
        (
            [QUICKSTART, "--config.model.num_layers=2"],
            "key model.num_layers; did you mean model.encoder.num_layers or model.decoder.num_layers?",
        ),
        (
            [QUICKSTART, "--config.decode.beam_size=3"],
            "key decode.beam_size; did you mean decode.method.beam_size, with decode.method=beam?",
        ),
        ([QUICKSTART, "--config.model.attention.gate"], "did you mean model.attention.wrappers=gate?"),
        ([QUICKSTART, "--config.train.cell=gru"], "unknown config key train.cell; did you mean model.decoder.cell?"),
        (
            [QUICKSTART, "--config.model.decoder=none", "--config.model.attention.score=dot"],
            "model.attention; it is for a model.decoder that attends to the source, or model.encoder transformer",
        ),
        (
            [QUICKSTART, "--config.model=kernel_regression"],
            "model.name kernel_regression reads points, and task.name dates has ",
        ),
        ([QUICKSTART, "--config.model.picture.grid=patches"], "model.picture; it is for a task.name with images"),
        # Sequences of parts.
        (
            [QUICKSTART, f"{WRAPPERS}=top_key"],
            "unknown model.attention.wrappers.pattern 'top_key'; did you mean top_keys?",
        ),
        ([QUICKSTART, f"{WRAPPERS}="], "wrappers.pattern=: expected a tuple, such as ('a', 'b')"),
        ([QUICKSTART, f"{WRAPPERS}=(1,)"], "wrappers.pattern has 1; expected a text for each of its parts"),
        ([QUICKSTART, f"{WRAPPERS}.patern=gate"], "wrappers.patern; did you mean model.attention.wrappers.pattern?"),
        (
            [QUICKSTART, f"{WRAPPERS}=gate", f"{WRAPPERS}.parts.top_keys.count=4"],
            "wrappers.parts.top_keys; it is for model.attention.wrappers=top_keys, which is ('gate',)",
        ),
        (
            [QUICKSTART, f"{WRAPPERS}=top_keys", f"{WRAPPERS}.parts.top_key.count=4"],
            "wrappers.parts.top_key; did you mean model.attention.wrappers.parts.top_keys?",
        ),
        (
            [QUICKSTART, f"{WRAPPERS}=top_keys", f"{WRAPPERS}.top_keys.count=4"],
            "wrappers.top_keys; did you mean model.attention.wrappers.parts.top_keys?",
        ),
        (
            [QUICKSTART, f"{WRAPPERS}=top_keys", f"{WRAPPERS}.parts.top_keys.cout=4"],
            "top_keys.cout; did you mean model.attention.wrappers.parts.top_keys.count?",
        ),
        (
            [QUICKSTART, f"{WRAPPERS}=gate", f"{WRAPPERS}.parts=4"],
            "wrappers.parts is a section of the config; its keys",
        ),
    ],
)
def test_a_slip_is_one_clear_line(argv, message):
    with pytest.raises(UserError) as error:
        parsed(*argv)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("def get_config(:", "cannot load {path}: "),
        ("import numpyy", "cannot load {path}: No module named 'numpyy'"),
        ("def get_config():\n    return 3", "{path}: get_config() gave a int; expected a ConfigDict"),
        ("def get_config():\n    return nothing", "cannot load {path}: name 'nothing' is not defined"),
        ("{base}    config.model.hiden_size = 3\n    return config", 'Did you mean "hidden_size"'),
        ("{base}    config.model.hidden_size = 'x'\n    return config", "cannot load {path}: Could not override field"),
        (
            "{base}    config.model.hidden_size = None\n    return config",
            "model.hidden_size is None; expected an integer, ",
        ),
        ("{base}    config.model.hidden_size = True\n    return config", "model.hidden_size is True; expected an inte"),
        ("{base}    config.seeds = 3\n    return config", "cannot load {path}: Could not override field"),
        (
            "import sys\nsys.exit(7)",
            "cannot load {path}: it ends the process, with 7; expected a value from get_config()",
        ),
        ("def get_config():\n    return {}['rate']", "cannot load {path}: KeyError 'rate'"),
        ("def get_config():\n    assert False", "cannot load {path}: AssertionError"),
        ("def get_config():\n    return open('/nowhere')", "cannot load {path}: /nowhere: no such file or directory"),
        (
            "{base}    config.unlock()\n    config.model.hiden_size = 3\n    return config",
            "{path}: unknown config key model.hiden_size; did you mean model.hidden_size?",
        ),
        (
            "{base}    config.model.encoder = None\n    return config",
            "model.encoder is None; expected one of rnn, relu_rnn,",
        ),
        (
            "{base}    config.model.encoder = 'gru'\n    return config",
            "cannot load {path}: encoder holds a part, got gru; expected part(NAME), or sequence(NAME, ...) of ",
        ),
        (
            "{base}    config.model.attention.wrappers = ('gate',)\n    return config",
            "cannot load {path}: wrappers holds a part, got ('gate',); expected part(NAME), or sequence(",
        ),
        (
            "{base}    config.model.encoder = part('gru', bidirektional=True)\n    return config",
            "{path}: unknown config key model.encoder.bidirektional; did you mean model.encoder.bidirectional?",
        ),
        (
            "{base}    config.model.attention.wrappers = sequence('gate', top_keys={'count': 4})\n    return config",
            "wrappers.parts.top_keys; it is for model.attention.wrappers=top_keys, which is ('gate',)",
        ),
        (
            "{base}    config.model.attention.wrappers = sequence('gate', gates={'count': 4})\n    return config",
            "wrappers.parts.gates; did you mean model.attention.wrappers.parts.gate?",
        ),
    ],
)
def test_a_slip_in_a_config_file_is_one_clear_line(tmp_path, lines, message):
    path = tmp_path / "own.py"
    start = "from attn_jax.runs.tree import part, sequence\nfrom configs import base\n"
    start += "def get_config():\n    config = base.get_config()\n"
    path.write_text(lines.replace("{base}", start))
    with pytest.raises(UserError) as error:
        parsed(f"--config={path}")
    assert message.format(path=path) in str(error.value) and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_seeds_may_be_as_large_as_a_key_takes():
    config, _ = parsed(QUICKSTART, "--config.seeds=(4294967295, 0)", "--config.seed=4294967295")
    assert (config.seeds, config.seed) == ((4294967295, 0), 4294967295)


def test_load_file_returns_what_the_function_does(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f(a='1'):\n    return a + '2'")
    assert (load_file(path, "f"), load_file(path, "f", "3")) == ("12", "32")


def test_load_file_sees_what_was_changed_within_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "x.py"
    for value in "1", "2":
        path.write_text(f"def f():\n    return {value}")
        os.utime(path, (1e9, 1e9))
        assert load_file(path, "f") == int(value)


def test_want_of_memory_is_told_like_a_slip(monkeypatch, capsys):
    import jax

    from attn_jax.cli import commands

    def fail(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nand more")

    monkeypatch.setattr(commands, "evaluation", fail)
    assert main.main(["launch.py", QUICKSTART, "--mode=eval", "--workdir=nowhere"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("launch.py: out of memory (Out of memory); in training")


def test_a_process_that_lost_the_others_does_not_wait_for_them(monkeypatch, capsys):
    import jax

    from attn_jax.cli import commands

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
