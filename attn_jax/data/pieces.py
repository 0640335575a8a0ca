"""Vocabularies of subword pieces, by SentencePiece."""

import base64
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsIndex

import numpy as np
import sentencepiece

from attn_jax.errors import UserError, check_known
from attn_jax.token_ids import BOS, EOS, PAD, SPECIAL, UNK, content

MODEL_TYPES = ("unigram", "bpe")
MOST_PIECES = 8000  # where a text would allow more
NUM_BEST = 64  # unigram: number of best splits that `sample` chooses from


class SentencePiece:
    """Subword pieces of a unigram or BPE model. Kudo and Richardson 2018, arXiv 1808.06226.

    The model is stored as bytes and needs no file. Text is normalized, so decode(encode(text)) is the normalized text:
    NFKC with single spaces, where U+200B, U+200C, U+200E, U+200F and U+FEFF are spaces as well.
    """

    kind = "sentencepiece"
    form = ""
    has_tags = False
    has_pieces = True
    counts: np.ndarray | None = None  # of each piece in the training targets, if an output layer needs counts

    def __init__(self, model: bytes):
        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise UserError(f"not a SentencePiece model ({error})") from None

    @classmethod
    def train(cls, lines: Iterable[str], *, vocab_size: int, min_count: int = 1, model_type: str = "unigram"):
        """Trains a model of exactly `vocab_size` pieces, including the four special ones, that covers all characters.

        Args:
            lines: the training text.
            vocab_size: number of pieces; 0: as many as the text allows, at most MOST_PIECES.
            min_count: not used; a model has exactly the given number of pieces.
            model_type: "unigram" or "bpe".

        Raises:
            UserError: no model of this size can be trained on this text; the message has the nearest possible size.
                Errors of `lines` are raised unchanged.
        """
        check_known(model_type, MODEL_TYPES, "sentencepiece model")
        size = vocab_size or MOST_PIECES
        if size <= len(SPECIAL):
            raise UserError(
                f"vocab_size {vocab_size} is too small; expected more than {len(SPECIAL)}, the special pieces"
            )
        model = io.BytesIO()
        raised: list[BaseException] = []  # errors of `lines`, which SentencePiece would replace by its own

        def read() -> Iterator[str]:
            try:
                yield from lines
            except (Exception, KeyboardInterrupt) as error:
                raised.append(error)
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=read(),
                model_writer=model,
                vocab_size=size,
                hard_vocab_limit=bool(vocab_size),
                model_type=model_type,
                character_coverage=1.0,  # rare kanji are rare, but they carry the meaning
                max_sentence_length=1 << 30,  # bytes, the maximum; longer lines would be skipped silently
                num_threads=1,  # partial sums in one order: the same text gives the same model on every machine
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                pad_piece=SPECIAL[PAD],
                unk_piece=SPECIAL[UNK],
                bos_piece=SPECIAL[BOS],
                eos_piece=SPECIAL[EOS],
                minloglevel=2,
            )
        except RuntimeError as error:
            if raised:
                raise raised[0] from None
            raise UserError(_size_error(size, str(error))) from None
        return cls(model.getvalue())

    def tokenize(self, text: str) -> list[str]:
        """Splits a text into pieces, one for each id of `encode`; "▁" stands for a space before the piece."""
        return self._processor.encode(text, out_type=str)

    def text_places(self, text: str) -> slice:
        """Returns the slice of tokens that are no tags: all tokens."""
        return slice(None)

    def encode(self, text: str) -> list[int]:
        """Encodes a text, without BOS and EOS."""
        return self._processor.encode(text)

    def sample(self, texts: Sequence[str], *, alpha: float, seed: int) -> list[list[int]]:
        """Encodes texts, split at random, without BOS and EOS. The same seed gives the same ids.

        A model of BPE leaves out each merge with probability alpha (BPE dropout: Provilkov 2020, arXiv 1910.13267). A
        unigram model samples one of the NUM_BEST best ways to split a text, with its probability to the power of alpha
        (subword regularization: Kudo 2018, arXiv 1804.10959).

        Args:
            texts: texts to encode.
            alpha: see above.
            seed: at least 0 and below 2^32; seed of SentencePiece's generator, which all processors of a thread share.
        """
        sentencepiece.set_random_generator_seed(seed)
        options = dict(enable_sampling=True, alpha=alpha, nbest_size=NUM_BEST)
        return [self._processor.encode(text, **options) for text in texts]

    def tokens(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Returns one piece for each id, including special ones, as labels for plots."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Decodes the ids before the first EOS; PAD and BOS are skipped."""
        return self.join(self.tokens(content(ids)))

    def join(self, tokens: Iterable[str]) -> str:
        """Concatenates the pieces, with a space for "▁"."""
        return "".join(tokens).replace("▁", " ").strip()

    def __len__(self) -> int:
        return len(self._processor)

    def to_json(self) -> dict:
        """Returns a dict of strings for `from_json`."""
        return {"kind": self.kind, "model": base64.b64encode(self._model).decode("ascii")}

    @classmethod
    def from_json(cls, data: dict) -> "SentencePiece":
        """Makes a vocabulary from the result of `to_json`."""
        return cls(base64.b64decode(data["model"]))

    def __reduce__(self):
        return SentencePiece, (self._model,)


def _size_error(vocab_size: int, message: str) -> str:
    """Turns a message of SentencePiece, which begins with a C++ file and condition, into one line."""
    if largest := re.search(r"too high .*<= (\d+)", message):
        return f"vocab_size {vocab_size} is too large for this text, 0 would fit; the largest possible is {largest[1]}"
    if smallest := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return f"vocab_size {vocab_size} is too small for this text; the smallest possible is {smallest[1]}"
    return f"no SentencePiece model of vocab_size {vocab_size} can be trained on this text: {' '.join(message.split())}"
