"""Options shared by image tasks."""

import dataclasses
from typing import ClassVar

from attn_jax.tasks.options import TextOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureTaskOptions(TextOptions):
    """Options of tasks whose sources are images; lengths in batches are lengths of questions and targets."""

    data_kinds: ClassVar[tuple[str, ...]] = ("pictures",)
