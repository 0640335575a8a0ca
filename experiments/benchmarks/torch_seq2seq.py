"""PyTorch side of translation_speed.py: the attention model of a teaching notebook and its training step.

An LSTM encoder; a Linear from its last hidden state to the initial hidden state of the decoder (the cell starts at
zero); an LSTM decoder; dot attention over the encoder states; tanh(Linear [context; hidden]); Linear to the vocabulary.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attn_jax.token_ids import PAD
from attn_jax.types import Params


class TorchSeq2Seq(nn.Module):
    """forward(source [b, s], target_in [b, t], target_out [b, t]) -> mean loss of the real target tokens.

    `packed` runs the encoder over a PackedSequence, which skips padding; `real_only` computes the logits of real
    target positions alone. Neither changes the loss. `sparse`: the gradients of embeddings are rows.
    """

    def __init__(
        self,
        vocab_sizes: tuple[int, int],
        size: int,
        dropout: float,
        *,
        packed: bool,
        real_only: bool,
        sparse: bool = False,
    ):
        super().__init__()
        self.source_embedding = nn.Embedding(vocab_sizes[0], size, sparse=sparse)
        self.encoder = nn.LSTM(size, size, batch_first=True)
        self.bridge = nn.Linear(size, size)
        self.target_embedding = nn.Embedding(vocab_sizes[1], size, sparse=sparse)
        self.decoder = nn.LSTM(size, size, batch_first=True)
        self.combine = nn.Linear(2 * size, size)
        self.output = nn.Linear(size, vocab_sizes[1])
        self.dropout = nn.Dropout(dropout)
        self.packed, self.real_only = packed, real_only

    def forward(self, source: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
        states, last = self.encode(source)
        hidden = torch.tanh(self.bridge(last))[None]
        embedded = self.dropout(self.target_embedding(target_in))
        top, _ = self.decoder(embedded, (hidden, torch.zeros_like(hidden)))
        context = self.attend(top, self.dropout(states), source == PAD)
        hidden = self.dropout(torch.tanh(self.combine(torch.cat([context, top], dim=-1))))
        if self.real_only:
            real = target_out != PAD
            return F.cross_entropy(self.output(hidden[real]), target_out[real])
        logits = self.output(hidden)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target_out.ravel(), ignore_index=PAD)

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (states [b, s, d], state at the last real position [b, d])."""
        lengths = (source != PAD).sum(dim=1)
        embedded = self.dropout(self.source_embedding(source))
        if self.packed:
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            states, (last, _) = self.encoder(packed)
            return pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])[0], last[0]
        states, _ = self.encoder(embedded)
        return states, states[torch.arange(len(source)), lengths - 1]

    def attend(self, query: torch.Tensor, memory: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Returns the context of each query; `padding` is True for masked positions."""
        scores = (query @ memory.mT).masked_fill(padding[:, None], -torch.inf)
        return torch.softmax(scores, dim=-1) @ memory

    @torch.no_grad()
    def load(self, params: Params) -> None:
        """Copies the parameters of our model of the same sizes."""
        self.source_embedding.weight.copy_(_tensor(params["source_embedding"]["embedding"]))
        self.target_embedding.weight.copy_(_tensor(params["target_embedding"]["embedding"]))
        stack = params["decoder"]["stack"]
        for lstm, cell in ((self.encoder, params["encoder"]["forward_0"]), (self.decoder, stack["layers_0"])):
            lstm.weight_ih_l0.copy_(_tensor(cell["input"]["kernel"]).T)
            lstm.weight_hh_l0.copy_(_tensor(cell["kernel"]).T)
            lstm.bias_ih_l0.copy_(_tensor(cell["input"]["bias"]))
            lstm.bias_hh_l0.zero_()  # torch's LSTM has two biases where one would do
        linears = (self.bridge, stack["bridges_0"]), (self.combine, params["decoder"]["combine"])
        for linear, dense in (*linears, (self.output, params["output"]["dense"])):
            linear.weight.copy_(_tensor(dense["kernel"]).T)
            linear.bias.copy_(_tensor(dense["bias"]))


def _tensor(array) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def make_torch_step(model: TorchSeq2Seq, fused: bool, bfloat16: bool, compiled: bool) -> Callable:
    """Returns step(source, target_in, target_out) -> loss: Adam at 1e-4, by rows for sparse embeddings."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding) and module.sparse]
    others = [p for p in model.parameters() if all(p is not table for table in tables)]
    optimizers = [torch.optim.Adam(others, lr=1e-4, fused=fused)]
    optimizers += [torch.optim.SparseAdam(tables, lr=1e-4)] if tables else []
    forward = torch.compile(model, dynamic=True) if compiled else model

    def step(*batch: torch.Tensor) -> float:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = forward(*batch)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()

    return step
