"""The table of modes: for each the command that it runs, the flags that it takes, and the options it does not read."""

from typing import NamedTuple

MEASURES = ("eval.", "task.tokenize")
SCORED = (*MEASURES, "decode.method.", "decode.unk", "decode.with_scores")  # of no effect where nothing is searched


class Mode(NamedTuple):
    """A mode of the command line."""

    command: str  # function of commands.py
    flags: tuple[str, ...] = ()  # of those that not all modes take
    unread: tuple[str, ...] = ()  # beginnings of keys that it does not read, besides those of the training alone


MODES = {
    "train": Mode("train"),
    "eval": Mode("evaluation", ("source", "target", "split"), ("decode.with_scores",)),
    "compare": Mode("compare", ("baseline", "measured")),
    "predict": Mode("predict", ("source",), MEASURES),
    "score": Mode("score", ("source", "target"), SCORED),
    "visualize": Mode("visualize", ("source",), MEASURES),
    "analyze": Mode("analyze", ("source", "target", "split", "gold"), ("decode.with_scores",)),
    "report": Mode("report", ("source", "target", "split", "num_examples"), ("decode.with_scores",)),
    "export": Mode("export", (), (*MEASURES, "decode.method.", "decode.with_scores")),
}


def modes_with(flag: str) -> list[str]:
    """Returns the names of the modes that take a flag."""
    return [name for name, mode in MODES.items() if flag in mode.flags]


OF_MODES = tuple(dict.fromkeys(flag for mode in MODES.values() for flag in mode.flags))
