"""Options of glimpses."""

import dataclasses
from typing import ClassVar

from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.errors import UserError
from attn_jax.layers.glimpses import GlimpseSensor, PlaceGrid
from attn_jax.layers.rnn import CELLS
from attn_jax.models.attention_options import make
from attn_jax.models.base import Model
from attn_jax.models.glimpses.model import GlimpseModel
from attn_jax.models.glimpses.objective import PathObjective
from attn_jax.models.glimpses.policies import GaussianPlaces, GridPlaces
from attn_jax.models.output_options import OutputUser
from attn_jax.models.setting import Setting
from attn_jax.options import option
from attn_jax.tasks.sizes import TextSizes
from attn_jax.token_ids import EOS, SPECIAL

MOST_PATHS = 4096  # that are enumerated for an image
OWN_BASELINES = ("none", "running_mean", "learned", "leave_one_out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlimpseOptions(OutputUser):
    """Options of a recurrent network that sees one crop of an image at a time."""

    sizes: ClassVar[type] = TextSizes
    has_label_smoothing: ClassVar[bool] = True
    reads_stories: ClassVar[bool] = False
    continue_source: ClassVar[bool] = False
    reads_images: ClassVar[bool] = True
    only_images: ClassVar[bool] = True
    has_weights: ClassVar[bool] = True
    main_attention: ClassVar[None] = None

    name: str = option("glimpses", "name of the family")
    hidden_size: int = option(256, "width of the hidden state", at_least=1)
    glimpse_features: int = option(128, "width of a glimpse, and of its two parts: what and where", at_least=1)
    cell: str = option("lstm", "type of recurrent cell", choices=CELLS)
    num_glimpses: int = option(6, "number of glimpses at an image", at_least=1, at_most=100)
    glimpse_size: int = option(12, "side of a crop in pixels", at_least=1, at_most=1024)
    num_scales: int = option(1, "crops around a place, each twice as wide as the one before", at_least=1, at_most=6)
    places: str = option(
        "gaussian", "gaussian: a place in the plane; grid: one of the cells of model.grid", choices=("gaussian", "grid")
    )
    sigma: float = option(0.15, "gaussian: standard deviation; the image is 2 wide", at_least=1e-3, at_most=2)
    grid: tuple = option((6, 6), "rows and columns: places of a grid, and cells in which looks are counted", each=int)
    read: str = option(
        "reinforce", "gradient of the places: of sampled paths, or of all (grid)", choices=("reinforce", "enumeration")
    )
    num_samples: int = option(1, "reinforce: sampled paths of an image", at_least=1)
    baseline: str = option("learned", "reinforce: baseline of the cost", choices=OWN_BASELINES)
    baseline_features: int = option(64, "baseline learned: width of its hidden layer", at_least=1)
    cost: str = option(
        "wrong", "of a path: 1 for a wrong word, or the negative log-likelihood", choices=("wrong", "likelihood")
    )
    entropy_bonus: float = option(0.0, "grid: weight of the entropy of the places, rewarded", at_least=0)

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        """Builds the model.

        Raises:
            UserError: options do not go together.
        """
        if len(self.grid) != 2 or min(self.grid) < 1:
            raise UserError(f"model.grid {self.grid}: expected the numbers of rows and columns, such as (6, 6)")
        if any(0 < side < self.glimpse_size for side in sizes.image[:2]):
            raise UserError(
                f"model.glimpse_size {self.glimpse_size} is larger than the image, {sizes.image[1]} x "
                f"{sizes.image[0]} pixels; expected at most {min(sizes.image[:2])}"
            )
        if self.entropy_bonus and self.places != "grid":
            raise UserError(
                "model.entropy_bonus: the entropy of model.places gaussian is that of its sigma; expected grid"
            )
        grid, dtype = PlaceGrid(*self.grid), setting.dtype
        sampled = self.read == "reinforce"
        baseline = make(BASELINES[self.baseline if sampled else "none"], {"features": self.baseline_features})
        gaussian = self.places == "gaussian"
        return Model(
            GlimpseModel(
                picture=GlimpseSensor(
                    size=self.glimpse_size,
                    num_scales=self.num_scales,
                    grid=grid,
                    features=self.glimpse_features,
                    dtype=dtype,
                ),
                policy=GaussianPlaces(sigma=self.sigma, dtype=dtype)
                if gaussian
                else GridPlaces(grid=grid, dtype=dtype),
                cell=CELLS[self.cell],
                features=self.hidden_size,
                num_glimpses=self.num_glimpses,
                output=self.build_output(setting, sizes, tied=False),
                objective=self.build_objective(),
                baseline=baseline,
                num_words=sizes.source_vocab_size if sizes.source_vocab_size > len(SPECIAL) else 0,
                eos=EOS,
                dtype=dtype,
            )
        )

    def build_objective(self) -> PathObjective:
        """Builds the loss of the paths.

        Raises:
            UserError: there is no grid to enumerate, there are too many paths, or one path has no other.
        """
        shared = {"of_likelihood": self.cost == "likelihood", "entropy": self.entropy_bonus}
        if self.read == "enumeration":
            if self.places != "grid":
                raise UserError("model.read enumeration needs a number of places: model.places grid, got gaussian")
            places = self.grid[0] * self.grid[1]
            if (count := places**self.num_glimpses) > MOST_PATHS:
                raise UserError(
                    f"model.read enumeration: {self.num_glimpses} glimpses at {places} places have "
                    f"{count:,} paths, more than {MOST_PATHS:,}; expected a smaller model.grid, or fewer glimpses"
                )
            return PathObjective(exact=True, **shared)
        if self.baseline == "leave_one_out" and self.num_samples < 2:
            raise UserError(
                f"model.baseline leave_one_out needs model.num_samples of at least 2, got {self.num_samples}"
            )
        return PathObjective(num_samples=self.num_samples, leave_one_out=self.baseline == "leave_one_out", **shared)
