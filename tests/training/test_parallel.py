"""One device, pmap and a mesh are the same training; two processes are the same as one.

SGD, since Adam would hide a gradient that is too large by a factor.
"""

import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[level]) for level in (1, 2)]  # tests, and the root

import tiny_model as tiny

from attn_jax.errors import UserError
from attn_jax.training.checkpoints import Checkpoints
from attn_jax.training.loop import fit, make_train_step, stop_on_signals
from attn_jax.training.parallel import PARALLEL, choose, is_key

STEPS = 6


def build(name, loss_fn=tiny.loss_fn, seeds=False, microbatches=1, devices=None, **changes):
    tx = tiny.optimizer(**changes)
    factory = lambda axis_name: make_train_step(loss_fn, tx, axis_name=axis_name, microbatches=microbatches)  # noqa: E731
    return choose(name, devices).make(factory, devices, seeds=seeds)


def train(parallel, state, batch_at=tiny.batch_at):
    history = []
    note = lambda step, metrics: history.append([metrics["loss"].total, metrics["loss"].count])  # noqa: E731
    fitted = fit(parallel, parallel.put_state(state), batch_at, start=0, num_steps=STEPS, on_step=note)
    return parallel.get_state(fitted.state), np.array(history)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [None, (0, 3)])
def test_pmap_and_mesh_are_one_device(seeds):
    tx = tiny.optimizer(schedule="plateau")
    state = tiny.create(tx) if seeds is None else tiny.create_seeds(tx, seeds)
    batch_at = tiny.batch_at if seeds is None else tiny.batches_of(seeds)
    assert len(jax.devices()) == 8
    runs = {
        name: train(build(name, seeds=seeds is not None, microbatches=m, schedule="plateau"), state, batch_at)
        for name, m in {"single": 1, "pmap": 2, "mesh": 2}.items()
    }
    expected, history = runs.pop("single")
    assert history.shape == ((STEPS, 2) if seeds is None else (STEPS, 2, 2))
    for after, its_history in runs.values():
        tiny.assert_close(after, expected)
        np.testing.assert_allclose(its_history, history, rtol=1e-5)
        assert jax.tree.map(np.shape, after) == jax.tree.map(np.shape, expected)
    losses = history[:, 0] / history[:, 1]
    assert np.all(losses[-1] < losses[0])


@pytest.mark.slow
def test_a_mesh_has_the_dropout_of_one_device():
    state = tiny.create(tiny.optimizer())
    one = train(build("single", tiny.noisy_loss_fn), state)
    for devices in (jax.devices(), jax.devices()[:4]):
        tiny.assert_close(train(build("mesh", tiny.noisy_loss_fn, devices=devices), state), one)


@pytest.mark.parametrize("name", ["single", "pmap", "mesh"])
def test_state_goes_there_and_back_and_stays_ours(name):
    parallel = build(name)
    state = tiny.create(tiny.optimizer())
    before = jax.tree.map(lambda x: x if is_key(x) else np.array(x), state)
    there = parallel.put_state(state)
    devices = jax.devices()[:1] if name == "single" else jax.devices()
    assert there.params["table"].sharding.device_set == set(devices)
    back = parallel.get_state(there)
    assert all(is_key(x) or isinstance(x, np.ndarray) for x in jax.tree.leaves(back))
    tiny.assert_same(back, before)
    parallel.train_step(there, parallel.put_batch(tiny.batch_at(0)))  # gives up `there`, not the others
    tiny.assert_same(back, before)
    tiny.assert_same(state, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single", "pmap", "mesh"])
def test_the_step_is_compiled_once(name, caplog):
    parallel = build(name, learning_rate=0.25)
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        train(parallel, tiny.create(tiny.optimizer()))
    compiled = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]
    assert len([message for message in compiled if "float32[11,4]" in message or "float32[8,11,4]" in message]) == 1
    if name != "single":
        with pytest.raises(UserError, match=r"12 rows .* 8 devices.* 16"):
            parallel.put_batch(tiny.batch_at(0, rows=12))


def test_choose():
    assert choose("auto", [0], 1) is PARALLEL["single"]
    assert choose("auto", [0, 1], 1) is PARALLEL["mesh"]
    assert choose("auto", [0, 1], 2) is PARALLEL["mesh"]
    assert choose("mesh", [0], 1) is PARALLEL["mesh"]
    assert choose("auto") is PARALLEL["mesh"]
    with pytest.raises(UserError, match="did you mean mesh"):
        choose("mseh")
    with pytest.raises(UserError, match="2; use 'mesh'"):
        choose("pmap", [0, 1], 2)


