"""What was saved is restored, whatever happens in between: kill -9, SIGTERM, a bad disk, a full disk, other devices."""

import errno
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[level]) for level in (1, 2)]  # tests, and the root

import tiny_model as tiny

from attn_jax.cli.noise import silence
from attn_jax.errors import UserError
from attn_jax.training.checkpoints import Checkpoints, disk_reason
from attn_jax.training.loop import TrainState, fit, make_train_step, stop_on_signals
from attn_jax.training.parallel import PARALLEL


@functools.cache
def created():
    return tiny.create(tiny.optimizer(name="adam", schedule="plateau"))


def state_of(step, fill=0.0):
    return created().replace(step=jnp.int32(step), params=jax.tree.map(lambda x: x + fill, created().params))


def save(directory, losses, **options):
    """Steps 1, 2, ... with these losses (None: saved without an evaluation)."""
    with Checkpoints(directory, **options) as checkpoints:
        for step, loss in enumerate(losses, 1):
            more = dict(config={"seed": 1}, extra={"n": [step]}, metrics={} if loss is None else {"loss": loss})
            assert checkpoints.save(step, state_of(step, step), **more)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Steps 1, 2, 3, of which 2 is the best; not to be changed."""
    directory = tmp_path_factory.mktemp("three")
    save(directory, [2.0, 1.0, 3.0], keep=3)
    return directory


def test_what_is_restored_is_what_was_saved(three):
    with Checkpoints(three) as checkpoints:
        for target in (state_of(0), jax.eval_shape(lambda: state_of(0))):
            restored = checkpoints.restore(target)
            tiny.assert_same(restored.state, state_of(3, 3))
            assert jax.tree.structure(restored.state) == jax.tree.structure(state_of(3))
        assert restored[2:] == ({"seed": 1}, {"n": [3]}, {"loss": 3.0})
        assert (checkpoints.all_steps(), checkpoints.latest_step(), checkpoints.best_step()) == ([1, 2, 3], 3, 2)
        tiny.assert_same(checkpoints.restore_params(state_of(0).params)[0], state_of(2, 2).params)
        tiny.assert_same(checkpoints.restore_params(state_of(0).params, step=1)[0], state_of(1, 1).params)


def test_each_checkpoint_is_checked_before_it_is_used(three):
    seen, params = [], state_of(0).params

    def check(step, config, extra):
        seen.append((step, config, extra))
        if step == 1:
            raise UserError("of other files")

    with Checkpoints(three, read_only=True, check=check) as checkpoints:
        assert checkpoints.newest() == (3, {"n": [3]})
        checkpoints.restore(state_of(0))
        checkpoints.restore_params(params)
        checkpoints.average(params, 2)
        assert seen == [(step, {"seed": 1}, {"n": [step]}) for step in (3, 3, 2, 3, 2)]
        for use in (lambda: checkpoints.restore_params(params, step=1), lambda: checkpoints.average(params, 3)):
            with pytest.raises(UserError, match="of other files"):
                use()


def test_the_newest_is_known_without_its_arrays(three, tmp_path):
    shutil.copytree(three, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "3" / "params" / "d")
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.newest() == (3, {"n": [3]})
    shutil.rmtree(tmp_path / "3" / "meta")
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.newest() is None
    with Checkpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.newest() is None


def test_average_is_the_mean_of_the_newest(three):
    with Checkpoints(three, read_only=True) as checkpoints:
        for count, fill in ((1, 3.0), (2, 2.5), (3, 2.0), (9, 2.0)):
            tiny.assert_close(checkpoints.average(state_of(0).params, count)[0], state_of(0, fill).params)


def test_what_a_killed_run_was_writing_is_removed_by_the_next_one_that_writes(tmp_path):
    unfinished = tmp_path / "7.orbax-checkpoint-tmp-1" / "state"
    unfinished.mkdir(parents=True)
    Checkpoints(tmp_path, read_only=True).close()
    assert unfinished.exists()
    Checkpoints(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_there_yet(tmp_path):
    with Checkpoints(tmp_path / "new" / "checkpoints") as checkpoints:
        assert checkpoints.restore(state_of(0)) is None
        assert (checkpoints.all_steps(), checkpoints.latest_step(), checkpoints.best_step()) == ([], None, None)
        for restore in (checkpoints.restore_params, lambda t: checkpoints.average(t, 2)):
            with pytest.raises(UserError, match="no readable checkpoint"):
                restore(state_of(0).params)
    with pytest.raises(UserError, match="does not exist"):
        Checkpoints(tmp_path / "nowhere", read_only=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "losses", "kept", "best"),
    [
        ("max", [10, 30, 20, 25, 5], [2, 4, 5], 2),  # the latest stays though it is the worst
        ("min", [10, 30, 20, 25, 5], [4, 5], 5),
        ("min", [10, None, 20, None, None], [1, 4, 5], 1),
        ("min", [float("nan"), 3, float("nan"), float("inf"), 7], [2, 4, 5], 2),
        ("min", [None, None, None], [2, 3], 3),
    ],
)
def test_the_newest_and_the_best_are_kept(tmp_path, mode, losses, kept, best):
    save(tmp_path, losses, keep=2, best_metric=("loss", mode))
    with Checkpoints(tmp_path, keep=2, best_metric=("loss", mode)) as checkpoints:
        assert (checkpoints.all_steps(), checkpoints.best_step()) == (kept, best)
        checkpoints.save(6, state_of(6), config={})
        checkpoints.wait()
        assert checkpoints.all_steps() == sorted({kept[-1], best if best != 3 else 6, 6})


def test_a_step_is_saved_once_and_never_before_a_later_one(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.save(2, state_of(2), config={})
        assert not checkpoints.save(2, state_of(2), config={})
        with pytest.raises(UserError, match="already has step 2"):
            checkpoints.save(1, state_of(1), config={})


def test_another_configuration_is_a_user_error_and_deletes_nothing(three):
    wider = state_of(0).replace(params={**state_of(0).params, "table": jnp.zeros((11, 5))})
    sgd = tiny.create(tiny.optimizer())
    with Checkpoints(three) as checkpoints:
        for target, words in ((wider, r"params/table is float32\[11,4\], not float32\[11,5\]"), (sgd, "opt_state")):
            with pytest.raises(UserError, match=words):
                checkpoints.restore(target)
        assert checkpoints.all_steps() == [1, 2, 3]


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def largest_array_file(directory):
    return max(directory.rglob("d/*"), key=lambda path: path.stat().st_size)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def truncate_arrays(directory):
    """All files of arrays: which one holds an array, or is read at all, depends on when orbax wrote it."""
    for path in directory.rglob("d/*"):
        truncate(path)


def change_the_config(step):
    path = step / "meta" / "metadata"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 0'))


def empty(step):
    for path in step.iterdir():
        if path.is_dir():
            shutil.rmtree(path)


UNREADABLE = "the files of params and state cannot be read"
DAMAGE = {  # what is done to a checkpoint, and what is said of it
    "flipped bit in an array": (lambda step: flip_a_bit(largest_array_file(step / "params")), UNREADABLE),
    "truncated arrays": (lambda step: truncate_arrays(step / "state"), UNREADABLE),
    "flipped bit in the config": (change_the_config, "wrong checksum of meta"),
    "truncated config": (lambda step: truncate(step / "meta" / "metadata"), "the files of meta cannot be read"),
    "no arrays": (lambda step: shutil.rmtree(step / "params"), "it has no folder params"),
    "empty directory": (empty, "it has no folder meta"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(three, tmp_path, capfd, how):
    shutil.copytree(three, tmp_path, dirs_exist_ok=True)
    damage, said = DAMAGE[how]
    damage(tmp_path / "3")
    (tmp_path / "7").mkdir()  # and a leftover of something else
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        restored = checkpoints.restore(state_of(0))
        assert restored.step == 2
        tiny.assert_same(restored.state, state_of(2, 2))
        assert checkpoints.all_steps() == [1, 2]
        assert checkpoints.save(3, state_of(3, 3), config={})
    out, err = capfd.readouterr()
    assert out == "" and len(err.splitlines()) == 2
    assert f"{tmp_path}/3 is damaged ({said})" in err and err.count("going on from step 2") == 2


def large(step):
    noise = np.random.default_rng(step).normal(size=(300, 300)).astype(np.float32)
    return {"params": {"matrix": noise}, "step": np.int32(step)}


def test_a_flipped_bit_that_only_the_checksum_sees(tmp_path, capsys):
    """Small arrays are within files that the array library checks, large ones are not."""
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, large(step), config={})
    flip_a_bit(largest_array_file(tmp_path / "2" / "params"))
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(large(0)).step == 1
    assert "2 is damaged (wrong checksum of params/matrix); going on from step 1" in capsys.readouterr().err


def test_only_damaged_ones_are_a_user_error_and_kept(three, tmp_path):
    shutil.copytree(three / "3", tmp_path / "3")
    flip_a_bit(largest_array_file(tmp_path / "3" / "params"))
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(UserError, match=r"no readable checkpoint .*step 3: "):
            checkpoints.restore(state_of(0))
        assert checkpoints.all_steps() == [3]


def test_a_damaged_best_gives_way_to_the_next_best(three, tmp_path, capsys):
    shutil.copytree(three, tmp_path, dirs_exist_ok=True)
    flip_a_bit(largest_array_file(tmp_path / "2" / "params"))
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        tiny.assert_same(checkpoints.restore_params(state_of(0).params)[0], state_of(1, 1).params)
        mean, steps = checkpoints.average(state_of(0).params, 2)
        tiny.assert_close(mean, state_of(0, 2.0).params)
        assert steps == (3, 1)
    assert capsys.readouterr().err.count("checkpoint") == 2
    assert (tmp_path / "2").is_dir()


def test_a_checkpoint_that_lost_its_metrics_is_spoken_of(three, tmp_path, capsys):
    """It may have been the best one: another is used, but not without a word."""
    shutil.copytree(three, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "2" / "meta")
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.restore_params(state_of(0).params)[1] != (2,)
    assert f"checkpoint {tmp_path}/2 is damaged (its metrics cannot be read); it is left out" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("names", [("pmap", "mesh"), ("mesh", "single")])
def test_other_devices_go_on_with_it(tmp_path, names):
    tx = tiny.optimizer()
    before, after = (
        PARALLEL[name].make(lambda axis_name: make_train_step(tiny.loss_fn, tx, axis_name=axis_name)) for name in names
    )
    start = tiny.create(tx)
    state = fit(before, before.put_state(start), tiny.batch_at, start=0, num_steps=3).state
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, before.get_state(state), config={})
        restored = checkpoints.restore(start).state
    there = fit(after, after.put_state(restored), tiny.batch_at, start=3, num_steps=6).state
    whole = fit(before, before.put_state(start), tiny.batch_at, start=0, num_steps=6).state
    tiny.assert_close(after.get_state(there), before.get_state(whole))


def test_what_is_saved_from_a_device_is_not_overwritten_by_the_next_step(tmp_path):
    parallel = PARALLEL["single"].make(lambda axis_name: make_train_step(tiny.loss_fn, tiny.optimizer()))
    state = parallel.put_state(tiny.create(tiny.optimizer()))
    expected = parallel.get_state(state)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, state, config={})
        fit(parallel, state, tiny.batch_at, start=0, num_steps=5)
        tiny.assert_same(checkpoints.restore(expected).state, expected)


@pytest.fixture
def small_disk(tmp_path):
    """Two megabytes."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_full_disk_is_a_user_error_and_the_checkpoints_before_it_stay(small_disk):
    saved = 0
    with pytest.raises(UserError, match=r"cannot save step \d in .*: no space left") as error:
        with Checkpoints(small_disk / "checkpoints", keep=20) as checkpoints:
            for step in range(1, 20):
                checkpoints.save(step, large(step), config={})
                saved = step
    assert str(small_disk) in str(error.value) and "\n" not in str(error.value)
    with Checkpoints(small_disk / "checkpoints", keep=20) as checkpoints:
        restored = checkpoints.restore(large(0))
        assert restored.step > 0 and restored.step in (saved - 1, saved)  # only the last may have failed unseen
        np.testing.assert_array_equal(restored.state["params"]["matrix"], large(restored.step)["params"]["matrix"])


