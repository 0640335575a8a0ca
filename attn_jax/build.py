"""From a config to objects: here and in build_attention.py are the strings of a config resolved."""

import inspect
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from ml_collections import ConfigDict

from attn_jax.attention import MultiHead
from attn_jax.attention.core import head_width
from attn_jax.attention.readings import READINGS, Reading
from attn_jax.build_attention import build_alignment, build_attention, construct, describe_attention
from attn_jax.build_regression import build_points_evaluator
from attn_jax.build_stories import STORY_MODELS, fit_memory
from attn_jax.errors import UserError, lookup
from attn_jax.evaluation import DecodeOptions, Evaluator
from attn_jax.models.classifier import Classifier, MeanPooling, StructuredPooling
from attn_jax.models.decoders import DECODERS
from attn_jax.models.encoders import Convolution
from attn_jax.models.language_model import LanguageModel
from attn_jax.models.model import Model
from attn_jax.models.positions import POSITIONS, NoPositions
from attn_jax.models.rnn import CELLS, RNN
from attn_jax.models.seq2seq import Seq2SeqModule
from attn_jax.models.stack import BRIDGES, Stack
from attn_jax.models.transformer import ACTIVATIONS, NORM_FIRST, Transformer, TransformerLayer, TransformerStack
from attn_jax.outputs import FullSoftmax
from attn_jax.regression import PointsEvaluator
from attn_jax.story_evaluation import StoryEvaluator
from attn_jax.tasks import TASKS, PointsTask, Task
from attn_jax.tasks.vocabulary import BOS, EOS
from attn_jax.types import Dtype

LARGEST = 2**31 - 1  # what an int32 holds
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def build_encoder(config: ConfigDict) -> nn.Module:
    """config.model.encoder: what turns embedded source tokens into states."""
    model, dtype = config.model, lookup(DTYPES, config.dtype, "dtype")
    return lookup(ENCODERS, model.encoder, "model.encoder")(model, dtype)


def build_rnn_encoder(model: ConfigDict, dtype: Dtype) -> RNN:
    """Recurrent layers, in one direction or both."""
    if model.bidirectional and model.hidden_size % 2:
        raise UserError(f"model.hidden_size {model.hidden_size} is odd; a bidirectional encoder halves it")
    return RNN(
        lookup(CELLS, model.cell, "model.cell"),
        model.hidden_size,
        model.num_layers,
        model.bidirectional,
        dropout=model.dropout,
        recurrent_dropout=model.recurrent_dropout,
        dtype=dtype,
    )


def build_convolution(model: ConfigDict, dtype: Dtype) -> Convolution:
    """Layers that each see a window of tokens."""
    if model.kernel_size % 2 == 0:
        raise UserError(f"model.kernel_size {model.kernel_size} is even; a window around a token is odd")
    features = model.hidden_size if model.name == "transformer" else model.embedding_size
    positions = build_positions(model, dtype, False, features)
    if model.positions not in ("none", "sinusoidal", "learned"):
        raise UserError(
            f"model.encoder conv has no attention that model.positions {model.positions} could be part of; "
            "expected none, sinusoidal or learned"
        )
    return Convolution(model.hidden_size, model.num_layers, model.kernel_size, positions, model.dropout, dtype)


def build_positions(model: ConfigDict, dtype: Dtype, causal: bool, features: int) -> NoPositions:
    """config.model.positions as a module, for embeddings of `features` columns."""
    kind = lookup(POSITIONS, model.positions, "model.positions")
    return kind(model.num_heads, features, model.max_length if kind.limited else 0, causal, dtype)


