"""From the config of a Transformer to its module."""

from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.models.base import Model
from attn_jax.models.encoder_options import DTYPES, build_encoder, build_output, build_stack
from attn_jax.models.transformer.encoder_decoder import Transformer
from attn_jax.models.transformer.language_model import LanguageModel
from attn_jax.tasks.vocabulary import BOS, EOS


def check_shared(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> None:
    """UserError where one embedding is to serve two vocabularies of different sizes."""
    if config.model.share_embeddings and source_vocab_size != target_vocab_size:
        raise UserError(
            f"model.share_embeddings needs one vocabulary, but the source has {source_vocab_size} tokens and the "
            f"target {target_vocab_size}; set task.joint_vocabulary"
        )


def build_transformer(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> Model:
    """config.model as a Transformer decoder after any encoder."""
    model, dtype = config.model, lookup(DTYPES, config.dtype, "dtype")
    check_shared(config, source_vocab_size, target_vocab_size)
    module = Transformer(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        features=model.hidden_size,
        encoder=build_encoder(config),
        decoder=build_stack(model, dtype, causal=True, has_source=True, num_layers=model.num_decoder_layers),
        output=build_output(config, target_vocab_size),
        max_length=config.decode.max_length,
        share_embeddings=model.share_embeddings,
        dtype=dtype,
    )
    return Model(module)


def build_language_model(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> Model:
    """config.model as a decoder-only Transformer."""
    model, dtype = config.model, lookup(DTYPES, config.dtype, "dtype")
    check_shared(config, source_vocab_size, target_vocab_size)
    module = LanguageModel(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        features=model.hidden_size,
        stack=build_stack(model, dtype, causal=True),
        output=build_output(config, target_vocab_size),
        max_length=config.decode.max_length,
        share_embeddings=model.share_embeddings,
        continue_source=model.continue_source,
        bos=BOS,
        eos=EOS,
        dtype=dtype,
    )
    return Model(module)
