"""From a config to objects: the only file that resolves the strings of a config."""

import inspect
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, WINDOWS, Attention
from attn_jax.attention.monotonic import MonotonicSelection
from attn_jax.attention.normalizers import softmax
from attn_jax.attention.readings import Reading
from attn_jax.errors import UserError, lookup
from attn_jax.evaluation import DecodeOptions, Evaluator
from attn_jax.models.alignments import (
    InferenceNetwork,
    LatentAlignment,
    MarkovAlignment,
    SoftAlignment,
    TrajectoryAlignment,
)
from attn_jax.models.baselines import BASELINES, NoBaseline
from attn_jax.models.decoders import BRIDGES, DECODERS, Stack
from attn_jax.models.rnn import CELLS, RNN
from attn_jax.models.seq2seq import Seq2Seq, Seq2SeqModule
from attn_jax.outputs import FullSoftmax
from attn_jax.tasks import TASKS, Task
from attn_jax.tasks.vocabulary import Vocabulary

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
SAMPLED = [name for name in READINGS if name not in ("expectation", "top")]
OBJECTIVES = {
    "soft": ["expectation", "top"],
    "hard": SAMPLED,
    "marginal": ["enumeration", "reinforce"],
    "elbo": SAMPLED,
}
FEEDS = dict.fromkeys(("mean", "read"))
TRANSITIONS = dict.fromkeys(("independent", "monotonic", "first_order", "monotonic_first_order"))


def build_attention(config: ConfigDict, query_features: int, read: Reading) -> Attention:
    """config.model.attention as a module; `query_features` is the width of the states that ask."""
    score = lookup(SCORES, config.score, "model.attention.score")
    window = None if config.window == "global" else lookup(WINDOWS, config.window, "model.attention.window")
    monotonic = config.normalize == "monotonic"
    if monotonic and window is not None:
        raise UserError("model.attention.normalize monotonic takes no model.attention.window")
    options = {
        "query_features": query_features,
        "features": config.features,
        "max_length": config.max_length,
        "size": config.window_size,
    }
    normalize = lookup(NORMALIZERS | {"monotonic": softmax}, config.normalize, "model.attention.normalize")
    return Attention(
        score=_construct(score, options),
        normalize=normalize,
        read=read,
        window=window and _construct(window, options),
        monotonic=MonotonicSelection() if monotonic else None,
    )


def build_alignment(config: ConfigDict) -> tuple[Reading, SoftAlignment]:
    """(what the decoder reads with, how the loss is made) of model.objective, reading, baseline and transition."""
    model, options = config.model, config.model.attention
    allowed = lookup(OBJECTIVES, model.objective, "model.objective")
    lookup(TRANSITIONS, options.transition, "model.attention.transition")
    lookup(FEEDS, options.feed, "model.attention.feed")
    reading = lookup(READINGS, options.read, "model.attention.read")
    if reading.name not in allowed:
        raise UserError(
            f"model.objective {model.objective} cannot use model.attention.read {reading.name}; "
            f"it can use {', '.join(allowed)}"
        )
    baseline = choose_baseline(model, reading)
    reading = configure_reading(options, reading, baseline)
    if options.transition != "independent":
        return READINGS["expectation"], build_markov(model, reading)
    if model.objective == "soft":
        return reading, SoftAlignment()
    if model.decoder == "none":
        raise UserError(f"model.objective {model.objective} needs attention, but model.decoder is none")
    for name, values in {"window": ("local_p",), "normalize": ("linear", "monotonic")}.items():
        if options[name] in values:
            raise UserError(
                f"model.objective {model.objective} needs weights that sum to one; those of model.attention.{name} "
                f"{options[name]} need not"
            )
    fields = {"features": options.features, "max_length": options.max_length}
    module = _construct(BASELINES[baseline], fields)
    if options.feed == "read":
        return build_trajectories(model, reading, baseline, module)
    alignment = LatentAlignment(
        reading=reading,
        objective=model.objective,
        baseline=module,
        soft_baseline=baseline == "soft",
        inference=build_inference(model) if model.objective == "elbo" else None,
        k_max=options.k_max,
    )
    return READINGS["expectation"], alignment


def choose_baseline(model: ConfigDict, reading: Reading) -> str:
    """model.attention.baseline; "default" is the learned one where the reading can use one."""
    name = model.attention.baseline
    lookup(BASELINES | {"default": None}, name, "model.attention.baseline")
    if name == "default":
        return "learned" if "learned" in reading.baselines and model.objective != "soft" else "none"
    if name not in reading.baselines or (model.objective == "marginal" and name in ("per_coordinate", "critic")):
        raise UserError(
            f"model.attention.read {reading.name} cannot use model.attention.baseline {name} for model.objective "
            f"{model.objective}; it can use {', '.join(reading.baselines)}"
        )
    return name


def configure_reading(options: ConfigDict, reading: Reading, baseline: str) -> Reading:
    """The reading with those options of model.attention that it takes and, for leave-one-out, its own baseline."""
    given = {"num_samples": options.num_samples, "temperature": options.temperature}
    if baseline == "leave_one_out":
        if options.num_samples < 2:
            raise UserError(
                "model.attention.baseline leave_one_out needs model.attention.num_samples of at least 2, got "
                f"{options.num_samples}"
            )
        given["leave_one_out"] = True
    takes = inspect.signature(reading.function).parameters
    return reading.configure(**{name: value for name, value in given.items() if name in takes})


