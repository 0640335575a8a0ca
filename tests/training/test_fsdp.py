"""A state divided among devices is the state of one device: the same steps, less memory on each."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tiny_model as tiny

from attn_jax.errors import UserError
from attn_jax.models.metrics import Mean
from attn_jax.training import model_size
from attn_jax.training.checkpoints import Checkpoints, Damaged
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.parallel import PARALLEL, divided_axis, group_size, part_size

STEPS = 3


def init(rng, width=16):
    """The arrays of the tiny model in sizes that eight devices can share, but for the bias."""
    table, matrix = jax.random.split(rng)
    params = {"table": jax.random.normal(table, (tiny.VOCAB, width)), "bias": jnp.zeros((tiny.VOCAB,))}
    return params | {"matrix": jax.random.normal(matrix, (width, tiny.VOCAB))}


def loss_fn(params, batch, rng, step=0):
    """The tiny loss with dropout of the table and a bias."""
    total, metrics = tiny.loss_fn(params, batch, rng, step)
    keep = jax.random.bernoulli(rng, 0.5, params["table"].shape)
    penalty = jnp.sum(params["table"] ** 2 * keep) + jnp.sum(jnp.sin(params["bias"] + 1.0))
    return total + penalty, {"loss": Mean(total + penalty, metrics["loss"].count)}


def make(name, seeds=False, devices=None, microbatches=1, **options):
    tx = tiny.optimizer()
    factory = lambda axis: make_train_step(loss_fn, tx, axis_name=axis, microbatches=microbatches)  # noqa: E731
    return PARALLEL[name].make(factory, devices, seeds=seeds, **options)


def create(seed=0, width=16):
    rng = jax.random.key(seed)
    return TrainState.create(init(rng, width), tiny.optimizer(), rng)


def train(parallel, state, batch_at=tiny.batch_at):
    losses, state = [], parallel.put_state(state)
    for step in range(STEPS):
        state, metrics = parallel.train_step(state, parallel.put_batch(batch_at(step)))
        losses.append(parallel.get_state(metrics)["loss"].compute())
    return parallel.get_state(state), np.array(losses)


@pytest.mark.parametrize(("name", "whole"), [("mesh", True), ("fsdp", False)])
def test_a_mesh_has_the_whole_state_on_each_device_and_fsdp_a_part(name, whole):
    parallel = make(name)
    table = parallel.put_state(create()).params["table"]
    assert table.is_fully_replicated is whole and len(table.sharding.device_set) == jax.device_count() > 1
    rows = jax.tree.leaves(parallel.put_batch(tiny.batch_at(0)))[0]
    assert not rows.is_fully_replicated


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_devices, replicas, microbatches, seeds", [(8, 1, 1, None), (8, 2, 2, None), (4, 1, 1, (0, 3))]
)
def test_a_divided_state_trains_as_one_device(num_devices, replicas, microbatches, seeds):
    state = create() if seeds is None else jax.tree.map(lambda *x: jnp.stack(x), *map(create, seeds))
    batch_at = tiny.batch_at if seeds is None else tiny.batches_of(seeds)
    devices = jax.devices()[:num_devices]
    several = seeds is not None
    expected, losses = train(make("single", several, devices[:1], microbatches), state, batch_at)
    divided = make("fsdp", several, devices, microbatches, replicas=replicas)
    found, its_losses = train(divided, state, batch_at)
    tiny.assert_close(found, expected)
    np.testing.assert_allclose(its_losses, losses, rtol=1e-5)
    assert np.all(losses[-1] < losses[0])


def test_each_device_holds_its_part_and_all_parts_are_the_whole():
    state = create()
    there = make("fsdp", replicas=2).put_state(state)
    for x, whole in ((there.params["table"], state.params["table"]), (there.params["matrix"], state.params["matrix"])):
        parts = x.addressable_shards
        assert len(parts) == 8 and all(part.data.size == whole.size // 4 for part in parts)
        found = np.zeros(whole.shape)
        for part in parts:
            found[part.index] += np.asarray(part.data)
        np.testing.assert_array_equal(found, 2 * np.asarray(whole))  # one state in each of two groups
    trace = [x for x in jax.tree.leaves(there.opt_state) if x.shape == (tiny.VOCAB, 16)]
    assert trace and all(part.data.shape == (tiny.VOCAB, 4) for x in trace for part in x.addressable_shards)
    assert all(part.data.shape == (tiny.VOCAB,) for part in there.params["bias"].addressable_shards)
    tiny.assert_same(make("fsdp", replicas=2).get_state(there), state)


@pytest.mark.slow
def test_the_memory_of_a_device_falls_as_devices_are_added():
    shapes = jax.eval_shape(lambda: create(width=512))
    batch, used = tiny.batch_at(0), []
    for num_devices in (1, 4, 8):
        parallel = make("fsdp", devices=jax.devices()[:num_devices])
        analysis = parallel.train_step.lower(shapes, batch).compile().memory_analysis()
        held = model_size.num_bytes(shapes, lambda x, n=num_devices: part_size(x, n))
        assert 0 <= analysis.argument_size_in_bytes - held < 1000  # the rows of the batch besides
        used.append(analysis.argument_size_in_bytes + analysis.temp_size_in_bytes)
    assert used[1] < used[0] / 2 and used[2] < used[1]


def save_divided(directory, parallel):
    """Trains, saves what is on the devices; (the trained state there, and whole)."""
    there = parallel.put_state(create())
    for step in range(STEPS):
        there, _ = parallel.train_step(there, parallel.put_batch(tiny.batch_at(step)))
    whole = parallel.get_state(there)
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(STEPS, parallel.copy_state(there), config={})
        there, _ = parallel.train_step(there, parallel.put_batch(tiny.batch_at(STEPS)))  # while it is being written
    return there, whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, after, replicas",
    [(("fsdp", 8), ("fsdp", 2), 1), (("fsdp", 4), ("fsdp", 8), 2), (("fsdp", 4), ("single", 1), 1)],
)
def test_other_devices_go_on_with_a_divided_state(tmp_path, before, after, replicas):
    (name, n), options = before, {"replicas": replicas} if replicas > 1 else {}
    first = make(name, devices=jax.devices()[:n], **options)
    second = make(after[0], devices=jax.devices()[: after[1]])
    _, state = save_divided(tmp_path, first)
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(second.placed(jax.eval_shape(create))).state
        tiny.assert_same(checkpoints.restore_params(state.params)[0], state.params)
    found = restored.params["table"]
    if after[0] == "fsdp":
        assert {part.data.shape for part in found.addressable_shards} == {(tiny.VOCAB, 16 // after[1])}
    else:
        assert isinstance(found, np.ndarray)
    tiny.assert_same(second.get_state(restored), state)
    tiny.assert_close(train(second, restored)[0], train(first, state)[0])
    tiny.assert_same(second.get_state(restored), state)  # the steps do not write over what was restored


def test_a_divided_state_of_another_configuration_is_no_damage(tmp_path):
    parallel = make("fsdp")
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, parallel.copy_state(parallel.put_state(create())), config={})
        places = parallel.placed(jax.eval_shape(lambda: create(width=32)))
        with pytest.raises(UserError, match="another configuration"):
            checkpoints.restore(places)


def test_a_checkpoint_with_whole_arrays_goes_on_divided(tmp_path):
    state = make("mesh").get_state(create())
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, config={})
        parallel = make("fsdp")
        restored = checkpoints.restore(parallel.placed(jax.eval_shape(create))).state
    tiny.assert_same(parallel.get_state(parallel.put_state(restored)), state)


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [8, 1])
def test_one_changed_element_of_a_divided_array_is_noticed(tmp_path, num_devices):
    parallel = make("fsdp")
    state = parallel.get_state(parallel.put_state(create()))
    table = state.params["table"].copy()
    table[3, 5] = np.nextafter(table[3, 5], 1)
    for name, there in (("good", state), ("other", state.replace(params=state.params | {"table": table}))):
        with Checkpoints(tmp_path / name) as checkpoints:
            checkpoints.save(1, parallel.copy_state(parallel.put_state(there)), config={})
    shutil.rmtree(tmp_path / "good" / "1" / "params")
    shutil.move(tmp_path / "other" / "1" / "params", tmp_path / "good" / "1" / "params")
    reader = make("fsdp", devices=jax.devices()[:num_devices])
    with Checkpoints(tmp_path / "good", read_only=True) as checkpoints:
        with pytest.raises(UserError, match="wrong checksum of params/table"):
            checkpoints.restore(reader.placed(jax.eval_shape(create)))


def test_a_process_that_cannot_read_its_parts_ends_since_the_others_wait_for_it(tmp_path, monkeypatch):
    parallel = make("fsdp")
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, parallel.copy_state(parallel.put_state(create())), config={})
        places = parallel.placed(jax.eval_shape(create))
        meta = {"meta": checkpoints._read_items(2, meta=ocp.args.JsonRestore())["meta"]}

        def read(step, **items):
            if "meta" in items:
                return meta
            raise Damaged("no such file")

        monkeypatch.setattr(checkpoints, "_read_items", read)
        with pytest.raises(UserError, match="no readable checkpoint"):  # alone it would try the one before
            checkpoints.restore(places)
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        with pytest.raises(UserError, match=r"process 0 cannot read its parts of .*/2; without .* \(no such file\)"):
            checkpoints.restore(places)
        monkeypatch.undo()


def test_an_array_is_divided_along_its_longest_axis_that_can_be():
    assert divided_axis((3, 16, 8), 8) == 1
    assert divided_axis((16, 16), 8) == 1 and divided_axis((16, 12), 8) == 0
    assert divided_axis((16, 4), 4, first=1) == 1  # seeds are not divided
    assert all(divided_axis(shape, 8) is None for shape in ((), (7,), (0, 3), (12, 20)))
    assert divided_axis((16,), 1) is None
    with pytest.raises(UserError, match="replicas=3 does not divide the 8 devices; expected one of 1, 2, 4, 8"):
        group_size(8, 3)
