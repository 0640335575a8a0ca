"""Translation of texts with a sequence model: encoded, batched by length, decoded, and put back in order."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.data.batching import EncodedPairs, encode_pairs, eval_batches, round_up
from attn_jax.data.buckets import make_buckets
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.decoding.beam_search import Following
from attn_jax.decoding.decode import Growth, Hypotheses, rooms_of
from attn_jax.decoding.options import DecodeOptions
from attn_jax.decoding.unknown_words import replace_unk
from attn_jax.models.base import Model
from attn_jax.tasks.task import Encode
from attn_jax.token_ids import BOS, EOS, PAD, SPECIAL, UNK, content
from attn_jax.types import Array, Int, Params, PRNGKeyArray, Source

FURTHER = 2**32 - 1  # folded into the rng for the second and later samples; no sentence has this number


class Translation(NamedTuple):
    """A translation of a sentence."""

    text: str
    log_prob: float  # log-probability of the tokens, eos included
    score: float  # log_prob / length penalty
    ids: tuple[int, ...] | None = None  # token ids without eos; None: unknown


def begin(model: Model, params: Params, source: Source, length: int, beam_size: int = 0) -> dict[str, Any]:
    """Reads the sources: returns the step, memory, state and growth of a search.

    Args:
        model: functions of (params, batch).
        params: parameters of the model.
        source: of all sentences.
        length: largest number of tokens of an output.
        beam_size: 0: for a search without beams.
    """
    rooms = rooms_of(length) if model.grows else [length]
    growth = Growth(partial(model.grow, params), rooms)
    if beam_size and model.follows_beams:
        memory, state = model.start_beams(params, source, rooms[0], beam_size)
        return dict(step=Following(partial(model.step_beams, params)), memory=memory, state=state, growth=growth)
    memory, state = model.start(params, source, rooms[0])
    return dict(step=partial(model.step_top_k, params), memory=memory, state=state, growth=growth)


class Translator:
    """A sequence model with its vocabularies and the options of decoding.

    Args:
        model: functions of (params, batch), see attn_jax.models.base.Model.
        source_vocabulary, target_vocabulary: as in training.
        options: see DecodeOptions.
        seed: seed of random samples.
        encode: function from pairs to ids: `encode_pairs`, `encode_stories` or `encode_pictures`.
        limit_by_source: outputs have at most 2 s + 10 tokens for s source tokens, eos included; not for images.
        buckets: buckets of training; see attn_jax.data.batching.round_up.
    """

    def __init__(
        self,
        model: Model,
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        options: DecodeOptions,
        *,
        seed: int = 0,
        encode: Encode = encode_pairs,
        limit_by_source: bool = True,
        buckets: Sequence = (),
    ):
        self.model, self.options, self._encode, self._by_length = model, options, encode, limit_by_source
        self.source_vocabulary, self.target_vocabulary = source_vocabulary, target_vocabulary
        self._largest = tuple(map(max, zip(*make_buckets(buckets), strict=True))) if buckets else (0, 0)
        self._rng = jax.random.key(seed)
        self._rng_further = jax.random.fold_in(self._rng, FURTHER)
        self.attention_weights = jax.jit(model.attention_weights)
        self._decode = jax.jit(self._decode_batch)

    def encode(self, pairs: Pairs) -> EncodedPairs:
        """Encodes both sides of the pairs as ids."""
        return self._encode(pairs, self.source_vocabulary, self.target_vocabulary)

    def limits(self, pairs: EncodedPairs) -> Int[np.ndarray, " n"]:
        """Returns the maximal number of output tokens for each of n pairs, including an eos."""
        most = np.full(len(pairs), self.options.max_length)
        return self._most(pairs.source.lengths) if self._by_length else most

    def _most(self, source_length: int | Int[np.ndarray, " n"]) -> np.integer | Int[np.ndarray, " n"]:
        """Returns the maximal number of output tokens for a source of this length, eos included in both."""
        return np.minimum(self.options.max_length, 2 * source_length + 10)

    def outputs(self, params: Params, texts: Sequence[str]) -> list[str]:
        """Returns the best translation of each text; empty where decoding found none, such as after divergence."""
        return self.translated(params, texts).target

    def translated(self, params: Params, texts: Sequence[str]) -> Pairs:
        """Returns the texts with their `outputs` and the output ids, since encoding an output may give other ids."""
        nothing = Translation("", -math.inf, -math.inf)
        best = [found[0] if found else nothing for found in self.translate(params, texts)]
        return Pairs(list(texts), [one.text for one in best], target_ids=[one.ids for one in best])

    def target_tokens(self, text: str, ids: Sequence[int] | None = None) -> list[str]:
        """Returns the tokens of a target text or, if given, of the `ids` that it was decoded from."""
        written = self.target_vocabulary.tokenize(text)
        if ids is None:
            return written
        tokens = self.target_vocabulary.tokens(ids)
        if len(written) != len(tokens):
            return tokens
        # A word that decode.replace_unk has copied is shown in place of unk.
        return [word if i == UNK else token for word, token, i in zip(written, tokens, ids, strict=True)]

    def translate(self, params: Params, texts: Sequence[str], first: int = 0) -> list[list[Translation]]:
        """Returns the n_best translations of each text, best first; they do not depend on the other texts.

        The translation of an empty text is empty. Samples depend on the number of the text, counted from `first`, so
        that a part of a longer list gets the same samples as in the whole list. The n_best samples of a text are
        independent and not sorted; the first one equals the sample for n_best = 1.
        """
        results = [[Translation("", 0.0, 0.0)] if not text.strip() else [] for text in texts]
        filled = [i for i, text in enumerate(texts) if text.strip()]
        if not filled:
            return results
        encoded = self.encode(Pairs([texts[i] for i in filled], [""] * len(filled)))
        longest = self.limits(encoded)
        for indices, batch in eval_batches(encoded, self.options.batch_size, largest=self._largest):
            rows = np.arange(len(batch["target_in"]))
            limits = np.zeros(len(rows), np.int32)
            limits[: len(indices)] = longest[indices]
            numbers = np.zeros(len(rows), np.uint32)
            numbers[: len(indices)] = [first + filled[i] for i in indices]
            decoded = jax.device_get(self._decode(params, batch["source"], limits, numbers))
            for row, index in enumerate(indices):
                results[filled[index]] = self._translations(params, texts[filled[index]], decoded, row)
        return results

    def _translations(self, params: Params, text: str, decoded: Any, row: int) -> list[Translation]:
        found = []
        for beam in range(self.options.n_best):
            if not np.isfinite(decoded.log_prob[row, beam]):
                continue  # an empty place: fewer sentences than beams
            ids = content(decoded.tokens[row, beam, : decoded.length[row, beam]])
            words = self._replaced(params, text, ids) if self.options.replace_unk and UNK in ids else None
            words = self.target_vocabulary.decode(ids) if words is None else self.target_vocabulary.join(words)
            log_prob, score = float(decoded.log_prob[row, beam]), float(decoded.score[row, beam])
            found.append(Translation(words, log_prob, score, tuple(ids)))
        return found

    def _replaced(self, params: Params, text: str, ids: list[int]) -> list[str]:
        encoded = self.encode(Pairs([text], [""], target_ids=[tuple(ids)]))
        shape = round_up((int(encoded.source.lengths[0]), len(ids) + 1), self._largest)
        batch = encoded.batch(np.array([0]), shape)
        weights = np.asarray(self.attention_weights(params, batch))[0]
        vocabulary = self.source_vocabulary
        # Tags, and the eos before them, are not part of the output.
        places = vocabulary.text_places(text)
        copied = vocabulary.tokenize(text)[places]
        return replace_unk(self.target_vocabulary.tokens(ids), weights[:, places], copied, SPECIAL[UNK])

    def _decode_batch(self, params: Params, source: Source, limits: Int[Array, " b"], numbers: Array) -> Hypotheses:
        """Decodes a batch; the fields of the result are [b, n_best, ...]."""
        options = self.options
        # Every step reads the whole caches of the decode state, so their length is that of the longest possible output.
        length = int(self._most(source.shape[1])) if self._by_length else options.max_length
        method = options.method
        arguments = method.arguments | dict(max_length=length, limits=limits, bos=BOS, eos=EOS, pad=PAD)
        arguments |= begin(self.model, params, source, length, arguments.get("beam_size", 0))
        search = partial(method.search, **arguments, forbidden=options.forbidden)
        if method.is_random:
            rngs = [jax.vmap(jax.random.fold_in, (None, 0))(self._rng_of(j), numbers) for j in range(options.n_best)]
            if options.n_best > 1:
                return jax.vmap(lambda rngs: search(rngs=rngs), out_axes=1)(jnp.stack(rngs))
            search = partial(search, rngs=rngs[0])
        return search() if method.has_beams else jax.tree.map(lambda x: x[:, None], search())

    def _rng_of(self, number: int) -> PRNGKeyArray:
        """Returns the rng of sample `number` of all sentences."""
        seed = self.options.method.seed
        if not number and not seed:
            return self._rng
        return jax.random.fold_in(jax.random.fold_in(self._rng_further, seed), number)
