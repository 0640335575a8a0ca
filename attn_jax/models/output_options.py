"""The choice of an output layer, for every family that has one."""

import dataclasses

from attn_jax.data.sizes import TextSizes
from attn_jax.models.setting import Setting
from attn_jax.outputs import OUTPUTS, OutputLayer, OutputSetting
from attn_jax.outputs.base import OutputOptions
from attn_jax.parts import choice


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputUser:
    """Options of a family with an output layer."""

    output: OutputOptions = choice(OUTPUTS, "full", "output layer, from states to words")

    def build_output(self, setting: Setting, sizes: TextSizes, *, tied: bool) -> OutputLayer:
        """Builds the output layer.

        Args:
            setting: settings from other sections.
            sizes: number of words, or classes, and their counts.
            tied: the layer uses the vectors of the target embedding.

        Raises:
            UserError: options do not fit the vocabulary, or each other.
        """
        return self.output.build(
            OutputSetting(
                vocab_size=sizes.target_vocab_size,
                counts=sizes.target_counts,
                tied=tied,
                dtype=setting.dtype,
            )
        )
