"""Options that tasks of images share."""

import dataclasses
from typing import ClassVar

from attn_jax.tasks.options import TextOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureTaskOptions(TextOptions):
    """Options of every task whose sources are images: the lengths of batches are those of questions and targets."""

    data_kinds: ClassVar[tuple[str, ...]] = ("pictures",)