def build_stack(
    model: ConfigDict, dtype: Dtype, causal: bool = False, has_source: bool = False, num_layers: int = 0
) -> TransformerStack:
    """Transformer layers, each with attention as config.model.attention says."""
    width = head_width(model.hidden_size, model.num_heads, model.num_kv_heads)
    if model.name == "seq2seq" and model.embedding_size != model.hidden_size:
        raise UserError(
            f"model.encoder transformer needs model.embedding_size and model.hidden_size to be equal, got "
            f"{model.embedding_size} and {model.hidden_size}"
        )
    read = READINGS["expectation"] if model.name == "seq2seq" else soft_reading(model)
    if model.attention.window != "global" or model.attention.normalize == "monotonic":
        raise UserError("a Transformer takes no model.attention.window, and no model.attention.normalize monotonic")
    activation = lookup(ACTIVATIONS, model.activation, "model.activation")
    norm_first = lookup(NORM_FIRST, model.norm, "model.norm")
    positions = build_positions(model, dtype, causal, model.hidden_size)
    if positions.rotary and width % 2:
        raise UserError(f"model.positions rotary needs heads of even width, got {width}")

    def make_attention(num_scaled: int = 0) -> MultiHead:
        attention = build_attention(model.attention, width, read, model.num_heads, num_scaled)
        return MultiHead(attention, model.num_heads, model.hidden_size, model.num_kv_heads, dtype=dtype)

    layer = nn.remat(TransformerLayer, static_argnums=(8,)) if model.remat else TransformerLayer
    return TransformerStack(
        make_layer=partial(
            layer,
            partial(make_attention, positions.num_scaled),
            model.hidden_size,
            model.feed_forward_size,
            make_attention if has_source else None,
            norm_first,
            positions.rotary,
            activation,
            model.dropout,
            dtype,
        ),
        positions=positions,
        num_layers=num_layers or model.num_layers,
        features=model.hidden_size,
        norm_first=norm_first,
        causal=causal,
        dropout=model.dropout,
        dtype=dtype,
    )


def soft_reading(model: ConfigDict) -> Reading:
    """The reading of a model whose attention is not latent."""
    reading = lookup(READINGS, model.attention.read, "model.attention.read")
    if model.attention.transition != "independent":
        raise UserError(f"model.attention.transition {model.attention.transition} needs model.name seq2seq")
    if model.objective != "soft" or reading.name not in ("expectation", "top"):
        raise UserError(
            f"model.name {model.name} needs model.objective soft and model.attention.read expectation or top, got "
            f"{model.objective} and {reading.name}; sampled attention is trained by model.name seq2seq"
        )
    if reading.name == "top":
        reading = reading.configure(num_samples=model.attention.num_samples)
    return reading


def build_output(config: ConfigDict, vocab_size: int) -> FullSoftmax:
    """The output layer."""
    dtype = lookup(DTYPES, config.dtype, "dtype")
    return FullSoftmax(vocab_size, config.model.tie_embeddings, config.train.label_smoothing, dtype)


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
    return StructuredPooling(build_attention(model.attention, width, soft_reading(model)), model.num_queries, width)


