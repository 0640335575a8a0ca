"""Options of recurrent language models."""

import dataclasses
from typing import ClassVar

from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.rnn import CELLS
from attn_jax.models.base import Model
from attn_jax.models.embedding_options import SharedEmbeddingOptions, check_one_vocabulary
from attn_jax.models.family import Family
from attn_jax.models.output_options import OutputUser
from attn_jax.models.recurrent.model import RecurrentLanguageModel
from attn_jax.models.setting import Setting
from attn_jax.parts import option
from attn_jax.token_ids import BOS, EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentOptions(SharedEmbeddingOptions, OutputUser, Family):
    """Options of a recurrent language model: the source is the beginning of the sequence."""

    name: ClassVar[str] = "recurrent_language_model"
    has_weights: ClassVar[bool] = False

    embedding_size: int = option(256, "width of the embeddings", at_least=1)
    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    num_layers: int = option(1, "number of layers", at_least=1, at_most=1000)
    cell: str = option("lstm", "type of recurrent cell", choices=CELLS)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    continue_source: bool = option(False, "the target continues the source, which is the beginning of the text")

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        self.check_shared(sizes)
        if self.continue_source:
            check_one_vocabulary("continue_source", sizes)
        if self.tie_embeddings and self.embedding_size != self.hidden_size:
            raise UserError(
                "model.tie_embeddings needs model.embedding_size and model.hidden_size to be equal, got "
                f"{self.embedding_size} and {self.hidden_size}"
            )
        return Model(
            RecurrentLanguageModel(
                source_vocab_size=sizes.source_vocab_size,
                target_vocab_size=sizes.target_vocab_size,
                embedding_size=self.embedding_size,
                features=self.hidden_size,
                cell=CELLS[self.cell],
                output=self.build_output(setting, sizes, tied=self.tie_embeddings),
                num_layers=self.num_layers,
                dropout=self.dropout,
                share_embeddings=self.share_embeddings,
                continue_source=self.continue_source,
                bos=BOS,
                eos=EOS,
                dtype=setting.dtype,
            )
        )
