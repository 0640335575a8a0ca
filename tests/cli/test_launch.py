"""python launch.py as a user sees it: results on standard output, progress on standard error, and for whatever
is wrong exactly one line that says so."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from launch_server import ENVIRONMENT, ROOT, Server
from tiny_run import WORDS, tiny_options, write_pairs

import attn_jax
from attn_jax.data.pairs import Pairs
from attn_jax.runs import lines
from attn_jax.runs.options import change
from configs import quickstart

QUICKSTART = f"--config={ROOT}/configs/quickstart.py"


def options(**changes):
    """The tiny config as options: words in files, one bucket that leaves one pair out."""
    task = {"name": "parallel_text", "train": ("train.source", "train.target"), "test": ("test.source", "test.target")}
    task |= {"num_examples": 0, "vocabulary": "words", "vocabulary.min_count": 1, "valid_size": 10, "batch_size": 16}
    task |= {"buckets.shapes": ((16, 16),), "tokenize": "none"}
    values = tiny_options() | {"parallel": "auto"} | {f"task.{key}": value for key, value in task.items()}
    values |= {"train.num_steps": 6, "train.eval_every": 3, "eval.metrics": ("bleu", "exact_match")}
    values |= {"eval.num_pictures": 2, "decode.batch_size": 4}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return [QUICKSTART, *(f"--config.{key}={value}" for key, value in values.items())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def server(folder):
    with Server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def data(folder):
    """Training files with a sentence that is too long, test files, and files that no run has seen."""
    for path in write_pairs(folder / "data"):
        path.write_text(path.read_text() + "a bird " * 10 + "\n")
    for name in ("test", "unseen"):
        write_pairs(folder / "data", name, count=7)
    return folder / "data"


@pytest.fixture(scope="module")
def trained(folder, data):
    """(work directory, the process that trained it): the one command here that is a process of its own."""
    command = [sys.executable, ROOT / "launch.py", *options(data_dir=data), f"--workdir={folder / 'run'}"]
    process = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return folder / "run", process


@pytest.fixture(scope="module")
def workdir(trained):
    return trained[0]


EXAMPLES = ["example", "", ""] * 3  # source, output and reference of each


def first_words(text):
    return [line.split()[0] if line[:1].strip() else "" for line in text.splitlines()]


@pytest.mark.slow
def test_train(workdir, trained, data):
    out, err = trained[1].stdout, trained[1].stderr
    assert first_words(out) == ["quickstart", *EXAMPLES, "test", "pictures", "try"]
    assert "1 cpu device, float32, seed 0" in out and f"({workdir}/result.json)" in out
    assert re.search(r"^test          loss \d.*   bleu .*   exact match .* %   \(", out, re.MULTILINE)
    example = re.search(r"^try           echo '(.+)' \| python launch.py --mode=predict --workdir=(.+)$", out, re.M)
    assert example[1] + "\n" in (data / "train.source").read_text() and example[2] == str(workdir)
    assert set(first_words(err)) == {"options", "data", "attention", "model", "training", "valid", "test"}
    kept = "kept task.batch_size, task.buckets, task.num_examples; dropped model.attention.score.features"
    assert err.startswith(f"options       {kept}\n")
    assert "1 of 51 training pairs are longer than any bucket and left out; see task.buckets" in err
    assert re.search(r"^training      \[#{20}\]  6/6  loss ", err, re.MULTILINE)
    for name in ("config.json", "vocabularies.json", "metrics.jsonl", "curves.png", "attention/001.png"):
        assert (workdir / name).stat().st_size > 100, name
    result = json.loads((workdir / "result.json").read_text())
    assert (result["split"], result["sentences"], result["steps"]) == ("test", 7, 6)
    assert "training      compiling ...\n" in err and err.endswith("test          evaluating 7 sentences ...\n")
    # What the description does not know of; data_dir and the like change nothing of it.
    changed = "task.num_examples=0, task.valid_size=10, task.buckets=fixed, task.buckets.shapes=((16, 16)"
    assert f"dates to ISO, with {changed}" in out
    assert " and 19 more    1 cpu device" in out and "data_dir" not in out
    assert set(result["overrides"]) == set(options(data_dir=data)[1:])
    assert result["checkpoint"] == "best checkpoint (step 6)" and result["versions"]["jax"] and result["date"]
    (count,) = re.findall(r"^model         ([\d,]+) parameters; at least .* KB with gradients", err, re.MULTILINE)
    assert result["num_parameters"] == int(count.replace(",", "")) > 1000


def test_the_header_names_what_makes_it_another_run_than_the_description_says():
    given = ["--config.model.encoder=gru", "--noconfig.model.encoder.bidirectional", "--config.model.tie_embeddings"]
    unseen = ["--config.seed=3", "--config.data_dir=x", "--config.decode.method=beam", "--config.train.log_every=1"]
    config = change(quickstart.get_config(), {"model.encoder": "gru"})
    text = ", with model.encoder=gru, model.encoder.bidirectional=False, model.tie_embeddings=True"
    assert lines.changes(config, (*unseen[:2], *given, *unseen[2:])) == text
    assert lines.changes(config, (*given, *given)) == f"{text}, model.encoder=gru and 2 more"
    assert lines.changes(config, tuple(unseen)) == ""


@pytest.mark.slow
def test_the_same_command_again_says_that_it_is_finished(server, workdir, data):
    code, out, err = server.run(*options(data_dir=data), f"--workdir={workdir}")
    assert (code, first_words(out)) == (0, ["quickstart", "finished", "test"])
    assert f"6 steps are done already; the result is in {workdir}/result.json" in out
    assert err == ""  # no data is read, nothing is built
    again = server.run(f"--workdir={workdir}", "--mode=train")  # the work directory knows its config
    assert (again.code, again.out.splitlines()[1:]) == (0, out.splitlines()[1:])


@pytest.mark.slow
def test_a_finished_run_with_a_damaged_result_says_how_to_have_it_again(server, workdir, tmp_path):
    copy = shutil.copytree(workdir, tmp_path / "copy")
    (copy / "result.json").write_text('{"metrics": 3')
    code, out, err = server.run("--mode=train", f"--workdir={copy}")
    assert (code, out) == (1, "") and "delete it, and the same command measures the finished run again" in err
    (copy / "result.json").unlink()
    assert server.run("--mode=train", f"--workdir={copy}").code == 0
    before, after = (json.loads((folder / "result.json").read_text()) for folder in (workdir, copy))
    assert after["metrics"] == before["metrics"] and after["steps"] == before["steps"]


@pytest.mark.slow
def test_eval(server, workdir, data):
    before = json.loads((workdir / "result.json").read_text())
    code, out, err = server.run("--mode=eval", f"--workdir={workdir}")
    told = "data          test pairs that training has too: 5\ntest          evaluating 7 sentences ...\n"
    assert (code, err, first_words(out)) == (0, told, [*EXAMPLES, "test"])
    result = json.loads((workdir / "eval.json").read_text())
    for name in ("eval_seconds", "date"):
        assert result.pop(name) and before.pop(name)
    assert result.pop("overrides") == [] and before.pop("overrides") and result == before

    unseen = [f"--source={data}/unseen.source", f"--target={data}/unseen.target"]
    override = "--config.eval.metrics=('chrf',)"
    given = ["--mode=eval", f"--workdir={workdir}", *unseen, "--config.decode.batch_size=3", override]
    code, out, err = server.run(*given)
    assert (code, err, first_words(out)) == (0, "files         evaluating 7 sentences ...\n", [*EXAMPLES, "files"])
    result = json.loads((workdir / "eval.json").read_text())
    assert result["split"] == f"{data}/unseen.source, {data}/unseen.target" and result["sentences"] == 7
    assert list(result["metrics"]) == ["loss", "chrf"] and result["steps"] == 6
    assert result["overrides"] == ["--config.decode.batch_size=3", override]
    # The same sentences as those of the test split.
    assert result["metrics"]["loss"]["mean"] == pytest.approx(before["metrics"]["loss"]["mean"], rel=1e-5)

    code, out, err = server.run("--mode=eval", f"--workdir={workdir}", "--split=valid")
    result = json.loads((workdir / "eval.json").read_text())
    assert (code, result["split"], result["sentences"]) == (0, "valid", 10)


@pytest.mark.slow
def test_metrics_are_printed_even_if_they_cannot_be_written(server, workdir, data, tmp_path):
    copy = shutil.copytree(workdir, tmp_path / "run")
    (copy / "eval.json").unlink(missing_ok=True)
    (copy / "eval.json").mkdir()
    code, out, err = server.run("--mode=eval", f"--workdir={copy}")
    assert (code, first_words(out), first_words(err)) == (1, [*EXAMPLES, "test"], ["data", "test", "launch.py:"])
    assert err.splitlines()[2].startswith(f"launch.py: cannot write {copy}/eval.json: ")


LINES = [" ".join(WORDS[i : i + 1 + i % 3]) for i in range(9)]


@pytest.mark.slow
def test_predict_is_a_filter(server, workdir, folder):
    text = "\n".join([*LINES[:3], "", *LINES[3:]])
    predict = ["--mode=predict", f"--workdir={workdir}"]
    code, out, err = server.run(*predict, stdin=text.encode())  # without an end of the last line, too
    lines = out.split("\n")
    assert (code, err, len(lines), lines[3], lines[-1]) == (0, "", 11, "", "")
    assert all(set(line.split()) <= {word.upper() for word in WORDS} for line in lines)

    (folder / "some.txt").write_text(text + "\r\n")
    other = server.run(*predict, f"--source={folder}/some.txt", "--config.decode.batch_size=100")
    assert other == (0, out, "")

    options = ["--config.decode.method=beam", "--config.decode.method.n_best=2", "--config.decode.with_scores"]
    code, out, err = server.run(*predict, *options, "--config.decode.method.beam_size=2", stdin=text.encode())
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err, len(rows)) == (0, "", 20)
    scores = np.array([float(score) for score, _ in rows]).reshape(10, 2)
    assert (scores[:, 0] >= scores[:, 1]).all() and rows[6:8] == [["0.0", ""], ["-inf", ""]]


@pytest.mark.slow
def test_nothing_of_the_input_acts_on_a_terminal(server, workdir):
    text = "a bird \x1b]0;pwned\x07\x1b[2J\x00 \x9b31m \u202e zebra\n"
    code, out, err = server.run("--mode=predict", f"--workdir={workdir}", stdin=text.encode())
    assert (code, len(out.splitlines())) == (0, 1)
    assert "not in the vocabulary: \\x1b]0;pwned\\x07\\x1b[2J\\x00 \\x9b31m \\u202e ...\n" in err
    message = failure(server, QUICKSTART, "--config.model.encode\x1b[31m=gru")
    assert message == "unknown config key model.encode\\x1b[31m; did you mean model.encoder?"
    for words in (err, message):
        assert all(c.isprintable() or c == "\n" for c in words)


@pytest.mark.slow
def test_samples_do_not_depend_on_the_batches(server, workdir):
    text = "\n".join(["a bird can"] * 7).encode()
    options = ["--mode=predict", f"--workdir={workdir}", "--config.decode.method=sample"]
    first = server.run(*options, stdin=text)
    assert (first.code, first.err) == (0, "") and len(set(first.out.splitlines())) > 3
    assert server.run(*options, "--config.decode.batch_size=5", stdin=text) == first
    assert server.run(*options, "--config.decode.method.seed=1", stdin=text).out != first.out


@pytest.mark.slow
def test_a_reader_that_has_enough(server, workdir, folder):
    """... | head -1"""
    os.mkfifo(folder / "pipe")
    job = server.start("--mode=predict", f"--workdir={workdir}", stdin=b"a bird\n" * 40_000, stdout=folder / "pipe")
    with open(folder / "pipe", encoding="utf-8") as pipe:
        assert pipe.readline().endswith("\n")
    assert job.wait() == (0, "", "")


@pytest.mark.slow
def test_score(server, workdir, data):
    score = ["--mode=score", f"--workdir={workdir}"]
    files = server.run(*score, f"--source={data}/unseen.source", f"--target={data}/unseen.target")
    assert (files.code, files.err, len(files.out.splitlines())) == (0, "", 7)
    assert all(float(line) < 0 for line in files.out.splitlines())
    sides = [(data / f"unseen.{side}").read_text().splitlines() for side in ("source", "target")]
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
    stdin = server.run(*score, "--config.decode.batch_size=2", stdin=rows.encode())
    of_stdin, of_files = ([float(line) for line in each.out.splitlines()] for each in (stdin, files))
    np.testing.assert_allclose(of_stdin, of_files, rtol=1e-4)
    model = attn_jax.load(workdir)
    expected = model.predictor.log_probs(model.params, Pairs(*sides))  # as accurate as it was computed
    np.testing.assert_allclose(of_files, expected, rtol=1e-7)


@pytest.mark.slow
def test_an_empty_input_is_told(server, workdir, folder):
    """As a command before the pipe that failed leaves it."""
    (folder / "nothing.txt").touch()
    for mode in ("predict", "score", "visualize"):
        given = [f"--mode={mode}", f"--workdir={workdir}"]
        assert failure(server, *given) == "standard input is empty; expected one input per line"
        if mode != "score":
            told = failure(server, *given, f"--source={folder}/nothing.txt")
            assert told == f"{folder}/nothing.txt is empty; expected one input per line"


@pytest.mark.slow
def test_visualize(server, workdir):
    code, out, err = server.run("--mode=visualize", f"--workdir={workdir}", stdin=b"a bird zebra\n\ndance\n")
    paths = [pathlib.Path(line) for line in out.splitlines()]
    assert (code, paths) == (0, [workdir / "visualize" / f"00{i}.png" for i in range(2)])
    assert err == (
        f"weights       as numbers in {workdir}/visualize/000.json ...\n"
        "unknown       1 of 4 source tokens are not in the vocabulary: zebra\n"
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    shown = json.loads(paths[0].with_suffix(".json").read_text())
    assert shown["source"] == ["a", "bird", "zebra", "<eos>"]
    np.testing.assert_allclose(np.sum(shown["weights"], axis=1), np.ones(len(shown["target"])), rtol=1e-5)


def contents(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def failure(server, *argv, stdin=b""):
    """The one line of a command that fails, without its name."""
    code, out, err = server.run(*argv, stdin=stdin)
    assert (code, out) == (1, ""), err
    assert err.startswith("launch.py: ") and err.endswith("\n") and err.count("\n") == 1, err
    return err.removeprefix("launch.py: ").rstrip("\n")


@pytest.mark.slow
def test_bad_data_is_one_clear_line_and_leaves_no_work_directory(server, data, tmp_path):
    train = [*options(data_dir=tmp_path), f"--workdir={tmp_path}/run"]
    source, _ = write_pairs(tmp_path)
    write_pairs(tmp_path, "test")
    (tmp_path / "folder").mkdir()
    good = source.read_bytes()
    for content, extra, message in (
        (good + b"a\nb\n", "", f"{source} has 62 lines but {tmp_path}/train.target has 60; expected line i of one to "),
        (b"", "", f"{source}: the file is empty; expected one sentence per line"),
        (good.replace(b"\n", b"\n\n", 1), "", f"{source}, line 2: the line is empty; expected one sentence per line"),
        (good.replace(b"\n", b"\n\xff", 3), "", f"{source}, line 2: not valid UTF-8 (byte 0xff); convert it to UTF-8"),
        (good, "task.train=('trainn.source', 'train.target')", "trainn.source: no such file; did you mean train.sourc"),
        (good, "task.train=('folder', 'train.target')", f"{tmp_path}/folder: is a directory; expected a text file"),
        (good, "data_dir=/nowhere", "the folder /nowhere does not exist either"),
        (good, "task.buckets.shapes=((2, 2),)", "no pair fits any of the buckets ((2, 2),): the shortest source has 4"),
        (good, "task.valid_size=60", "task.valid_size 60: expected 1 to 59"),
    ):
        source.write_bytes(content)
        assert message in failure(server, *train, *([f"--config.{extra}"] if extra else []))
        assert not (tmp_path / "run").exists()
    pieces = ["--config.task.vocabulary=sentencepiece", "--config.task.vocab_size=(5000, 30)"]
    message = failure(server, *(option for option in train if "vocabulary.min_count" not in option), *pieces)
    words = (
        r"the source vocabulary: vocab_size 5000 is too large for this text, 0 would fit; the largest possible is \d+"
    )
    assert re.fullmatch(words, message) and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_bad_options_are_one_clear_line(server, workdir, data, tmp_path):
    """Those that depend on a work directory; for others see test_command_line.py."""
    before, at, train = contents(workdir), f"--workdir={workdir}", options(data_dir=data)
    another = f"{workdir} holds the run of another config: "
    for argv, message in (
        ([], "nothing to do: give --config=configs/X.py to train, or --mode and --workdir"),
        ([QUICKSTART, "--config.model.encodr=gru"], "unknown config key model.encodr; did you mean model.encoder?"),
        ([*train, at, "--config.model.hidden_size=9"], f"{another}model.hidden_size is 8 there and 9 here; choose ano"),
        ([QUICKSTART, at], f"{another}task.name is 'parallel_text' there and 'dates' here"),
        ([QUICKSTART, "--mode=predict"], "--mode=predict needs --workdir=DIR, the work directory of a trained run"),
        (["--mode=eval", f"--workdir={tmp_path}"], f"{tmp_path}/config.json does not exist: {tmp_path} is not the wor"),
        ([*train, "--mode=predict", f"--workdir={tmp_path}"], f"{tmp_path}/config.json does not exist: "),
        (["--mode=eval", at, "--source=x"], "give --source=FILE and --target=FILE together, or neither"),
        (["--mode=score", at, "--source=x"], "--mode=score takes --source=FILE and --target=FILE together, or tab-"),
        (["--mode=eval", at, "--source=x", "--target=x"], "x: no such file; "),
        (["--mode=predict", at, "--source=/nowhere"], "/nowhere: no such file or directory"),
        (["--mode=predict", at, "--config.model.hidden_size=16"], "holds the run of another config: model.hidden_"),
        (["--mode=eval", at, "--config.model.attention.normalize=sparsemax"], "normalize.name is 'softmax' there"),
        (["--mode=eval", at, "--config.optimizer.learning_rate=7"], "optimizer.learning_rate has no effect there; lea"),
        (["--mode=eval", at, "--config.task.vocabulary=characters"], "task.vocabulary has no effect there; leave it"),
        (["--mode=predict", at, "--config.task.tokenize=char"], "--mode=predict does not read --config.task.tokenize;"),
        (["--mode=eval", at, "--config.decode.with_scores=True"], "--mode=eval does not read --config.decode.with_sc"),
        (["--mode=export", at, "--config.decode.method=beam"], "--mode=export does not read --config.decode.method;"),
        (["--mode=score", at, "--config.decode.unk=forbid"], "--mode=score does not read --config.decode.unk;"),
        (["--mode=eval", at, "--split=vald"], "unknown split 'vald'; did you mean valid?"),
        (["--mode=eval", at, "--split=valid", "--source=x", "--target=x"], "--split=valid and --source=x: expected on"),
        (["--mode=predict", at, "--split=valid"], "--mode=predict takes no --split; it is for --mode=eval or --mode="),
        (["--mode=eval", at, "--split=valid", "--config.task.valid_size=12"], "task.valid_size is 10 in the training "),
        (["--sweep=experiments/dates_scores.py", "--mode=eval"], "--sweep=experiments/dates_scores.py takes no --mode"),
        (["--sweep=", at], "--sweep is empty; expected a file such as experiments/dates_scores.py"),
        (["--sweep=nowhere.py"], "there is no file nowhere.py; "),
        ([*train, "--num_processes=2", "--coordinator=here"], "--coordinator=here: expected HOST:PORT, such as node1:"),
        (["--mode=visualize", at], "standard input is empty; expected one input per line"),
    ):
        assert message in failure(server, *argv)
    message = "standard input, line 2: expected source TAB target, but there is no tab"
    assert message in failure(server, "--mode=score", at, stdin=b"a\tb\na b\n")
    code, out, err = server.run("--mode=predict", at, stdin=b"a bird\n\xe4\n")
    assert (code, len(out.splitlines())) == (1, 1)  # what came before the error is translated
    assert "standard input, line 2: not valid UTF-8" in err
    assert contents(workdir) == before


@pytest.mark.slow
def test_without_a_checkpoint(server, workdir, data, tmp_path):
    """A copy of the work directory that lost them, and one that has none yet."""
    for name in ("config.json", "vocabularies.json"):
        (tmp_path / name).write_bytes((workdir / name).read_bytes())
    for mode in ("eval", "score"):
        message = failure(server, f"--mode={mode}", f"--workdir={tmp_path}", stdin=b"a\tb\n")
        assert message == f"there are no checkpoints: {tmp_path}/checkpoints does not exist"
    (tmp_path / "checkpoints").mkdir()
    message = failure(server, "--mode=predict", f"--workdir={tmp_path}")
    assert message == f"{tmp_path} has no checkpoint yet; train it first"


LONG = {"train__num_steps": 300, "train__eval_every": 20, "train__log_every": 7}
LONG |= {"eval__metrics": ("perplexity",), "task__tokenize": "13a"}


def wait_for(path, seconds=120):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.002)


@pytest.mark.slow
def test_a_run_that_is_terminated_says_where_it_goes_on(server, data, tmp_path):
    """And goes on there; that nothing differs then from a run that was never stopped is tested in tests/faults."""
    command = options(data_dir=data, **LONG | {"train__num_steps": 120, "eval__num_pictures": 0})
    run = tmp_path / "run"
    job = server.start(*command, f"--workdir={run}")
    wait_for(run / "checkpoints" / "20")
    os.kill(job.pid, signal.SIGTERM)
    code, out, err = job.wait()
    assert (code, first_words(out)) == (128 + signal.SIGTERM, ["quickstart", "interrupted"]), err
    told = re.fullmatch(r"interrupted   at step (\d+), saved; the same command goes on from there", out.splitlines()[1])
    step = int(told[1])
    assert 20 <= step < 120 and (run / "checkpoints" / str(step)).is_dir() and not (run / "result.json").exists()
    code, out, err = server.run(*command, f"--workdir={run}")
    assert (code, first_words(out)) == (0, ["quickstart", "test", "pictures", "try"]), err
    assert f"resuming      from step {step} of 120" in err
    assert set(first_words(err)) >= {"options", "data", "model", "resuming", "training", "test"}


@contextlib.contextmanager
def small_disk(directory):
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", directory], capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@pytest.mark.slow
def test_a_full_disk(server, data, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        code, _, err = server.run(*options(data_dir=data, **LONG, train__keep=100), f"--workdir={disk}/run")
        assert code == 1 and "Traceback" not in err
        assert re.fullmatch(r"launch.py: cannot (write|save) .*: no space left( on device)?", err.splitlines()[-1])
        assert set(first_words(err)) == {"options", "data", "attention", "model", "training", "valid", "launch.py:"}
        saved = [path.name for path in (disk / "run" / "checkpoints").iterdir() if path.name.isdigit()]
        assert saved
        assert server.run("--mode=predict", f"--workdir={disk}/run", stdin=b"a bird\n").code == 0
