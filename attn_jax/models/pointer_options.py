"""Options of copying source tokens into the target, and of coverage."""

import dataclasses
from typing import Any

from attn_jax.attention import SCORES, WINDOWS
from attn_jax.errors import UserError
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.models.setting import Setting
from attn_jax.options import option
from attn_jax.outputs.base import OutputOptions
from attn_jax.outputs.pointer import Pointer
from attn_jax.tasks.sizes import TextSizes
from attn_jax.token_ids import UNK


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointerOptions:
    """Options of a pointer to the source, and of coverage (See 2017, arXiv 1704.04368)."""

    copy: bool = option(
        False, "mix the tokens of the source, by their attention weights, into the probabilities (pointer-generator)"
    )
    coverage: bool = option(False, "the score also depends on the coverage, the sum of earlier weights of each key")
    coverage_penalty: float = option(
        0.0, "weight of sum_i min(weight, sum of earlier weights) of the keys i in the loss (See 2017: 1)", at_least=0
    )

    def build(self, sizes: TextSizes, setting: Setting, output: OutputOptions, attention: AttentionOptions) -> Pointer:
        """Builds the pointer.

        Args:
            sizes: of the vocabularies, with the target id of each source id.
            setting: settings from other sections.
            output: options of the output layer.
            attention: of the source.

        Raises:
            UserError: the source has no tokens, weights need not sum to one, or the output layer samples words.
        """
        if sizes.image is not None:
            raise UserError("model.pointer.copy takes tokens of the source, but the sources are images; leave it out")
        if found := unlike_probabilities(attention):
            raise UserError(f"model.pointer.copy needs weights that sum to one; those of {found} need not")
        if output.searches_all:
            raise UserError(
                "model.pointer.copy mixes probabilities in training as well, which a layer that samples words does not "
                "have; expected model.output.name full, chunked, hierarchical or adaptive"
            )
        fields: dict[str, Any] = dict(label_smoothing=setting.label_smoothing, dtype=setting.dtype)
        return Pointer(vocab_size=sizes.target_vocab_size, copies=sizes.copies, unk=UNK, **fields)


def unlike_probabilities(attention: AttentionOptions) -> str:
    """Returns the first option of attention whose weights may be negative or need not sum to one, "" for none."""
    monotonic = getattr(attention, "is_monotonic", False)
    kept = getattr(attention, "kind", None) is None
    fine = {
        "memory": kept,
        "window": getattr(attention, "window", "") not in WINDOWS,
        "normalize": not monotonic and attention.normalizers[attention.normalize].sums_to_one,
        "score": not SCORES[attention.score].compact,
        "fit": attention.fit == "mean",
        "difference": not attention.difference,
    }
    return next((f"model.attention.{name} {getattr(attention, name)}" for name, good in fine.items() if not good), "")
