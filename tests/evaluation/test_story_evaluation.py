"""Memory networks from a config to answers with evidence: which seed answers, what is printed and plotted."""

import importlib
import io
import json
import sys
from unittest import mock

import jax
import numpy as np
import pytest
from arrays import fill

from attn_jax.cli import commands
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Results
from attn_jax.evaluation.stories import evidence_line
from attn_jax.evaluation.text import TextEvaluator
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import change, resolve
from attn_jax.runs.training import choose_seed
from attn_jax.tasks.task import Pairs, Task
from configs import babi_memn2n

STORY = """1 Mary moved to the garden.
2 John went to the office.
Where is Mary?

Sandra moved to the kitchen
Where is Sandra?
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short run of three seeds."""
    workdir = tmp_path_factory.mktemp("stories")
    config = babi_memn2n.get_config()
    changes = {"seeds": (3, 5, 9), "task.num_examples": 100, "train.num_steps": 6, "train.eval_every": 6}
    changes |= {"model.linear_steps": 2, "model.memory_size": 4, "eval.num_pictures": 2, "task.max_sentences": 0}
    config = change(config, changes | {"parallel": "single"})
    commands.train(resolve(config), workdir, commands.Files())
    return config, workdir


def predicted(finished, text, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capsys.readouterr()
    config, workdir = finished
    commands.predict(resolve(config), workdir, commands.Files())
    return capsys.readouterr()


@pytest.mark.slow
def test_the_seed_with_the_lowest_training_loss_is_chosen_and_reported(finished):
    config, workdir = finished
    result = json.loads((workdir / "result.json").read_text())
    trained = commands.restore(resolve(config), workdir)
    task = build_task(resolve(config), Task.load(workdir))
    losses = trained.evaluator.measure(trained.params, task.splits["train"], []).values
    best = int(np.argmin(losses["loss"]["seeds"]))
    assert (result["seeds"], result["chosen_seed"]) == ([3, 5, 9], [3, 5, 9][best])
    assert trained.index == best and trained.chosen is trained.params[best]
    assert len(result["metrics"]["accuracy"]["seeds"]) == 3
    own = result["metrics"]["accuracy"]["seeds"][best]
    assert f"(seed {result['chosen_seed']}: {own:.4g})" in commands.table(result, workdir)
    # The memory has no more slots than were asked for, though stories are longer.
    assert trained.predictor.model.module.memory_size == 4


@pytest.mark.parametrize(
    ("split", "valid", "place"),
    [
        ("", {}, 0),
        ("train", {}, 1),
        ("valid", {"accuracy": [90.0, 80.0, 95.0], "loss": [0.1, 0.2, 0.3]}, 2),
        ("valid", {"accuracy": [90.0, 95.0, 95.0], "loss": [0.1, 0.3, 0.2]}, 2),  # as good: the lower loss
    ],
)
def test_the_seed_is_chosen_by_training_loss_or_by_the_best_metric_in_validation(split, valid, place):
    config = babi_memn2n.get_config()
    config.train.choose_seed = split
    task, evaluator = mock.Mock(spec=Task), mock.Mock(spec=TextEvaluator)
    task.splits = {"train": {"loss": [0.2, 0.1, 0.3]}, "valid": valid}
    evaluator.measure = lambda _, of, names: Results({name: {"seeds": of[name]} for name in ["loss", *names]}, {})
    assert choose_seed(resolve(config), evaluator, [{}] * 3, task) == place


@pytest.mark.slow
def test_questions_are_answered_with_what_was_read_for_them(finished, monkeypatch, capsys):
    out, err = predicted(finished, STORY, monkeypatch, capsys)
    lines = out.splitlines()
    assert len(lines) == 2
    _, evidence = lines[0].split("\t")
    hops = evidence.split(" | ")
    assert len(hops) == 3 and all(" (1, " in hop or " (2, " in hop for hop in hops)
    assert lines[1].count("sandra moved to the kitchen (1, ") == 3  # the only statement; the rest goes to empty slots
    assert "never seen" not in err
    _, err = predicted(finished, STORY.replace("Mary", "Gandalf"), monkeypatch, capsys)
    assert "gandalf" in err
    assert evidence_line(np.array([[0.25, 0.75], [0.0, 0.0]]), ["mary left", "john came"]) == "john came (2, 0.75) | -"
    with pytest.raises(UserError, match="line 3: the number 7"):  # after the answers before it
        predicted(finished, "Mary left.\nWhere is Mary?\n7 John came.\n", monkeypatch, capsys)
    assert "mary left (1, " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mary moved to the garden.\n", "no question"),
        ("Where is Mary?\n", "a question without a story"),
        ("1 Mary moved.\n3 Where is Mary?\n", "the number 3; expected 2"),
    ],
)
def test_a_story_that_cannot_be_read_is_told_in_one_line(finished, text, words, monkeypatch, capsys):
    with pytest.raises(UserError, match=words) as error:
        predicted(finished, text, monkeypatch, capsys)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_each_question_has_n_best_lines_and_samples_do_not_depend_on_chunks(finished, monkeypatch, capsys):
    config, workdir = finished
    more = 60  # than there are answers
    config = change(config, {"decode.method": "beam", "decode.method.beam_size": more, "decode.method.n_best": more})
    out, _ = predicted((config, workdir), STORY, monkeypatch, capsys)
    assert len(out.splitlines()) == 120 and len({line.split("\t")[0] for line in out.splitlines()[:3]}) == 3
    config = change(config, {"decode.method": "sample", "decode.method.n_best": 4})
    found = []
    for size in (100, 1):
        config.decode.batch_size = size
        found.append(predicted((config, workdir), STORY * 3, monkeypatch, capsys)[0])
    assert found[0] == found[1]


