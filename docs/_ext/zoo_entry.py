"""An entry of the zoo: one page, and the objects whose docstrings it prints."""

import dataclasses
import inspect
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from docstrings import cites, text_of

from attn_jax.attention import core
from attn_jax.attention.normalizers import NORMALIZERS, Normalizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {  # kind -> (title, what its entries are, option that chooses one)
    "scores": ("Scores", "How well a query and a key match.", "model.attention.score"),
    "normalizers": ("Normalizers", "From the scores of a row to its weights.", "model.attention.normalize"),
    "readings": ("Readings", "What is read with a row of weights, and the gradient of it.", "model.objective.reading"),
    "baselines": ("Baselines", "What is subtracted from the loss at a sampled key.", "model.objective.baseline"),
    "objectives": ("Objectives", "Which loss a decoder with attention minimizes.", "model.objective"),
    "mechanisms": ("Mechanisms", "What else attention can have: windows, gates, fitted lines, heads.", ""),
    "memories": ("Memories of fixed size", "Keys and values are written into one matrix.", "model.attention"),
    "outputs": ("Output layers", "From hidden states to words.", "model.output"),
}
TEXTS = {  # the first line of entries whose docstrings begin with something else
    ("baselines", "none"): "b = 0: nothing is subtracted.",
    ("mechanisms", "hopfield"): "Several reads: the mean of the keys under the weights is the next query.",
}
NO_PAPER = {  # entries that need none, and why
    ("scores", "constant"): "It is the mean, which needs no paper; the measure that any other score has to beat.",
    ("readings", "adaptive"): "It was made for this package; its measurements are in results.md.",
    ("baselines", "adaptive"): "It was made for this package; its measurements are in results.md.",
    ("memories", "ridge"): "Ridge regression, solved for each query.",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One page: what it describes, the objects whose docstrings say it, and how its weights are made."""

    kind: str
    name: str
    value: Any  # the entry of the table
    described: tuple = ()  # objects with docstrings, the most special first
    text: str = ""  # in place of docstrings
    weights: Callable[[], Any] | None = None  # on the shared example
    code: str = ""  # how it is used
    option: str = ""

    @property
    def papers(self) -> str:
        """All text in which a paper may be named."""
        return "\n".join([self.text, *(text_of(part) for part in self.described)])

    @property
    def reason(self) -> str:
        """Why there is no paper."""
        return NO_PAPER.get((self.kind, self.name), "")

    @property
    def is_cited(self) -> bool:
        """Tells whether a paper is named, or said why there is none."""
        return bool(self.reason) or cites(self.papers)

    @property
    def file(self) -> pathlib.Path:
        """The file of the first described object."""
        for part in self.described:
            if found := source_of(part):
                return found
        return pathlib.Path(inspect.getfile(core)).resolve()


def source_of(part: Any) -> pathlib.Path | None:
    """Returns the file of an object, if it is one of the package."""
    try:
        found = pathlib.Path(inspect.getsourcefile(inspect.unwrap(part))).resolve()
    except TypeError:
        return None
    return found if found.is_relative_to(ROOT / "attn_jax") else None


def described_by(part: Any) -> tuple:
    """Returns what describes an object: itself, functions of its file that its docstring names, and, if none of these
    cites a paper, its file."""
    module, text = sys.modules[part.__module__], text_of(part)
    own = [x for x in vars(module).values() if inspect.isfunction(x) and x.__module__ == module.__name__]
    paged = [x.function for x in NORMALIZERS.values() if isinstance(x, Normalizer)]  # these have pages of their own
    own = [x for x in own if x not in paged]
    named = [x for x in own if x is not part and text_of(x) and re.search(rf"\b{x.__name__}\b", text)]
    found = (part, *named)
    return found if any(cites(text_of(x)) for x in found) else (*found, module)


def first_line(kind: str, name: str) -> str:
    """Returns the first line of an entry in TEXTS as an item of a list; "" where there is none."""
    text = TEXTS.get((kind, name), "")
    return f"- {text}\n" if text else ""
