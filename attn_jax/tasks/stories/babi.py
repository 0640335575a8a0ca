"""The twenty bAbI tasks: questions about short stories. Weston et al. 2015, arXiv 1502.05698.

    mary moved to the bathroom . john went to the hallway . where is mary ?  ->  bathroom      (evidence: statement 1)

The files are those of version 1.2, in the folders en (1,000 training questions of each task) and en-10k:

    python -m attn_jax.data.download babi --data_dir=data/babi

Without a folder, attn_jax.tasks.stories.worlds generates stories of the same words and rules. Other files of this form
can have any name:

    --config.data_dir=data --config.task.train="('stories.txt', '')" --config.task.test="('more_stories.txt', '')"
"""

import dataclasses
import pathlib
import re
from typing import Any, ClassVar

from attn_jax.data.facts import Kept, Stories
from attn_jax.data.vocabulary import StoryWords
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import SEED, TextOptions, first_names
from attn_jax.tasks.stories.format import join_pairs, keep_last, read_questions
from attn_jax.tasks.stories.worlds import generate
from attn_jax.tasks.task import Pairs, Task
from attn_jax.token_ids import UNK

FOLDERS = {"1k": "en", "10k": "en-10k"}
NUMBERS = tuple(range(1, 21))
NUM_EXAMPLES = {"1k": 1000, "10k": 10_000}  # generated questions of each task, for training and validation
TEST_SIZE = 1000  # generated test questions of each task
VALID_SHARE = 10  # the last 1 / VALID_SHARE of the training questions are the validation split


