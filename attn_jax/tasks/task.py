"""A task: named splits of sentence pairs, and the vocabularies that turn them into ids."""

import copy
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from attn_jax.data.batching import Batches, EncodedPairs, check_labels, encode_pairs
from attn_jax.data.buckets import choose_buckets
from attn_jax.data.data_files import load_kept, save_kept
from attn_jax.data.facts import Facts, Kept
from attn_jax.data.files import text_checksum
from attn_jax.data.frequencies import count_targets, read_counts
from attn_jax.data.pairs import Pairs
from attn_jax.data.sampled_pieces import PieceSampler, SampledBatches
from attn_jax.data.vocabulary import Vocabulary

Encode = Callable[[Pairs, Vocabulary, Vocabulary], EncodedPairs]  # (pairs, source vocabulary, target vocabulary)


@dataclasses.dataclass(frozen=True)
class Task:
    """The data for models and trainers: splits, vocabularies, statistics and batches.

    Attributes:
        name: key in TASKS.
        splits: "train", "valid" and, if there is one, "test".
        source_vocabulary, target_vocabulary: trained on the training split, or taken from an earlier run.
        facts: facts of stories or images; None: the sources are texts.
        stats: counts to print, such as the number of pairs of each split.
        examples: inputs to try a trained model on; by default the first three of validation.
    """

    of_pairs: ClassVar[bool] = True  # the splits are sentence pairs

    name: str
    splits: dict[str, Pairs]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    facts: Facts | None = None
    stats: dict[str, int | float] = dataclasses.field(default_factory=dict)
    examples: tuple[str, ...] = ()
    sample_pieces: float = 0.0  # for training batches, see attn_jax.data.sampled_pieces; 0: the best split

    def __post_init__(self):
        if not self.examples and "valid" in self.splits:
            object.__setattr__(self, "examples", tuple(self.splits["valid"].source[:3]))

    @property
    def kept(self) -> Kept:
        """Data that a work directory stores and a model is built from: the two vocabularies, and facts."""
        return Kept(self.source_vocabulary, self.target_vocabulary, self.facts)

    def with_counts(self, path: pathlib.Path | None = None) -> "Task":
        """Returns the task with counts of the target words, from a file or from the training targets.

        Raises:
            UserError: the file is wrong; see read_counts.
        """
        vocabulary = copy.copy(self.target_vocabulary)
        if path is None:
            vocabulary.counts = count_targets(self.splits["train"].target, vocabulary)
        else:
            vocabulary.counts = read_counts(path, vocabulary)
        return dataclasses.replace(self, target_vocabulary=vocabulary)

    def checksums(self) -> dict[str, int]:
        """Returns {description: checksum} of the data of a training run, which cannot be resumed with other data."""
        found = {}
        for name, split in self.splits.items():
            if name != "test":
                found[name] = split.checksum
                found |= {} if split.evidence is None else {f"{name} facts": text_checksum(split.evidence)}
        return found

    def save(self, workdir: pathlib.Path) -> None:
        """Writes what `load` reads: vocabularies.json."""
        save_kept(workdir, self.kept)

    @staticmethod
    def load(workdir: pathlib.Path) -> Kept:
        """Reads the data files of a work directory, see `kept`; raises a UserError if that fails."""
        return load_kept(workdir)

    def batches(
        self,
        *,
        batch_size: int,
        batch_unit: str = "sentences",
        buckets: Sequence = (),
        source_buckets: int = 1,
        labels: bool = False,
        encode: Encode = encode_pairs,
        seeds: Sequence[int] = (0,),
        row_multiple: int = 1,
        share: tuple[int, int] = (0, 1),
    ) -> Batches:
        """Makes the training batches.

        Args:
            batch_size, batch_unit, seeds, row_multiple, share: see attn_jax.data.batching.Batches.
            buckets: lengths of batches; (): chosen from the lengths of the pairs.
            source_buckets: the number of source lengths to choose for each target length.
            labels: each target must be one token, as for a classifier.
            encode: `encode_pairs`, or the encoder of another kind of data, see attn_jax/evaluation/kinds.py.

        Raises:
            UserError: see Batches; or `labels` and a target is not one token.
        """
        pairs = self.splits["train"]
        encoded = encode(pairs, self.source_vocabulary, self.target_vocabulary)
        if labels:
            check_labels(encoded, pairs, f"task {self.name}")
        kind = Batches
        if self.sample_pieces:
            vocabularies = self.source_vocabulary, self.target_vocabulary
            sampler = PieceSampler(pairs, vocabularies, self.sample_pieces)
            kind = partial(SampledBatches, sampler=sampler, best=encoded)
            encoded = sampler.longest(encoded)
        buckets = buckets or choose_buckets(encoded.source.lengths, encoded.target.lengths, num_source=source_buckets)
        return kind(encoded, buckets, batch_size, batch_unit, seeds=seeds, row_multiple=row_multiple, share=share)
