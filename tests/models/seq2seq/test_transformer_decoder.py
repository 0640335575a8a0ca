"""The Transformer decoder: that of the Transformer itself for the mean context, and any key by itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from tiny_seq2seq import build, random_params, sentences

from attn_jax.attention import CAUSAL, MultiHead, build_attention
from attn_jax.errors import UserError
from attn_jax.layers.positions import Alibi
from attn_jax.layers.transformer import TransformerLayer, TransformerStack
from attn_jax.models.seq2seq.recurrent_stack import EncoderStates
from attn_jax.models.seq2seq.transformer_decoder import TransformerDecoder

BATCH = jax.tree.map(jnp.asarray, sentences([(4, 3), (2, 2)], 4, 3))
REAL = np.asarray(BATCH["target_out"] != 0)
OPTIONS = dict(
    decoder="transformer", encoder="gru", embedding_size=6, decoder__num_heads=2, decoder__feed_forward_size=5
)
WIDTH = 8


@pytest.mark.slow
@pytest.mark.parametrize(("num_layers", "norm_first"), [(1, False), (2, True)])
def test_with_the_mean_context_it_is_a_transformer_of_one_source_head(num_layers, norm_first):
    attention = functools.partial(build_attention, score="general", normalize="sparsemax")
    source_heads = lambda: MultiHead(attention=attention(score="scaled_dot"), num_heads=1, features=WIDTH)  # noqa: E731
    own_heads = lambda: MultiHead(  # noqa: E731
        attention=build_attention(score="scaled_dot"), num_heads=2, features=WIDTH, order=CAUSAL
    )
    make_layer = functools.partial(
        TransformerLayer,
        make_attention=own_heads,
        make_source_attention=source_heads,
        features=WIDTH,
        feed_forward_size=5,
        norm_first=norm_first,
    )
    stack = TransformerStack(
        make_layer=make_layer,
        positions=Alibi(num_heads=2),
        num_layers=num_layers,
        features=WIDTH,
        norm_first=norm_first,
    )
    decoder = TransformerDecoder(
        stack=stack.clone(num_layers=num_layers - 1, norm_first=False),
        make_layer=make_layer,
        features=WIDTH,
        attention=attention(score="scaled_dot"),
    )
    states, x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 4, WIDTH)), jnp.float32)
    mask = jnp.arange(4) < jnp.array([[4], [2]])

    def whole(module, x):
        found, _, reads = module.run(x, jnp.ones(x.shape[:2], bool), source=module.read_source(states, mask))
        return found, reads[-1].source.weights[:, 0]

    params = params_of(stack, x, method=whole)
    expected = compiled(lambda p: stack.apply({"params": p}, x, method=whole))(params)
    moved = {"stack": {k: v for k, v in params.items() if k.startswith("layers") and k != f"layers_{num_layers - 1}"}}
    moved |= {"last": params[f"layers_{num_layers - 1}"]} | {k: v for k, v in params.items() if k == "norm"}

    def unrolled(module, x):
        steps = module.unroll(*module.start(EncoderStates(states, mask, ())), x)
        return steps.readout, steps.weights

    found = compiled(lambda p: decoder.apply({"params": p}, x, method=unrolled))(moved)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
def test_the_marginal_likelihood_is_the_mixture_of_all_keys_read_alone():
    """A memory in which one key is left has that key as its context."""
    layers = dict(decoder__num_layers=2, decoder__norm="post")
    model = build(objective="marginal", attention=dict(score="scaled_dot"), **layers, **OPTIONS)
    params = random_params(model, BATCH)

    def run(module):
        memory, state = module.decoder.start(module.encode(BATCH["source"]))
        embedded = module.embed(BATCH["target_in"], None)
        weights = module.decoder.unroll(memory, state, embedded).weights
        total = 0.0
        for key in range(4):
            alone = memory.replace(key_mask=memory.key_mask & (jnp.arange(4) == key))
            steps = module.decoder.unroll(alone, state, embedded)
            nll, _ = module.nll_and_correct(steps.readout, BATCH["target_out"])
            total = total + weights[..., key] * jnp.exp(-nll)
        nll, _, _ = module.evaluate(BATCH["source"], BATCH["target_in"], BATCH["target_out"])
        return -jnp.log(total), nll

    expected, found = compiled(lambda p: model.module.apply({"params": p}, method=run))(params)
    np.testing.assert_allclose(found[REAL], expected[REAL], rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(embedding_size=5), r"model\.embedding_size and model\.hidden_size to be equal, got 5 and 6"),
        (dict(decoder__extras=("selector",)), r"model\.decoder\.extras; it is an option of .* bahdanau or luong"),
        (dict(objective="trajectory"), r"model\.objective trajectory .* it needs model\.decoder luong or bahdanau"),
        (dict(attention=dict(score="dot", wrappers=("local_m",))), r"model\.attention\.wrappers local_m moves along"),
        (
            dict(attention=dict(score="dot", normalize="monotonic")),
            r"model\.attention\.normalize monotonic moves along",
        ),
    ],
)
def test_what_it_does_not_have_is_refused_in_one_line(changes, message):
    with pytest.raises(UserError, match=message) as error:
        build(**OPTIONS | changes)
    assert "\n" not in str(error.value)
