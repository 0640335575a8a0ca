"""Options of evaluation."""

import dataclasses

from attn_jax.parts import Options, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointEvalOptions(Options):
    """Options of evaluating a kernel regression."""

    metrics: tuple = option(("mse",), "metrics to compute on the test split", each=str)
    num_pictures: int = option(8, "number of pictures to plot at the end of a run", at_least=0, affects="nothing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalOptions(PointEvalOptions):
    """Options of evaluating a text model."""

    metrics: tuple = option(
        ("perplexity", "bleu", "chrf", "exact_match", "accuracy"),
        "metrics to compute on the test split",
        each=str,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageEvalOptions(PointEvalOptions):
    """Options of evaluating a task without sources, which has no outputs to compare with references."""

    metrics: tuple = option(("perplexity", "accuracy"), "metrics to compute on the test split", each=str)
