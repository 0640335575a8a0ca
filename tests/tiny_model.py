"""The smallest thing that can be trained: the next token from this one, by a table and a matrix."""

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.models.metrics import Mean
from attn_jax.runs.options import change, resolve
from attn_jax.training.loop import TrainState

VOCAB, WIDTH = 11, 4

OPTIMIZER = {"optimizer": "sgd", "optimizer.learning_rate": 0.5, "optimizer.momentum": 0.9}


def optimizer(num_steps=100, **changes):
    """The optimizer of these options, "__" for the dot; `name` is its type."""
    changes = {f"optimizer.{key.replace('__', '.')}": value for key, value in changes.items()}
    name = changes.pop("optimizer.name", "sgd")
    given = OPTIMIZER if name == "sgd" else {"optimizer": name, "optimizer.learning_rate": 0.5}
    return resolve(change(None, given | changes)).optimizer.build(num_steps)


def init(rng):
    table, matrix = jax.random.split(rng)
    return {"table": jax.random.normal(table, (VOCAB, WIDTH)), "matrix": jax.random.normal(matrix, (WIDTH, VOCAB))}


def loss_fn(params, batch, rng, step=0):
    logits = params["table"][batch["source"]] @ params["matrix"]
    mask = batch["target_out"] != 0
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["target_out"][..., None], -1)[..., 0]
    total = -jnp.sum(chosen * mask)
    return total, {"loss": Mean(total, jnp.sum(mask))}


def noisy_loss_fn(params, batch, rng, step=0):
    """With dropout on the table."""
    keep = jax.random.bernoulli(rng, 0.5, (*batch["source"].shape, WIDTH))
    logits = (params["table"][batch["source"]] * keep) @ params["matrix"]
    mask = batch["target_out"] != 0
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["target_out"][..., None], -1)[..., 0]
    total = -jnp.sum(chosen * mask)
    return total, {"loss": Mean(total, jnp.sum(mask))}


def batch_at(step, seed=0, rows=16):
    """Rows of very different lengths; the last of them are empty."""
    rng = np.random.default_rng((seed, step))
    source = rng.integers(1, VOCAB, (rows, 5), dtype=np.int32)
    source[np.arange(5) >= rng.integers(1, 6, (rows, 1))] = 0
    source[-2:] = 0
    return {"source": source, "target_out": np.where(source, source * 3 % (VOCAB - 1) + 1, 0).astype(np.int32)}


def batches_of(seeds):
    """batch_at with a leading axis of seeds."""
    return lambda step: jax.tree.map(lambda *x: np.stack(x), *[batch_at(step, seed) for seed in seeds])


def create(tx, seed=0):
    rng = jax.random.key(seed)
    return TrainState.create(init(rng), tx, rng)


def create_seeds(tx, seeds):
    rngs = jax.vmap(jax.random.key)(jnp.array(seeds))
    return jax.vmap(lambda rng: TrainState.create(init(rng), tx, rng))(rngs)


def bits(state):
    """The leaves as numpy, keys as their bits."""
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(state)]


def assert_same(a, b):
    """Bitwise."""
    a, b = bits(a), bits(b)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype


def assert_close(a, b, rtol=2e-5, atol=2e-6):
    a, b = bits(a), bits(b)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
