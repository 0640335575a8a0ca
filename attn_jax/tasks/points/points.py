"""Tasks of points: splits, batches, and the file in a work directory."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from attn_jax.data.data_files import load_points, save_points
from attn_jax.data.files import checksum, is_text, text_checksum
from attn_jax.data.point_batches import LARGEST, PointBatches, StandardPoints, standardize
from attn_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Columns:
    """Column names."""

    inputs: tuple[str, ...]
    target: str
    classes: tuple[str, ...] = ()  # values of the target of a classification
    separator: str = ","  # separator of the cells in the training file and in the lines to predict


@dataclasses.dataclass(frozen=True)
class Points:
    """Points of one or several samples s: inputs[s, i] belongs to targets[s, i], a number or a one-hot row of classes.

    With `left_out` these are the training points, each predicted from all others.
    """

    inputs: Float[np.ndarray, "s n d"]
    targets: Float[np.ndarray, "s n v"]
    left_out: bool = False

    def __len__(self) -> int:
        return self.inputs.shape[1]

    @property
    def checksum(self) -> int:
        """Checksum of the numbers."""
        return text_checksum([checksum(self.inputs), checksum(self.targets)])


@dataclasses.dataclass(frozen=True)
class PointsTask:
    """Splits of points: "train", "valid" (the training points, left out one by one) and "test"."""

    of_pairs: ClassVar[bool] = False  # the splits are points

    name: str
    splits: dict[str, Points]
    columns: Columns
    stats: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def kept(self) -> "PointsTask":
        """The part of the data that a work directory stores: everything, since the model reads the training points."""
        return self

    def checksums(self) -> dict[str, int]:
        """Returns the checksum of the training points; see Task.checksums. A resumed run has its own copy of them."""
        return {"train": self.splits["train"].checksum}

    def save(self, workdir: pathlib.Path) -> None:
        """Writes what `load` reads: points.npz, the training and the test points of each seed."""
        train, test = self.splits["train"], self.splits["test"]
        names = {"columns": dataclasses.asdict(self.columns), "note": self.stats, "examples": self.examples}
        arrays = {"inputs": train.inputs, "targets": train.targets}
        save_points(workdir, names, arrays | {"test_inputs": test.inputs, "test_targets": test.targets})

    @staticmethod
    def load(workdir: pathlib.Path) -> "PointsTask":
        """Reads the task from a work directory; raises a UserError if it cannot be read."""
        members = load_points(workdir)
        try:
            names = json.loads(str(members["names"]))
            columns = Columns(**{name: tuple(v) if isinstance(v, list) else v for name, v in names["columns"].items()})
            train, test = (Points(members[f"{s}inputs"], members[f"{s}targets"]) for s in ("", "test_"))
            stats, examples = dict(names["note"]), tuple(names["examples"])
            seeds, width = len(train.inputs), len(columns.classes) or train.targets.shape[-1]
            sound = all(map(is_text, (*columns.inputs, columns.target, *columns.classes, *examples)))
            for points in (train, test):
                sound &= points.inputs.shape == (seeds, len(points), len(columns.inputs))
                sound &= points.targets.shape == (seeds, len(points), width)
                sound &= all(np.issubdtype(x.dtype, np.number) for x in (points.inputs, points.targets))
        except Exception as error:  # any error means that the members are wrong
            message = f"cannot read {workdir / 'points.npz'}: its members are not those of a regression"
            raise UserError(message) from error
        if not sound:
            raise UserError(f"cannot read {workdir / 'points.npz'}: the shapes and names in it do not belong together")
        return make_task(train, test, columns, stats, examples)

    def standardized(self, *, scale_inputs: bool) -> StandardPoints:
        """Returns the training points as a model sees them, see StandardPoints."""
        train = self.splits["train"]
        return standardize(
            train.inputs, train.targets, scale_inputs=scale_inputs, scale_targets=not self.columns.classes
        )

    def batches(
        self,
        *,
        batch_size: int,
        scale_inputs: bool = True,
        all_pairs: str = "",
        seeds: Sequence[int] = (0,),
        row_multiple: int = 1,
    ) -> PointBatches:
        """Makes the training batches.

        Args:
            batch_size: number of query points in a step.
            scale_inputs: divide the inputs by their standard deviations.
            all_pairs: the part of the model that compares all pairs of training points in a step; "": no part does.
            seeds: seeds of the run; each has its own points and its own order.
            row_multiple: the number of devices; more than one is not supported.

        Raises:
            UserError: all pairs are to be compared, and there are more than LARGEST or batch_size points.
            ValueError: there is more than one device.
        """
        if row_multiple != 1:
            raise ValueError(f"batches of points are for one device, not for {row_multiple}")
        batches = PointBatches(self.standardized(scale_inputs=scale_inputs), batch_size, tuple(seeds))
        if all_pairs and batches.num_pairs > LARGEST:
            raise UserError(
                f"{all_pairs} compares all pairs of training points at once, and takes at most {LARGEST}; there are "
                f"{batches.num_pairs}: set model.degrees=(1,), model.num_widths=1, model.criterion=leave_one_out"
            )
        if all_pairs and batches.rows < batches.num_pairs:
            raise UserError(
                f"{all_pairs} asks about all training points in each step; set task.batch_size to at least "
                f"{batches.num_pairs}"
            )
        return batches


def make_task(
    train: Points, test: Points, columns: Columns, stats: dict[str, int], examples: tuple[str, ...]
) -> PointsTask:
    """Makes the task; its validation split is the training points, left out one by one."""
    splits = {"train": train, "valid": dataclasses.replace(train, left_out=True), "test": test}
    return PointsTask("regression", splits, columns, stats, examples)