def build_markov(model: ConfigDict, reading: Reading) -> MarkovAlignment:
    """Alignments that depend on the one before, summed out exactly."""
    transition = model.attention.transition
    if model.objective != "marginal" or reading.name != "enumeration":
        raise UserError(
            f"model.attention.transition {transition} is summed out exactly; it needs model.objective marginal and "
            f"model.attention.read enumeration, got {model.objective} and {reading.name}"
        )
    if model.decoder != "luong" or model.input_feeding:
        raise UserError(
            f"model.attention.transition {transition} needs a state that knows nothing of the attention: "
            "model.decoder luong and model.input_feeding False"
        )
    jump_size = model.attention.jump_size if "first_order" in transition else 0
    return MarkovAlignment(monotonic="monotonic" in transition, jump_size=jump_size)


def build_trajectories(
    model: ConfigDict, reading: Reading, baseline: str, module: NoBaseline
) -> tuple[Reading, TrajectoryAlignment]:
    """Hard attention whose samples enter the decoder's state."""
    if model.objective != "hard" or not reading.per_step:
        readings = ", ".join(name for name in OBJECTIVES["hard"] if READINGS[name].per_step)
        raise UserError(
            f"model.attention.feed read needs model.objective hard and one of the readings {readings}; "
            f"got {model.objective} and {reading.name}"
        )
    if baseline in ("soft", "per_coordinate", "critic"):
        raise UserError(
            f"model.attention.feed read cannot use model.attention.baseline {baseline}; it can use "
            "none, running_mean, learned, leave_one_out"
        )
    if reading.name != "reinforce":
        return reading, TrajectoryAlignment(baseline=module)
    several, own = model.attention.num_samples, baseline == "leave_one_out"
    one = reading.configure(num_samples=1, leave_one_out=False)
    return one, TrajectoryAlignment(num_trajectories=several, leave_one_out=own, baseline=module)


def build_inference(model: ConfigDict) -> InferenceNetwork:
    """The network of the ELBO that sees the target."""
    if model.inference_size < 2 or model.inference_size % 2:
        raise UserError(
            "model.objective elbo needs an inference network: set model.inference_size to an even number of at "
            f"least 2, got {model.inference_size}"
        )
    rnn = RNN(lookup(CELLS, model.cell, "model.cell"), model.inference_size, bidirectional=True)
    return InferenceNetwork(rnn, SCORES["general"](query_features=model.inference_size))


def build_seq2seq(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    """config.model as a sequence-to-sequence model."""
    model = config.model
    dtype = lookup(DTYPES, config.dtype, "dtype")
    cell = lookup(CELLS, model.cell, "model.cell")
    decoder = lookup(DECODERS, model.decoder, "model.decoder")
    if model.bidirectional and model.hidden_size % 2:
        raise UserError(f"model.hidden_size {model.hidden_size} is odd; a bidirectional encoder halves it")
    sutskever = model.decoder == "none" and not model.feed_summary
    width = "hidden_size" if sutskever else "readout_size"  # of what the output layer takes
    if model.tie_embeddings and model.embedding_size != model[width]:
        raise UserError(
            f"model.tie_embeddings needs model.embedding_size and model.{width} to be equal, "
            f"got {model.embedding_size} and {model[width]}"
        )
    read, alignment = build_alignment(config)
    options = {
        "input_feeding": model.input_feeding,
        "feed_summary": model.feed_summary,
        "attention": None if model.decoder == "none" else build_attention(model.attention, model.hidden_size, read),
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
        encoder=RNN(bidirectional=model.bidirectional, **common),
        decoder=_construct(decoder, options | {"stack": stack}),
        output=FullSoftmax(target_vocab_size, model.tie_embeddings, config.train.label_smoothing, dtype),
        alignment=alignment,
        dropout=model.dropout,
        dtype=dtype,
    )
    return Seq2Seq(module)


MODELS = {"seq2seq": build_seq2seq}


def build_task(config: ConfigDict, vocabularies: tuple[Vocabulary, Vocabulary] | None = None) -> Task:
    """config.task and config.data_dir as a Task."""
    fields = config.task.to_dict()
    for field in ("name", "buckets", "batch_size", "batch_unit"):
        fields.pop(field)
    build = lookup(TASKS, config.task.name, "task.name")
    return build(data_dir=config.data_dir, vocabularies=vocabularies, **fields)


def build_evaluator(config: ConfigDict, vocabularies: tuple[Vocabulary, Vocabulary]) -> Evaluator:
    """The model of a config between its vocabularies, ready to be measured."""
    model = lookup(MODELS, config.model.name, "model.name")(config, *map(len, vocabularies))
    options = DecodeOptions(**config.decode.to_dict())
    return Evaluator(model, *vocabularies, options, config.task.buckets, config.seed)


def _construct(kind: type, options: dict[str, Any]) -> Any:
    """kind(...) with those options that it has a field for."""
    return kind(**{name: value for name, value in options.items() if name in kind.__dataclass_fields__})
