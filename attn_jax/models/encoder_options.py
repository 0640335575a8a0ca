"""From config.model to encoders, stacks of Transformer layers and output layers, which several families share."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from ml_collections import ConfigDict

from attn_jax.attention import MultiHead
from attn_jax.attention.hard.readings import READINGS, Reading
from attn_jax.errors import UserError, lookup
from attn_jax.layers.convolution import Convolution
from attn_jax.layers.positions import POSITIONS, NoPositions
from attn_jax.layers.rnn import CELLS, RNN
from attn_jax.layers.transformer import ACTIVATIONS, NORM_FIRST, TransformerLayer, TransformerStack
from attn_jax.models.attention_options import build_attention, width_of_head
from attn_jax.outputs import FullSoftmax
from attn_jax.types import Dtype

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def build_encoder(config: ConfigDict) -> nn.Module:
    """config.model.encoder: what turns embedded source tokens into states."""
    model, dtype = config.model, lookup(DTYPES, config.dtype, "dtype")
    return lookup(ENCODERS, model.encoder, "model.encoder")(model, dtype)


def build_rnn_encoder(model: ConfigDict, dtype: Dtype) -> RNN:
    """Recurrent layers, in one direction or both."""
    if model.bidirectional and model.hidden_size % 2:
        raise UserError(f"model.hidden_size {model.hidden_size} is odd; a bidirectional encoder halves it")
    return RNN(
        lookup(CELLS, model.cell, "model.cell"),
        model.hidden_size,
        model.num_layers,
        model.bidirectional,
        dropout=model.dropout,
        recurrent_dropout=model.recurrent_dropout,
        dtype=dtype,
    )


def build_convolution(model: ConfigDict, dtype: Dtype) -> Convolution:
    """Layers that each see a window of tokens."""
    if model.kernel_size % 2 == 0:
        raise UserError(f"model.kernel_size {model.kernel_size} is even; a window around a token is odd")
    features = model.hidden_size if model.name == "transformer" else model.embedding_size
    positions = build_positions(model, dtype, False, features)
    if model.positions not in ("none", "sinusoidal", "learned"):
        raise UserError(
            f"model.encoder conv has no attention that model.positions {model.positions} could be part of; "
            "expected none, sinusoidal or learned"
        )
    return Convolution(model.hidden_size, model.num_layers, model.kernel_size, positions, model.dropout, dtype)


def build_positions(model: ConfigDict, dtype: Dtype, causal: bool, features: int) -> NoPositions:
    """config.model.positions as a module, for embeddings of `features` columns."""
    kind = lookup(POSITIONS, model.positions, "model.positions")
    return kind(model.num_heads, features, model.max_length if kind.limited else 0, causal, dtype)


def build_stack(
    model: ConfigDict, dtype: Dtype, causal: bool = False, has_source: bool = False, num_layers: int = 0
) -> TransformerStack:
    """Transformer layers, each with attention as config.model.attention says."""
    width = width_of_head(model.hidden_size, model.num_heads, model.num_kv_heads)
    if model.name == "seq2seq" and model.embedding_size != model.hidden_size:
        raise UserError(
            f"model.encoder transformer needs model.embedding_size and model.hidden_size to be equal, got "
            f"{model.embedding_size} and {model.hidden_size}"
        )
    read = READINGS["expectation"] if model.name == "seq2seq" else soft_reading(model)
    if model.attention.window != "global" or model.attention.normalize == "monotonic":
        raise UserError("a Transformer takes no model.attention.window, and no model.attention.normalize monotonic")
    activation = lookup(ACTIVATIONS, model.activation, "model.activation")
    norm_first = lookup(NORM_FIRST, model.norm, "model.norm")
    positions = build_positions(model, dtype, causal, model.hidden_size)
    if positions.rotary and width % 2:
        raise UserError(f"model.positions rotary needs heads of even width, got {width}")

    def make_attention(num_scaled: int = 0) -> MultiHead:
        attention = build_attention(model.attention, width, read, model.num_heads, num_scaled)
        return MultiHead(attention, model.num_heads, model.hidden_size, model.num_kv_heads, dtype=dtype)

    layer = nn.remat(TransformerLayer, static_argnums=(8,)) if model.remat else TransformerLayer
    return TransformerStack(
        make_layer=partial(
            layer,
            partial(make_attention, positions.num_scaled),
            model.hidden_size,
            model.feed_forward_size,
            make_attention if has_source else None,
            norm_first,
            positions.rotary,
            activation,
            model.dropout,
            dtype,
        ),
        positions=positions,
        num_layers=num_layers or model.num_layers,
        features=model.hidden_size,
        norm_first=norm_first,
        causal=causal,
        dropout=model.dropout,
        dtype=dtype,
    )


def soft_reading(model: ConfigDict) -> Reading:
    """The reading of a model whose attention is not latent."""
    reading = lookup(READINGS, model.attention.read, "model.attention.read")
    if model.attention.transition != "independent":
        raise UserError(f"model.attention.transition {model.attention.transition} needs model.name seq2seq")
    if model.objective != "soft" or reading.random or not reading.per_step:
        raise UserError(
            f"model.name {model.name} needs model.objective soft and model.attention.read expectation or top, got "
            f"{model.objective} and {reading.name}; sampled attention is trained by model.name seq2seq"
        )
    if not reading.is_soft:
        reading = reading.configure(num_samples=model.attention.num_samples)
    return reading


def build_output(config: ConfigDict, vocab_size: int) -> FullSoftmax:
    """The output layer."""
    dtype = lookup(DTYPES, config.dtype, "dtype")
    return FullSoftmax(vocab_size, config.model.tie_embeddings, config.train.label_smoothing, dtype)


ENCODERS = {"rnn": build_rnn_encoder, "conv": build_convolution, "transformer": build_stack}
