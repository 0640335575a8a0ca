"""A state divided among devices is the state of one device: the same steps, less memory on each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model as tiny

from attn_jax.errors import UserError
from attn_jax.models.metrics import Mean
from attn_jax.training import model_size
from attn_jax.training.checkpoints import Checkpoints
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


@pytest.mark.parametrize(
    "num_devices, replicas, microbatches, seeds", [(8, 1, 1, None), (8, 2, 2, None), (4, 1, 1, (0, 3))]
)
def test_a_divided_state_trains_as_one_device(num_devices, replicas, microbatches, seeds):
    state = create() if seeds is None else jax.tree.map(lambda *x: jnp.stack(x), *map(create, seeds))
    batch_at = tiny.batch_at if seeds is None else tiny.batches_of(seeds)
    devices = jax.devices()[:num_devices]
    several = seeds is not None
    expected, losses = train(make("mesh", several, devices[:1], microbatches), state, batch_at)
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


def test_the_memory_of_a_device_falls_as_devices_are_added():
    shapes = jax.eval_shape(lambda: create(width=512))
    batch, used = tiny.batch_at(0), {}
    for num_devices in (1, 4, 8):
        parallel = make("fsdp", devices=jax.devices()[:num_devices])
        analysis = parallel.train_step.lower(shapes, batch).compile().memory_analysis()
        held = model_size.num_bytes(shapes, lambda x, n=num_devices: part_size(x, n))
        assert 0 <= analysis.argument_size_in_bytes - held < 1000  # the rows of the batch besides
        used[num_devices] = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
    assert used[4] < used[1] / 2 and used[8] < used[4]


@pytest.mark.parametrize("before, after", [(("fsdp", 8), ("fsdp", 2)), (("fsdp", 4), ("single", 1))])
def test_other_devices_go_on_with_a_divided_state(tmp_path, before, after):
    first, second = (make(name, devices=jax.devices()[:n]) for name, n in (before, after))
    state, _ = train(first, create())
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(STEPS, state, config={})
        restored = checkpoints.restore(create()).state
    tiny.assert_same(restored, state)
    tiny.assert_close(train(second, restored)[0], train(first, restored)[0])


def test_an_array_is_divided_along_its_longest_axis_that_can_be():
    assert divided_axis((3, 16, 8), 8) == 1
    assert divided_axis((16, 16), 8) == 1 and divided_axis((16, 12), 8) == 0
    assert divided_axis((16, 4), 4, first=1) == 1  # seeds are not divided
    assert all(divided_axis(shape, 8) is None for shape in ((), (7,), (0, 3), (12, 20)))
    assert divided_axis((16,), 1) is None
    with pytest.raises(UserError, match="replicas=3 does not divide the 8 devices; expected one of 1, 2, 4, 8"):
        group_size(8, 3)
