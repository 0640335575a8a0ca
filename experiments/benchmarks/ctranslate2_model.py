"""Writes the parameters of our Transformer as a model of CTranslate2, for decoding_speed.py."""

import contextlib
import tempfile
from collections.abc import Iterator

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

from attn_jax.token_ids import BOS, EOS, PAD, UNK
from attn_jax.types import Params

SPECIAL = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
MAX_POSITIONS = 256


@contextlib.contextmanager
def write_model(params: Params, num_layers: int, num_heads: int) -> Iterator[str]:
    """Yields a folder with the model; word i is called "wi"."""
    spec = TransformerSpec.from_config(num_layers, num_heads, pre_norm=True)
    sides = (spec.encoder, "encoder", "source_embedding"), (spec.decoder, "decoder", "target_embedding")
    sizes = []
    for part, name, embedding in sides:
        table = np.array(params[embedding]["table"]["embedding"])
        sizes.append(len(table))
        (part.embeddings[0] if name == "encoder" else part.embeddings).weight = table
        part.scale_embeddings = True
        part.position_encodings.encodings = sinusoids(MAX_POSITIONS, table.shape[1])
        norm(part.layer_norm, params[name]["norm"])
        for index, layer in enumerate(part.layer):
            own = params[name][f"layers_{index}"]
            attention = own["self_attention"]
            linear(layer.self_attention.linear[0], attention["query"], attention["key"], attention["value"])
            linear(layer.self_attention.linear[1], attention["out"])
            norm(layer.self_attention.layer_norm, own["self_norm"])
            if name == "decoder":
                attention = own["source_attention"]
                linear(layer.attention.linear[0], attention["query"])
                linear(layer.attention.linear[1], attention["key"], attention["value"])
                linear(layer.attention.linear[2], attention["out"])
                norm(layer.attention.layer_norm, own["source_norm"])
            norm(layer.ffn.layer_norm, own["feed_forward_norm"])
            linear(layer.ffn.linear_0, own["inner"])
            linear(layer.ffn.linear_1, own["outer"])
    linear(spec.decoder.projection, params["output"]["dense"])
    words = [[SPECIAL.get(i, f"w{i}") for i in range(size)] for size in sizes]
    spec.register_source_vocabulary(words[0])
    spec.register_target_vocabulary(words[1])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "<unk>", "<s>", "</s>"
    spec.config.decoder_start_token = "<s>"
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.save(folder)
        yield folder


def sinusoids(length: int, features: int) -> np.ndarray:
    """Computes sin and cos of t / 10000^(2i / d), in turns, [length, d]."""
    angles = np.arange(length)[:, None] * np.exp(np.arange(0, features, 2) * (-np.log(10_000.0) / features))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, features).astype(np.float32)


def linear(spec: ctranslate2.specs.common_spec.LinearSpec, *parts: Params) -> None:
    """Sets a linear map to one or several of ours, side by side."""
    spec.weight = np.concatenate([np.array(part["kernel"]).T for part in parts])
    spec.bias = np.concatenate([np.array(part["bias"]) for part in parts])


def norm(spec: ctranslate2.specs.common_spec.LayerNormSpec, own: Params) -> None:
    """Sets a layer norm."""
    spec.gamma, spec.beta = np.array(own["scale"]), np.array(own["bias"])