def test_a_full_disk_without_a_disk(three, tmp_path, monkeypatch):
    shutil.copytree(three, tmp_path, dirs_exist_ok=True)
    checkpoints = Checkpoints(tmp_path)
    for where, error in {
        "save": OSError(errno.ENOSPC, "No space left on device"),
        "wait_until_finished": ValueError("RESOURCE_EXHAUSTED: write failed [No space left on device]"),
    }.items():
        with monkeypatch.context() as patched:
            patched.setattr(checkpoints.manager, where, lambda *_, error=error, **__: (_ for _ in ()).throw(error))
            with pytest.raises(UserError, match="no space left"):
                checkpoints.save(4, state_of(4), config={})
    assert checkpoints.restore(state_of(0)).step == 3
    checkpoints.close()
    assert disk_reason(PermissionError(errno.EACCES, "x")) == "permission denied"
    assert disk_reason(KeyError("x")) is None


def test_what_cannot_be_opened_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot open checkpoints in .*file: (file exists|not a directory)"):
        Checkpoints(tmp_path / "file")
    with pytest.raises(ValueError, match="keep is 0; expected at least 1"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="'min' or 'max', got 'low'"):
        Checkpoints(tmp_path, best_metric=("loss", "low"))


NUM_STEPS = 120


def worker(directory, pause):
    """A training of NUM_STEPS that saves after each tenth step and, asked by SIGTERM, after the one it is at.

    Before each step it waits `pause` seconds.
    """
    tx = tiny.optimizer()
    rng = jax.random.key(0)
    state = tiny.create(tx)
    ballast = {"ballast": jax.random.normal(rng, (1000, 1000))}  # so that saving takes a while
    state = TrainState.create(state.params | ballast, tx, rng)
    parallel = PARALLEL["single"].make(lambda axis_name: make_train_step(tiny.noisy_loss_fn, tx))

    def save(step, state):
        checkpoints.save(step, parallel.get_state(state), config={}, metrics={"loss": 1.0 / step})
        print(step, flush=True)

    def batch_at(step):
        time.sleep(pause)
        return tiny.batch_at(step)

    with Checkpoints(directory, keep=1) as checkpoints, stop_on_signals() as should_stop:
        restored = checkpoints.restore(state)
        start = restored.step if restored else 0
        print("start", start, flush=True)
        state = parallel.put_state(restored.state if restored else state)
        options = dict(start=start, num_steps=NUM_STEPS, every=[(10, save)], should_stop=should_stop)
        fitted = fit(parallel, state, batch_at, **options)
        save(fitted.step, fitted.state)
        print("end", fitted.step, fitted.reason, flush=True)
    if fitted.reason == "done":
        np.savez(directory.with_suffix(".npz"), *tiny.bits(parallel.get_state(fitted.state)))


