"""From config.model.attention, and what the loss makes of it, to objects."""

import inspect
from typing import Any

import jax
from ml_collections import ConfigDict

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, WINDOWS, Attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.kernels import KERNELS, Kernel, check_width
from attn_jax.attention.monotonic import MonotonicSelection
from attn_jax.attention.normalizers import softmax
from attn_jax.attention.readings import Reading
from attn_jax.errors import UserError, check_known, lookup
from attn_jax.models.alignments import (
    ElboAlignment,
    HardAlignment,
    InferenceNetwork,
    MarginalAlignment,
    MarkovAlignment,
    SoftAlignment,
    TrajectoryAlignment,
)
from attn_jax.models.baselines import BASELINES, NoBaseline
from attn_jax.models.rnn import CELLS, RNN
from attn_jax.types import Dtype

SAMPLED = [name for name in READINGS if name not in ("expectation", "top")]
OBJECTIVES = {
    "soft": ["expectation", "top"],
    "hard": SAMPLED,
    "marginal": ["enumeration", "reinforce"],
    "elbo": SAMPLED,
}
FEEDS = ("mean", "read")
TRANSITIONS = ("independent", "monotonic", "first_order", "monotonic_first_order")


def build_attention(
    config: ConfigDict,
    query_features: int,
    read: Reading,
    num_heads: int = 1,
    num_scaled: int = 0,
    scores: dict[str, type] = SCORES,
    normalizers: dict[str, Any] = NORMALIZERS,
    **more: Any,
) -> Attention:
    """config.model.attention as a module; `query_features` is the width of the states that ask, or of a head.

    `num_scaled` heads, the first ones, are scaled by a scalable normalizer; 0: all. What there is to choose from is in
    `scores` and `normalizers`; a field of one of them has its value from `more`, or else from the config.
    """
    score = lookup(scores, config.score, "model.attention.score")
    window = None if config.window == "global" else lookup(WINDOWS, config.window, "model.attention.window")
    monotonic = config.normalize == "monotonic"
    if monotonic and window is not None:
        raise UserError("model.attention.normalize monotonic takes no model.attention.window")
    options = config.to_dict() | {
        "query_features": query_features,
        "size": config.window_size,
        "num_heads": num_heads,
        "num_scaled": num_scaled,
        **more,
    }
    if issubclass(score, Kernel):
        check_kernel(score, config, query_features)
    normalize = lookup(normalizers | {"monotonic": softmax}, config.normalize, "model.attention.normalize")
    return Attention(
        score=construct(score, options),
        normalize=construct(normalize, options) if isinstance(normalize, type) else normalize,
        read=read,
        window=window and construct(window, options),
        monotonic=MonotonicSelection() if monotonic else None,
        dropout=config.dropout,
    )


def check_kernel(score: type[Kernel], config: ConfigDict, features: int) -> None:
    """UserError for a width that is none, and where a query out of the reach of all keys would have weights of NaN."""
    if config.width:
        check_width(config.width, features)
    if score.compact and config.normalize != "kernel_sum":
        raise UserError(
            f"model.attention.score {config.score} is -inf for keys out of its reach; it needs "
            f"model.attention.normalize kernel_sum, got {config.normalize}"
        )


def describe_attention(attention: Attention, dtype: Dtype, width: int) -> str:
    """How the context is computed: by which fused kernel, or as the formula is written."""
    if not attention.fusible:
        return "as written: read(normalize(score(query, keys)), values)"
    kernel = {"cudnn": "cuDNN", "xla": f"XLA on {jax.default_backend()}"}[implementation_of(dtype, width)]
    return f"fused, {kernel}" + (
        ", but as written in training, for the dropout of weights" if attention.dropout else ""
    )


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
    compact = tuple(name for name, kernel in KERNELS.items() if kernel.compact)
    unnormalized = {"window": tuple(WINDOWS), "normalize": ("linear", "rela", "monotonic"), "score": compact}
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


def construct(kind: type, options: dict[str, Any]) -> Any:
    """kind(...) with those options that it has a field for."""
    return kind(**{name: value for name, value in options.items() if name in kind.__dataclass_fields__})
