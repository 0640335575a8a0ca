"""The step: rows may be dealt out in any way. The loop: what it calls when, and what it never does."""

import json
import os
import signal
from typing import NamedTuple

import jax
import numpy as np
import pytest
import tiny_model as tiny

from attn_jax.errors import UserError
from attn_jax.models.metrics import Mean
from attn_jax.training.loop import (
    CallbackResult,
    Diverged,
    Meter,
    ahead,
    fit,
    make_train_step,
    split_rows,
    stop_on_signals,
)
from attn_jax.training.parallel import PARALLEL


@pytest.fixture(scope="module")
def single():
    return PARALLEL["single"].make(lambda axis: make_train_step(tiny.loss_fn, tiny.optimizer(), axis_name=axis))


def run(parallel, state, num_steps, start=0, **options):
    return fit(parallel, parallel.put_state(state), tiny.batch_at, start=start, num_steps=num_steps, **options)


@pytest.mark.slow
def test_one_step_of_sgd_is_the_gradient_of_the_mean_loss_per_token_whatever_the_microbatches():
    tx = tiny.optimizer(momentum=0.0, clip="none", learning_rate=0.5)
    state, batch = tiny.create(tx), tiny.batch_at(0)
    count = np.sum(batch["target_out"] != 0)
    grads = jax.grad(lambda params: tiny.loss_fn(params, batch, None)[0] / count)(state.params)
    whole, parts = (jax.jit(make_train_step(tiny.loss_fn, tx, microbatches=n))(state, batch) for n in (1, 8))
    after, metrics = whole
    tiny.assert_close(after.params, jax.tree.map(lambda p, g: p - 0.5 * g, state.params, grads))
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in jax.tree.leaves(grads)))
    assert float(metrics["grad_norm"].compute()) == pytest.approx(norm, rel=1e-5)
    assert int(metrics["loss"].count) == count and int(after.step) == 1
    tiny.assert_close(whole, parts)


def test_each_device_keeps_its_rows_in_every_microbatch():
    """Row i is in microbatch i modulo their number, so a device with neighbouring rows has some of each."""
    rows = np.arange(12).reshape(6, 2)
    np.testing.assert_array_equal(split_rows(rows, 3), [[rows[0], rows[3]], [rows[1], rows[4]], [rows[2], rows[5]]])


def test_microbatches_that_cannot_be_are_refused():
    tx = tiny.optimizer()
    with pytest.raises(UserError, match=r"microbatches=3 .* 16 rows .* 15 or 18"):
        jax.eval_shape(make_train_step(tiny.loss_fn, tx, microbatches=3), tiny.create(tx), tiny.batch_at(0))
    with pytest.raises(ValueError, match=r"microbatches is 0; expected at least 1"):
        make_train_step(tiny.loss_fn, tx, microbatches=0)


@pytest.mark.slow
def test_each_step_and_each_microbatch_has_its_own_dropout():
    tx = tiny.optimizer(learning_rate=0.0)
    step = jax.jit(make_train_step(tiny.noisy_loss_fn, tx, microbatches=2))
    batch = jax.tree.map(lambda x: np.repeat(x[:8], 2, axis=0), tiny.batch_at(0))  # two times the same rows
    state, first = step(tiny.create(tx), batch)
    _, second = step(state, batch)
    _, again = step(tiny.create(tx), batch)
    assert first["loss"].total != second["loss"].total
    assert first["loss"].total == again["loss"].total
    half = jax.jit(make_train_step(tiny.noisy_loss_fn, tx))(tiny.create(tx), tiny.batch_at(0, rows=8))[1]
    assert float(first["loss"].total) != pytest.approx(2 * float(half["loss"].total), rel=1e-4)


