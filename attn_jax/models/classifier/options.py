"""From the config of a classifier to its module."""

from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.layers.pooling import MeanPooling, StructuredPooling
from attn_jax.models.attention_options import build_attention
from attn_jax.models.base import Model
from attn_jax.models.classifier.model import Classifier
from attn_jax.models.encoder_options import DTYPES, build_encoder, build_output, soft_reading
from attn_jax.tasks.vocabulary import EOS


def build_classifier(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> Model:
    """config.model as an encoder and a class."""
    model, dtype = config.model, lookup(DTYPES, config.dtype, "dtype")
    if model.tie_embeddings:
        raise UserError("model.tie_embeddings: a classifier has no embedding of its classes")
    pooling = lookup(POOLINGS, model.pooling, "model.pooling")(model)
    module = Classifier(
        source_vocab_size=source_vocab_size,
        embedding_size=model.hidden_size if model.encoder == "transformer" else model.embedding_size,
        encoder=build_encoder(config),
        pooling=pooling,
        output=build_output(config, target_vocab_size),
        features=model.readout_size,
        penalty=model.penalty if isinstance(pooling, StructuredPooling) else 0.0,  # its queries are kept apart
        dropout=model.dropout,
        eos=EOS,
        dtype=dtype,
    )
    return Model(module)


def build_structured(model: ConfigDict) -> StructuredPooling:
    """Learned queries that ask as config.model.attention says."""
    if model.attention.window != "global" or model.attention.normalize == "monotonic":
        raise UserError("model.pooling structured takes no window and no monotonic attention")
    width = model.attention.features if model.attention.score == "tanh_key" else model.hidden_size
    return StructuredPooling(
        attention=build_attention(model.attention, width, soft_reading(model)),
        num_queries=model.num_queries,
        features=width,
    )


POOLINGS = {"mean": lambda model: MeanPooling(), "structured": build_structured}
