"""From the config of a kernel regression to objects."""

from ml_collections import ConfigDict

from attn_jax.attention.kernels import KERNELS
from attn_jax.attention.readings import READINGS
from attn_jax.build_attention import build_attention
from attn_jax.errors import UserError, check_known
from attn_jax.models.kernel_regression import CRITERIA, KernelRegression, Projection
from attn_jax.parallel import choose
from attn_jax.regression import PointsEvaluator
from attn_jax.tasks.regression import PointsTask

STEP = 2**0.25  # between the widths of a mixture


def check_regression(config: ConfigDict) -> None:
    """UserError for whatever is wrong with the config of a regression, but for what needs the data."""
    model, attention = config.model, config.model.attention
    check_known(model.name, ("kernel_regression",), "model.name for task.name regression")
    check_known(attention.score, KERNELS, "model.attention.score for model.name kernel_regression")
    check_known(model.criterion, CRITERIA, "model.criterion")
    if attention.normalize != "kernel_sum" and (attention.score, attention.normalize) != ("gaussian", "softmax"):
        raise UserError(f"model.attention.normalize {attention.normalize}: a kernel regression needs kernel_sum")
    if not model.degrees or any(not isinstance(degree, int) or not 0 <= degree <= 5 for degree in model.degrees):
        raise UserError(
            f"model.degrees {tuple(model.degrees)}: expected one or more integers of 0 to 5, such as (0, 1)"
        )
    if attention.read != "expectation" or attention.window != "global":
        raise UserError("a kernel regression reads the expectation of all points: no model.attention.read nor window")
    if attention.score == "boxcar" and not attention.width and model.num_widths == 1:
        raise UserError("model.attention.score boxcar has no gradient; set model.attention.width, or model.num_widths")
    if model.projection_size and tuple(model.degrees) != (0,):
        raise UserError("model.projection_size needs model.degrees (0,): a polynomial is one of the inputs themselves")
    if config.train.microbatches != 1:
        raise UserError("train.microbatches: the points of a regression are not worked off in parts")
    if config.train.choose_seed:
        raise UserError(
            "train.choose_seed: each seed of a regression has points of its own, so there is none to choose"
        )
    if choose(config.parallel) != "single":
        raise UserError("a kernel regression trains on one device; set --config.parallel=single")


def build_kernel_regression(config: ConfigDict, features: int, count: int) -> KernelRegression:
    """config.model for `count` training points of so many inputs.

    A width that is learned starts at n^(-1 / (d + 4)), in standard deviations of each input (Scott 1992, equation
    6.42); those of a mixture are around it, two thirds of them wider.
    """
    model, size = config.model, config.model.num_widths
    compared = model.projection_size or features
    attention = build_attention(model.attention, compared, READINGS["expectation"])
    fixed = tuple(float(width) for width in model.attention.width)
    initial = fixed or (count ** (-1 / (compared + 4)),)
    score = KERNELS[model.attention.score](initial=initial, per_column=model.attention.per_column, exact=compared <= 16)
    first = size // 3 if size > 1 else 0
    return KernelRegression(
        attention=attention.clone(score=score),
        projection=Projection(model.projection_size, model.hidden_size) if model.projection_size else None,
        degrees=tuple(model.degrees),
        widths=tuple(STEP ** (i - first) for i in range(size)),
        criterion=model.criterion,
        fixed=bool(fixed),
        chunk=model.chunk,
    )


def build_points_evaluator(config: ConfigDict, task: PointsTask) -> PointsEvaluator:
    """The model of a config with the points that it reads."""
    train = task.splits["train"]
    model = build_kernel_regression(config, train.inputs.shape[-1], len(train))
    return PointsEvaluator(model, task, config.decode.batch_size, config.decode.with_scores)


__all__ = ["build_kernel_regression", "build_points_evaluator", "check_regression"]
