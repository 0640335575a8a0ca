"""Options of what the attention of a Transformer keeps: all keys and values, or a memory of fixed size."""

import dataclasses

from attn_jax.attention.caches import CAUSAL, EVERYWHERE
from attn_jax.attention.written.features import FEATURE_MAPS, check_feature_map
from attn_jax.attention.written.heads import WRITTEN, Kind, WrittenHeads
from attn_jax.errors import UserError
from attn_jax.models.attention_options import HeadAttentionOptions
from attn_jax.options import option, overrides, section
from attn_jax.types import Dtype

MEMORIES: dict[str, Kind | None] = {"keys": None, **WRITTEN}
WITHOUT_ORDER = tuple(name for name, kind in MEMORIES.items() if kind is None or not kind.needs_causal)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenOptions:
    """Options of a memory that is written."""

    chunk_size: int = option(64, "positions computed at once in training", at_least=1)
    feature_map: str = option("elu_plus_one", "memory linear: feature map of queries and keys", choices=FEATURE_MAPS)
    normalized: bool = option(True, "memory linear: divide the weights by their sum")
    convolution: int = option(
        0, "positions that queries, keys and values of self-attention are mixed over; 0: none", at_least=0, at_most=1000
    )
    steps: int = option(
        30, "memory ridge, mesa: steps of conjugate gradient; 0: LAPACK's exact solution", at_least=0, at_most=1000
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryOptions(HeadAttentionOptions):
    """Options of attention in a Transformer, over keys or over a memory that is written."""

    memory: str = option(
        "keys",
        "what is kept: all keys and values, or a matrix of fixed size that they are written into",
        choices=MEMORIES,
    )
    selective: bool = option(
        False, "self-attention of a decoder: leave out the keys that the first head has selected for earlier queries"
    )
    written: WrittenOptions = section(WrittenOptions, "a memory other than keys")

    @property
    def kind(self) -> Kind | None:
        """The memory that is written; None: all keys are kept."""
        return MEMORIES[self.memory]

    def check_memory(self, *, causal: bool, num_kv_heads: int, scores: str) -> None:
        """Checks that a place of a model can have this memory.

        Args:
            causal: whether a query reads only the keys up to its own position.
            num_kv_heads: the option of this name.
            scores: the name of a scheme of positions that acts on scores; "": another.

        Raises:
            UserError: it cannot.
        """
        if self.selective:
            self._check_selective(causal)
        if self.kind is None:
            return
        if self.kind.needs_causal and not causal:
            raise UserError(
                f"model.attention.memory {self.memory} needs causal keys, which an encoder and a source do not have; "
                f"expected {', '.join(WITHOUT_ORDER)} there: model.decoder_attention.memory {self.memory} is of the "
                "decoder alone"
            )
        if num_kv_heads:
            raise UserError(
                f"model.num_kv_heads is {num_kv_heads}; expected 0, since model.attention.memory {self.memory} has "
                "no keys to share"
            )
        if scores:
            raise UserError(
                f"model.attention.memory {self.memory} has no scores that model.positions {scores} could be part of; "
                "expected none, sinusoidal, learned"
            )
        try:
            check_feature_map(FEATURE_MAPS[self.written.feature_map], self.kind.maps and self.written.normalized)
        except ValueError as error:
            raise UserError(f"model.attention.written: {error}") from error

    def _check_selective(self, causal: bool) -> None:
        if not causal:
            raise UserError(
                "model.attention.selective needs causal keys, which an encoder and a source do not have: "
                "model.decoder_attention.selective is of the decoder alone"
            )
        if self.kind is not None:
            raise UserError(f"model.attention.memory {self.memory} has no scores to select by; selective needs keys")
        if self.difference:
            raise UserError("model.attention.difference has two scores for each key; selective needs one")

    def build_heads(self, *, num_heads: int, features: int, causal: bool, dtype: Dtype) -> WrittenHeads:
        """Builds the heads of a memory that is written; a convolution is over causal inputs alone."""
        return WrittenHeads(
            kind=self.kind,
            num_heads=num_heads,
            features=features,
            chunk_size=self.written.chunk_size if causal else 1,
            feature_map=FEATURE_MAPS[self.written.feature_map] if self.kind.maps else FEATURE_MAPS["identity"],
            normalized=self.kind.maps and self.written.normalized,
            convolution=self.written.convolution if causal else 0,
            steps=self.written.steps if self.kind.solves else 0,
            order=CAUSAL if causal else EVERYWHERE,
            gate=self.gate,
            dtype=dtype,
        )


MemoryOverrides = overrides(
    "MemoryOverrides",
    MemoryOptions,
    "Options of attention in one place of a Transformer; None: same as model.attention.",
    without=("read", "num_samples"),
)
