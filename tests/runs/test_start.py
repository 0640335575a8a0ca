"""train.start run: which arrays are taken, that nothing is taken for something else, and that it happens once."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model as tiny
from test_run_training import on_host, stop_after
from tiny_run import files_config, timeless, tiny_config, train, write_pairs

from attn_jax.data.facts import Images, Kept
from attn_jax.data.vocabulary import Questions, Words
from attn_jax.errors import UserError
from attn_jax.runs import training
from attn_jax.runs.options import change, resolve
from attn_jax.runs.start import Source, announcement, check_seeds, check_tokens, match, take
from attn_jax.runs.workdir import plain
from attn_jax.training.loop import FitResult, Reason
from attn_jax.training.pytrees import flatten as arrays_of

HARD = {"model__objective": "hard", "model__objective__reading": "reinforce"}
HARD |= {"model__objective__baseline": "learned", "model__objective__baseline__features": 8}


def start_from(workdir):
    return {"train.start": "run", "train.start.workdir": str(workdir)}


def first_state(config, workdir, *, saved=False):
    """The state before the first step, compiled without the step; `saved` as a checkpoint of step 7."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_fit", lambda run, callbacks, state, start, _: FitResult(state, start, Reason.DONE))
        run, fitted = train(config, workdir)
    state = on_host(run, fitted)
    if saved:
        with training.open_checkpoints(resolve(config), workdir) as checkpoints:
            checkpoints.save(7, state, config=plain(config), extra=run.extra, metrics={"loss": 1.0})
    return state


@pytest.fixture(scope="module")
def soft(tmp_path_factory):
    """(work directory of a soft run of two seeds, its parameters, its options)."""
    workdir, data = tmp_path_factory.mktemp("soft"), tmp_path_factory.mktemp("data")
    write_pairs(data)
    config = files_config(data, task__valid_size=8, decode__max_length=8)
    return workdir, first_state(change(config, {"seeds": (3, 4)}), workdir, saved=True).params, config


@pytest.mark.slow
def test_a_hard_run_of_two_seeds_starts_from_those_of_a_soft_run(soft, tmp_path, capsys):
    config = change(soft[2], {"seeds": (0, 1)} | {key.replace("__", "."): value for key, value in HARD.items()})
    state = first_state(change(config, start_from(soft[0])), tmp_path / "hard")
    without = first_state(config, tmp_path / "without")
    there, here, own = map(arrays_of, (soft[1], state.params, without.params))
    new = here.keys() - there.keys()
    assert new and there.keys() < here.keys() and {path[0] for path in new} == {"objective"}  # the baseline
    for path, x in here.items():
        np.testing.assert_array_equal(x, own[path] if path in new else there[path])
    assert any((own[path] != there[path]).any() for path in there)
    tiny.assert_same(state.replace(params=None), without.replace(params=None))  # optimizer, step and rng are fresh
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("start_from")]
    where = f"taken from the best checkpoint (step 7) of {soft[0]}; new: objective/"
    assert line.startswith(f"start_from    {len(there)} of {len(here)} parameter arrays {where}")


@pytest.mark.slow
def test_a_resumed_run_does_not_start_over(tmp_path, monkeypatch, capsys):
    """The source is gone when the run goes on, and all is as in a run that nothing interrupted."""
    first_state(tiny_config(), tmp_path / "source", saved=True)
    hard = HARD | {"model__objective__soft_steps": 4, "train__num_steps": 5}
    config = change(tiny_config(seed=5, **hard), start_from(tmp_path / "source"))
    run, fitted = train(config, tmp_path / "whole")
    for last in (2, None):
        stop_after(monkeypatch, last)
        resumed, ended = train(config, tmp_path / "resumed")
        shutil.rmtree(tmp_path / "source", ignore_errors=True)
    tiny.assert_same(on_host(resumed, ended), on_host(run, fitted))
    assert timeless(tmp_path / "resumed") == timeless(tmp_path / "whole")
    assert resumed.splits == run.splits and "start_from" in run.splits  # whose parameters it began with
    assert capsys.readouterr().err.count("\nstart_from") == 2  # once in each run
    with pytest.raises(UserError, match=r"holds the run of another config: train\.start\.name is"):
        train(tiny_config(seed=5, **hard), tmp_path / "resumed")


def test_one_seed_is_the_start_of_all_and_other_numbers_are_refused():
    source = Source("runs/a", tiny_config(), (Words([]), Words([])), [{"a": np.zeros(2)}], "mean")
    assert source.of_seed(0) is source.of_seed(2) is source.params[0]
    check_seeds("runs/a", (7,), (0, 1, 2))
    check_seeds("runs/a", (7, 8, 9), (0, 1, 2))
    with pytest.raises(UserError, match=r"runs/a has the 2 seeds \(7, 8\), and this run has 3; .*seeds=\(7,8\)$"):
        check_seeds("runs/a", (7, 8), (0, 1, 2))
    with pytest.raises(UserError, match="and this run has 1"):
        check_seeds("runs/a", (7, 8), (0,))


