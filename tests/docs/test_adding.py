"""The strangers' parts of docs/adding.md, each as a file of its own: they train, resume and predict."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import KINDS, TextKind, find_metric, kind_of
from attn_jax.evaluation.text import TextEvaluator
from attn_jax.models.seq2seq.options import Seq2SeqOptions
from attn_jax.tasks import Pairs
from attn_jax.tasks.synthetic.dates import DatesOptions

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding.md").read_text(encoding="utf-8"), re.DOTALL)
FILES = {re.search(r'config\.name = "(\w+)"', block)[1]: block for block in BLOCKS if "def get_config" in block}
SMALL = {"task.num_examples": 100, "task.valid_size": 10, "train.num_steps": 2, "train.eval_every": 2}
SMALL |= {"parallel": "single", "eval.num_pictures": 0}


def launch(folder, *arguments, text=""):
    command = [sys.executable, str(ROOT / "launch.py"), *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=folder, env=env, input=text, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_there_are_a_normalizer_a_logger_a_family_and_a_kind_of_data():
    assert FILES.keys() == {"power", "lines", "bigram", "years"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["power", "lines", "bigram", "years"])
def test_a_part_of_ones_own_trains_from_an_empty_folder(name, tmp_path):
    (tmp_path / f"{name}.py").write_text(FILES[name], encoding="utf-8")
    small = [f"--config.{key}={value}" for key, value in SMALL.items()]
    config = [f"--config={name}.py", f"--workdir={tmp_path / 'run'}"]
    trained = launch(tmp_path, *config, *small)
    assert trained.returncode == 0 and "test" in trained.stdout, trained.stderr
    done = launch(tmp_path, "--mode=predict", *config, text="21 Nov 2026\n")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1, done.stderr
    alone = launch(tmp_path, "--mode=predict", f"--workdir={tmp_path / 'run'}", text="21 Nov 2026\n")
    if name == "power":
        assert alone.returncode == 1 and len(alone.stderr.splitlines()) == 1 and "--trust" in alone.stderr
        trusted = launch(tmp_path, "--mode=predict", f"--workdir={tmp_path / 'run'}", "--trust", text="21 Nov 2026\n")
        assert trusted.stdout == done.stdout  # from the copy in the run
        with (tmp_path / "power.py").open("a") as file:
            file.write("# changed\n")
        changed = launch(tmp_path, *config, *small)
        assert changed.returncode == 1 and "power.py has changed since" in changed.stderr
    if name == "lines":  # predicting needs no logger
        assert "run 2 train/loss" in trained.stdout and "run 2 test/loss" in trained.stdout and alone.returncode == 0


@pytest.mark.parametrize("owner", ["DatesOptions", "Seq2SeqOptions"])
def test_a_kind_of_data_that_there_is_not_is_named(owner, monkeypatch):
    options = {"DatesOptions": DatesOptions, "Seq2SeqOptions": Seq2SeqOptions}[owner]
    monkeypatch.setattr(options, "data_kinds", ("txt",))
    with pytest.raises(UserError, match=f"unknown kind of data in data_kinds of {owner} 'txt'; did you mean text"):
        kind_of(DatesOptions, Seq2SeqOptions)


def test_a_metric_of_a_kind_of_ones_own_is_found_by_its_name(monkeypatch):
    class Right(TextEvaluator):
        of_texts = TextEvaluator.of_texts | {"right": TextEvaluator.of_texts["exact_match"]}
        metrics = of_texts | TextEvaluator.of_tokens

    class RightKind(TextKind):
        evaluator = Right

    monkeypatch.setitem(KINDS, "right", RightKind())
    assert find_metric("right").unit == " %" and find_metric("right").score(np.array([1, 2])) == 50
    assert find_metric("bleu") and find_metric("mse") and find_metric("touch") and find_metric("nothing") is None


def test_a_metric_that_nothing_computes_is_refused():
    class Wrong(TextEvaluator):
        metrics = TextEvaluator.metrics | {"nothing": TextEvaluator.metrics["bleu"]}

    with pytest.raises(UserError, match="unknown metric 'nothing'"):
        wrong = Wrong.__new__(Wrong)
        wrong.tokenize = "13a"
        wrong.measure([], Pairs([], []), ["nothing"])
