"""The protocol of a family of models: the attributes and methods of its options, with defaults."""

import dataclasses
from typing import Any, ClassVar

from attn_jax.attention import Attention, Reading
from attn_jax.models.setting import Setting
from attn_jax.outputs.base import OutputOptions
from attn_jax.parts import Options, Where

# Conditions for keys to exist.
IMAGES = Where(
    lambda chosen: "task" not in chosen or "pictures" in chosen["task"].data_kinds, "a task.name with images"
)
TAGS = Where(lambda chosen: "task" not in chosen or chosen["task"].has_tags, "a task.name whose sources may have tags")
ATTENDS = Where(
    lambda chosen: chosen["decoder"].uses_attention or chosen["encoder"].has_heads,
    "a model.decoder that attends to the source, or model.encoder transformer",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family(Options):
    """Options of a family of models. A subclass adds options and defines `build`; other methods have defaults."""

    name: ClassVar[str]  # key in the table of families
    data_kinds: ClassVar[tuple[str, ...]] = ("text",)  # kinds of data that it reads, see attn_jax/evaluation/kinds.py
    continue_source: ClassVar[bool] = False  # the source is the beginning of the target
    output: ClassVar[OutputOptions | None] = None  # options of the output layer, if the family has one
    projection_size: ClassVar[int] = 0  # columns of the learned projection of the inputs of a regression

    def build(self, sizes: Any, setting: Setting) -> Any:
        """Builds the model: a `Model` (models/base.py), or a KernelRegression.

        Args:
            sizes: sizes of the data, TextSizes or PointSizes by its kind.
            setting: options of other sections that the model depends on.

        Raises:
            UserError: options do not fit each other.
        """
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The choice that determines the type of the model, for messages."""
        return f"model.name {self.name}"

    @property
    def has_weights(self) -> bool:
        """Tells whether the model has attention weights to plot."""
        return True

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        """Attention module to describe to a user, and the width of its queries; None without attention."""
        return None

    @property
    def reading(self) -> Reading | None:
        """Reading that samples or enumerates single keys, whose `num_keys` a source must have; None without one."""
        return None

    @property
    def learns_from_facts(self) -> str:
        """Option, below model, by which supporting facts enter the loss; "" if they do not."""
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nothing(Options):
    """No part: the entry "none" of a slot that may be empty."""

    def __bool__(self) -> bool:
        return False