@pytest.mark.slow
def test_several_seeds_in_one_program_are_each_alone(single):
    seeds, tx = (0, 3), tiny.optimizer()
    together = PARALLEL["single"].make(lambda axis: make_train_step(tiny.loss_fn, tx, axis_name=axis), seeds=True)
    state = together.put_state(tiny.create_seeds(tx, seeds))
    for step in range(2):
        state, metrics = together.train_step(state, together.put_batch(tiny.batches_of(seeds)(step)))
    assert metrics["loss"].total.shape == (2,)
    for i, seed in enumerate(seeds):
        alone = single.put_state(tiny.create(tx, seed))
        for step in range(2):
            alone, alone_metrics = single.train_step(alone, single.put_batch(tiny.batch_at(step, seed)))
        one = jax.tree.map(lambda x: x[i], (state, metrics))  # noqa: B023
        tiny.assert_close(one, (alone, alone_metrics))


def test_stopped_and_resumed_is_bitwise_never_stopped(single):
    state = tiny.create(tiny.optimizer())
    whole = run(single, state, 12)
    half = run(single, state, 5)
    rest = run(single, single.get_state(half.state), 12, start=5)
    assert (whole.step, half.step, rest.step, rest.reason) == (12, 5, 12, "done")
    tiny.assert_same(whole.state, rest.state)


class FakeParallel(NamedTuple):
    """Counts steps; metrics arrive when they are fetched."""

    losses: dict
    log: list

    def train_step(self, state, batch):
        self.log.append(("dispatch", state + 1))
        return state + 1, {"loss": Mean(np.float64(self.losses.get(state + 1, 1.0)), np.float64(2.0))}

    def put_batch(self, batch):
        assert batch["source"].shape[0] == 16
        return batch

    def get_state(self, metrics):
        self.log.append(("fetch", metrics))
        return metrics


def fitted(num_steps, every=(), start=0, fake=None, **options):
    """What `fit` returns of steps that only count."""
    return fit(
        fake or FakeParallel({}, []), 0, tiny.batch_at, start=start, num_steps=num_steps, every=list(every), **options
    )


def test_never_more_steps_in_flight_than_allowed():
    for max_in_flight in (1, 2, 3):
        fake = FakeParallel({}, [])
        assert fitted(20, fake=fake, max_in_flight=max_in_flight).step == 20
        in_flight = np.cumsum([1 if what == "dispatch" else -1 for what, _ in fake.log])
        assert (in_flight.max(), in_flight[-1]) == (max_in_flight, 0)


def test_callbacks_come_at_their_steps_with_all_metrics_there():
    calls, seen = [], []

    def note(name):
        return lambda step, state: calls.append((name, step, state + 3, len(seen)))

    every = [(2, note("a")), (5, note("b")), (0, note("end"))]
    fitted(11, every, start=3, on_step=lambda step, metrics: seen.append(step))
    expected = [("a", 4), ("b", 5), ("a", 6), ("a", 8), ("a", 10), ("b", 10), ("a", 11), ("b", 11), ("end", 11)]
    assert calls == [(name, step, step, step - 3) for name, step in expected]
    assert seen == list(range(4, 12))


def test_a_callback_stops_the_training_and_the_others_of_its_step_still_run():
    calls = []
    every = [
        (2, lambda step, state: CallbackResult(stop=step == 4)),
        (2, lambda step, state: calls.append(step)),
        (3, lambda step, state: calls.append(-step)),
    ]
    found = fitted(20, every)
    assert (found.step, found.reason, calls) == (4, "stopped", [2, -3, 4])


def test_a_callback_may_change_the_state():
    double = [(5, lambda step, state, n=n: CallbackResult(state=state + n)) for n in (100, 1)]
    assert fitted(7, double[:1]).state == 207  # at step 5 and at the last
    assert fitted(5, double).state == 106


def test_an_interruption_calls_nothing_more():
    calls, seen = [], []
    every = [(n, lambda step, state: calls.append(step)) for n in (5, 0)]
    stop = dict(should_stop=lambda step: signal.SIGTERM if step == 7 else 0)
    found = fitted(20, every, on_step=lambda step, metrics: seen.append(step), **stop)
    assert (found.step, found.reason, calls, seen) == (7, "interrupted", [5], list(range(1, 8)))
    assert found.signal == signal.SIGTERM


