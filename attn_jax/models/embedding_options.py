"""Options of families that can share the embedding of the target."""

import dataclasses

from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.parts import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedEmbeddingOptions:
    """Options of sharing one embedding between source, target and output layer."""

    tie_embeddings: bool = option(False, "use the transposed target embedding as output layer")
    share_embeddings: bool = option(False, "share one embedding between source and target; needs one vocabulary")

    def check_shared(self, sizes: TextSizes) -> None:
        """Checks that source and target have the same vocabulary if they share an embedding.

        Raises:
            UserError: the vocabularies of source and target differ, or the source is an image.
        """
        if self.share_embeddings and sizes.image is not None:
            raise UserError(
                "model.share_embeddings needs texts on both sides, but the sources are images; leave it out"
            )
        if self.share_embeddings:
            check_one_vocabulary("share_embeddings", sizes)


def check_one_vocabulary(option: str, sizes: TextSizes) -> None:
    """Raises a UserError if source and target vocabulary, which `option` needs to be equal, differ in size."""
    if sizes.source_vocab_size != sizes.target_vocab_size:
        raise UserError(
            f"model.{option} needs one vocabulary, but the source has {sizes.source_vocab_size} tokens and the target "
            f"{sizes.target_vocab_size}; set task.joint_vocabulary"
        )
