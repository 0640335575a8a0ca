"""The size of a model, from the shapes of its arrays."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
import pytest

from attn_jax.errors import UserError
from attn_jax.training import model_size


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_model_with_adam_takes_four_times_its_parameters_and_the_counter(seeds):
    def create(rng):
        params = {"kernel": jax.random.normal(rng, (3, 5)), "bias": jnp.zeros(5)}
        return params, optax.adam(0.1).init(params)

    rngs = jax.random.split(jax.random.key(0), seeds)
    made = jax.vmap(create)(rngs) if seeds > 1 else create(rngs[0])
    size = model_size.measure(*made, num_seeds=seeds, logits=1000)
    assert size == (20, seeds * (4 * 20 * 4 + 4) + 1000)
    assert size == model_size.measure(*jax.eval_shape(lambda: made), num_seeds=seeds, logits=1000)


def test_a_table_whose_rows_are_updated_alone_has_no_whole_gradient():
    params = {"embedding": {"table": jnp.zeros((7, 5))}, "kernel": jnp.zeros((5, 5))}
    size = model_size.measure(params, optax.sgd(0.1).init(params), by_rows={("embedding", "table")})
    assert size.bytes == 4 * (7 * 5 + 2 * 5 * 5)


@pytest.mark.parametrize(
    ("size", "text"),
    [(950, "950 bytes"), (999_600, "1.0 MB"), (1234, "1.2 KB"), (41_300_000_000, "41 GB"), (3 * 10**21, "3,000 EB")],
)
def test_bytes_as_text(size, text):
    assert model_size.text_of(size) == text


def test_what_does_not_fit_is_one_line():
    size = model_size.ModelSize(1_234_567, 3_000_000)
    for memory, copies in ((None, 1), (3_000_000, 1), (6_000_000, 2)):
        model_size.check_memory(size, memory, copies)
    for memory, copies, words in (
        (2_900_000, 1, "into 2.9 MB of memory: 1,234,567 parameters; at least 3.0 MB with .* logits; make model"),
        (5_900_000, 2, "into 5.9 MB of memory: .* logits, on each of 2 devices; make model.hidden_size, "),
    ):
        with pytest.raises(UserError, match=words) as error:
            model_size.check_memory(size, memory, copies)
        assert "\n" not in str(error.value)


def test_memory_of_a_device():
    tells = SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 12})
    silent = SimpleNamespace(platform="gpu", memory_stats=lambda: None)
    assert (model_size.memory_of(tells), model_size.memory_of(silent)) == (12, None)
    assert 2**28 < model_size.memory_of(jax.devices("cpu")[0]) < 2**48
