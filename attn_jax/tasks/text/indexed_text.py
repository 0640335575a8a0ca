"""Translation from a folder of encoded pairs, which may be larger than memory; see attn_jax/data/token_index.py.

Training reads the folder `data_dir`; validation and test are text files in it, which fit into memory.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from attn_jax.data.batching import LARGEST_SHARE, encode_pairs
from attn_jax.data.buckets import AutomaticBuckets
from attn_jax.data.streaming import StreamedBatches
from attn_jax.data.text import read_parallel
from attn_jax.data.token_index import TokenIndex, open_index
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.task import Encode, Pairs, Task

SHOWN = 1000  # number of training pairs in memory, the first ones of the folder, as the split "train"


@dataclasses.dataclass(frozen=True)
class IndexedTask(Task):
    """A task whose training pairs are in files; the split "train" has only the first SHOWN pairs."""

    index: TokenIndex | None = None

    def checksums(self) -> dict[str, int]:
        """Returns the checksums of the splits and of the index; see Task.checksums."""
        return super().checksums() | {"index": self.index.checksum}

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
    ) -> StreamedBatches:
        """Makes the training batches with the buckets of the index. See Task.batches."""
        if labels or encode is not encode_pairs:
            raise UserError("task indexed_text has sentence pairs; expected a model of those, such as seq2seq")
        found = [
            (
                "vocabulary",
                f"{side}: {100 * unknown:.0f} % of the training tokens are unk; see --min_count of the index",
            )
            for side, unknown in zip(("source", "target"), self.index.unknown, strict=True)
            if unknown > LARGEST_SHARE
        ]
        made = StreamedBatches(
            self.index.pairs,
            self.index.buckets,
            self.index.members,
            batch_size,
            batch_unit=batch_unit,
            seeds=seeds,
            row_multiple=row_multiple,
            share=share,
            longest=self.index.longest,
        )
        if made.dropped:
            found.insert(0, ("data", f"{made.dropped:,} training pairs are longer than any bucket and left out"))
        made.messages += found
        return made


def first_pairs(index: TokenIndex, count: int) -> Pairs:
    """Returns the first pairs as texts, decoded from their tokens."""
    texts = []
    for ragged, vocabulary in zip((index.pairs.source, index.pairs.target), index.vocabularies, strict=True):
        ends = np.asarray(ragged.offsets[: count + 1])
        rows = [np.asarray(ragged.tokens[a:b]) for a, b in itertools.pairwise(ends)]
        texts.append([vocabulary.decode(row.tolist()) for row in rows])
    return Pairs(*texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexedTextOptions(TextOptions):
    """Options of the task of translating the pairs of an index, which has all pairs and its own buckets."""

    name: ClassVar[str] = "indexed_text"
    num_examples: ClassVar[int] = 0
    buckets: ClassVar[AutomaticBuckets] = AutomaticBuckets()

    valid: tuple = option(
        ("valid.source", "valid.target"), "validation files (source, target) in data_dir", each=str, path=True
    )
    test: tuple = option(
        ("", ""), "test files (source, target); empty: the validation split is measured", each=str, path=True
    )
    tokenize: str = option(
        "13a",
        "bleu: tokenizer of sacrebleu; none: the text is tokenized already",
        affects="results",
        afterwards=True,
    )

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> IndexedTask:
        """Makes the task.

        Raises:
            UserError: the folder is incomplete or damaged, a text file is wrong, or the vocabularies of an earlier run
                differ from the vocabularies of the index.
        """
        folder = pathlib.Path(data_dir)
        index = open_index(folder)
        own = [vocabulary.to_json() for vocabulary in index.vocabularies]
        if kept is not None and [vocabulary.to_json() for vocabulary in kept[:2]] != own:
            raise UserError(
                f"the run has other vocabularies than {folder}; put back the folder that it was trained with"
            )
        splits, stats = {"train": first_pairs(index, SHOWN)}, {"train": len(index.pairs)}
        for name, files in (("valid", self.valid), ("test", self.test)):
            if len(files) != 2 or bool(files[0]) != bool(files[1]) or (name == "valid" and not files[0]):
                raise UserError(f"task.{name} is {files}; expected a source file and a target file")
            if files[0]:
                splits[name] = Pairs(*read_parallel(folder / files[0], folder / files[1]))
                stats[name] = len(splits[name])
        return IndexedTask("indexed_text", splits, *index.vocabularies, stats=stats, index=index)
