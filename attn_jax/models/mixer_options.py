"""Options of the memory of self-attention in a Transformer: all keys and values, or a memory of fixed size."""

import dataclasses
from collections import ChainMap
from typing import Any, ClassVar

from attn_jax.attention.caches import CAUSAL, EVERYWHERE
from attn_jax.attention.mixer import Mixer
from attn_jax.attention.recurrent.features import FEATURE_MAPS, check_feature_map
from attn_jax.attention.recurrent.heads import RECURRENT, Kind, RecurrentHeads
from attn_jax.errors import UserError
from attn_jax.layers.positions import POSITIONS
from attn_jax.models.attention_options import HeadsOptions, HeadsSetting, MapOptions, Same
from attn_jax.parts import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentHeadOptions(HeadsOptions):
    """Options of a memory of fixed size into which keys and values are written."""

    kind: ClassVar[Kind]
    kept: ClassVar[bool] = False  # keys are not kept
    moves_along: ClassVar[str] = ""

    chunk_size: int = option(64, "positions computed at once in training", at_least=1)
    convolution: int = option(
        0, "positions that queries, keys and values of self-attention are mixed over; 0: none", at_least=0, at_most=1000
    )
    gate: bool = option(False, "multiply the context by a sigmoid of the input of the query")

    def fields(self) -> dict[str, Any]:
        """Returns the fields of the heads that only some kinds have."""
        return {"feature_map": FEATURE_MAPS["identity"], "normalized": False}

    def build_heads(self, of: HeadsSetting) -> Mixer:
        if self.kind.needs_causal and not of.causal:
            fitting = ", ".join(name for name, x in MIXERS.items() if x.kept or not x.kind.needs_causal)
            raise UserError(
                f"model.attention {self.name} needs causal keys, which an encoder and a source do not have; expected "
                f"{fitting} there: model.decoder.attention={self.name} is of the decoder alone"
            )
        if of.num_kv_heads:
            raise UserError(
                f"num_kv_heads is {of.num_kv_heads}; expected 0: model.attention {self.name} has no keys to share"
            )
        if of.positions is not None and of.positions.needs_attention:
            own = next(name for name, kind in POSITIONS.items() if kind is type(of.positions))
            fitting = ", ".join(name for name, kind in POSITIONS.items() if not kind.needs_attention)
            raise UserError(
                f"model.attention {self.name} has no scores that positions {own} could be part of; expected {fitting}"
            )
        return RecurrentHeads(
            kind=self.kind,
            num_heads=of.num_heads,
            features=of.features,
            chunk_size=self.chunk_size if of.causal else 1,
            convolution=self.convolution if of.causal else 0,
            order=CAUSAL if of.causal else EVERYWHERE,
            gate=self.gate,
            dtype=of.dtype,
            **self.fields(),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MappedOptions(RecurrentHeadOptions):
    """Options of a memory with a feature map of queries and keys."""

    feature_map: str = option("elu_plus_one", "feature map of queries and keys", choices=FEATURE_MAPS)
    normalized: bool = option(True, "divide the weights by their sum")

    def __post_init__(self):
        try:
            check_feature_map(FEATURE_MAPS[self.feature_map], self.normalized)
        except ValueError as error:
            raise UserError(f"model.attention {self.name}: {error}") from error

    def fields(self) -> dict[str, Any]:
        return {"feature_map": FEATURE_MAPS[self.feature_map], "normalized": self.normalized}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolvedOptions(RecurrentHeadOptions):
    """Options of a memory that is read by solving a linear system."""

    steps: int = option(30, "steps of conjugate gradient; 0: LAPACK's exact solution", at_least=0, at_most=1000)

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"steps": self.steps}


def recurrent_head_options(name: str, kind: Kind) -> type[RecurrentHeadOptions]:
    """Makes the class of options of a kind of memory."""
    base = MappedOptions if kind.maps else SolvedOptions if kind.solves else RecurrentHeadOptions
    namespace = {"kind": kind, "name": name, "__doc__": f"Options of the memory {name}: {kind.equation}."}
    title = f"{name.title().replace('_', '')}Options"
    return dataclasses.make_dataclass(title, [], bases=(base,), namespace=namespace, frozen=True, kw_only=True)


MIXERS: dict[str, type] = {"map": MapOptions} | {
    name: recurrent_head_options(name, kind) for name, kind in RECURRENT.items()
}
PLACES = ChainMap({"same": Same}, MIXERS)  # choices for one place of a model