def find(folder: pathlib.Path, number: int, split: str) -> pathlib.Path:
    """Finds the file of a task in a folder.

    Raises:
        UserError: there is no such file, or more than one.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; expected it to hold files such as qa1_single-supporting-fact_train.txt"
        )
    names = sorted(path.name for path in folder.iterdir())
    found = [name for name in names if re.fullmatch(rf"qa{number}_.*_{split}\.txt", name)]
    if not found:
        raise UserError(f"{folder}: the file of task {number}, qa{number}_*_{split}.txt, is missing")
    if len(found) > 1:
        raise UserError(f"{folder}: several files of task {number}, {', '.join(found)}; expected one")
    return folder / found[0]


def _first(pairs: Pairs, name: str, count: int, least: int = VALID_SHARE) -> Pairs:
    """Returns the first `count` pairs (0: all); raises a UserError if there are too few for a validation split."""
    if len(pairs) < least:
        raise UserError(f"{name} has {len(pairs)} training questions; expected at least {least}")
    if count and not least <= count <= len(pairs):
        raise UserError(
            f"task.num_examples {count}: expected 0 (all), or {least} to {len(pairs)}, the training questions of {name}"
        )
    return pairs.select(range(count or len(pairs)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BabiOptions(TextOptions):
    """Options of the task of answering questions about stories.

    The questions come from one or several of the twenty tasks together, or from a file. The validation split is the
    last tenth of the training questions of each task; some of these questions belong to a story that starts in
    training. Source and target share one vocabulary, StoryWords of all training text, so the output layer can use the
    word embeddings. Answers outside of the vocabulary are unk; the stats count them.

    If `train` names one file, it replaces the twenty tasks; with a `valid` file all of it is used for training, and
    without a `test` file there is no test split. `num_examples` is the number of training questions of each task or of
    the file, from the first, including validation.

    Test files contain some training questions (the stats count them). Generated test questions all differ from each
    other and from training; so they lack the most frequent questions of tasks 4 and 20, which have few different ones.
    """

    data_kinds: ClassVar[tuple[str, ...]] = ("text", "stories")
    name: ClassVar[str] = "babi"

    numbers: tuple = option((), "bAbI tasks to train jointly, such as (1, 2, 3); (): all twenty")
    size: str = option("10k", "questions per task for training and validation", choices=FOLDERS)
    max_sentences: int = option(0, "number of last statements of a story that are kept; 0: all")
    train: tuple = option(
        ("", ""), "(name, ''): file of stories in data_dir, in place of the bAbI tasks", each=str, path=True
    )
    valid: tuple = option(
        ("", ""), "(name, ''): validation file; empty: a tenth of train is held out", each=str, path=True
    )
    test: tuple = option(("", ""), "(name, ''): test file", each=str, path=True)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task.

        Raises:
            UserError: a file (see attn_jax.tasks.stories.format), a number or a size is wrong.
        """
        given = self._questions(data_dir)
        trained = given.pop("train")
        parts_of_split = {"train": [], "valid": [], **given}
        for pairs in trained:
            held_out = 0 if "valid" in given else len(pairs) // VALID_SHARE
            parts_of_split["train"].append(pairs.select(range(len(pairs) - held_out)))
            if held_out:
                parts_of_split["valid"].append(pairs.select(range(len(pairs) - held_out, len(pairs))))
        splits, stats, cut, lost = {}, {}, 0, 0
        for name, parts in parts_of_split.items():
            pairs = join_pairs(parts)
            splits[name], more_cut, more_lost = keep_last(pairs, self.max_sentences)
            stats[name] = len(splits[name])
            if name == "train" and (count := sum(not numbers for numbers in pairs.evidence)):
                stats["training questions without supporting facts"] = count
            cut, lost = cut + more_cut, lost + more_lost
        if kept is None:
            texts = [*splits["train"].source, *splits["train"].target]
            words = StoryWords.train(texts, vocab_size=0)
            kept = Kept(words, words, Stories.of(map(words.tokenize, texts)))
        known = set(splits["train"].source)
        for name in [name for name in splits if name != "train"]:
            if count := sum(text in known for text in splits[name].source):
                stats[f"{name} questions that training has too"] = count
            if count := sum(UNK in kept.target.encode(text) for text in splits[name].target):
                stats[f"{name} answers that training never has"] = count
        if cut:
            stats |= {"statements cut": cut, "supporting statements cut": lost}
        return Task("babi", splits, *kept, stats=stats)

    def _questions(self, data_dir: str) -> dict[str, list[Pairs]]:
        """Reads or generates the questions: for each split, a list with the questions of each task."""
        folder, count = pathlib.Path(data_dir), self.num_examples
        files = {"train": self.train, "valid": self.valid, "test": self.test}
        if two := [split for split, names in files.items() if any(names[1:])]:
            raise UserError(f"task.{two[0]} has a second name; expected one file of stories, ('NAME', '')")
        names = first_names(**files)
        if "train" in names:
            read = {split: [read_questions(folder / name)] for split, name in names.items()}
            least = 1 if "valid" in read else VALID_SHARE
            return read | {"train": [_first(*read["train"], names["train"], count, least)]}
        if names:
            alone = next(iter(names.values()))
            raise UserError(f"the file {alone} is for task.train=('NAME', ''), a file of stories; got {self.train}")
        chosen = self.numbers or NUMBERS
        if any(isinstance(n, bool) or n not in NUMBERS for n in chosen) or len(set(chosen)) < len(chosen):
            expected = "expected different numbers from 1 to 20, such as (1,), or () for all"
            raise UserError(f"task.numbers {chosen}: {expected}")
        if data_dir:
            folder /= FOLDERS[self.size]
            trained = [_first(read_questions(find(folder, n, "train")), f"task {n}", count) for n in chosen]
            return {"train": trained, "test": [read_questions(find(folder, n, "test")) for n in chosen]}
        of_size = NUM_EXAMPLES[self.size]
        if (made := count or of_size) < VALID_SHARE:
            raise UserError(f"task.num_examples {count}: expected at least {VALID_SHARE}, or 0 ({of_size})")
        trained = [generate(n, made, f"{SEED} train") for n in chosen]
        seen = [set(pairs.source) for pairs in trained]
        tested = [generate(n, TEST_SIZE, f"{SEED} test", exclude=of) for n, of in zip(chosen, seen, strict=True)]
        return {"train": trained, "test": tested}

    @property
    def cut_by(self) -> dict[str, tuple[str, ...]]:
        names = ("train", "valid", "size", "num_examples")
        made = {} if any(self.train) else {"test": names}  # generated test questions exclude all training questions
        return made | ({} if any(self.valid) else {"valid": names})

    def read_file(self, path: pathlib.Path) -> Pairs:
        return keep_last(read_questions(path), self.max_sentences)[0]