def test_a_stop_of_a_callback_wins_over_a_signal_and_after_the_last_step_none_is_asked_for():
    asked = []

    def should_stop(step):
        asked.append(step)
        return signal.SIGTERM if step == 2 else 0

    found = fitted(9, [(2, lambda step, state: CallbackResult(stop=True))], should_stop=should_stop)
    assert (found.reason, found.signal, asked) == ("stopped", 0, [1, 2])
    found = fitted(2, should_stop=should_stop)
    assert (found.reason, found.signal, asked) == ("done", 0, [1, 2, 1])
    found = fitted(8, start=8)  # nothing is left to do
    assert (found.state, found.step, found.reason) == (0, 8, "done")


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_divergence_stops_at_once_and_before_anything_is_saved(value, word):
    fake, saved = FakeParallel({6: value}, []), []
    with pytest.raises(Diverged, match=rf"loss became {word} at step 6") as error:
        fitted(50, [(2, lambda step, state: saved.append(step))], fake=fake)
    assert isinstance(error.value, UserError) and "\n" not in str(error.value)
    assert saved == [2, 4]
    assert max(step for what, step in fake.log if what == "dispatch") <= 7


def test_a_real_divergence_is_noticed():
    tx = tiny.optimizer(learning_rate=1e30, clip="none")
    parallel = PARALLEL["single"].make(lambda axis_name: make_train_step(tiny.loss_fn, tx), seeds=True)
    state = parallel.put_state(tiny.create_seeds(tx, (0, 1)))
    with pytest.raises(Diverged, match=r"at step \d for seed number 0"):
        fit(parallel, state, tiny.batches_of((0, 1)), start=0, num_steps=50)


def test_a_skipped_step_counts_and_updates_nothing(single):
    state, called = tiny.create(tiny.optimizer()), []
    batches = [tiny.batch_at(step) for step in range(3)]
    every = [(1, lambda step, state: called.append((step, int(state.step))))]
    start = single.put_state(state)
    skipped = fit(single, start, batches.__getitem__, start=0, num_steps=3, skip={2}, every=every)
    assert called == [(1, 1), (2, 2), (3, 3)]
    expected, _ = single.train_step(single.put_state(state), single.put_batch(batches[0]))
    expected, _ = single.train_step(expected.replace(step=expected.step + 1), single.put_batch(batches[2]))
    tiny.assert_same(skipped.state, expected)


def test_meter_survives_json():
    meter, again = Meter(), Meter()
    for value in (0.1, 0.2):
        meter.add({"loss": Mean(np.array([value, 1.0], np.float32), np.array([2, 3]))})
    again.state = json.loads(json.dumps(meter.state))
    for one in (meter, again):
        one.add({"loss": Mean(np.array([0.3, 1.0], np.float32), np.array([2, 3]))})
    a, b = meter.take()["loss"], again.take()["loss"]
    np.testing.assert_array_equal(a.total, b.total)
    np.testing.assert_allclose(a.compute(), [0.1, 1 / 3], rtol=1e-6)
    assert meter.take() == {} and meter.state == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_request(number):
    before = signal.getsignal(number)
    with stop_on_signals() as should_stop:
        assert should_stop(1) == 0
        os.kill(os.getpid(), number)
        assert should_stop(2) == number
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_batches_are_made_ahead_in_order_and_an_error_waits_for_its_step():
    made = []

    def batch_at(step):
        made.append(step)
        if step == 4:
            raise UserError("no such batch")
        return step

    with ahead(batch_at, 6) as get:
        assert [get(1), get(2), get(3)] == [1, 2, 3]
        with pytest.raises(UserError, match="no such batch"):
            get(4)
    assert made[:4] == [1, 2, 3, 4] and max(made) < 6
    made.clear()
    with ahead(batch_at, 3) as get:  # step 1 is left out
        assert [get(0), get(2)] == [0, 2] and sorted(made) == [0, 1, 2]
