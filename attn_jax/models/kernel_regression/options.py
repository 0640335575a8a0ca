"""Options of kernel regression."""

import dataclasses
from typing import ClassVar

from attn_jax.attention import NORMALIZERS
from attn_jax.attention.scores import KERNELS
from attn_jax.attention.scores.kernels import check_width
from attn_jax.data.sizes import PointSizes
from attn_jax.errors import UserError
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.models.family import Family, Nothing
from attn_jax.models.kernel_regression.criteria import CRITERIA
from attn_jax.models.kernel_regression.model import KernelRegression, Projection
from attn_jax.models.setting import Setting
from attn_jax.parts import Options, Recipe, choice, option, section

STEP = 2**0.25  # ratio of neighbouring widths in a mixture
LARGEST_DEGREE = 5
EXACT_COLUMNS = 16  # up to this width distances are squared differences; beyond it, a matrix product


NORMALIZED = {name: NORMALIZERS[name] for name in ("kernel_sum", "softmax")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelOptions(AttentionOptions):
    """Options of the kernel."""

    score: Recipe = choice(KERNELS, "gaussian", "kernel function")
    normalize: Recipe = choice(
        NORMALIZED, "kernel_sum", "Nadaraya-Watson weights; softmax is the same for a gaussian kernel"
    )
    wrappers: ClassVar[tuple] = ()
    block_size: ClassVar[int] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectionOptions(Options):
    """Options of a learned projection of the inputs."""

    size: int = option(2, "number of columns", at_least=1)
    hidden_size: int = option(256, "hidden width", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelRegressionOptions(Family):
    """Options of kernel regression."""

    name: ClassVar[str] = "kernel_regression"
    data_kinds: ClassVar[tuple[str, ...]] = ("points",)

    degrees: tuple = option(
        (0,), "degrees of the local polynomials in the mixture: 0 is a local mean, 1 a local line, ..."
    )
    num_widths: int = option(1, "number of widths in the mixture, each 2^(1/4) times the previous one", at_least=1)
    criterion: str = option("leave_one_out", "criterion that a learned width minimizes", choices=CRITERIA)
    projection: Options = choice({"none": Nothing, "learned": ProjectionOptions}, "none", "projection of the inputs")
    chunk: int = option(1024, "training points read at a time", at_least=1)
    attention: KernelOptions = section(KernelOptions)

    @property
    def projection_size(self) -> int:
        return self.projection.size if self.projection else 0

    def __post_init__(self):
        score = self.attention.score
        if self.attention.normalize.kind is NORMALIZERS["softmax"] and score.kind is not KERNELS["gaussian"]:
            raise UserError("model.attention.normalize softmax: a kernel regression needs kernel_sum")
        if not self.degrees or any(
            not isinstance(degree, int) or not 0 <= degree <= LARGEST_DEGREE for degree in self.degrees
        ):
            raise UserError(
                f"model.degrees {tuple(self.degrees)}: expected one or more integers of 0 to {LARGEST_DEGREE}, such as "
                "(0, 1)"
            )
        if not score.kind.has_gradient and not score.values["width"] and self.num_widths == 1:
            raise UserError(
                f"model.attention.score {score.kind.__name__.lower()} has no gradient; set "
                "model.attention.score.width, or model.num_widths"
            )
        if self.projection and tuple(self.degrees) != (0,):
            raise UserError("model.projection needs model.degrees (0,): a polynomial is one of the inputs themselves")

    def build(self, sizes: PointSizes, setting: Setting) -> KernelRegression:
        """Builds the model for `sizes.count` training points of `sizes.features` inputs.

        A learned width starts at n^(-1 / (d + 4)), in standard deviations of each input (Scott 1992, equation 6.42).
        The widths of a mixture lie around it, two thirds of them above.

        Raises:
            UserError: the width does not fit the inputs.
        """
        compared = self.projection_size or sizes.features
        options = self.attention.score.values
        fixed = tuple(float(width) for width in options["width"])
        try:
            initial = check_width(fixed, compared) if fixed else (sizes.count ** (-1 / (compared + 4)),)
        except ValueError as error:
            raise UserError(f"model.attention.score.{error}") from error
        score = self.attention.score.kind(
            initial=initial, per_column=options["per_column"], exact=compared <= EXACT_COLUMNS
        )
        first = self.num_widths // 3 if self.num_widths > 1 else 0
        return KernelRegression(
            attention=self.attention.build(compared, score=score),
            projection=Projection(features=self.projection.size, hidden_size=self.projection.hidden_size)
            if self.projection
            else None,
            degrees=tuple(self.degrees),
            widths=tuple(STEP ** (i - first) for i in range(self.num_widths)),
            criterion=CRITERIA[self.criterion],
            fixed=bool(fixed),
            chunk=self.chunk,
        )
