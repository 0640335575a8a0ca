"""The table of modes: the command, the flags and the unread options of each mode."""

from typing import NamedTuple

MEASURES = ("eval.", "task.tokenize")
SCORED = (*MEASURES, "decode.method.", "decode.unk", "decode.with_scores")  # unread by score, which does not search


class Mode(NamedTuple):
    """A mode of the command line."""

    command: str  # function of commands.py
    flags: tuple[str, ...] = ()  # flags that it takes, among those that only some modes take
    unread: tuple[str, ...] = ()  # prefixes of keys that it does not read, besides those of training


MODES = {
    "train": Mode("train"),
    "eval": Mode("evaluation", ("source", "target", "split"), ("decode.with_scores",)),
    "compare": Mode("compare", ("baseline", "measured")),
    "predict": Mode("predict", ("source",), MEASURES),
    "score": Mode("score", ("source", "target"), SCORED),
    "visualize": Mode("visualize", ("source",), MEASURES),
    "analyze": Mode("analyze", ("source", "target", "split", "gold"), ("decode.with_scores",)),
    "report": Mode("report", ("source", "target", "split", "num_examples"), ("decode.with_scores",)),
    "profile": Mode("profile"),
    "export": Mode("export", (), (*MEASURES, "decode.method.", "decode.with_scores")),
}


def modes_with(flag: str) -> list[str]:
    """Returns the names of the modes that take a flag."""
    return [name for name, mode in MODES.items() if flag in mode.flags]


OF_MODES = tuple(dict.fromkeys(flag for mode in MODES.values() for flag in mode.flags))
