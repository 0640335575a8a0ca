"""From the options of a recurrent sequence-to-sequence model to its objective: reading, baseline, what is checked."""

from collections.abc import Callable

from attn_jax.attention import READINGS
from attn_jax.attention.hard.baselines import BASELINES, NoBaseline
from attn_jax.attention.hard.readings import Reading
from attn_jax.errors import UserError
from attn_jax.models.attention_options import DETERMINISTIC, configured, make
from attn_jax.models.pointer_options import unlike_probabilities
from attn_jax.models.seq2seq.decoder_base import Decoder
from attn_jax.models.seq2seq.latent_attention import TRANSITIONS, LatentAttentionOptions
from attn_jax.models.seq2seq.objectives import (
    ElboObjective,
    HardObjective,
    InferenceNetwork,
    MarginalObjective,
    MarkovObjective,
    SoftObjective,
    TrajectoryObjective,
)

SAMPLED = tuple(name for name in READINGS if name not in DETERMINISTIC)
# model.objective -> names of the readings that it can use.
OBJECTIVES = {"soft": DETERMINISTIC, "hard": SAMPLED, "marginal": ("enumeration", "reinforce"), "elbo": SAMPLED}
LATENT = {"hard": HardObjective, "marginal": MarginalObjective, "elbo": ElboObjective}


def build_objective(
    name: str, attention: LatentAttentionOptions, decoder: Decoder, network: Callable[[], InferenceNetwork]
) -> tuple[Reading, SoftObjective]:
    """Builds (reading of the decoder, objective).

    Args:
        name: of OBJECTIVES.
        attention: with its options read, baseline, feed and transition.
        decoder: without attention yet.
        network: builds the inference network, for objective "elbo".

    Raises:
        UserError: options do not go together.
    """
    reading = READINGS[attention.read]
    if attention.read not in (allowed := OBJECTIVES[name]):
        raise UserError(
            f"model.objective {name} cannot use model.attention.read {attention.read}; it can use {', '.join(allowed)}"
        )
    baseline = choose_baseline(name, attention, reading)
    reading = configure_reading(attention, reading, baseline)
    if TRANSITIONS[attention.transition] is not None:
        return READINGS["expectation"], build_markov(name, attention, decoder, reading)
    if name not in LATENT:
        return reading, SoftObjective()
    if not decoder.uses_attention:
        raise UserError(f"model.objective {name} needs attention, but model.decoder is none")
    check_sum(name, attention)
    module = make(BASELINES[baseline], {"features": attention.features, "max_length": attention.max_length})
    if attention.feed != "mean":
        return build_trajectories(name, attention, reading, baseline, module)
    kind = LATENT[name]
    own = {"inference": network()} if kind is ElboObjective else {}
    fields = dict(
        reading=reading,
        baseline=module,
        soft_baseline=baseline == "soft",
        k_max=attention.k_max,
        soft_steps=attention.soft_steps,
        cooling=attention.cooling if "temperature" in reading.options else None,
    )
    return READINGS["expectation"], kind(**fields, **own)


def check_sum(name: str, attention: LatentAttentionOptions) -> None:
    """Checks that the weights sum to one, as the probabilities of latent contexts have to.

    Raises:
        UserError: window, normalizer or score give weights that need not sum to one.
    """
    if found := unlike_probabilities(attention):
        raise UserError(f"model.objective {name} needs weights that sum to one; those of {found} need not")


def choose_baseline(objective: str, attention: LatentAttentionOptions, reading: Reading) -> str:
    """Returns the name of the baseline; "default" means learned if the reading can use it, else none.

    Raises:
        UserError: the reading or the objective cannot use this baseline.
    """
    name = attention.baseline
    if name == "default":
        return "learned" if "learned" in reading.baselines and objective in LATENT else "none"
    per_key = BASELINES[name].of_each_key and objective == "marginal"
    if name not in reading.baselines or per_key:
        raise UserError(
            f"model.attention.read {reading.name} cannot use model.attention.baseline {name} for model.objective "
            f"{objective}; it can use {', '.join(reading.baselines)}"
        )
    return name


def configure_reading(attention: LatentAttentionOptions, reading: Reading, baseline: str) -> Reading:
    """Configures the reading with the options that it takes and, if chosen, the leave-one-out baseline."""
    given = {"num_samples": attention.num_samples, "temperature": attention.temperature}
    if baseline == "leave_one_out":
        if attention.num_samples < 2:
            raise UserError(
                "model.attention.baseline leave_one_out needs model.attention.num_samples of at least 2, got "
                f"{attention.num_samples}"
            )
        given["leave_one_out"] = True
    return configured(reading, **given)


def build_markov(
    objective: str, attention: LatentAttentionOptions, decoder: Decoder, reading: Reading
) -> MarkovObjective:
    """Builds the objective of a Markov chain of contexts, summed out exactly."""
    if objective != "marginal" or not reading.exact_rows:
        raise UserError(
            f"model.attention.transition {attention.transition} is summed out exactly; it needs model.objective "
            f"marginal and model.attention.read enumeration, got {objective} and {reading.name}"
        )
    if not decoder.uses_attention or decoder.feeds_attention:
        raise UserError(
            f"model.attention.transition {attention.transition} needs a state that knows nothing of the attention: "
            "model.decoder luong and model.input_feeding False"
        )
    plain = {"normalize": "softmax", "window": "global", "feed": "mean", "k_max": 0, "top_keys": 0, "iterations": 1}
    for name, value in (plain | {"fit": "mean", "difference": False, "dropout": 0.0}).items():
        if getattr(attention, name) != value:
            raise UserError(
                f"model.attention.transition {attention.transition} sums over all keys by their scores; it needs "
                f"model.attention.{name} {value}, got {getattr(attention, name)}"
            )
    monotonic, jumps = TRANSITIONS[attention.transition]
    return MarkovObjective(monotonic=monotonic, jump_size=attention.jump_size if jumps else 0)


def build_trajectories(
    objective: str, attention: LatentAttentionOptions, reading: Reading, baseline: str, module: NoBaseline
) -> tuple[Reading, TrajectoryObjective]:
    """Builds hard attention with samples that enter the decoder state."""
    if objective != "hard" or not reading.per_step:
        readings = ", ".join(name for name in OBJECTIVES["hard"] if READINGS[name].per_step)
        raise UserError(
            f"model.attention.feed read needs model.objective hard and one of the readings {readings}; "
            f"got {objective} and {reading.name}"
        )
    if baseline == "soft" or BASELINES[baseline].of_each_key:
        raise UserError(
            f"model.attention.feed read cannot use model.attention.baseline {baseline}; it can use "
            "none, running_mean, learned, leave_one_out"
        )
    fields = dict(baseline=module, mean_probability=attention.mean_probability, soft_steps=attention.soft_steps)
    if "leave_one_out" not in reading.options:
        return reading, TrajectoryObjective(**fields)
    one = reading.configure(num_samples=1, leave_one_out=False)
    several, own = attention.num_samples, baseline == "leave_one_out"
    return one, TrajectoryObjective(num_trajectories=several, leave_one_out=own, **fields)
