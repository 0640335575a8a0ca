"""From the config of a recurrent sequence-to-sequence model to its module."""

from ml_collections import ConfigDict

from attn_jax.attention import NORMALIZERS, SCORES, WINDOWS
from attn_jax.attention.hard.baselines import BASELINES, NoBaseline
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.hard.readings import READINGS, Reading
from attn_jax.attention.normalizers import sums_to_one
from attn_jax.errors import UserError, check_known, lookup
from attn_jax.layers.rnn import CELLS, RNN
from attn_jax.models.attention_options import build_attention, construct
from attn_jax.models.base import Model
from attn_jax.models.encoder_options import DTYPES, build_encoder, build_output
from attn_jax.models.seq2seq.decoders import DECODERS
from attn_jax.models.seq2seq.model import Seq2SeqModule
from attn_jax.models.seq2seq.objectives import (
    ElboAlignment,
    HardAlignment,
    InferenceNetwork,
    MarginalAlignment,
    MarkovAlignment,
    SoftAlignment,
    TrajectoryAlignment,
)
from attn_jax.models.seq2seq.recurrent_stack import BRIDGES, Stack


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


SAMPLED = [name for name, reading in READINGS.items() if reading.random or not reading.per_step]
OBJECTIVES = {
    "soft": [name for name in READINGS if name not in SAMPLED],
    "hard": SAMPLED,
    "marginal": [name for name, reading in READINGS.items() if reading.exact_rows or reading.independent],
    "elbo": SAMPLED,
}
FEEDS = ("mean", "read")
TRANSITIONS = ("independent", "monotonic", "first_order", "monotonic_first_order")


def build_alignment(config: ConfigDict) -> tuple[Reading, SoftAlignment]:
    """(what the decoder reads with, how the loss is made) of model.objective, reading, baseline and transition."""
    model, options = config.model, config.model.attention
    allowed = lookup(OBJECTIVES, model.objective, "model.objective")
    check_known(options.transition, TRANSITIONS, "model.attention.transition")
    check_known(options.feed, FEEDS, "model.attention.feed")
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
    normalizers = NORMALIZERS | {"monotonic": MonotonicSelection}
    unnormalized = {
        "window": [name for name, window in WINDOWS.items() if not sums_to_one(window)],
        "normalize": [name for name, normalize in normalizers.items() if not sums_to_one(normalize)],
        "score": [name for name, score in SCORES.items() if score.compact],
    }
    for name, values in unnormalized.items():
        if options[name] in values:
            raise UserError(
                f"model.objective {model.objective} needs weights that sum to one; those of model.attention.{name} "
                f"{options[name]} need not"
            )
    fields = {"features": options.features, "max_length": options.max_length}
    module = construct(BASELINES[baseline], fields)
    if options.feed == "read":
        return build_trajectories(model, reading, baseline, module)
    kind = {"hard": HardAlignment, "marginal": MarginalAlignment, "elbo": ElboAlignment}[model.objective]
    network = {"inference": build_inference(model)} if kind is ElboAlignment else {}
    fields = dict(reading=reading, baseline=module, soft_baseline=baseline == "soft", k_max=options.k_max)
    return READINGS["expectation"], kind(**fields, **network)


def choose_baseline(model: ConfigDict, reading: Reading) -> str:
    """model.attention.baseline; "default" is the learned one where the reading can use one."""
    name = model.attention.baseline
    check_known(name, (*BASELINES, "default"), "model.attention.baseline")
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
    return reading.configure(**{name: value for name, value in given.items() if name in reading.options})


def build_markov(model: ConfigDict, reading: Reading) -> MarkovAlignment:
    """Alignments that depend on the one before, summed out exactly."""
    transition = model.attention.transition
    if model.objective != "marginal" or not reading.exact_rows:
        raise UserError(
            f"model.attention.transition {transition} is summed out exactly; it needs model.objective marginal and "
            f"model.attention.read enumeration, got {model.objective} and {reading.name}"
        )
    if model.decoder != "luong" or model.input_feeding:
        raise UserError(
            f"model.attention.transition {transition} needs a state that knows nothing of the attention: "
            "model.decoder luong and model.input_feeding False"
        )
    needed = {"normalize": "softmax", "window": "global", "feed": "mean", "k_max": 0}
    for name, value in needed.items():
        if model.attention[name] != value:
            raise UserError(
                f"model.attention.transition {transition} sums over all keys by their scores; it needs "
                f"model.attention.{name} {value}, got {model.attention[name]}"
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
    if not reading.independent:
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
