"""Options that several tasks share."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

from attn_jax.errors import UserError
from attn_jax.options import option
from attn_jax.tasks.alignments import Links
from attn_jax.tasks.batching import BATCH_UNITS
from attn_jax.tasks.pairs import Pairs
from attn_jax.tasks.pieces import SentencePiece
from attn_jax.tasks.sizes import TextSizes
from attn_jax.tasks.task import Task
from attn_jax.tasks.vocabulary import TEXT_VOCABULARIES, VOCABULARIES
from attn_jax.token_ids import SPECIAL

PIECES = tuple(name for name, kind in VOCABULARIES.items() if issubclass(kind, SentencePiece))
COUNTED = tuple(name for name in VOCABULARIES if name not in PIECES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of every task. Subclasses add options of their own and implement `build`."""

    name: str = option("", "name of the task")
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
        """Names of the options that decide which examples are held out of training, for each split of such examples.

        A split with a file of its own, or whose random numbers give no training example, is not among them.
        """
        return {}

    def renewed(self, kept: Any, *, data_dir: str) -> Any:
        """Returns the data that a run has saved with what these options change of it, such as the clutter of scenes.

        Raises:
            UserError: a model that was trained with this data cannot read what these options ask for.
        """
        return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions(TaskOptions):
    """Options of every text task: the shapes of batches."""

    task_class: ClassVar[type] = Task  # class of the task that `build` returns
    # To build a model without data.
    any_sizes: ClassVar[TextSizes] = TextSizes(len(SPECIAL), len(SPECIAL), has_tags=True)
    has_sources: ClassVar[bool] = True  # else a text is predicted, and there is nothing to translate

    buckets: tuple = option(
        (),
        "batch shapes, such as (16, (20, 24)): source 16 and target 16, source 20 and target 24; (): automatic",
    )
    source_buckets: int = option(
        2, "buckets (): number of source lengths for each target length", at_least=1, only=("buckets", ((),))
    )
    batch_unit: str = option("sentences", "unit of batch_size", choices=BATCH_UNITS)

    def read_file(self, path: pathlib.Path) -> Pairs:
        """Reads pairs from one file in the form of the files of this task.

        Raises:
            UserError: the file is wrong, or pairs of this task are in two files.
        """
        raise UserError("give --source=FILE and --target=FILE together, or neither")

    def align(self, source: Sequence[str], target: Sequence[str]) -> tuple[Links, Links] | None:
        """Returns the true alignment of the tokens of a pair, see attn_jax.tasks.alignments; None if not known."""
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
    vocabulary: str = option("words", "tokenizer and vocabulary", choices=TEXT_VOCABULARIES, afterwards=False)
    vocab_size: tuple = option(
        (8000, 8000),
        "vocabulary sizes of source and target: exact for sentencepiece, else at most",
        each=int,
        afterwards=False,
    )
    min_count: int = option(
        2,
        "words and characters seen less often than this in training become unk",
        at_least=0,
        only=("vocabulary", COUNTED),
        afterwards=False,
    )
    sentencepiece: str = option(
        "unigram",
        "type of sentencepiece model",
        choices=("unigram", "bpe"),
        only=("vocabulary", PIECES),
        afterwards=False,
    )

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        return {} if any(self.valid[:1]) else {"valid": ("train", "valid", "valid_size")}

    def file_arguments(self, data_dir: str, kept: Any) -> dict[str, Any]:
        """Returns the arguments that every task of files takes."""
        names = ("train", "valid", "test", "valid_size", "num_examples")
        names += ("vocabulary", "vocab_size", "min_count", "sentencepiece")
        return {"data_dir": data_dir, "vocabularies": kept, **{name: getattr(self, name) for name in names}}

    def __post_init__(self):
        if len(self.vocab_size) != 2:
            raise UserError(f"task.vocab_size is {self.vocab_size}; expected two sizes, of source and target")
