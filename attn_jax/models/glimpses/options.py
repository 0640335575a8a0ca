"""Options of glimpses."""

import dataclasses
from typing import ClassVar

from attn_jax.attention.hard.baselines import BASELINES, NoBaseline
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.glimpses import GlimpseSensor, PlaceGrid
from attn_jax.layers.rnn import CELLS
from attn_jax.models.base import Model
from attn_jax.models.family import Family
from attn_jax.models.glimpses.model import GlimpseModel
from attn_jax.models.glimpses.objective import PathObjective
from attn_jax.models.glimpses.policies import GaussianPlaces, GridPlaces
from attn_jax.models.output_options import OutputUser
from attn_jax.models.setting import Setting
from attn_jax.parts import Options, Recipe, choice, option
from attn_jax.token_ids import EOS, SPECIAL
from attn_jax.types import Dtype

MOST_PATHS = 4096  # largest number of enumerated paths per image
OWN_BASELINES = {name: BASELINES[name] for name in ("none", "running_mean", "learned", "leave_one_out")}
COSTS = ("wrong", "likelihood")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianOptions(Options):
    """Options of places in the plane."""

    entropy_bonus: ClassVar[float] = 0.0
    in_grid: ClassVar[bool] = False

    sigma: float = option(0.15, "standard deviation; the image is 2 wide", at_least=1e-3, at_most=2)

    def build(self, grid: PlaceGrid, dtype: Dtype) -> GaussianPlaces:
        """Builds the policy of places."""
        return GaussianPlaces(sigma=self.sigma, dtype=dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridOptions(Options):
    """Options of places that are cells of model.grid."""

    in_grid: ClassVar[bool] = True

    entropy_bonus: float = option(0.0, "weight of the entropy of the places, rewarded", at_least=0)

    def build(self, grid: PlaceGrid, dtype: Dtype) -> GridPlaces:
        """Builds the policy of places."""
        return GridPlaces(grid=grid, dtype=dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReinforceOptions(Options):
    """Options of the gradient by sampled paths."""

    num_samples: int = option(1, "number of sampled paths of an image", at_least=1)
    baseline: Recipe = choice(OWN_BASELINES, "learned", "baseline of the cost")

    def build(self, options: "GlimpseOptions", **shared) -> PathObjective:
        """Builds the loss of the paths.

        Raises:
            UserError: leave_one_out with a single path.
        """
        others = self.baseline.kind is BASELINES["leave_one_out"]
        if others and self.num_samples < 2:
            raise UserError(
                "model.objective.baseline leave_one_out needs model.objective.num_samples of at least 2, got "
                f"{self.num_samples}"
            )
        return PathObjective(num_samples=self.num_samples, leave_one_out=others, **shared)

    def build_baseline(self) -> NoBaseline:
        """Builds the baseline."""
        return self.baseline.build()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnumerationOptions(Options):
    """Options of the gradient by all paths of a grid."""

    def build(self, options: "GlimpseOptions", **shared) -> PathObjective:
        """Builds the loss of the paths.

        Raises:
            UserError: there is no grid to enumerate, or there are too many paths.
        """
        if not options.places.in_grid:
            raise UserError("model.objective enumeration needs a number of places: model.places grid, got gaussian")
        places = options.grid[0] * options.grid[1]
        if (count := places**options.num_glimpses) > MOST_PATHS:
            raise UserError(
                f"model.objective enumeration: {options.num_glimpses} glimpses at {places} places have "
                f"{count:,} paths, more than {MOST_PATHS:,}; expected a smaller model.grid, or fewer glimpses"
            )
        return PathObjective(exact=True, **shared)

    def build_baseline(self) -> NoBaseline:
        """Returns NoBaseline: an exact gradient needs no baseline."""
        return NoBaseline()


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlimpseOptions(OutputUser, Family):
    """Options of a recurrent network that sees one crop of an image at a time."""

    name: ClassVar[str] = "glimpses"
    data_kinds: ClassVar[tuple[str, ...]] = ("pictures",)

    hidden_size: int = option(256, "width of the hidden state", at_least=1)
    glimpse_features: int = option(128, "width of a glimpse, and of its two parts: what and where", at_least=1)
    cell: str = option("lstm", "type of recurrent cell", choices=CELLS)
    num_glimpses: int = option(6, "number of glimpses at an image", at_least=1, at_most=100)
    glimpse_size: int = option(12, "side of a crop in pixels", at_least=1, at_most=1024)
    num_scales: int = option(1, "crops around a place, each twice as wide as the one before", at_least=1, at_most=6)
    places: GaussianOptions | GridOptions = choice(
        {"gaussian": GaussianOptions, "grid": GridOptions}, "gaussian", "places in the plane, or cells of model.grid"
    )
    grid: tuple = option((6, 6), "rows and columns: places of a grid, and cells in which looks are counted", each=int)
    objective: ReinforceOptions | EnumerationOptions = choice(
        {"reinforce": ReinforceOptions, "enumeration": EnumerationOptions},
        "reinforce",
        "gradient of the places: of sampled paths, or of all paths of a grid",
    )
    cost: str = option("wrong", "of a path: 1 for a wrong word, or the negative log-likelihood", choices=COSTS)

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        if len(self.grid) != 2 or min(self.grid) < 1:
            raise UserError(f"model.grid {self.grid}: expected the numbers of rows and columns, such as (6, 6)")
        if any(0 < side < self.glimpse_size for side in sizes.image[:2]):
            raise UserError(
                f"model.glimpse_size {self.glimpse_size} is larger than the image, {sizes.image[1]} x "
                f"{sizes.image[0]} pixels; expected at most {min(sizes.image[:2])}"
            )
        grid, dtype = PlaceGrid(*self.grid), setting.dtype
        return Model(
            GlimpseModel(
                picture=GlimpseSensor(
                    size=self.glimpse_size,
                    num_scales=self.num_scales,
                    grid=grid,
                    features=self.glimpse_features,
                    dtype=dtype,
                ),
                policy=self.places.build(grid, dtype),
                cell=CELLS[self.cell],
                features=self.hidden_size,
                num_glimpses=self.num_glimpses,
                output=self.build_output(setting, sizes, tied=False),
                objective=self.objective.build(
                    self, of_likelihood=self.cost == "likelihood", entropy=self.places.entropy_bonus
                ),
                baseline=self.objective.build_baseline(),
                num_words=sizes.source_vocab_size if sizes.source_vocab_size > len(SPECIAL) else 0,
                eos=EOS,
                dtype=dtype,
            )
        )
