"""attn_jax.get_config and attn_jax.train do what launch.py does with the same options."""

import json
import threading

import jax
import jaxtyping
import numpy as np
import pytest
from tiny_run import tiny_config, tiny_options
from tiny_run import train as tiny_train

import attn_jax
from attn_jax.errors import UserError
from attn_jax.runs.build import build_task
from attn_jax.runs.options import resolve
from attn_jax.runs.workdir import load_config
from attn_jax.tasks import Task

CHANGES = tiny_options() | {"train.num_steps": 3, "seeds": (0, 1)}


def load_task(model):
    return build_task(resolve(model.config), Task.load(model.workdir))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "python"
    return attn_jax.train(attn_jax.get_config("quickstart", CHANGES), str(workdir))


@pytest.mark.slow
def test_a_training_in_python_has_the_parameters_of_one_by_command(trained, tmp_path):
    config = tiny_config(train__num_steps=3, seeds=(0, 1))
    assert {**load_config(trained.workdir).to_dict(), "description": ""} == {**config.to_dict(), "description": ""}
    _, fitted = tiny_train(config, tmp_path / "command")
    first = jax.tree.map(lambda x: x[0], fitted.state.params)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, trained.params)), strict=True))


@pytest.mark.slow
def test_the_result_has_a_value_for_each_seed_and_the_model_predicts(trained):
    metric = trained.result["metrics"]["perplexity"]
    assert len(metric["seeds"]) == 2 and metric["mean"] == pytest.approx(np.mean(metric["seeds"]))
    lines = ["1 May 2026", "", "2 May 1999"]
    assert len(trained.predict(lines)) == 3 and trained.predict(line for line in lines) == trained.predict(lines)
    assert len(trained.attention(line for line in lines)) == 2 and trained.predict(iter(())) == []
    (trained.workdir / "result.json").rename(trained.workdir / "elsewhere.json")
    with pytest.raises(UserError, match=r"result\.json"):
        trained.result  # noqa: B018
    (trained.workdir / "elsewhere.json").rename(trained.workdir / "result.json")


@pytest.mark.slow
def test_measuring_in_python_is_measuring_by_command(trained):
    found = trained.measure()
    assert found == trained.result["metrics"]
    pairs = load_task(trained).splits["valid"]
    before = sorted(path.name for path in trained.workdir.iterdir())
    of_split, of_lines = trained.measure(split="valid"), trained.measure(pairs.source, pairs.target)
    assert of_split == of_lines != found and sorted(path.name for path in trained.workdir.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(sources=["1 May 2026"]), "1 source sentences but 0 target sentences"),
        (dict(sources=["1 May 2026"], targets=["2026-05-01"], split="test"), "or the name of a split"),
        (dict(split="tset"), "unknown split 'tset'; did you mean test?"),
        (dict(sources="1 May 2026", targets=["x"]), "measure takes a list of lines, got the text"),
        (dict(sources=[], targets=[]), "measure got no pair; leave out sources and targets to measure a split"),
    ],
)
def test_what_cannot_be_measured_is_one_line(trained, unchecked, arguments, message):
    with pytest.raises(UserError, match=message):
        trained.measure(**arguments)


@pytest.fixture
def unchecked():
    """Leaves out the checks of annotations, which the tests alone have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("method", ["predict", "attention"])
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"a"], ": line 1 is b'a'; expected a text"),
        (["1 May 2026", None], ": line 2 is None; expected a text"),
        (["1 May 2026", "", 3], ": line 3 is 3; expected a text"),
        (["1 May 2026", [10**99]], f": line 2 is [1{38 * '0'}; expected a text"),
        (b"a", ": line 1 is 97; expected a text"),
        ("1 May 2026", " takes a list of lines, got the text '1 May 2026'"),
    ],
)
def test_what_is_no_line_of_text_is_told(trained, unchecked, method, lines, message):
    with pytest.raises(UserError) as error:
        getattr(trained, method)(lines)
    assert str(error.value) == f"{method}{message}"
    if isinstance(lines, list):
        with pytest.raises(UserError) as error:
            getattr(trained, method)(line for line in lines)
        assert str(error.value) == f"{method}{message}"


def test_a_finished_run_is_only_loaded_and_another_config_is_refused(trained, capsys):
    config = attn_jax.get_config("quickstart", CHANGES)
    again = attn_jax.train(config, trained.workdir)
    assert "3 steps are done already" in capsys.readouterr().out
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, again.params, trained.params)))
    config.model.hidden_size = 12
    for given, words in ((config, "hidden_size"), ("quickstarts", "did you mean quickstart")):
        with pytest.raises(UserError, match=words):
            attn_jax.train(given, trained.workdir)


@pytest.mark.slow
def test_a_training_may_be_in_a_thread(tmp_path):
    """Python has handlers of signals in its main thread alone."""
    config = attn_jax.get_config("quickstart", tiny_options() | {"train.num_steps": 1})
    made = []
    thread = threading.Thread(target=lambda: made.append(attn_jax.train(config, tmp_path / "run")))
    thread.start()
    thread.join()
    assert made[0].result["steps"] == 1


def test_the_description_of_a_config_says_what_was_changed():
    config = attn_jax.get_config("quickstart", {"model.attention.score": "dot", "seeds": (3,)})
    assert config.model.attention.score.name == "dot" and config.seeds == (3,)
    assert config.description.endswith(", with model.attention.score=dot")
    assert attn_jax.get_config("quickstart").description in config.description


def test_a_list_is_a_tuple_and_a_number_of_numpy_one_of_python():
    changes = {"seeds": [np.uint32(0), 1], "model.hidden_size": np.int64(16), "task.buckets.shapes": [[10, 12]]}
    config = attn_jax.get_config("quickstart", changes)
    assert (config.seeds, config.model.hidden_size, config.task.buckets.shapes) == ((0, 1), 16, ((10, 12),))
    assert json.dumps(config.to_dict())  # as it is stored


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.attention.scor": "dot"}, "did you mean model.attention.score"),
        ({"model.attention": "dot"}, "is a section of the config"),
        ({"model.num_heads": 2}, "unknown config key model.num_heads; it is an option of model language_"),
        ({"model.encoder": ["gru"]}, "model.encoder is ('gru',); expected one of rnn, "),
        ({"model.encoder": None}, "model.encoder is None; expected one of rnn, "),
        ({"model.attention.wrappers": "gate"}, "wrappers.pattern is 'gate'; expected a tuple, such as ('a"),
        ({"model.hidden_size": "large"}, "expected an integer"),
        ({"seeds": 0}, "expected a tuple, such as (0, 1)"),
        ({"model.name": "transformers"}, "transformer"),
    ],
)
def test_a_wrong_config_is_refused_in_one_line(changes, message):
    with pytest.raises(UserError) as error:
        attn_jax.get_config("quickstart", changes)
    assert message in str(error.value) and "\n" not in str(error.value)
