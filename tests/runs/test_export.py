"""An exported model decodes in a process without this package, to the same tokens as the model itself."""

import io
import itertools
import json
import os
import pathlib
import runpy
import shlex
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from absl import flags
from safetensors.numpy import load_file, save_file
from tiny_run import tiny_config, train

import attn_jax
from attn_jax.cli import commands, main
from attn_jax.cli.modes import MODES
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Characters, Questions, Words
from attn_jax.decoding.options import ENSEMBLES, METHODS
from attn_jax.errors import UserError
from attn_jax.runs import export, exported_decoder
from attn_jax.runs.build import build_task
from attn_jax.runs.inputs import Files
from attn_jax.runs.load import load
from attn_jax.runs.options import change, resolve, schema_of
from attn_jax.runs.snapshot import restore
from attn_jax.runs.workdir import load_config
from attn_jax.token_ids import EOS, UNK
from attn_jax.training.model_size import num_parameters

SMALL = {"model__decoder__num_heads": 2, "model__decoder__feed_forward_size": 8}
RUNS = {
    "seq2seq": {},
    "transformer": {"model__name": "transformer", "model__encoder": "rnn"} | SMALL,
    "memn2n": {"task__name": "babi", "model__name": "memn2n", "task__buckets": "automatic", "task__numbers": (1,)},
}
SETTING = {"decode__batch_size": 3, "train__num_steps": 60}  # decode.max_length is 20, the bucket has 24 source tokens


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    """(work directory, sources)."""
    folder = tmp_path_factory.mktemp("run")
    config = tiny_config(**SETTING | RUNS[request.param])
    trained, _ = train(config, folder)
    sources = sorted(trained.task.splits["valid"].source, key=len)
    fitting = [text for text in sources if len(trained.task.source_vocabulary.encode(text)) < 24]
    return folder, fitting[-5:] or sources[:5]


def exported(folder):
    """Exports the run if that was not done yet."""
    if not (folder / "export").exists():
        commands.export(resolve(load_config(folder)), folder, Files())


def decoded(folder, sources, monkeypatch, capsys):
    """The token ids that decode.py prints for sources, token ids with the end."""
    text = "".join(" ".join(map(str, ids)) + "\n" for ids in sources)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(sys, "argv", ["decode.py", "--ids"])
    capsys.readouterr()
    runpy.run_path(str(folder / "export" / "decode.py"), run_name="__main__")
    return [[int(i) for i in line.split()] for line in capsys.readouterr().out.splitlines()]


def tokens_of(translator, sources):
    """The ids of each source."""
    encoded = translator.encode(Pairs(sources, [""] * len(sources))).source
    return [encoded.tokens[start:end].tolist() for start, end in itertools.pairwise(encoded.offsets)]


def told(changes):
    """Options as a line names them."""
    return ", ".join(f"decode.{key}={value}" for key, value in changes.items())


