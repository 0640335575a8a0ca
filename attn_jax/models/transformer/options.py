"""Options of Transformers: encoder-decoders and language models."""

import dataclasses
from typing import Any, ClassVar

from attn_jax.attention import Attention
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.models.base import Model
from attn_jax.models.embedding_options import SharedEmbeddingOptions, check_one_vocabulary
from attn_jax.models.encoder_options import WITHOUT_ATTENTION, CausalStackOptions, EncoderUser
from attn_jax.models.family import TAGS, Family, Nothing
from attn_jax.models.mixer_options import MIXERS, PLACES
from attn_jax.models.output_options import OutputUser
from attn_jax.models.pointer_options import build_pointer
from attn_jax.models.setting import Setting
from attn_jax.models.tags import check_tags
from attn_jax.models.transformer.encoder_decoder import Transformer
from attn_jax.models.transformer.language_model import LanguageModel
from attn_jax.models.transformer.pointer import PointerTransformer
from attn_jax.parts import Options, choice, option, section
from attn_jax.token_ids import BOS, EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderStackOptions(CausalStackOptions):
    """Options of the decoder of an encoder-decoder."""

    attention: Options = choice(PLACES, "same", "self-attention; same: as model.attention")
    source_attention: Options = choice(PLACES, "same", "attention to the source; same: as model.attention")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InvariantTags(Options):
    """Options of tags that are a set of tokens without order (Wu 2021)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointerOptions(Options):
    """Options of a pointer to the source (See 2017, arXiv 1704.04368)."""

    coverage_penalty: float = option(
        0.0, "weight of sum_i min(weight, sum of earlier weights) of the keys i in the loss (See 2017: 1)", at_least=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerOptions(SharedEmbeddingOptions, OutputUser, EncoderUser, Family):
    """Options of an encoder-decoder with a Transformer decoder and any encoder."""

    name: ClassVar[str] = "transformer"

    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    decoder: DecoderStackOptions = section(DecoderStackOptions, "the decoder")
    attention: Options = choice(MIXERS, "map", "attention in all places, or a memory of fixed size in place of keys")
    tags: Options | None = choice(
        {"read": Nothing, "invariant": InvariantTags},
        "read",
        "sources with tags: tokens of the source; a set of tokens without order (Wu 2021)",
        where=TAGS,
    )
    pointer: Options = choice(
        {"none": Nothing, "copy": PointerOptions}, "none", "copy: mix the source tokens into the probabilities"
    )

    @property
    def embedded_size(self) -> int:
        """Width of the embedded tokens."""
        return self.hidden_size

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        self.check_shared(sizes)
        if self.tags:
            check_tags("invariant", sizes)
            if not self.encoder.has_heads or self.encoder.positions.kind.needs_attention:
                raise UserError(
                    "model.tags invariant needs model.encoder transformer and model.encoder.positions "
                    f"{', '.join(WITHOUT_ATTENTION)}"
                )
        source_attention = self.decoder.source_attention.over(self.attention)
        pointer = self.pointer_fields(sizes, setting, source_attention)
        kind = PointerTransformer if pointer else Transformer
        module = kind(
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
            features=self.hidden_size,
            encoder=self.build_encoder(setting),
            picture=self.build_picture(sizes, setting),
            decoder=self.decoder.build_stack(
                features=self.hidden_size,
                dropout=self.dropout,
                dtype=setting.dtype,
                attention=self.decoder.attention.over(self.attention),
                source_attention=source_attention,
                causal=True,
            ),
            output=self.build_output(setting, sizes, tied=self.tie_embeddings),
            share_embeddings=self.share_embeddings,
            invariant_tags=bool(self.tags),
            eos=EOS,
            dtype=setting.dtype,
            **pointer,
        )
        return Model(module)

    def pointer_fields(self, sizes: TextSizes, setting: Setting, attention: Options) -> dict[str, Any]:
        """Returns the fields of a Transformer that copies source tokens; {} without a pointer."""
        if not self.pointer:
            return {}
        if not attention.kept:
            raise UserError(
                "model.pointer copy needs weights of the source; expected model.decoder.source_attention map"
            )
        found, _ = self.decoder.describe(attention, self.hidden_size)
        pointer = build_pointer("model.pointer copy", found, sizes, setting, self.output)
        return {"pointer": pointer, "coverage_penalty": self.pointer.coverage_penalty}

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        return self.decoder.describe(self.attention, self.hidden_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(SharedEmbeddingOptions, OutputUser, CausalStackOptions, Family):
    """Options of a decoder-only Transformer: the source is the beginning of the sequence."""

    name: ClassVar[str] = "language_model"

    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    continue_source: bool = option(False, "the target continues the source, which is the beginning of the text")
    attention: Options = choice(MIXERS, "map", "self-attention, or a memory of fixed size in place of keys")

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        self.check_shared(sizes)
        if self.continue_source:
            check_one_vocabulary("continue_source", sizes)
        module = LanguageModel(
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
            features=self.hidden_size,
            stack=self.build_stack(
                features=self.hidden_size,
                dropout=self.dropout,
                dtype=setting.dtype,
                attention=self.attention,
                causal=True,
            ),
            output=self.build_output(setting, sizes, tied=self.tie_embeddings),
            share_embeddings=self.share_embeddings,
            continue_source=self.continue_source,
            bos=BOS,
            eos=EOS,
            dtype=setting.dtype,
        )
        return Model(module)

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        return self.describe(self.attention, self.hidden_size)
