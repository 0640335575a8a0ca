"""Options of Transformers: encoder-decoders and language models."""

import dataclasses
from typing import Any

from attn_jax.errors import UserError
from attn_jax.layers.positions import POSITIONS
from attn_jax.models.base import Model
from attn_jax.models.embedding_options import SharedEmbeddingOptions, check_one_vocabulary
from attn_jax.models.encoder_options import WITHOUT_ATTENTION, EncoderOptions, StackOptions
from attn_jax.models.memory_options import MemoryOptions, MemoryOverrides
from attn_jax.models.pointer_options import PointerOptions
from attn_jax.models.setting import Setting
from attn_jax.models.tags import check_tags
from attn_jax.models.transformer.encoder_decoder import Transformer
from attn_jax.models.transformer.language_model import LanguageModel
from attn_jax.models.transformer.pointer import PointerTransformer
from attn_jax.options import option, section
from attn_jax.tasks.sizes import TextSizes
from attn_jax.token_ids import BOS, EOS

TAGS = ("read", "invariant")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerOptions(SharedEmbeddingOptions, EncoderOptions):
    """Options of an encoder-decoder with a Transformer decoder and any encoder."""

    name: str = option("transformer", "name of the family")
    num_decoder_layers: int = option(0, "number of decoder layers; 0: num_layers", at_least=0, at_most=1000)
    tags: str = option(
        "read",
        "sources with tags: read: tokens of the source; invariant: a set of tokens without order (Wu 2021)",
        choices=TAGS,
    )
    pointer: PointerOptions = section(PointerOptions, "copies of source tokens, and coverage")
    attention: MemoryOptions = section(MemoryOptions, "attention in all places")
    decoder_attention: MemoryOverrides = section(MemoryOverrides, "the decoder's self-attention")
    source_attention: MemoryOverrides = section(MemoryOverrides, "the decoder's attention to the source")

    @property
    def embedded_size(self) -> int:
        """Width of the embedded tokens."""
        return self.hidden_size

    @property
    def of_encoder(self) -> MemoryOptions:
        """Options of attention in the encoder."""
        return self.attention

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        """Builds the model.

        Raises:
            UserError: options do not go together.
        """
        self.check_shared(sizes)
        if self.tags != "read":
            check_tags(self.tags, sizes)
            if not self.encoder_kind.has_heads or POSITIONS[self.positions].needs_attention:
                raise UserError(
                    f"model.tags {self.tags} needs model.encoder transformer and model.positions "
                    f"{', '.join(WITHOUT_ATTENTION)}; got {self.encoder} and {self.positions}"
                )
        source_attention = self.source_attention.over(self.attention)
        pointer = self.pointer_fields(sizes, setting, source_attention)
        kind = PointerTransformer if pointer else Transformer
        module = kind(
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
            features=self.hidden_size,
            encoder=self.build_encoder(setting),
            picture=self.build_picture(sizes, setting),
            decoder=self.build_stack(
                setting,
                self.decoder_attention.over(self.attention),
                source_attention=source_attention,
                causal=True,
                num_layers=self.num_decoder_layers,
            ),
            output=self.build_output(setting, sizes, tied=self.tie_embeddings),
            share_embeddings=self.share_embeddings,
            invariant_tags=self.tags != "read",
            eos=EOS,
            dtype=setting.dtype,
            **pointer,
        )
        return Model(module)

    def pointer_fields(self, sizes: TextSizes, setting: Setting, attention: MemoryOptions) -> dict[str, Any]:
        """Returns the fields of a Transformer that copies source tokens; {} for one that does not."""
        if self.pointer.coverage:
            raise UserError(
                "model.pointer.coverage needs the weights of a token before the scores of the next, but a Transformer "
                "computes all at once; expected model.name seq2seq, or model.pointer.coverage_penalty"
            )
        if not self.pointer.copy:
            if self.pointer.coverage_penalty:
                raise UserError("model.pointer.coverage_penalty of a Transformer needs model.pointer.copy")
            return {}
        pointer = self.pointer.build(sizes, setting, self.output.chosen, attention)
        return {"pointer": pointer, "coverage_penalty": self.pointer.coverage_penalty}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(SharedEmbeddingOptions, StackOptions):
    """Options of a decoder-only Transformer: the source is the beginning of the sequence."""

    name: str = option("language_model", "name of the family")
    continue_source: bool = option(False, "the target continues the source, which is the beginning of the text")
    attention: MemoryOptions = section(MemoryOptions, "self-attention")

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        """Builds the model.

        Raises:
            UserError: options do not go together.
        """
        self.check_shared(sizes)
        if self.continue_source:
            check_one_vocabulary("continue_source", sizes)
        module = LanguageModel(
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
            features=self.hidden_size,
            stack=self.build_stack(setting, self.attention, causal=True),
            output=self.build_output(setting, sizes, tied=self.tie_embeddings),
            share_embeddings=self.share_embeddings,
            continue_source=self.continue_source,
            bos=BOS,
            eos=EOS,
            dtype=setting.dtype,
        )
        return Model(module)
