"""Types of what output layers return: float32 at least, and float64 where the products are, under 64 bits or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.outputs import OUTPUTS
from attn_jax.outputs.adaptive import GivenCutoffs
from attn_jax.outputs.base import OutputSetting

COUNTS = np.arange(20, 0, -1)
SMALL = {"num_samples": 6, "chunk_size": 7, "cutoffs": GivenCutoffs(words=(5, 11))}


def layer_of(name, dtype):
    options = OUTPUTS[name]
    given = {key: value for key, value in SMALL.items() if key in options.__dataclass_fields__}
    return options(**given).build(OutputSetting(vocab_size=20, counts=COUNTS, dtype=dtype))


def results_of(layer):
    def results(params, hidden):
        targets, rng = jnp.asarray([1, 19, 4], jnp.int32), jax.random.key(0)
        call = lambda *args, **options: layer.apply({"params": params}, hidden, *args, **options)  # noqa: E731
        (loss, nll), (values, words) = call(targets, rng=rng, method="loss"), call(4, method="top_k")
        return (loss, nll, call(method="log_probs"), values, *call(targets, method="nll_and_correct")), words

    return results


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_results_of_every_layer_have_the_type_of_its_products(name):
    rng = np.random.default_rng(0)
    hidden, targets = rng.normal(size=(3, 4)).astype(np.float32), jnp.zeros(3, jnp.int32)
    layer = layer_of(name, jnp.float32)
    params = params_of(layer, hidden, targets, rng=jax.random.key(0), method="loss")
    expected, words = compiled(results_of(layer))(params, hidden)
    assert {x.dtype for x in expected} == {np.dtype(np.float32)}
    with jax.enable_x64(True):
        for dtype, given in ((jnp.bfloat16, jnp.float32), (jnp.float32, jnp.float64), (jnp.float64, jnp.float32)):
            shapes, best = jax.eval_shape(results_of(layer_of(name, dtype)), params, hidden.astype(given))
            assert [x.dtype for x in shapes[:-1]] == [jnp.promote_types(dtype, jnp.float32)] * 5
            assert best.dtype == jnp.int32
        found, best = compiled(results_of(layer_of(name, jnp.float64)))(params, hidden.astype(np.float64))
    np.testing.assert_array_equal(best, words)
    for x, y in zip(found[2:], expected[2:], strict=True):  # of the exact methods, which sample no words
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
