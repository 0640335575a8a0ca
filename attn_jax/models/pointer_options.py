"""The construction of a pointer to the source, for every family that copies source tokens into the target."""

from attn_jax.attention import Attention
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.models.attention_options import check_probabilities
from attn_jax.models.setting import Setting
from attn_jax.outputs.base import OutputOptions
from attn_jax.outputs.pointer import Pointer
from attn_jax.token_ids import UNK


def build_pointer(
    what: str, attention: Attention, sizes: TextSizes, setting: Setting, output: OutputOptions
) -> Pointer:
    """Builds the pointer (See 2017, arXiv 1704.04368).

    Args:
        what: the key and value that choose the pointer, for messages.
        attention: attention to the source.
        sizes: sizes of the vocabularies, with the target id of each source id.
        setting: settings from other sections.
        output: options of the output layer.

    Raises:
        UserError: the source has no tokens, weights need not sum to one, or the output layer samples words.
    """
    if sizes.image is not None:
        raise UserError(f"{what} takes tokens of the source, but the sources are images; leave it out")
    check_probabilities(what, attention)
    if output.searches_all:
        raise UserError(
            f"{what} mixes probabilities in training as well, which a layer that samples words does not have; "
            "expected model.output full, chunked, hierarchical or adaptive"
        )
    return Pointer(
        vocab_size=sizes.target_vocab_size,
        copies=sizes.copies,
        unk=UNK,
        label_smoothing=output.label_smoothing,
        dtype=setting.dtype,
    )
