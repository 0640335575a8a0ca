"""Logs of other programs are read, and what is wrong with one is one line."""

import json
import sys

import pytest

from attn_jax.errors import UserError
from attn_jax.tasks import Pairs
from experiments import inflection_peer, peers, translation_peer

LINES = """
joeynmt.model - Total params: 2651264
joeynmt.prediction - Evaluation result (greedy): bleu:   4.69, loss:  33.62, ppl:  15.26, acc:   0.41, 0.0413[sec]
joeynmt.training - Epoch   {}, total training loss: 5876.63, num. of seqs: 20000, num. of tokens: 246061, 100.5[sec]
"""
LOG = "".join(LINES.format(epoch) for epoch in range(1, 9))
SCORES = "joeynmt.prediction - Evaluation result (scoring) loss:  20.11, ppl:   8.12, acc:   0.44.\n"


def test_a_program_is_run_with_its_log(tmp_path):
    log = tmp_path / "new" / "log"
    said = peers.run([sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"], log)
    assert said == log.read_text() == "1\n"
    with pytest.raises(UserError, match=r"-c import sys; sys.exit\(3\) ended with 3; see .*log"):
        peers.run([sys.executable, "-c", "import sys; sys.exit(3)"], log)
    with pytest.raises(UserError, match=r"nowhere/python: no such file or directory"):
        peers.run([str(tmp_path / "nowhere" / "python")], log)


def test_a_log_is_read_again_if_it_is_of_the_same_settings(tmp_path, capsys):
    log, settings = tmp_path / "new" / "a.log", {"epochs": 8, "model": {"dropout": 0.3}, "sizes": (1, 2)}
    peers.check(log, settings)
    assert capsys.readouterr().err == f"{log}: its settings were not kept; it is read as it is\n"
    peers.keep(log, settings, "python experiments/a.py")
    peers.check(log, settings)
    assert capsys.readouterr().err == ""
    kept = json.loads((tmp_path / "new" / "a.settings.json").read_text())
    assert kept["command"] == "python experiments/a.py" and kept["date"] and "commit" in kept
    with pytest.raises(
        UserError, match=r"a\.log is of other settings \(model.dropout: 0.3 there, 0.4 now\); remove it"
    ):
        peers.check(log, settings | {"model": {"dropout": 0.4}})


def test_the_log_of_joeynmt_is_read():
    found = translation_peer.facts(LOG + SCORES)
    smoothed = {"smoothed_perplexity": [15.26] * 8}
    assert found == {"bleu": [4.69] * 8, "perplexity": 8.12, "num_parameters": 2651264, "seconds": 804.0} | smoothed
    assert "| 0 | 2,651,264 | 4.7 | 8.12 | 4.7, 4.7," in translation_peer.report({"0": found})
    for unfinished in (LOG, LINES + SCORES):
        with pytest.raises(UserError, match="expected the log of a training that has ended, and of its scores"):
            translation_peer.facts(unfinished)


def test_a_finished_training_is_read_and_the_config_is_one_of_joeynmt(tmp_path, capsys):
    (tmp_path / "seed3.log").write_text(LOG)
    (tmp_path / "seed3.scored.log").write_text(SCORES)
    assert translation_peer.train(tmp_path / "nowhere", "nowhere", tmp_path, 3) == LOG + SCORES
    assert capsys.readouterr().err.count("its settings were not kept") == 2
    content = json.loads(translation_peer.write_config(tmp_path, 3).read_text())
    assert content["random_seed"] == 3 and content["data"]["train"] == str(tmp_path / "train")
    assert content["model"]["encoder"]["hidden_size"] * 2 == content["model"]["decoder"]["hidden_size"]
    scored = json.loads(translation_peer.write_config(tmp_path, 3, scored=True).read_text())
    assert content["training"]["label_smoothing"] == 0.1 and scored["training"]["label_smoothing"] == 0
    assert scored["testing"]["load_model"] == str(tmp_path / "model3" / "latest.ckpt")


def test_a_training_keeps_its_settings_and_is_not_taken_for_one_of_others(tmp_path, monkeypatch, capsys):
    def run(command, log):
        log.write_text(SCORES if "scored" in log.name else LOG)
        return log.read_text()

    monkeypatch.setattr(translation_peer.peers, "run", run)
    monkeypatch.setattr(
        translation_peer, "sentences", lambda data_dir: {"train": Pairs([], []), "valid": Pairs([], [])}
    )
    (tmp_path / "seed3.scored.log").write_text("of an earlier training")
    for _ in range(2):
        assert translation_peer.train(tmp_path / "python", "enja", tmp_path, 3) == LOG + SCORES
    assert capsys.readouterr().err == "" and str(tmp_path) not in (tmp_path / "seed3.settings.json").read_text()
    kept = json.loads((tmp_path / "seed3.scored.settings.json").read_text())
    assert kept["settings"]["training"]["label_smoothing"] == 0.0 and kept["command"].endswith("data/enja --seeds 3")
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("seed3.*"):
        path.rename(tmp_path / "moved" / path.name)
    assert translation_peer.train(tmp_path / "python", "enja", tmp_path / "moved", 3) == LOG + SCORES
    monkeypatch.setitem(translation_peer.TRAINING, "learning_rate", 0.002)
    with pytest.raises(
        UserError, match=r"seed3\.log is of other settings \(training.learning_rate: 0.0015 there, 0.002"
    ):
        translation_peer.train(tmp_path / "python", "enja", tmp_path / "moved", 3)


def test_a_log_is_of_the_content_of_its_data(tmp_path, monkeypatch):
    """And not of the names of its files."""
    log, settings = tmp_path / "a.log", {"train": "german-train"}
    peers.keep(log, settings, "python experiments/a.py", data=5)
    peers.check(log, settings, lambda: 5)
    peers.check(log, settings, lambda: None)  # they are not there any more
    with pytest.raises(UserError, match=r"a\.log is of other data \(wrong checksum\)"):
        peers.check(log, settings, lambda: 6)

    monkeypatch.setattr(inflection_peer, "chosen", lambda text: (1, 1.0))
    monkeypatch.setattr(inflection_peer.peers, "run", lambda command, log, **other: log.write_text("said"))
    (tmp_path / "src").mkdir()
    for name in ("src/train.py", "german-train-medium", "german-dev"):
        (tmp_path / name).write_text("gehen\tging\tV\n")
    arguments = tmp_path, tmp_path, inflection_peer.Setting("german", "soft", 1000), tmp_path / "runs"
    (tmp_path / "runs").mkdir()
    inflection_peer.train(*arguments)
    assert inflection_peer.train(*arguments) == "said"
    (tmp_path / "german-dev").write_text("sehen\tging\tV\n")
    with pytest.raises(UserError, match="is of other data"):
        inflection_peer.train(*arguments)
