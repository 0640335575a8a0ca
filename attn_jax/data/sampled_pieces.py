"""Training batches whose texts are split into pieces at random, anew in each step.

A model that sees a word in several splits learns how its pieces are composed. The batch of a step is still a function
of (seed, step), and evaluation uses the best split.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Int

from attn_jax.data.batching import FILL, Batches, EncodedPairs, make_ragged
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError
from attn_jax.token_ids import EOS

NUM_TRIED = 3  # number of random splits of each text, the longest of which determines its bucket
TRIED = 0x5B11  # the seeds of these splits come from (TRIED, number)
SIDES = ("source", "target")


class PieceSampler:
    """Splits the texts of pairs at random.

    Args:
        pairs: the training split.
        vocabularies: of source and target; a side whose vocabulary has no pieces is encoded as usual.
        alpha: see SentencePiece.sample.

    Raises:
        UserError: neither side has pieces.
    """

    def __init__(self, pairs: Pairs, vocabularies: tuple[Vocabulary, Vocabulary], alpha: float):
        self._texts, self._alpha = dict(zip(SIDES, (pairs.source, pairs.target), strict=True)), alpha
        self._vocabularies = dict(zip(SIDES, vocabularies, strict=True))
        if not any(vocabulary.has_pieces for vocabulary in vocabularies):
            raise UserError(
                f"task.vocabulary.sample {alpha} needs vocabularies of sentencepiece, whose texts have many splits"
            )

    def sample(self, side: str, indices: Iterable[int], key: tuple[int, ...]) -> list[list[int]] | None:
        """Splits the texts at `indices` of a side, each ending with EOS; None if its vocabulary has no pieces.

        Args:
            side: "source" or "target".
            indices: numbers of pairs.
            key: non-negative integers, the seed of the random splits.
        """
        vocabulary = self._vocabularies[side]
        if not vocabulary.has_pieces:
            return None
        seed = int(np.random.SeedSequence([*key, SIDES.index(side)]).generate_state(1)[0])
        rows = vocabulary.sample([self._texts[side][i] for i in indices], alpha=self._alpha, seed=seed)
        return [[*row, EOS] for row in rows]

    def longest(self, best: EncodedPairs) -> EncodedPairs:
        """Returns for each text the longest among NUM_TRIED random splits and the best split."""
        found = {}
        for side in SIDES:
            ragged = getattr(best, side)
            rows = [row.tolist() for row in np.split(ragged.tokens, ragged.offsets[1:-1])]
            for number in range(NUM_TRIED):
                tried = self.sample(side, range(len(rows)), (TRIED, number)) or rows
                rows = [max(pair, key=len) for pair in zip(rows, tried, strict=True)]
            found[side] = make_ragged(rows)
        return EncodedPairs(**found, evidence=best.evidence)


class SampledBatches(Batches):
    """Batches with random splits: row i of step n depends on (seed, n) and the pairs of its batch.

    The bucket of a pair is chosen by the longest of a few splits. A split in training that does not fit into the bucket
    is replaced by the best split. Each of several processes splits all texts of a batch, so that splits do not depend
    on the number of processes.
    """

    def __init__(self, pairs: EncodedPairs, *args: Any, sampler: PieceSampler, best: EncodedPairs, **options: Any):
        """
        Args:
            pairs: the longest splits, see PieceSampler.longest.
            args, options: see Batches.
            sampler: sampler of the pairs.
            best: the best splits.
        """
        super().__init__(pairs, *args, **options)
        self._sampler, self._best = sampler, best

    def _gather(self, indices: Int[np.ndarray, "..."], shape: tuple[int, int], step: int) -> dict[str, np.ndarray]:
        of_seeds = indices.reshape(-1, indices.shape[-1])
        rows: dict[str, list[list[int]]] = {side: [] for side in SIDES}
        for seed, own in zip(self._seeds, of_seeds, strict=True):
            real = own[own != FILL].tolist()
            for side, length in zip(SIDES, shape, strict=True):
                sampled = self._sampler.sample(side, real, (seed, step)) or [None] * len(real)
                rows[side] += [
                    best_of(self._best, side, i) if row is None or len(row) > length else row
                    for i, row in zip(real, sampled, strict=True)
                ]
        numbers = np.full(of_seeds.size, FILL)
        numbers[of_seeds.reshape(-1) != FILL] = np.arange(len(rows["source"]))
        encoded = EncodedPairs(*(make_ragged(rows[side]) for side in SIDES))
        return encoded.batch(numbers.reshape(indices.shape), shape)


def best_of(best: EncodedPairs, side: str, index: int) -> list[int]:
    """Returns the ids of one text of the best splits."""
    ragged = getattr(best, side)
    return ragged.tokens[ragged.offsets[index] : ragged.offsets[index + 1]].tolist()