one_run = pytest.mark.parametrize("run", ["seq2seq"], indirect=True)


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run without an export, in a folder whose name a shell would take apart."""
    folder = tmp_path / "it's a run"
    return shutil.copytree(run[0], folder, ignore=shutil.ignore_patterns("export"))


@pytest.mark.slow
@pytest.mark.parametrize("ids", [True, False])
def test_another_process_decodes_the_same_tokens_or_texts(run, capsys, ids):
    folder, sources = run
    model = load(folder)
    commands.export(resolve(model.config), folder, Files())
    assert str(folder / "export") in capsys.readouterr().out
    translator = model.predictor.translator
    given = [" ".join(map(str, tokens)) for tokens in tokens_of(translator, sources)] if ids else sources
    lines = "".join(f"{line}\n" for line in given)
    blocked = (
        "import sys, runpy; sys.modules['attn_jax'] = None; del sys.argv[0]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-I", "-c", blocked, str(folder / "export" / "decode.py"), *(["--ids"] if ids else [])]
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    if not ids and translator.source_vocabulary.kind == "stories":
        assert "the vocabulary is of stories; expected --ids" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    expected = [found[0].text for found in translator.translate(model.params, sources)]
    printed = done.stdout.splitlines()
    if ids:
        printed = [translator.target_vocabulary.decode([int(word) for word in line.split()]) for line in printed]
    assert printed == expected and any(expected)


BEAM = {"method": "beam", "method.n_best": 2, "method.beam_size": 3, "method.length_penalty": 0.5}
SAMPLE = {"method": "sample", "method.n_best": 2, "method.seed": 3, "method.temperature": 0.5, "method.top_k": 2}
SAMPLE |= {"method.top_p": 0.9}
DECODING = {  # options of a run's decoding, and what the line of an export says that it leaves behind
    "none": ({}, ""),
    "no unk": ({"unk": "forbid"}, ""),
    "short": ({"max_length": 3, "batch_size": 2}, ""),
    "beam": (BEAM, told(BEAM)),
    "beam without unk": ({"method": "beam", "unk": "forbid"}, "decode.method=beam"),
    "sample": (SAMPLE, told(SAMPLE)),
    "copied words": ({"unk": "replace"}, "decode.unk=replace"),
    "scores": ({"with_scores": True}, "decode.with_scores=True"),
}


@pytest.mark.slow
@one_run
@pytest.mark.parametrize("name", ["none", "no unk", "short", "beam without unk"])  # other rows leave an export as it is
def test_an_export_follows_the_decoding_of_its_run_or_names_what_it_leaves_behind(copy, run, monkeypatch, capsys, name):
    changes, left = DECODING[name]
    config = change(load_config(copy), {f"decode.{key}": value for key, value in changes.items()})
    snapshot = restore(resolve(config), copy)
    params = jax.tree.map(np.array, snapshot.chosen)
    params["output"]["dense"]["bias"][UNK] += 4.0  # so that unk is probable
    monkeypatch.setattr(commands, "restore", lambda *_: snapshot._replace(params=[params]))
    commands.export(resolve(config), copy, Files())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left behind")]
    assert lines == ([f"left behind   {left}: decode.py takes the most probable token at each step"] if left else [])
    carried = {key: value for key, value in changes.items() if f"decode.{key}" in export.CARRIED or value == "forbid"}
    greedy = change(load_config(copy), {f"decode.{key}": value for key, value in carried.items()})
    translator = restore(resolve(greedy), copy).predictor.translator
    found = [list(one.ids) for (one,) in translator.translate(params, run[1])]
    assert any(UNK in ids for ids in found) == ("unk" not in carried)
    assert decoded(copy, tokens_of(translator, run[1]), monkeypatch, capsys) == found


def test_every_option_of_decoding_is_carried_or_named():
    """And --mode=export takes on the command line what it carries."""
    for changes, left in DECODING.values():
        options = resolve(change(tiny_config(), {f"decode.{key}": value for key, value in changes.items()}))
        assert ", ".join(export.left_behind(options)) == left
    tested = {f"decode.{key}" for changes, _ in DECODING.values() for key in changes}
    known = {"decode.ensemble.workdirs", "decode.ensemble.every_seed"}  # of other runs, which an export refuses
    for method, ensemble in itertools.product(METHODS, ENSEMBLES):
        config = change(tiny_config(), {"decode.method": method, "decode.ensemble": ensemble})
        known |= {key.removesuffix(".name") for key in schema_of(config) if key.startswith("decode.")}
    assert tested | {key for key in known if key.startswith("decode.ensemble")} == known >= set(export.CARRIED)
    unread = MODES["export"].unread
    refused = {key for key in known if f"{key}.name".startswith(unread)}
    assert refused == known - {"decode.unk"} - {key for key in known if key.startswith(export.CARRIED)}


@pytest.mark.slow
def test_an_export_of_a_language_model_takes_prompts_as_predict_does(tmp_path, monkeypatch, capsys):
    """Its training has no sources, so their length is that of the texts."""
    options = {"task__name": "plain_text", "model__name": "language_model", "model__continue_source": True}
    options |= {"task__buckets": "automatic", "model__num_heads": 2, "model__feed_forward_size": 8}
    config = tiny_config(**options, train__num_steps=10, decode__batch_size=3, eval__metrics=("perplexity",))
    trained, _ = train(config, tmp_path)
    commands.export(resolve(config), tmp_path, Files())
    length = json.loads((tmp_path / "export" / "export.json").read_text())["source_length"]
    assert length == max(target for _, _, target in trained.batches.shapes) > 8
    assert f"3 prompts of at most {length} tokens" in capsys.readouterr().out
    model = load(tmp_path)
    translator, text = model.predictor.translator, trained.task.splits["train"].target[0].split()
    prompts = [" ".join(text[:count]) for count in (1, 2, 5)]
    sources = [[*translator.source_vocabulary.encode(prompt), EOS] for prompt in prompts]
    found = decoded(tmp_path, sources, monkeypatch, capsys)
    assert found == [list(one.ids) for (one,) in translator.translate(model.params, prompts)] and any(found)


@pytest.mark.slow
def test_an_export_takes_sources_as_long_as_those_of_training(run):
    """The largest number of target tokens says nothing of sources."""
    folder, sources = run
    model = load(folder)
    exported(folder)
    about = json.loads((folder / "export" / "export.json").read_text())
    assert about["max_length"] == model.config.decode.max_length
    if model.config.task.buckets.name == "fixed":
        assert about["source_length"] == 24 > about["max_length"]
        assert max(map(len, sources)) + 1 > about["max_length"]
    else:
        trained = build_task(resolve(model.config)).splits["train"].source
        vocabulary = model.predictor.translator.source_vocabulary
        assert about["source_length"] == max(len(vocabulary.encode(text)) + 1 for text in trained)


@pytest.fixture
def decode(run, monkeypatch, capsys):
    """decode(lines) -> the lines that the script of the export prints."""
    folder, _ = run
    exported(folder)
    capsys.readouterr()

    def decode(text: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        monkeypatch.setattr(sys, "argv", ["decode.py", "--ids"])
        runpy.run_path(str(folder / "export" / "decode.py"), run_name="__main__")
        return capsys.readouterr().out.split("\n")

    return decode


@pytest.mark.slow
@one_run
def test_an_empty_line_decodes_to_an_empty_line(run, decode):
    """As --mode=predict has it."""
    alone, beside = decode("4 5 6 3\n"), decode("\n4 5 6 3\n \n4 5 6 3")
    assert beside == ["", alone[0], "", *alone] and alone[0]
    assert load(run[0]).predict(["", " "]) == ["", ""]


@one_run
def test_a_line_that_is_no_source_is_told_in_one_line(decode):
    """A token that the model has not gives nan, and a source without its end another output."""
    for line, message in (
        ("4 a 3", r"line 2: 4 a 3; expected token ids below \d+, the end token 3 last"),
        ("4 5", r"line 2: 4 5; expected .* the end token 3 last"),
        ("4 999 3", r"line 2: 4 999 3; expected token ids below \d\d,"),
        ("4 -1 3", r"line 2: 4 -1 3; expected token ids below"),
        ("4 " * 24 + "3", r"line 2: 25 tokens; the export was made for at most 24"),
    ):
        with pytest.raises(SystemExit, match=message):
            decode(f"4 5 3\n{line}\n")


ABOUT = {"source_vocab_size": 9, "source_length": 4, "pad": 0, "bos": 2, "eos": 3, "forbidden": [0, 2]}


def test_the_largest_token_and_the_longest_source_are_taken_and_no_larger_ones():
    assert exported_decoder.read("8 5 4 3", 1, ABOUT) == [8, 5, 4, 3]
    for line in ("9 5 4 3", "8 7 5 4 3"):
        with pytest.raises(SystemExit, match="line 1: "):
            exported_decoder.read(line, 1, ABOUT)


def test_an_output_that_does_not_end_has_as_many_tokens_as_that_of_predict():
    """Two for each of the source and ten, and no more than decode.max_length."""
    decoder = object.__new__(exported_decoder.Decoder)
    decoder.about, decoder.params = ABOUT | {"batch_size": 4, "max_length": 15}, []
    decoder.start = lambda params, batch: (None, None)
    decoder.step = lambda params, memory, state, token: (state, np.arange(4 * 9.0).reshape(4, 9))
    found = decoder.greedy([[3], [4, 3], [], [4, 5, 6, 3]])
    assert [len(tokens) for tokens in found] == [12, 14, 0, 15] and set(found[0]) == {8}


@pytest.mark.slow
@one_run
@pytest.mark.parametrize("length", [1, 2])
def test_the_printed_command_fits_the_shortest_sources(copy, length, capfd):
    """A language model has sources of one token, the end."""
    config = load_config(copy)
    config = change(config, {"task.buckets.shapes": ((length, 11),)})
    commands.export(resolve(config), copy, Files())
    line = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("try "))
    command = line.removeprefix("try").strip().replace("| python ", f"| {shlex.quote(sys.executable)} ")
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@one_run
def test_without_buckets_or_data_the_option_that_helps_is_named(copy, monkeypatch):
    config = load_config(copy)
    config = change(config, {"task.buckets": "automatic"})

    def missing(*_):
        raise UserError("there is no data")

    monkeypatch.setattr(export, "build_task", missing)
    with pytest.raises(UserError, match=r"there is no data.*--config.task.buckets=fixed"):
        commands.export(resolve(config), copy, Files())


@pytest.mark.slow
def test_imported_parameters_are_those_of_the_model_and_predict_the_same(run):
    folder, sources = run
    model = load(folder)
    exported(folder)
    params = attn_jax.import_parameters(folder / "export", model.config)
    jax.tree.map(np.testing.assert_array_equal, params, model.params)
    imported = [printed for _, printed in model.predictor.predict(params, sources, 3)]
    assert [line for printed in imported for line in printed] == model.predict(sources)


@pytest.mark.slow
def test_an_import_that_does_not_fit_is_one_line(run, tmp_path):
    folder, _ = run
    config = load(folder).config
    exported(folder)
    with pytest.raises(UserError, match=r"has the shape \(.*\); the model has \(.*\)"):
        attn_jax.import_parameters(folder / "export", change(config, {"model.hidden_size": 6}))
    with pytest.raises(UserError, match=r"params.safetensors does not exist; expected a folder that --mode=export"):
        attn_jax.import_parameters(tmp_path, config)
    shutil.copytree(folder / "export", tmp_path / "copy")
    path = tmp_path / "copy" / "params.safetensors"
    stored, content = load_file(path), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # of the same size
    with pytest.raises(UserError, match=r"params.safetensors is not of this export .*, or remove export.json"):
        attn_jax.import_parameters(tmp_path / "copy", config)
    (tmp_path / "copy" / "export.json").unlink()
    name = min(stored)
    for changed, message in (
        ({"other": stored[name]} | stored, "the model has no parameter other; known: "),
        ({key: value for key, value in stored.items() if key != name}, f"the parameter {name} of the model is not"),
    ):
        save_file(changed, path)
        with pytest.raises(UserError, match=message):
            attn_jax.import_parameters(tmp_path / "copy", config)
    path.write_bytes(b"short")
    with pytest.raises(UserError, match=r"cannot read .*params.safetensors: "):
        attn_jax.import_parameters(tmp_path / "copy", config)


@one_run
def test_an_ensemble_of_runs_is_refused(run):
    changes = {"decode.ensemble": "runs", "decode.ensemble.workdirs": (str(run[0]),)}
    config = change(load_config(run[0]), changes)
    with pytest.raises(UserError, match=r"writes one run; expected decode.ensemble none, or seeds, all those of the r"):
        commands.export(resolve(config), run[0], Files())


@pytest.mark.slow
def test_the_files_say_what_they_hold(run):
    folder, _ = run
    model = load(folder)
    commands.export(resolve(model.config), folder, Files())
    about = json.loads((folder / "export" / "export.json").read_text())
    stored = load_file(folder / "export" / "params.safetensors")
    assert sorted(stored) == about["parameters"] and about["batch_size"] == 3
    assert sum(x.size for x in stored.values()) == num_parameters(model.params)
    assert (folder / "export" / "vocabularies.json").read_bytes() == (folder / "vocabularies.json").read_bytes()
    shutil.rmtree(folder / "export")


@one_run
@pytest.mark.parametrize("name", ["", "step.jax"])
def test_what_cannot_be_written_is_an_error_of_the_system(copy, name):
    path = copy / "export" / name
    if name:
        path.mkdir(parents=True)
    else:
        path.write_text("a file in the place of the folder")
    with pytest.raises(OSError):
        commands.export(resolve(load_config(copy)), copy, Files())
    assert not list(copy.rglob("*.partial"))


@one_run
def test_a_folder_in_the_place_of_a_file_is_told_in_one_line(copy, capsys):
    (copy / "export" / "params.safetensors").mkdir(parents=True)
    try:
        status = main.main(["launch.py", "--mode=export", f"--workdir={copy}"])
    finally:
        for flag in (main.MODE, main.WORKDIR):
            flags.FLAGS[flag.name].unparse()
    out, err = capsys.readouterr()
    assert status == 1 and out == "" and err.count("\n") == 1
    assert err == f"launch.py: {copy}/export/params.safetensors: is a directory\n"


@pytest.mark.parametrize(
    ("kinds", "line"),
    [
        ((Words, Characters), "echo 'a b c' | python d.py"),
        ((Characters, Words), "echo abc | python d.py"),
        ((Questions, Words), "echo '4 5 6 3' | python d.py --ids"),
    ],
)
def test_the_line_to_try_has_text_where_decode_py_reads_text(kinds, line):
    source, target = (kind(("a", "b", "c", "d")) for kind in kinds)
    assert commands.decoding(source, target, pathlib.Path("d.py"), 9) == line


@one_run
def test_files_of_an_earlier_export_are_replaced_as_a_whole(copy, capsys):
    """Another name of the earlier file keeps what it had: nothing is written into it."""
    names = ("params.safetensors", "start.jax", "step.jax", "export.json", "vocabularies.json", "decode.py")
    (copy / "export").mkdir()
    for name in names:
        (copy / "export" / name).write_text("earlier")
        os.link(copy / "export" / name, copy / f"{name} of before")
    commands.export(resolve(load_config(copy)), copy, Files())
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("try ")]
    first, *command = shlex.split(line)  # whatever is in the name of the folder
    assert first == "try" and command[0] == "echo" and command[2:] == ["|", "python", f"{copy}/export/decode.py"]
    for name in names:
        assert (copy / f"{name} of before").read_text() == "earlier", name
        assert (copy / "export" / name).stat().st_size > 100
    assert not list(copy.rglob("*.partial"))


@one_run
@pytest.mark.parametrize("name", ["params.safetensors", "start.jax", "step.jax"])
def test_a_file_of_another_export_of_the_same_size_is_told_in_one_line(run, decode, name):
    """Such as one of which the second was interrupted, after another training."""
    path, about = run[0] / "export" / name, run[0] / "export" / "export.json"
    before, kept = path.read_bytes(), about.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        with pytest.raises(SystemExit, match=f"{name} is not of this export"):
            decode("4 5 3\n")
        about.unlink()  # of the first export, interrupted
        with pytest.raises(SystemExit, match=r"export.json does not exist: the export was interrupted"):
            decode("4 5 3\n")
    finally:
        path.write_bytes(before)
        about.write_bytes(kept)


@pytest.mark.slow
def test_a_missing_package_is_one_line(run, monkeypatch):
    folder, _ = run
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(UserError, match=r"--mode=export needs the package .*: pip install flatbuffers safetensors"):
        commands.export(resolve(load(folder).config), folder, Files())
    with pytest.raises(UserError, match=r"import_parameters needs the package safetensors"):
        attn_jax.import_parameters(folder / "export", load(folder).config)