def test_arrays_are_matched_by_path_shape_and_type():
    source = {"a": {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)}, "old": np.ones(1, np.float32)}
    target = {"a": {"x": jnp.zeros(2), "y": jnp.zeros(4)}, "new": jnp.zeros(1), "type": jnp.zeros(1, jnp.int32)}
    found = match(target, source)
    assert (found.taken, found.new, found.left) == (["a/x"], ["new", "type"], ["old"])
    assert found.other == ["a/y (float32[3] there, float32[4] here)"]
    taken = take(target, source)
    tiny.assert_same(taken, {**target, "a": {"x": jnp.ones(2), "y": jnp.zeros(4)}})
    source["a"]["x"][:] = 5
    assert (taken["a"]["x"] == 1).all()  # a copy: the training donates its state
    run = Source("runs/a", tiny_config(), (Words([]), Words([])), [source], "best checkpoint (step 3)")
    rest = "new: new, type; other shape: a/y (float32[3] there, float32[4] here); left out: old"
    line = f"1 of 4 parameter arrays taken from the best checkpoint (step 3) of runs/a; {rest}"
    assert announcement(run, target) == f"start_from    {line}"
    with pytest.raises(UserError, match="runs/a: none of the 9 parameter arrays is there; new: a, b, c, d and 5 more;"):
        announcement(run, dict.fromkeys("abcdefghi", jnp.zeros(7)))


def source_of(config, *vocabularies):
    return Source("runs/a", resolve(config), Kept(*vocabularies), [{}], "")


def test_another_vocabulary_is_refused():
    words, longer, swapped = Words(["a", "b"]), Words(["a", "b", "c"]), Words(["b", "a"])
    config = tiny_config()
    check_tokens(source_of(config, words, words), resolve(config), Kept(Words(["a", "b"]), words))
    asked, worlds = Questions(["red"]), [Images((8, 8, 3), {"clutter": number}) for number in (0, 5)]
    kept = Kept(asked, words, worlds[1])  # other images, the same words
    check_tokens(source_of(config, asked, words, worlds[0]), resolve(config), kept)
    with pytest.raises(UserError, match="its source vocabulary is another one: kind differs"):
        check_tokens(source_of(config, asked, words), resolve(config), Kept(words, words))
    with pytest.raises(UserError, match="its source vocabulary is another one: number 1 of its tokens is 'b', and 'a'"):
        check_tokens(source_of(config, swapped, words), resolve(config), Kept(words, words))
    with pytest.raises(UserError, match="its target vocabulary is another one: it has 3 tokens, and this run has 2;"):
        check_tokens(source_of(config, words, longer), resolve(config), Kept(words, words))


def test_other_counts_of_words_are_refused_where_they_order_the_rows():
    def counted(*counts):
        vocabulary = Words(["a", "b"])
        vocabulary.counts = np.array([0, 0, 0, 0, *counts])
        return vocabulary

    source, few, many = Words([]), counted(1, 2), counted(2, 1)
    plain_config, tree = tiny_config(), tiny_config(model__output__name="hierarchical")
    balanced = tiny_config(model__output__name="hierarchical", model__output__tree="balanced")
    check_tokens(source_of(plain_config, source, few), resolve(plain_config), Kept(source, many))
    check_tokens(source_of(tree, source, few), resolve(tree), Kept(source, few))
    with pytest.raises(UserError, match="the counts of its target words are others"):
        check_tokens(source_of(tree, source, few), resolve(tree), Kept(source, many))
    with pytest.raises(UserError, match=r"model\.output\.tree is 'huffman' there and 'balanced' here"):
        check_tokens(source_of(tree, source, few), resolve(balanced), Kept(source, few))


@pytest.mark.slow
def test_a_source_without_a_good_checkpoint_is_one_line(soft, tmp_path, capsys):
    def refused(path, message):
        with pytest.raises(UserError, match=f"^train.start.workdir.*{message}") as error:
            training.open_run(resolve(change(tiny_config(seeds=(0, 1)), start_from(path))), tmp_path / "run")
        assert "\n" not in str(error.value) and not (tmp_path / "run").exists()

    refused(tmp_path / "none", "none: there is no such folder; expected the work directory of a run")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "config.json does not exist")
    copy = shutil.copytree(soft[0], tmp_path / "copy")
    for path in (copy / "checkpoints" / "7" / "params").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-20])
    refused(copy, "there is no readable checkpoint in")
    shutil.rmtree(copy / "checkpoints" / "7")
    refused(copy, "copy has no checkpoint yet; train it first")
    shutil.rmtree(copy / "checkpoints")
    refused(copy, "there are no checkpoints")
    capsys.readouterr()
