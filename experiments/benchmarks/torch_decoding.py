"""PyTorch side of decoding_speed.py: greedy and beam search with the model of torch_seq2seq.py."""

import torch

from attn_jax.token_ids import BOS, PAD
from experiments.benchmarks.torch_seq2seq import TorchSeq2Seq

State = tuple[torch.Tensor, torch.Tensor]  # hidden and cell of the decoder, each [1, b, d]


def start(model: TorchSeq2Seq, source: torch.Tensor) -> tuple[torch.Tensor, State]:
    """Returns (encoder states [b, s, d], first state of the decoder)."""
    states, last = model.encode(source)
    hidden = torch.tanh(model.bridge(last))[None]
    return states, (hidden, torch.zeros_like(hidden))


def advance(
    model: TorchSeq2Seq, memory: torch.Tensor, padding: torch.Tensor, state: State, token: torch.Tensor
) -> tuple[torch.Tensor, State]:
    """Returns (logits [b, v], next state)."""
    top, state = model.decoder(model.target_embedding(token)[:, None], state)
    context = model.attend(top, memory, padding)
    return model.output(torch.tanh(model.combine(torch.cat([context, top], dim=-1))))[:, 0], state


@torch.inference_mode()
def greedy(model: TorchSeq2Seq, source: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """Returns the most probable token at each step, [b, longest limit]; no sentence may end before its limit."""
    padding = source == PAD
    memory, state = start(model, source)
    token, found = torch.full((len(source),), BOS), []
    for _ in range(int(limits.max())):
        logits, state = advance(model, memory, padding, state, token)
        token = logits.argmax(dim=-1)
        found.append(token)
    return torch.stack(found, dim=1)


@torch.inference_mode()
def beam_search(model: TorchSeq2Seq, source: torch.Tensor, limits: torch.Tensor, size: int) -> torch.Tensor:
    """Returns the best of `size` hypotheses at the limit of each sentence, [b, longest limit]."""
    batch = len(source)
    padding = (source == PAD).repeat_interleave(size, dim=0)
    memory, state = start(model, source)
    memory = memory.repeat_interleave(size, dim=0)
    state = tuple(x.repeat_interleave(size, dim=1) for x in state)
    token = torch.full((batch * size,), BOS)
    scores = torch.full((batch, size), -torch.inf)
    scores[:, 0] = 0.0
    found = torch.zeros((batch, size, 0), dtype=torch.long)
    best = torch.zeros((batch, int(limits.max())), dtype=torch.long)
    first = torch.arange(batch)[:, None] * size
    for t in range(int(limits.max())):
        logits, state = advance(model, memory, padding, state, token)
        words = logits.shape[-1]
        extended = scores[..., None] + torch.log_softmax(logits, dim=-1).view(batch, size, words)
        scores, index = extended.view(batch, -1).topk(size, dim=-1)
        parent, token = index // words, index % words
        found = torch.cat([found.gather(1, parent[..., None].expand(-1, -1, t)), token[..., None]], dim=-1)
        rows = (first + parent).view(-1)
        state = tuple(x[:, rows] for x in state)
        token = token.view(-1)
        ended = limits == t + 1
        best[ended, : t + 1] = found[ended, 0]
    return best