@pytest.mark.slow
def test_stories_as_people_write_them_are_scored_and_measured(finished, tmp_path, monkeypatch, capsys):
    config, workdir = finished
    written, plain = "Mary moved to the garden. Where is Mary?\tGarden\n", "mary moved to the garden . where is mary ?"
    for text in (written, f"{plain}\tgarden\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        commands.score(resolve(config), workdir, commands.Files())
    one, two = capsys.readouterr().out.split()
    assert one == two
    for text, words in (
        ("Mary left. Where is Mary?\tgarden milk\n", "line 1: the answer 'garden milk'; expected one word"),
        ("Where is Mary?\tgarden\n", "line 1: a question without a story"),
        ("Mary left. Who? Where?\tgarden\n", "line 1: several questions"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(UserError, match=words):
            commands.score(resolve(config), workdir, commands.Files())
    (tmp_path / "source").write_text("Mary moved to the garden. Where is Mary?\n")
    (tmp_path / "target").write_text("garden\n")
    commands.evaluation(resolve(config), workdir, commands.Files(str(tmp_path / "source"), str(tmp_path / "target")))
    result = json.loads((workdir / "eval.json").read_text())
    losses = dict(zip((3, 5, 9), result["metrics"]["loss"]["seeds"], strict=True))
    assert losses[result["chosen_seed"]] == pytest.approx(-float(one), abs=1e-4)


@pytest.mark.slow
def test_hops_stand_at_the_statements_that_the_memory_kept(finished):
    config, workdir = finished
    trained = commands.restore(resolve(config), workdir)
    many = " . ".join(["mary moved to the garden"] * 6)
    pairs = Pairs([f"{many} . where is mary ?", "john went to the office . where is john ?"], ["", ""])
    long, short = trained.predictor.hops(trained.params[0], pairs)
    assert long.shape == (3, 6) and short.shape == (3, 1)
    np.testing.assert_allclose(long.sum(-1), 1.0, atol=1e-5)
    assert not long[:, :2].any() and long[:, 2:].all()


@pytest.mark.slow
def test_stories_that_are_longer_than_the_memory_are_told(finished, tmp_path, monkeypatch, capsys):
    long, short = "Mary moved to the garden. " * 5 + "Where is Mary?\n", "Mary moved to the garden. Where is Mary?\n"
    told = (
        "memory        2 of 3 stories have more statements than the 4 memory slots of this model (model.memory_size); "
        "their first statements are not read\n"
    )
    text = long + "\n" + long + "\n" + short
    assert told in predicted(finished, text, monkeypatch, capsys).err
    (tmp_path / "source").write_text(long + long + short)
    (tmp_path / "target").write_text("garden\n" * 3)
    predictor = commands.restore(resolve(finished[0]), finished[1]).predictor
    capsys.readouterr()
    predictor.read_files(str(tmp_path / "source"), str(tmp_path / "target"))
    predictor.longest = 4
    predictor.report(predictor.read_lines([long, "", short]))
    predictor.report(predictor.read_lines([short]))
    longest = told.replace("2 of 3", "1 of 2").replace("model.memory_size", "the longest training story")
    assert capsys.readouterr().err == told + longest


@pytest.mark.slow
def test_the_command_that_a_run_suggests_works(finished, monkeypatch, capsys):
    """What a run prints after "try" is a source of the task, on one line."""
    config, workdir = finished
    task = build_task(resolve(config), Task.load(workdir))
    out, _ = predicted(finished, "\n".join(task.examples) + "\n", monkeypatch, capsys)
    assert len(out.splitlines()) == len(task.examples) > 1


@pytest.mark.slow
def test_a_story_is_plotted_for_each_question(finished, monkeypatch, capsys):
    config, workdir = finished
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STORY.encode())))
    capsys.readouterr()
    commands.visualize(resolve(config), workdir, commands.Files())
    out, err = capsys.readouterr()
    assert out.split() == [str(workdir / "visualize" / f"00{i}.png") for i in range(2)]
    assert err.startswith(f"weights       as numbers in {workdir}/visualize/000.json ...")
    shown = json.loads((workdir / "visualize" / "000.json").read_text())
    assert shown["source"] == ["mary moved to the garden", "john went to the office"]
    assert shown["question"] == "where is mary ?" and shown["target"] == ["hop 1", "hop 2", "hop 3"]
    names = [path.name for path in sorted((workdir / "attention").iterdir())]  # pictures of the run
    assert names == ["000.json", "000.png", "001.json", "001.png"]
    assert np.shape(shown["weights"]) == (3, 2) and np.min(shown["weights"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("network", ["entnet", "universal"])  # find sentences as dmn_plus does; a memory, a Transformer
def test_statements_shorter_than_all_of_training_still_have_a_slot_each(network):
    """Sources are batched by length, and short batches get few slots; see find_sentences."""
    config = importlib.import_module(f"configs.babi_{network}").get_config()
    changes = {"task.size": "1k", "task.num_examples": 20, "task.numbers": (6,)}
    config = change(config, changes | {"model.hidden_size": 8, "model.memory_size": 12})
    task = build_task(resolve(config))
    assert task.facts.shortest == 5
    setup = build_setup(resolve(config), task.kept)
    source = "mary went . " * 8 + "is mary in the garden ?"
    both = Pairs([source, "mary went home there . is mary in the garden ?"], ["yes", "no"])
    assert setup.predictor.translator.encode(both).source.lengths.tolist() == [40, 12]
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), setup.example), 0, 0.1)
    (hops,) = setup.predictor.hops(params, Pairs([source], [""]))
    assert hops.shape[1] == 8 and np.all(hops > 0)
