"""PyTorch side of transformer_speed.py: nn.Transformer between embeddings and an output layer."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from attn_jax.token_ids import PAD
from attn_jax.types import Params


class TorchTransformer(nn.Module):
    """forward(source [b, s], target_in [b, t], target_out [b, t]) -> mean loss of the real target tokens.

    Norm first, sinusoidal positions, ReLU, like our Transformer. `real_only` computes logits of real positions only.
    """

    def __init__(
        self, vocab_sizes: tuple[int, int], size: int, num_layers: int, num_heads: int, inner: int, dropout: float
    ):
        super().__init__()
        self.source_embedding = nn.Embedding(vocab_sizes[0], size)
        self.target_embedding = nn.Embedding(vocab_sizes[1], size)
        self.transformer = nn.Transformer(
            size, num_heads, num_layers, num_layers, inner, dropout, batch_first=True, norm_first=True
        )
        self.output = nn.Linear(size, vocab_sizes[1])
        self.dropout, self.size, self.real_only = nn.Dropout(dropout), size, True

    def forward(self, source: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
        later = self._later(target_in)
        states = self.transformer(
            self._embed(self.source_embedding, source),
            self._embed(self.target_embedding, target_in),
            tgt_mask=later,
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target_in == PAD,
            tgt_is_causal=True,
        )
        if self.real_only:
            real = target_out != PAD
            return F.cross_entropy(self.output(states[real]), target_out[real])
        logits = self.output(states)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target_out.ravel(), ignore_index=PAD)

    def _later(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        return torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)

    def _embed(self, embedding: nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], dtype=torch.float32, device=tokens.device)[:, None]
        columns = torch.arange(0, self.size, 2, device=tokens.device)
        angles = places * torch.exp(columns * (-math.log(10_000.0) / self.size))
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return self.dropout(embedding(tokens) * self.size**0.5 + positions)

    @torch.no_grad()
    def load(self, params: Params) -> None:
        """Copies the parameters of our model of the same sizes."""
        for ours, theirs in ((self.source_embedding, "source_embedding"), (self.target_embedding, "target_embedding")):
            ours.weight.copy_(_tensor(params[theirs]["table"]["embedding"]))
        for stack, name in ((self.transformer.encoder, "encoder"), (self.transformer.decoder, "decoder")):
            for index, layer in enumerate(stack.layers):
                own = params[name][f"layers_{index}"]
                _load_attention(layer.self_attn, own["self_attention"])
                norms = [(layer.norm1, own["self_norm"])]
                if name == "decoder":
                    _load_attention(layer.multihead_attn, own["source_attention"])
                    norms += [(layer.norm2, own["source_norm"]), (layer.norm3, own["feed_forward_norm"])]
                else:
                    norms += [(layer.norm2, own["feed_forward_norm"])]
                for norm, values in norms:
                    _load_norm(norm, values)
                _load_dense(layer.linear1, own["inner"])
                _load_dense(layer.linear2, own["outer"])
            _load_norm(stack.norm, params[name]["norm"])
        _load_dense(self.output, params["output"]["dense"])


def _tensor(array) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _load_dense(linear: nn.Linear, dense: Params) -> None:
    linear.weight.copy_(_tensor(dense["kernel"]).T)
    linear.bias.copy_(_tensor(dense["bias"]))


def _load_norm(norm: nn.LayerNorm, values: Params) -> None:
    norm.weight.copy_(_tensor(values["scale"]))
    norm.bias.copy_(_tensor(values["bias"]))


def _load_attention(attention: nn.MultiheadAttention, own: Params) -> None:
    parts = [own[name] for name in ("query", "key", "value")]
    attention.in_proj_weight.copy_(torch.cat([_tensor(part["kernel"]).T for part in parts]))
    attention.in_proj_bias.copy_(torch.cat([_tensor(part["bias"]) for part in parts]))
    _load_dense(attention.out_proj, own["out"])
