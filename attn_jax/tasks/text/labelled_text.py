"""Classification of texts from files with lines `text TAB label`; the label is a target of one token."""

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any, ClassVar

from attn_jax.data.splits import hold_out, same_text, seen_in_training
from attn_jax.data.text import read_lines
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError, nearest
from attn_jax.tasks.options import VocabularyOptions, first_names
from attn_jax.tasks.task import Pairs, Task

HELD_OUT = 2018  # seed of the permutation for validation lines and subsets, independent of the seed of a run
LINE = "text TAB label"


def _texts(pairs: Pairs) -> list[str]:
    return list(map(same_text, pairs.source))


def read_labelled(path: pathlib.Path, labels: Iterable[str] = ()) -> Pairs:
    """Reads the lines `text TAB label` of a file as pairs (text, label). Spaces around a label are removed.

    Args:
        path: path of the file.
        labels: allowed labels; () allows all.

    Raises:
        UserError: as in attn_jax.data.text.read_lines; a line does not have exactly one tab, or has no text or no
            label; or a label is not one word or not allowed.
    """
    allowed = dict.fromkeys(labels)
    source, target = [], []
    for number, line in enumerate(read_lines(path, expected=LINE), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(f"{path}, line {number}: expected {LINE}, with one tab, got {len(columns) - 1}")
        text, label = columns[0], columns[1].strip()
        if not text.strip() or not label:
            raise UserError(
                f"{path}, line {number}: the {'label' if text.strip() else 'text'} is empty; expected {LINE}"
            )
        if len(label.split()) > 1:
            raise UserError(
                f"{path}, line {number}: the label {label!r} is more than one word; expected a label without spaces, "
                f"such as {'_'.join(label.split())}"
            )
        if allowed and label not in allowed:
            raise UserError(
                f"{path}, line {number}: the label {label!r} is not in the training file; {nearest(label, allowed)}"
            )
        source.append(text)
        target.append(label)
    return Pairs(source, target)


def label_vocabulary(labels: Iterable[str], where: str) -> Words:
    """Makes a vocabulary of all labels, in alphabetical order.

    Args:
        labels: one word each, possibly repeated.
        where: source of the labels, for error messages.

    Raises:
        UserError: there are fewer than two different labels.
    """
    different = sorted(set(labels))
    if len(different) < 2:
        raise UserError(f"{where}: only the label {different[0]!r}; expected at least two to tell apart")
    return Words(different)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTextOptions(VocabularyOptions):
    """Options of the task of classifying texts. Of train, valid, test and vocab_size only the first part is used.

    Without a validation file, the last `valid_size` training lines of a fixed shuffle are held out, and training lines
    with a held-out text are dropped. The lines of a smaller `num_examples` are a subset of the lines of a larger one.
    The labels are the labels of the whole training file, so other files may use all of them, even labels that the
    chosen subset lacks; any other label is an error.
    """

    name: ClassVar[str] = "labelled_text"

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task.

        Raises:
            UserError: a file (see `read_labelled`), a label, a size or a name is wrong.
        """
        names = first_names(train=self.train, valid=self.valid, test=self.test)
        paths = {split: pathlib.Path(data_dir) / name for split, name in names.items()}
        if "train" not in paths:
            raise UserError(f"task.train names no file; expected one with lines {LINE}")
        pairs = read_labelled(paths["train"])
        labels = label_vocabulary(pairs.target, str(paths.pop("train")))
        others = {split: read_labelled(path, pairs.target) for split, path in paths.items()}
        cut = hold_out(
            pairs,
            others.get("valid"),
            valid_size=self.valid_size,
            num_examples=self.num_examples,
            seed=HELD_OUT,
            same=_texts,
            what="lines",
        )
        splits = {"train": cut.train, "valid": cut.valid} | others
        stats = {name: len(split) for name, split in splits.items()} | {"labels": len(set(pairs.target))}
        stats |= {} if "valid" in others else {"training lines with the text of a held-out one": cut.equal}
        stats |= seen_in_training(splits, _texts, "texts")
        vocabularies = kept or (self.vocabulary.train(cut.train.source, self.vocab_size[0]), labels)
        return Task("labelled_text", splits, *vocabularies, stats=stats)

    def read_file(self, path: pathlib.Path) -> Pairs:
        return read_labelled(path)
