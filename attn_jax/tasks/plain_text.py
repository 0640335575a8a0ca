"""Language modelling: the source is the empty text, the target is a line of a text, or a block of so many tokens.

The text comes from UTF-8 files, or, without a folder, is made here: sentences in which the verb agrees with its
subject, and not with the noun that may stand between them (as in Linzen et al. 2016, arXiv 1611.01368):

    the old keys near the cabinet shine .      every dog sees the small houses .

Each target, a block too, begins after bos and ends with eos; nothing is carried over from the block before. So the
loss of a block of n tokens is over n + 1, and the eos, of which a model soon knows the place, costs next to nothing.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from attn_jax.errors import UserError, lookup
from attn_jax.tasks.splits import check_count, check_left
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text import read_text
from attn_jax.tasks.vocabulary import Characters, SentencePiece, Vocabulary, Words

NUM_SENTENCES = 10_000  # of the text made here, for training and validation
TEST_SIZE = 1000
KINDS = {"words": Words, "characters": Characters, "sentencepiece": SentencePiece}

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


def plain_text(
    *,
    data_dir: str | pathlib.Path,
    train: Sequence[str],
    valid: Sequence[str],
    test: Sequence[str],
    valid_size: int,
    num_examples: int,
    block: int,
    vocabulary: str,
    vocab_size: Sequence[int],
    min_count: int,
    sentencepiece: str,
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
    seed: int = 0,
) -> Task:
    """The task of predicting a text. An example is a line that is not blank, or a block of the whole text.

    Without a validation file the end of the training text is held out: its last `valid_size` lines or blocks; training
    examples equal to a held-out one are left out. (With SentencePiece the end is cut off in words, of which each is a
    token or more; what it has beyond `valid_size` blocks is not used.) A smaller `num_examples` takes the first of a
    larger one's examples. The vocabulary, one for both sides, is of the whole training text whatever
    `num_examples`, so that perplexities can be compared.

    Args:
        data_dir: folder of the files; "" is the text made here, which has a test split of TEST_SIZE sentences.
        train, valid, test: file names, of which the first counts; "" where there is none.
        valid_size: lines or blocks to hold out where there is no validation file.
        num_examples: training lines or blocks; 0 means all.
        block: tokens of a block, see `make_blocks`; 0 means lines.
        vocabulary: name in KINDS.
        vocab_size: of it the second counts, the target's.
        min_count, sentencepiece: see configs/base.py.
        vocabularies: (source, target) of an earlier run; None makes them.
        seed: of the text made here.

    Raises:
        UserError: something is wrong with a file, a size or a name.
    """
    kind = lookup(KINDS, vocabulary, "vocabulary of plain_text")
    if block < 0:
        raise UserError(f"task.block {block}: expected the number of tokens of a block, or 0 for lines")
    if str(data_dir):
        texts = _read(pathlib.Path(data_dir), {"train": train, "valid": valid, "test": test})
    else:
        sentences = make_sentences(NUM_SENTENCES + TEST_SIZE, np.random.default_rng(seed))
        texts = {"train": "\n".join(sentences[:NUM_SENTENCES]), "test": "\n".join(sentences[NUM_SENTENCES:])}
    parts = {name: divide(text, block, kind) for name, text in texts.items()}
    size = block or 1
    held_out = "valid" not in parts
    if held_out:
        whole = parts["train"]
        most = (len(whole) - 1) // size
        what = "lines" if not block else "characters" if kind is Characters else "words"
        if most < 1:
            raise UserError(
                f"the training text has {len(whole)} {what}, too few to hold {size} of them out; name a validation "
                "file in task.valid, or set a smaller task.block"
            )
        if not 0 < valid_size <= most:
            raise UserError(
                f"task.valid_size {valid_size}: expected 1 to {most}, as the training text has {len(whole)} {what} and "
                "there is no validation file"
            )
        tail = valid_size * size
        parts = {"train": whole[:-tail], "valid": whole[-tail:]} | {k: v for k, v in parts.items() if k != "train"}
    if vocabularies is None:
        options = {"vocab_size": vocab_size[1], "min_count": min_count, "model_type": sentencepiece}
        vocabularies = (kind.train(_join(parts["train"], size), **options),) * 2
    examples = {
        name: make_blocks(part, block, vocabularies[1]) if block else list(part) for name, part in parts.items()
    }
    stats = {}
    if held_out:
        examples["valid"] = examples["valid"][:valid_size]  # of SentencePiece there may be more
        seen = set(examples["valid"])
        kept = [text for text in examples["train"] if text not in seen]
        if count := len(examples["train"]) - len(kept):
            stats["training examples equal to a held-out one"] = count
        check_left(len(kept), len(examples["train"]) + len(examples["valid"]), len(examples["valid"]), "examples")
        examples["train"] = kept
    most = len(examples["train"])
    check_count(num_examples, most, "examples")
    examples["train"] = examples["train"][: num_examples or None]
    splits = {name: Pairs([""] * len(some), some) for name, some in examples.items()}
    stats = {name: len(split) for name, split in splits.items()} | stats
    return Task(
        "plain_text", splits, *vocabularies, stats=stats, examples=beginnings(splits["valid"].target, vocabularies[1])
    )


def divide(text: str, block: int, kind: type) -> Sequence[str]:
    """What examples are made of: the lines that are not blank, or for blocks the characters or the words of a text."""
    if not block:
        return [line for line in text.split("\n") if line and not line.isspace()]
    return text if kind is Characters else text.split()


def make_blocks(part: Sequence[str], block: int, vocabulary: Vocabulary) -> list[str]:
    """The characters or words of a text, one after the other, as texts of `block` tokens each. The last may be shorter.

    Encoding a text gives the tokens again that it was made of. So that this is true of SentencePiece too, its blocks
    are of whole words: as many as have at most `block` pieces. A word of more pieces is a block by itself.
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
    """A quarter of the tokens of three texts, for a model to go on with. None has a line end, or spaces only."""
    found = []
    for tokens in map(vocabulary.tokenize, texts[:100]):
        beginning = vocabulary.join(tokens[: -(-len(tokens) // 4)])
        if beginning.strip() and "\n" not in beginning:
            found.append(beginning)
    return tuple(found[:3])


def make_sentences(count: int, rng: np.random.Generator) -> list[str]:
    """Different sentences; fewer are the first of more."""

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


def _read(folder: pathlib.Path, files: dict[str, Sequence[str]]) -> dict[str, str]:
    """The text of each split whose first file has a name. A line ends with LF or CR LF."""
    names = {split: next(iter(names), "") for split, names in files.items()}
    if not names["train"]:
        raise UserError("task.train names no file; expected a text file")
    return {split: _read_text(folder / name) for split, name in names.items() if name}


def _read_text(path: pathlib.Path) -> str:
    text = read_text(path).replace("\r\n", "\n")
    if text.isspace():
        raise UserError(f"{path}: the file is empty; expected a text")
    return text
