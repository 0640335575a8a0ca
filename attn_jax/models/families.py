"""The families of models, by name."""

from ml_collections import ConfigDict

from attn_jax.attention.hard.readings import READINGS
from attn_jax.models.attention_options import build_attention, describe_attention, width_of_head
from attn_jax.models.classifier.options import build_classifier
from attn_jax.models.encoder_options import DTYPES
from attn_jax.models.memory_networks.options import STORY_MODELS
from attn_jax.models.seq2seq.options import build_alignment, build_seq2seq
from attn_jax.models.transformer.options import build_language_model, build_transformer

MODELS = {
    "seq2seq": build_seq2seq,
    "transformer": build_transformer,
    "language_model": build_language_model,
    "classifier": build_classifier,
    **STORY_MODELS,
}


def describe(config: ConfigDict) -> str:
    """How the attention of a model is computed; "" where there is none."""
    model = config.model
    if model.name in STORY_MODELS or config.task.name == "regression":
        return ""
    heads = "transformer" in (model.name, model.encoder) or model.name == "language_model"
    structured = model.name == "classifier" and model.pooling == "structured"
    if not heads and not structured and (model.name == "classifier" or model.decoder == "none"):
        return ""
    width = width_of_head(model.hidden_size, model.num_heads) if heads else model.hidden_size
    read = build_alignment(config)[0] if model.name == "seq2seq" and not heads else READINGS[model.attention.read]
    attention = build_attention(model.attention, width, read)
    return describe_attention(attention, DTYPES[config.dtype], width)
