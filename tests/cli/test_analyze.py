"""--mode=analyze prints a row per place and writes it per seed; a wrong gold file is one line."""

import json

import jax
import numpy as np
import pytest
from arrays import fill
from tiny_run import tiny_config, train

from attn_jax.cli import commands
from attn_jax.cli.analyze import analysis_of, analysis_table, gold_of_file, words_of
from attn_jax.data.facts import Kept
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.vocabulary import Characters, Inflections, TaggedLemmas, TaggedTexts, Words
from attn_jax.errors import UserError
from attn_jax.inspection.attention_measures import NUMBERED_ROWS
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.inputs import Files
from attn_jax.runs.load import load
from attn_jax.runs.options import resolve
from attn_jax.tasks import Pairs
from configs import babi_memn2n

SOURCES, TARGETS = "July 4, 1999\n2 May 2001\n", "1999-07-04\n2001-05-02\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Work directory of two seeds, with files of two pairs beside it."""
    folder = tmp_path_factory.mktemp("run")
    train(tiny_config(seeds=(0, 1), decode__max_length=12), folder / "run")
    for name, text in (("source", SOURCES), ("target", TARGETS)):
        (folder / name).write_text(text)
    return folder


def analyze(folder, gold=None):
    """Runs the command on the files of two pairs, with these lines as the gold file."""
    if gold is not None:
        (folder / "gold").write_text(gold)
    files = Files(str(folder / "source"), str(folder / "target"), (), str(folder / "gold") if gold is not None else "")
    commands.analyze(resolve(load(folder / "run").config), folder / "run", files)
    return json.loads((folder / "run" / "analysis.json").read_text())


@pytest.mark.slow
def test_a_table_and_a_file_with_the_values_of_each_seed(run, capsys):
    found = analyze(run)
    out, err = capsys.readouterr()
    head, _, row = out.splitlines()
    assert head == "| place | entropy | keys | first | error | attended | random |" and "(SD " in row
    assert "error         alignment error rate" in err and "evidence" not in err
    (row,) = found["rows"]
    assert found["gold"] == "task" and found["sentences"] == 2 and found["seeds"] == [0, 1] and "commit" in found
    assert row["place"] == "attention to the source" and len(row["values"]["entropy"]["seeds"]) == 2
    assert row["values"]["entropy"]["mean"] == np.mean(row["values"]["entropy"]["seeds"])


@pytest.mark.slow
def test_the_gold_of_words_is_for_words(run, capsys):
    # The only word of the target comes from all three of the source: every link is right, and none is missed
    # where all of them are only possible.
    found = analyze(run, "1p1 2p1 3p1\n1p1 2p1 3p1\n")
    assert found["gold"].endswith("gold") and found["rows"][0]["values"]["error"]["mean"] == 0
    assert analyze(run, "\n\n")["rows"][0]["values"]["error"]["mean"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("1-1\n", r"gold has 1 lines, but there are 2 pairs; expected a line for each"),
        ("1-1\n1:1\n", r"gold, line 2: expected links such as 1-1 or 2p3, words from 1, got '1:1'"),
        ("4-1\n1-1\n", r"gold, line 1: source word 4, but the source has 3"),
        ("1-1\n1p2\n", r"gold, line 2: target word 2, but the target has 1"),
    ],
)
def test_a_wrong_gold_file_is_one_line(run, gold, message):
    with pytest.raises(UserError, match=message):
        analyze(run, gold)


@pytest.mark.slow
def test_files_that_are_missing(run):
    config = load(run / "run").config
    with pytest.raises(UserError, match=r"^give --source=FILE and --target=FILE together, or neither"):
        commands.analyze(resolve(config), run / "run", Files(str(run / "source")))
    with pytest.raises(UserError, match=r"no: no such file or directory"):
        gold_of_file(str(run / "no"), load(run / "run").predictor, Pairs(["a"], ["b"]))


@pytest.mark.slow
def test_a_model_without_attention_to_the_source(tmp_path):
    with pytest.raises(UserError, match=r"^model\.decoder none has no attention whose weights could be shown"):
        commands.analyze(resolve(tiny_config(model__decoder="none")), tmp_path, Files())
    config = babi_memn2n.get_config()
    config.task.num_examples = 40
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), setup.example), 0, 0.5)
    gold, split = tmp_path / "gold", task.splits["valid"].select([0])
    gold.write_text("1-1\n")
    with pytest.raises(UserError, match=r"gold: the model has no weights of target words over source words, but: mem"):
        analysis_of(setup.collector, [params], split, task=resolve(config).task, gold_file=str(gold))


@pytest.mark.parametrize("kind", [Inflections, TaggedLemmas])
def test_tags_are_no_words_wherever_they_are(kind):
    vocabulary = kind.train(["give up\tV;PST", "bread\tN"], vocab_size=40)
    for text in ("give up\tV;PST", "give up"):
        words = words_of(vocabulary, text)
        of_lemma = [0, 0, 0, 0, None, 1, 1]
        assert words[vocabulary.text_places(text)] == of_lemma and words.count(None) == len(words) - 6
    texts = TaggedTexts.of_lines(Words(["a", "b"]), ["a b\tV;N"])
    assert words_of(texts, "a b\tN;V") == [0, 1, None, None, None]


def test_a_gold_file_counts_the_words_of_a_source_without_its_tags(tmp_path):
    vocabulary = Inflections.train(["bread\tN"], vocab_size=40)
    predictor = build_setup(resolve(tiny_config()), Kept(vocabulary, Characters(list("breads")))).predictor
    split, gold = Pairs(["bread\tN"], ["breads"]), tmp_path / "gold"
    gold.write_text("1-1\n")
    convert = gold_of_file(str(gold), predictor, split).convert
    every = frozenset((0, s) for s in range(6))  # the tag, and the letters of the lemma
    assert convert(0, every) == {(0, 0)} and convert(0, frozenset({(0, 0)})) == set()
    gold.write_text("2-1\n")
    with pytest.raises(UserError, match=r"gold, line 1: source word 2, but the source has 1"):
        gold_of_file(str(gold), predictor, split)


def test_the_words_of_tokens():
    assert words_of(Words(["a", "b"]), "a b a") == [0, 1, 2]
    assert words_of(Characters(list("ab ")), "ab b") == [0, 0, None, 1]
    lines = ["the cat sat", "a cat sat on the mat"] * 20
    pieces = SentencePiece.train(lines, vocab_size=17)
    found = words_of(pieces, "the cat sat")
    assert [number for number in found if number is not None] == sorted(n for n in found if n is not None)
    assert {number for number in found if number is not None} == {0, 1, 2}


@pytest.mark.parametrize("axis", ["layer", "head", *NUMBERED_ROWS.values()])
def test_the_table_has_the_number_of_each_row(axis):
    values = {"keys": {"mean": 2.0, "std": 0.0, "seeds": [2.0]}}
    head, _, *rows = analysis_table([{"place": "a", axis: n, "values": values} for n in (1, 2)]).splitlines()
    assert head == f"| place | {axis} | keys |" and rows == ["| a | 1 | 2 |", "| a | 2 | 2 |"]
    unknown = {"place": "b", "values": {"keys": {"mean": None, "std": None, "seeds": [None]}}}
    rows = analysis_table([{"place": "a", axis: 1, "values": values}, unknown]).splitlines()[2:]
    assert rows == ["| a | 1 | 2 |", "| b |  |  |"]  # what is not known is an empty cell
