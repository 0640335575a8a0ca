"""Language modelling: the source is the empty text, the target is a line of a text or a block of tokens.

The text comes from UTF-8 files. Without a folder it is generated: sentences in which the verb agrees with its subject,
and not with a noun in between (as in Linzen et al. 2016, arXiv 1611.01368):

    the old keys near the cabinet shine .      every dog sees the small houses .

Each line and each block starts after bos and ends with eos; no state is passed from block to block. The loss of a block
of n tokens has n + 1 terms; the term of eos is soon close to zero, because its position is fixed.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from attn_jax.data.pieces import SentencePiece
from attn_jax.data.splits import check_count, check_left, same_text, seen_in_training
from attn_jax.data.text import read_text
from attn_jax.data.vocabulary import TEXT_VOCABULARIES, Characters, Vocabulary
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import SEED, VocabularyOptions, first_names
from attn_jax.tasks.task import Pairs, Task

NUM_SENTENCES = 10_000  # size of the generated text, for training and validation
TEST_SIZE = 1000

NOUNS = (
    *((word, word + "s") for word in "bird boat cabinet cat doctor dog farmer garden house key lamp letter".split()),
    *((word, word + "s") for word in "painter river singer teacher tower tree".split()),
    *(("child", "children"), ("man", "men"), ("mouse", "mice"), ("woman", "women")),
)
ADJECTIVES = "big bright dark green happy little old quiet red small strange tall young".split()
PREPOSITIONS = "above behind beside near with".split()
TRANSITIVE = [(word + "s", word) for word in "admire find follow hear know like remember see".split()]
INTRANSITIVE = [(word + "s", word) for word in "fall glow run shine sing sleep swim wait".split()]
DETERMINERS = (("the", "a", "every", "this"), ("the", "some", "all", "these"))  # singular, plural


def _hold_out_the_end(whole: Sequence[str], valid_size: int, block: int, kind: type) -> dict[str, Sequence[str]]:
    """Splits the last `valid_size` lines or blocks off a training text; returns both parts."""
    size = block or 1
    most = (len(whole) - 1) // size
    what = "lines" if not block else "characters" if kind is Characters else "words"
    if most < 1:
        raise UserError(
            f"the training text has {len(whole)} {what}, too few to hold {size} of them out; name a validation file in "
            "task.valid, or set a smaller task.block"
        )
    if not 0 < valid_size <= most:
        raise UserError(
            f"task.valid_size {valid_size}: expected 1 to {most}, as the training text has {len(whole)} {what} and "
            "there is no validation file"
        )
    return {"train": whole[: -valid_size * size], "valid": whole[-valid_size * size :]}


def _without(train: list[str], held_out: list[str]) -> tuple[list[str], int]:
    """Returns the training examples that equal no held-out example, and the number of dropped examples."""
    seen = set(map(same_text, held_out))
    rest = [text for text in train if same_text(text) not in seen]
    check_left(len(rest), len(train) + len(held_out), len(held_out), "examples")
    return rest, len(train) - len(rest)


def divide(text: str, block: int, kind: type) -> Sequence[str]:
    """Splits a text into the lines that are not blank or, for blocks, into characters or words."""
    if not block:
        return [line for line in text.split("\n") if line and not line.isspace()]
    return text if kind is Characters else text.split()


def make_blocks(part: Sequence[str], block: int, vocabulary: Vocabulary) -> list[str]:
    """Joins the characters or words of a text into blocks of `block` tokens. The last block may be shorter.

    With SentencePiece a block consists of whole words with at most `block` pieces in total, so that encoding a block
    gives the same tokens again. A longer word is a block of its own.
    """
    if not isinstance(vocabulary, SentencePiece):
        return _join(part, block)
    pieces = {word: len(vocabulary.encode(word)) for word in dict.fromkeys(part)}
    blocks: list[list[str]] = []
    room = 0
    for word in part:
        if not blocks or pieces[word] > room:
            blocks.append([])
            room = block
        blocks[-1].append(word)
        room -= pieces[word]
    return [" ".join(words) for words in blocks]


def beginnings(texts: Sequence[str], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Returns the first quarters of three texts, as prompts. Prompts are not blank and have no line end."""
    found = []
    for tokens in map(vocabulary.tokenize, texts[:100]):
        beginning = vocabulary.join(tokens[: -(-len(tokens) // 4)])
        if beginning.strip() and "\n" not in beginning:
            found.append(beginning)
    return tuple(found[:3])


def make_sentences(count: int, rng: np.random.Generator) -> list[str]:
    """Samples different sentences; a smaller count gives the beginning of a larger one."""

    def pick(options: Sequence):
        return options[rng.integers(len(options))]

    def noun_phrase(number: int) -> list[str]:
        adjectives = [pick(ADJECTIVES)] if rng.random() < 0.5 else []
        return [pick(DETERMINERS[number]), *adjectives, pick(NOUNS)[number]]

    sentences: dict[str, None] = {}
    while len(sentences) < count:
        number = int(rng.integers(2))
        words = noun_phrase(number)
        if rng.random() < 0.5:
            words += [pick(PREPOSITIONS), *noun_phrase(int(rng.integers(2)))]
        if rng.random() < 0.5:
            words += [pick(INTRANSITIVE)[number]]
        else:
            words += [pick(TRANSITIVE)[number], *noun_phrase(int(rng.integers(2)))]
        sentences[" ".join([*words, "."])] = None
    return list(sentences)


def _join(part: Sequence[str], size: int) -> list[str]:
    between = "" if isinstance(part, str) else " "
    return [between.join(part[i : i + size]) for i in range(0, len(part), size)]


def _read_text(path: pathlib.Path) -> str:
    """Reads a text with line ends LF or CR LF."""
    text = read_text(path).replace("\r\n", "\n")
    if text.isspace():
        raise UserError(f"{path}: the file is empty; expected a text")
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainTextOptions(VocabularyOptions):
    """Options of the task of predicting a text; it uses the first file of train, valid and test, and vocab_size[1].

    An example is a line that is not blank, or a block of the whole text. Without a validation file, the last
    `valid_size` lines or blocks of the training text are held out, and training examples equal to a held-out example
    are dropped. (With SentencePiece the held-out end is cut by words, each of which has one or more tokens; only the
    first `valid_size` blocks of it are used.) A smaller `num_examples` takes the first examples. The vocabulary, shared
    by both sides, is trained on the whole training text for every `num_examples`, so that perplexities can be compared.
    The generated text has a test split of TEST_SIZE sentences.
    """

    has_sources: ClassVar[bool] = False
    name: ClassVar[str] = "plain_text"

    block: int = option(0, "tokens per example; 0: each line is an example")

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        return {name: (*options, "block") for name, options in super().cut_by.items()}

    def read_file(self, path: pathlib.Path) -> Pairs:
        raise UserError(
            f"--source={path}: a text is measured as the test file; expected --config.task.test=\"('FILE', '')\""
        )

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task; raises a UserError if a file, a size or a name is wrong."""
        block, kind = self.block, TEXT_VOCABULARIES[self.vocabulary.name]
        if block < 0:
            raise UserError(f"task.block {block}: expected the number of tokens of a block, or 0 for lines")
        parts = {name: divide(text, block, kind) for name, text in self._texts(data_dir).items()}
        held_out = "valid" not in parts
        if held_out:
            others = {name: part for name, part in parts.items() if name != "train"}
            parts = _hold_out_the_end(parts["train"], self.valid_size, block, kind) | others
        learned = kept or (self.vocabulary.train(_join(parts["train"], block or 1), self.vocab_size[1]),) * 2
        examples = {name: make_blocks(part, block, learned[1]) if block else list(part) for name, part in parts.items()}
        stats = {}
        if held_out:
            examples["valid"] = examples["valid"][: self.valid_size]  # with SentencePiece there may be more
            examples["train"], equal = _without(examples["train"], examples["valid"])
            stats = {"training examples equal to a held-out one": equal} if equal else {}
        check_count(self.num_examples, len(examples["train"]), "examples")
        examples["train"] = examples["train"][: self.num_examples or None]
        splits = {name: Pairs([""] * len(some), some) for name, some in examples.items()}
        what = "blocks" if block else "lines"
        stats |= seen_in_training(splits, lambda pairs: list(map(same_text, pairs.target)), what)
        stats = {name: len(split) for name, split in splits.items()} | stats
        prompts = beginnings(splits["valid"].target, learned[1])
        return Task("plain_text", splits, *learned, stats=stats, examples=prompts)

    def _texts(self, data_dir: str) -> dict[str, str]:
        """Reads or generates the text of each split."""
        if not data_dir:
            sentences = make_sentences(NUM_SENTENCES + TEST_SIZE, np.random.default_rng(SEED))
            return {"train": "\n".join(sentences[:NUM_SENTENCES]), "test": "\n".join(sentences[NUM_SENTENCES:])}
        names = first_names(train=self.train, valid=self.valid, test=self.test)
        if "train" not in names:
            raise UserError("task.train names no file; expected a text file")
        return {split: _read_text(pathlib.Path(data_dir) / name) for split, name in names.items()}
