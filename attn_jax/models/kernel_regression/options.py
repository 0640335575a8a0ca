"""From the config of a kernel regression to objects."""

from ml_collections import ConfigDict

from attn_jax.attention.hard.readings import READINGS
from attn_jax.attention.scores.kernels import KERNELS
from attn_jax.errors import lookup
from attn_jax.models.attention_options import build_attention
from attn_jax.models.kernel_regression.criteria import CRITERIA
from attn_jax.models.kernel_regression.model import KernelRegression, Projection

STEP = 2**0.25  # between the widths of a mixture


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
        projection=Projection(features=model.projection_size, hidden_size=model.hidden_size)
        if model.projection_size
        else None,
        degrees=tuple(model.degrees),
        widths=tuple(STEP ** (i - first) for i in range(size)),
        criterion=lookup(CRITERIA, model.criterion, "model.criterion"),
        fixed=bool(fixed),
        chunk=model.chunk,
    )