def start_worker(directory, pause=0.005):
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, str(directory), str(pause)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_while_saving_and_terminated_is_bitwise_never_stopped(tmp_path):
    whole = start_worker(tmp_path / "whole")  # meanwhile
    broken = tmp_path / "broken"

    killed = start_worker(broken, pause=0.03)  # four seconds, in which to see a file half written
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:  # kill -9 as soon as the first step is there and a later one is half written
        names = [path.name for path in broken.glob("*")]
        if any(name.isdigit() for name in names) and any("tmp" in name for name in names):
            break
        time.sleep(0.0005)
    killed.kill()
    assert killed.communicate()[0].startswith("start 0")
    assert killed.returncode == -signal.SIGKILL
    steps = sorted(int(path.name) for path in broken.glob("*") if path.name.isdigit())
    assert steps and steps[-1] < NUM_STEPS

    terminated = start_worker(broken, pause=0.03)
    assert terminated.stdout.readline() in [f"start {step}\n" for step in steps]
    terminated.stdout.readline()  # it has saved once
    terminated.terminate()
    out, err = terminated.communicate(timeout=120)
    last = out.splitlines()[-1].split()
    assert (terminated.returncode, last[0], last[2]) == (0, "end", "interrupted"), err
    assert not list(broken.glob("*tmp*")) and (broken / last[1]).is_dir()

    resumed = start_worker(broken)
    out, err = resumed.communicate(timeout=120)
    assert (resumed.returncode, err) == (0, "")
    assert out.splitlines()[0] == f"start {last[1]}" and out.splitlines()[-1] == f"end {NUM_STEPS} done"
    out, err = whole.communicate(timeout=120)
    assert (whole.returncode, err) == (0, "") and out.startswith("start 0")
    with np.load(tmp_path / "whole.npz") as expected, np.load(tmp_path / "broken.npz") as found:
        tiny.assert_same(dict(found), dict(expected))


if __name__ == "__main__":
    silence()
    worker(pathlib.Path(sys.argv[1]), float(sys.argv[2]))
