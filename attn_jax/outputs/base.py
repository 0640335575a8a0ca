"""The interface of output layers and of their options."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from attn_jax.errors import UserError
from attn_jax.layers.rows import RowTable
from attn_jax.outputs.frequencies import Frequencies
from attn_jax.outputs.top_k import Extensions, best_extensions, top_k
from attn_jax.parts import Options, option
from attn_jax.types import Array, Callable, Dtype, Float, Int, PRNGKeyArray


class OutputSetting(NamedTuple):
    """Settings from other parts with which an output layer is built.

    Attributes:
        vocab_size: number of words.
        counts: of each word in the training targets; None: unknown.
        tied: share the vectors of the target embedding.
        use_bias: full, chunked.
        group: full, chunked: name of the parameter group.
        kernel_init: full, chunked.
        dtype: type of the products.
    """

    vocab_size: int
    counts: np.ndarray | None = None
    tied: bool = False
    use_bias: bool = True
    group: str = "dense"
    kernel_init: Callable[..., Array] = nn.initializers.lecun_normal()
    dtype: Dtype = jnp.float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """Options of an output layer. Subclasses implement `build`."""

    needs_counts: ClassVar[bool] = False  # reads OutputSetting.counts
    label_smoothing: ClassVar[float] = 0.0  # probability of the target that is spread evenly over all words
    searches_all: ClassVar[bool] = False  # cheap in training, but a step of decoding computes all words

    def build(self, setting: OutputSetting) -> "OutputLayer":
        """Builds the layer; without counts it assumes arbitrary ones, to check the options.

        Raises:
            UserError: an option does not fit the vocabulary, or another option.
        """
        raise NotImplementedError

    def stored_logits(self, vocab_size: int) -> int:
        """Returns a lower bound of the logits per position that training stores; small terms may be left out."""
        return 0


Embedding = RowTable | Array | None  # table of the target tokens


def smoothing_option() -> Any:
    """Makes the option of label smoothing."""
    return option(0.0, "probability spread evenly over the vocabulary in the targets", at_least=0, at_most=0.999)


def frequencies_option() -> Any:
    """Makes the option that names a file of frequencies."""
    return option(
        "",
        "file in data_dir with a word, a tab and its count in each line; empty: counted in the training targets",
        file=True,
    )


def frequencies_of(setting: OutputSetting) -> Frequencies:
    """Returns the frequencies of the words; if unknown, by Zipf's law in the order of the words."""
    if setting.counts is None:
        return Frequencies(np.ceil(10 * setting.vocab_size / np.arange(1, setting.vocab_size + 1)))
    return Frequencies(setting.counts)


def check_untied(setting: OutputSetting, name: str) -> None:
    """Raises a UserError if a layer without a vector for each word is to share the embedding."""
    if setting.tied:
        raise UserError(
            f"model.output.name {name} has no vectors of words to share with an embedding (model.tie_embeddings, and "
            "always memn2n); expected full, chunked or a layer that samples words"
        )


class OutputLayer(nn.Module, kw_only=True):
    """A layer from hidden states to words.

    Subclasses define `log_probs` and `loss`, and override other methods that need less than all log-probabilities.
    `embedding` is the table of the target tokens, used only by a layer that shares it (`tied`).

    Attributes:
        vocab_size: number of words.
        tied: share the vectors of the embedding (Press & Wolf 2017, arXiv 1608.05859).
        dtype: type of the products.
    """

    vocab_size: int
    tied: bool = False
    dtype: Dtype = jnp.float32

    def log_probs(self, hidden: Float[Array, "... d"], embedding: Embedding = None) -> Float[Array, "... v"]:
        """log p(word) of each word, exact and normalized."""
        raise NotImplementedError

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Embedding = None,
        rng: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (training loss, negative log-likelihood) of each target.

        A layer that samples words needs `rng`, and its negative log-likelihood is an estimate.
        """
        raise NotImplementedError

    def top_k(
        self, hidden: Float[Array, "... d"], k: int, embedding: Embedding = None
    ) -> tuple[Float[Array, "... k"], Int[Array, "... k"]]:
        """Returns (log-probabilities, words) of the k most probable words, most probable first, exactly.

        Raises:
            ValueError: k is 0, or larger than the vocabulary.
        """
        check_k(k, self.vocab_size)
        return top_k(self.log_probs(hidden, embedding), k)

    def extensions(
        self,
        hidden: Float[Array, "... k d"],
        before: Float[Array, "... k"],
        n: int,
        forbidden: Sequence[int] = (),
        embedding: Embedding = None,
    ) -> Extensions:
        """Returns the n best pairs of a row of `hidden` and a word by before + log p(word), without forbidden words."""
        found = self.top_k(hidden, min(n + len(forbidden), self.vocab_size), embedding)
        return best_extensions(*found, before, n, forbidden)

    def nll_and_correct(
        self, hidden: Float[Array, "... d"], targets: Int[Array, "..."], embedding: Embedding = None
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (-log p(target), 1 where the target is the most probable word, else 0); in a tie one word counts."""
        return nll_and_correct(self.log_probs(hidden, embedding), targets)


def sampling_rng(module: nn.Module) -> PRNGKeyArray | None:
    """Returns the rng of a module for a layer that samples words; None without one, as in evaluation."""
    return module.make_rng("sample") if module.has_rng("sample") else None


def nll_and_correct(log_probs: Float[Array, "... v"], targets: Int[Array, "..."]):
    """Returns (-log p(target), 1 where the target is the most probable token, else 0), each [...].

    In a tie the first token counts.
    """
    target = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
    return -target, (targets == jnp.argmax(log_probs, axis=-1)).astype(jnp.float32)


def check_k(k: int, vocab_size: int) -> None:
    """Raises a ValueError if k is not from 1 to the vocabulary size."""
    if not 1 <= k <= vocab_size:
        raise ValueError(f"top_k: k is {k}; expected 1 to {vocab_size}, the number of words")
