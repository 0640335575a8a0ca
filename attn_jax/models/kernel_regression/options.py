"""Options of kernel regression."""

import dataclasses
from typing import ClassVar

from attn_jax.attention.scores import KERNELS
from attn_jax.errors import UserError
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.models.kernel_regression.criteria import CRITERIA
from attn_jax.models.kernel_regression.model import KernelRegression, Projection
from attn_jax.models.setting import Setting
from attn_jax.options import option, section
from attn_jax.tasks.sizes import PointSizes

STEP = 2**0.25  # ratio of neighbouring widths in a mixture
LARGEST_DEGREE = 5
EXACT_COLUMNS = 16  # up to this width distances are squared differences; beyond it, a matrix product


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """Options of the kernel."""

    score: str = option("gaussian", "kernel function", choices=KERNELS)
    normalize: str = option(
        "kernel_sum",
        "normalizer: Nadaraya-Watson weights; softmax is the same for a gaussian kernel",
        choices=("kernel_sum", "softmax"),
    )
    width: tuple = option((), "width, one number or one per column; (): learned", each=float)
    per_column: bool = option(False, "learn one width per column")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelRegressionOptions:
    """Options of kernel regression."""

    sizes: ClassVar[type] = PointSizes
    has_label_smoothing: ClassVar[bool] = False
    reads_stories: ClassVar[bool] = False
    continue_source: ClassVar[bool] = False
    has_weights: ClassVar[bool] = True
    main_attention: ClassVar[None] = None

    name: str = option("kernel_regression", "name of the family")
    degrees: tuple = option(
        (0,), "degrees of the local polynomials in the mixture: 0 is a local mean, 1 a local line, ..."
    )
    num_widths: int = option(1, "number of widths in the mixture, each 2^(1/4) times the previous one", at_least=1)
    criterion: str = option("leave_one_out", "criterion that a learned width minimizes", choices=CRITERIA)
    projection_size: int = option(
        0, "number of columns of a learned projection of the inputs; 0: no projection", at_least=0
    )
    hidden_size: int = option(256, "hidden width of the learned projection", at_least=1)
    chunk: int = option(1024, "training points read at a time", at_least=1)
    attention: KernelOptions = section(KernelOptions)

    def __post_init__(self):
        attention = self.attention
        if attention.normalize == "softmax" and attention.score != "gaussian":
            raise UserError(f"model.attention.normalize {attention.normalize}: a kernel regression needs kernel_sum")
        if not self.degrees or any(
            not isinstance(degree, int) or not 0 <= degree <= LARGEST_DEGREE for degree in self.degrees
        ):
            raise UserError(
                f"model.degrees {tuple(self.degrees)}: expected one or more integers of 0 to {LARGEST_DEGREE}, such as "
                "(0, 1)"
            )
        if not KERNELS[attention.score].has_gradient and not attention.width and self.num_widths == 1:
            raise UserError(
                f"model.attention.score {attention.score} has no gradient; set model.attention.width, or "
                "model.num_widths"
            )
        if self.projection_size and tuple(self.degrees) != (0,):
            raise UserError(
                "model.projection_size needs model.degrees (0,): a polynomial is one of the inputs themselves"
            )

    def build(self, sizes: PointSizes, setting: Setting) -> KernelRegression:
        """Builds the model for `sizes.count` training points of `sizes.features` inputs.

        A learned width starts at n^(-1 / (d + 4)), in standard deviations of each input (Scott 1992, equation 6.42).
        The widths of a mixture lie around it, two thirds of them above.

        Raises:
            UserError: the width does not fit the inputs.
        """
        compared = self.projection_size or sizes.features
        weights = AttentionOptions(**dataclasses.asdict(self.attention))
        fixed = tuple(float(width) for width in self.attention.width)
        initial = fixed or (sizes.count ** (-1 / (compared + 4)),)
        score = KERNELS[self.attention.score](
            initial=initial, per_column=self.attention.per_column, exact=compared <= EXACT_COLUMNS
        )
        first = self.num_widths // 3 if self.num_widths > 1 else 0
        return KernelRegression(
            attention=weights.build(compared, score=score),
            projection=Projection(features=self.projection_size, hidden_size=self.hidden_size)
            if self.projection_size
            else None,
            degrees=tuple(self.degrees),
            widths=tuple(STEP ** (i - first) for i in range(self.num_widths)),
            criterion=CRITERIA[self.criterion],
            fixed=bool(fixed),
            chunk=self.chunk,
        )
