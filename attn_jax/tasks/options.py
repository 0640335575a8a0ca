"""Options shared by several tasks."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

from attn_jax.data.alignments import Links
from attn_jax.data.batching import BATCH_UNITS
from attn_jax.data.buckets import BUCKETS, AutomaticBuckets, FixedBuckets
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary_options import VOCABULARY_OPTIONS, VocabularyChoice
from attn_jax.errors import UserError
from attn_jax.parts import Options, choice, option

SEED = 0  # seed of generated examples, which are the same for every seed of a run


def first_names(**files: Sequence[str]) -> dict[str, str]:
    """Returns the first file name of each split that has one."""
    return {split: names[0] for split, names in files.items() if any(names[:1])}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions(Options):
    """Options of every task. Subclasses add options and implement `build`.

    Attributes:
        name: key in TASKS.
        data_kinds: names of the kinds of data that the examples can be read as, see attn_jax/evaluation/kinds.py.
        of_pairs: the splits are sentence pairs, with two vocabularies.
        has_sources: there is a source to translate or to classify; False: language modelling.
        has_tags: sources may have tags.
    """

    name: ClassVar[str]
    data_kinds: ClassVar[tuple[str, ...]] = ("text",)
    of_pairs: ClassVar[bool] = True
    has_sources: ClassVar[bool] = True
    has_tags: ClassVar[bool] = False

    num_examples: int = option(0, "number of training examples to use or to generate; 0: all", at_least=0)
    batch_size: int = option(128, "examples per batch, over all devices", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Any:
        """Builds the task.

        Args:
            data_dir: folder of the data files; "": generated data.
            kept: data that a run has saved (`Task.kept`); None: a new run.
            seeds: seeds of the run.

        Raises:
            UserError: a file or an option is wrong.
        """
        raise NotImplementedError

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        """Options that determine the held-out examples, by split.

        Splits with their own file, or whose examples are sampled independently of training, are not included.
        """
        return {}

    def renewed(self, kept: Any, *, data_dir: str) -> Any:
        """Returns the saved data of a run, updated by these options, such as the clutter of scenes.

        Raises:
            UserError: a model trained on the saved data cannot read the data of these options.
        """
        return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions(TaskOptions):
    """Options of every text task: the shapes of batches.

    Attributes:
        tokenize: tokenizer of BLEU, see `VocabularyOptions`.
    """

    tokenize: ClassVar[str] = "13a"

    buckets: AutomaticBuckets | FixedBuckets = choice(BUCKETS, "automatic", "batch shapes")
    batch_unit: str = option("sentences", "unit of batch_size", choices=BATCH_UNITS)

    def read_file(self, path: pathlib.Path) -> Pairs:
        """Reads pairs from one file in the format of this task.

        Raises:
            UserError: the file is wrong, or the pairs of this task are in two files.
        """
        raise UserError("give --source=FILE and --target=FILE together, or neither")

    def align(self, source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
        """Returns the true alignment of the tokens of a pair, see attn_jax.data.alignments; None if unknown."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions(TextOptions):
    """Options of text tasks that learn a vocabulary from files."""

    train: tuple = option(
        ("train.source", "train.target"), "training files (source, target) in data_dir", each=str, path=True
    )
    valid: tuple = option(
        ("", ""),
        "validation files (source, target); empty: valid_size training examples are held out",
        each=str,
        path=True,
    )
    test: tuple = option(
        ("", ""), "test files (source, target); empty: the validation split is measured", each=str, path=True
    )
    valid_size: int = option(500, "number of validation examples", at_least=1)
    vocabulary: VocabularyChoice = choice(VOCABULARY_OPTIONS, "words", "tokenizer and vocabulary", afterwards=False)
    vocab_size: tuple = option(
        (8000, 8000),
        "vocabulary sizes of source and target: exact for sentencepiece, else at most; 0: as many as the text allows",
        each=int,
        afterwards=False,
    )
    tokenize: str = option(
        "13a",
        "bleu: tokenizer of sacrebleu; none: the text is tokenized already",
        affects="results",
        afterwards=True,
    )

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        return {} if any(self.valid[:1]) else {"valid": ("train", "valid", "valid_size")}

    def __post_init__(self):
        if len(self.vocab_size) != 2:
            raise UserError(f"task.vocab_size is {self.vocab_size}; expected two sizes, of source and target")