def worker(directory, process):
    """One of two processes with one device each: train, save, find the damage, train on."""
    from jax.experimental import multihost_utils

    state = tiny.create(tiny.optimizer())
    parallel = build("auto")
    checkpoints = Checkpoints(directory / "checkpoints", keep=3)
    save = lambda step, s: checkpoints.save(step, parallel.get_state(s), config={}) and None  # noqa: E731
    fitted = fit(parallel, parallel.put_state(state), tiny.batch_at, start=0, num_steps=4, every=[(1, save)])
    assert checkpoints.all_steps() == [2, 3, 4] and fitted.step == 4
    checkpoints.close()
    if process == 0:
        (directory / "checkpoints" / "4" / "meta" / "metadata").write_text("broken")
    multihost_utils.sync_global_devices("damaged")
    with Checkpoints(directory / "checkpoints", keep=3) as checkpoints:
        restored = checkpoints.restore(state)
        assert restored.step == 3
        fitted = fit(parallel, parallel.put_state(restored.state), tiny.batch_at, start=3, num_steps=STEPS)
        after = parallel.get_state(fitted.state)
        checkpoints.save(STEPS, after, config={"name": "two"})
        checkpoints.wait()
        assert checkpoints.all_steps() == [2, 3, STEPS]

    def batch_at(step):
        if (step, process) == (20, 0):  # one of them is told to stop
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        return tiny.batch_at(step)

    with stop_on_signals() as should_stop:
        state = parallel.put_state(restored.state)
        fitted = fit(parallel, state, batch_at, start=0, num_steps=1000, should_stop=should_stop)
        print(fitted.reason, fitted.step)
    np.savez(directory / f"{process}.npz", *tiny.bits(after))
    divided = build("fsdp")
    state = divided.put_state(tiny.create(tiny.optimizer()))
    table = state.params["table"]
    assert [part.data.shape for part in table.addressable_shards] == [(tiny.VOCAB, tiny.WIDTH // 2)]
    for step in range(STEPS):
        state, _ = divided.train_step(state, divided.put_batch(tiny.batch_at(step)))
    with Checkpoints(directory / "divided") as checkpoints:
        checkpoints.save(STEPS, divided.copy_state(state), config={})
        state, _ = divided.train_step(state, divided.put_batch(tiny.batch_at(STEPS)))
        places = divided.placed(jax.eval_shape(lambda: tiny.create(tiny.optimizer())))
        restored = checkpoints.restore(places).state
    shapes = [part.data.shape for part in restored.params["table"].addressable_shards]
    assert shapes == [(tiny.VOCAB, tiny.WIDTH // 2)]  # what is of the other process was not read
    np.savez(directory / f"divided{process}.npz", *tiny.bits(divided.get_state(divided.put_state(restored))))


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    # Held until the end, so that nobody else gets the port; the processes bind it too, as they may.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("localhost", 0))
    port = held.getsockname()[1]
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, str(tmp_path), str(port)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    processes = [subprocess.Popen([*command, str(i)], env=environment, **pipes) for i in range(2)]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()  # jax.distributed does not let them die of less
        held.close()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    assert "checkpoints/4 is damaged" in outputs[0] and "damaged" not in outputs[1]
    ends = [output.splitlines()[-1].split() for output in outputs]
    assert ends[0] == ends[1] and ends[0][0] == "interrupted" and 20 < int(ends[0][1]) < 1000
    expected, _ = train(build("single"), tiny.create(tiny.optimizer()))
    for name in ("0", "1", "divided0", "divided1"):
        with np.load(tmp_path / f"{name}.npz") as found:
            tiny.assert_close(list(found.values()), expected)
    for name in ("checkpoints", "divided"):
        with Checkpoints(tmp_path / name, read_only=True) as checkpoints:
            tiny.assert_close(checkpoints.restore(expected).state, expected)


if __name__ == "__main__":
    jax.distributed.initialize(f"localhost:{sys.argv[2]}", num_processes=2, process_id=int(sys.argv[3]))
    worker(pathlib.Path(sys.argv[1]), int(sys.argv[3]))