def build_seq2seq(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> Model:
    """config.model as a sequence-to-sequence model."""
    model = config.model
    dtype = lookup(DTYPES, config.dtype, "dtype")
    cell = lookup(CELLS, model.cell, "model.cell")
    decoder = lookup(DECODERS, model.decoder, "model.decoder")
    sutskever = model.decoder == "none" and not model.feed_summary
    width = "hidden_size" if sutskever else "readout_size"  # of what the output layer takes
    if model.tie_embeddings and model.embedding_size != model[width]:
        raise UserError(
            f"model.tie_embeddings needs model.embedding_size and model.{width} to be equal, "
            f"got {model.embedding_size} and {model[width]}"
        )
    if model.share_embeddings:
        raise UserError("model.share_embeddings is for model.name transformer and language_model; seq2seq has two")
    if model.bridge == "copy" and model.encoder != "rnn" and model.num_layers > 1:
        raise UserError(
            f"model.bridge copy needs a last state of each of model.num_layers {model.num_layers} layers; "
            f"model.encoder {model.encoder} has one; use dense, hidden or zeros"
        )
    read, alignment = build_alignment(config)
    attention = None if model.decoder == "none" else build_attention(model.attention, model.hidden_size, read)
    own = None
    if model.self_attention:
        latent = model.objective != "soft" or model.attention.transition != "independent"
        if model.decoder != "luong" or model.input_feeding or latent or attention.monotonic or attention.window:
            raise UserError(
                "model.self_attention of a recurrent decoder needs model.decoder luong, model.input_feeding False, "
                "model.objective soft, and neither model.attention.window nor monotonic attention"
            )
        own = build_attention(model.attention, model.hidden_size, READINGS["expectation"])
    options = {
        "input_feeding": model.input_feeding,
        "feed_summary": model.feed_summary,
        "attention": attention,
        "self_attention": own,
        "max_length": config.decode.max_length,
        "features": model.readout_size,
    }
    common = dict(cell=cell, features=model.hidden_size, num_layers=model.num_layers, dtype=dtype)
    common |= dict(dropout=model.dropout, recurrent_dropout=model.recurrent_dropout)
    # What a step reads besides the embedded token: nothing, the hidden state before, the context, or the summary.
    extra = {"none": model.feed_summary, "luong": model.input_feeding}.get(model.decoder, True)
    stack = Stack(bridge=lookup(BRIDGES, model.bridge, "model.bridge"), has_extra=extra, **common)
    module = Seq2SeqModule(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        embedding_size=model.embedding_size,
        encoder=build_encoder(config),
        decoder=construct(decoder, options | {"stack": stack}),
        output=build_output(config, target_vocab_size),
        alignment=alignment,
        dropout=model.dropout,
        dtype=dtype,
    )
    return Model(module)


ENCODERS = {"rnn": build_rnn_encoder, "conv": build_convolution, "transformer": build_stack}
POOLINGS = {"mean": lambda model: MeanPooling(), "structured": build_structured}
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
    width = head_width(model.hidden_size, model.num_heads) if heads else model.hidden_size
    read = build_alignment(config)[0] if model.name == "seq2seq" and not heads else READINGS[model.attention.read]
    attention = build_attention(model.attention, width, read)
    return describe_attention(attention, DTYPES[config.dtype], width)


def build_task(config: ConfigDict, kept: Any = None) -> Task | PointsTask:
    """config.task and config.data_dir as a Task; `kept` is what a run has kept of its data, see Task.kept."""
    if isinstance(kept, PointsTask):
        return kept
    build = lookup(TASKS, config.task.name, "task.name")
    given = config.task.to_dict() | {
        "data_dir": config.data_dir,
        "vocabularies": kept,
        "seeds": config.seeds or (config.seed,),
    }
    takes = inspect.signature(build).parameters
    return build(**{name: value for name, value in given.items() if name in takes})


def check_beam(options: DecodeOptions, vocab_size: int) -> None:
    """UserError for a beam search over more candidates than an int32 numbers."""
    if options.method == "beam" and options.beam_size * vocab_size > LARGEST:
        raise UserError(
            f"decode.beam_size {options.beam_size} times {vocab_size:,} target tokens are more candidates than can be "
            f"searched; expected a decode.beam_size of at most {LARGEST // vocab_size}"
        )


def build_evaluator(config: ConfigDict, kept: Any) -> Evaluator | PointsEvaluator:
    """The model of a config with what it needs of the data (its vocabularies, its points), ready to be measured."""
    if config.task.name == "regression":
        return build_points_evaluator(config, kept)
    config = fit_memory(config, kept[0]) if config.model.name in STORY_MODELS else config
    model = lookup(MODELS, config.model.name, "model.name")(config, *map(len, kept))
    options = DecodeOptions(**config.decode.to_dict())
    check_beam(options, len(kept[1]))
    common = (model, *kept, options, config.task.buckets, config.seed)
    if config.model.name in STORY_MODELS:
        return StoryEvaluator(*common, max_sentences=config.task.max_sentences)
    return Evaluator(*common)
