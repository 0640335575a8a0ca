"""Faults made by rule from the source, a random sample of all that the rules can make.

    comparison    < and <=, > and >=, == and != are exchanged
    arithmetic    + and -, * and / are exchanged
    logic         and and or are exchanged; "not x" is x
    constant      True and False are exchanged; an integer is one larger

Docstrings, annotations, assertions, messages of errors and defaults of options are left alone. A fault is named by its
file, line, column and rule, such as "training/loop.py:86:16 constant". It is noticed if a test of its file fails, or
one of its folder; with --own, if a test of its file does.
"""

import ast
import itertools
import pathlib
import random
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TARGETS = ("attention", "decoding/beam_search.py", "decoding/decode.py", "training")  # below attn_jax
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
COMPARISONS |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")}
ARITHMETIC = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
TESTED_BY = {  # where the tests of a file have another name, or there are several
    "decoding/beam_search.py": ("decoding/test_decode.py",),
    "attention/convolution.py": ("models/transformer/test_transformer.py",),
    "attention/normalizers/forms.py": ("attention/test_blockwise.py",),
    "training/parallel.py": ("training/test_parallel.py", "training/test_fsdp.py"),
    "models/ensemble.py": ("models/test_ensemble.py", "models/test_mixed_ensemble.py"),
    "models/picture_options.py": ("models/test_picture_models.py",),
    "layers/glimpses.py": ("layers/test_crops.py", "models/glimpses/test_glimpses.py"),
    "models/glimpses": ("models/glimpses/test_glimpses.py",),
    "runs/exported_decoder.py": ("runs/test_export.py",),
}
USED_BY = {  # folder -> tests of what is built from it, for faults that no test of its own notices
    "attention/hard": ("models/seq2seq", "test_library.py"),
    "attention": (
        "attention/test_blockwise.py",
        "attention/test_core.py",
        "attention/test_multi_head.py",
        "models/transformer",
        "test_library.py",
    ),
    "training": ("runs/test_run_training.py", "faults/test_kills.py"),
    "evaluation": ("evaluation/test_text_evaluation.py", "cli/test_commands.py"),
}
SHORT_CUT = "a short cut: with top_k 0 and top_p 1 the filter that follows keeps every token"
ONE_SHAPE = "only the shape is used, and that of every block is the same"
# Faults that no test can notice, and why; a sample counts them as explained. The key is the file and the line with the
# fault in it, without its indentation, which outlive a change above the line.
EXPLAINED: dict[tuple[str, str], str] = {
    (
        "decoding/beam_search.py",
        "return now.done | (now.t >= limits) | (now.ended.score[:, -1] > best_ahead)",
    ): "a search that goes on at a tie finds nothing better, since scores only fall",
    (
        "attention/normalizers/constrained.py",
        "low = jnp.where(_sum(jnp.clip(x, 0.0, u)) > 1, 0.0, -1.0)",
    ): "where the sum is exactly one, both brackets hold the root 0",
    ("decoding/decode.py", "if top_k == 1 and top_p == 1:"): SHORT_CUT,
    ("decoding/decode.py", "if top_k == 0 and top_p == 2:"): SHORT_CUT,
    (
        "attention/linear_systems.py",
        "going = square >= least",
    ): "a residual that is exactly as large as rounding may be taken as either",
    ("attention/blockwise.py", "scores = jax.eval_shape(masked, jax.tree.map(lambda x: x[1], blocks))"): ONE_SHAPE,
    (
        "attention/random_features.py",
        "return jnp.where(total >= 0, read / jnp.where(total > 0, total, 1.0), 0.0).astype(values.dtype)",
    ): "where the total is 0, the read is 0, divided by 1",
    (
        "training/options.py",
        'ON_NAN = {"stop": 0, "rewind": 11}  # how often a run may rewind',
    ): "a choice; that a run goes back so often and no more is tested with a smaller number",
    (
        "attention/scores/random_features.py",
        "parts = [jnp.exp(x - m) for x, m in zip((of_query, of_keys), largest, strict=False)]",
    ): "both have two parts",
    (
        "attention/multi_head.py",
        "if shared >= 1 and self.attention.map.per_head:",
    ): "to repeat every head once changes nothing",
    (
        "training/checkpoints.py",
        "shutil.rmtree(unfinished, ignore_errors=False)",
    ): "whether an error of removing is told; no test makes a folder that cannot be removed by root",
    (
        "attention/hard/straight_through.py",
        "shift = jnp.where(possible, jnp.log(jnp.where(possible, to, 2)), 0) - finite(log_weights)",
    ): "the number stands in for an impossible key, whose logarithm is not used",
    (
        "attention/normalizers/entmax.py",
        "part = jnp.where(right >= left, (1 - left) / jnp.where(right > left, right - left, 1), 0.0)",
    ): "where both sums are equal, both sides are the same weights",
    (
        "training/parallel.py",
        "if has_device_axis and x.is_fully_replicated:",
    ): "in one process all parts are at hand, so only what is copied to the host differs, not what is returned",
    (
        "layers/glimpses.py",
        "part = jax.lax.dynamic_slice(padded, (top, left, 1), (side, side, pixels.shape[2])) / 255.0",
    ): "a slice of all channels begins at channel 0, where dynamic_slice puts every other beginning",
    (
        "runs/exported_decoder.py",
        "for length in range(max(limits, default=1)):",
    ): "without sources, one step more adds no token to any",
}


class Fault(NamedTuple):
    """A fault, and what may notice it."""

    name: str
    file: str  # below attn_jax
    line: str
    becomes: str  # the line with the fault in it
    rule: str
    begin: int  # in bytes of the file
    end: int
    new: str
    tests: tuple[tuple[str, ...], ...]  # files below tests, those of a group after those of another


def explanation(fault: Fault) -> str:
    """Why no test can notice a fault, or nothing."""
    return EXPLAINED.get(key_of(fault), "")


def key_of(fault: Fault) -> tuple[str, str]:
    """What names a fault wherever its line is."""
    return fault.file, fault.becomes


def files(targets: tuple[str, ...] = TARGETS) -> list[pathlib.Path]:
    """The files that are mutated: these, and all of these folders."""
    found = []
    for target in targets:
        path = ROOT / "attn_jax" / target
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [path for path in found if path.name != "__init__.py"]


def checked_by(path: pathlib.Path) -> tuple[tuple[str, ...], ...]:
    """The tests of a file: its own, if there are some, then all others of its folder, then those of its users."""
    inside = path.relative_to(ROOT / "attn_jax")
    named = (str(inside.parent / f"test_{inside.name}"),)
    own = TESTED_BY.get(str(inside), TESTED_BY.get(str(inside.parent), named))
    of_folder = sorted(str(test.relative_to(TESTS)) for test in (TESTS / inside.parent).glob("test_*.py"))
    others = tuple(test for test in of_folder if test not in own)
    groups = tuple(filter(None, (own, others))) if (TESTS / own[0]).exists() else (others,)
    further = next((tests for folder, tests in USED_BY.items() if str(inside).startswith(folder)), ())
    return (*groups, further) if further else groups


def edits(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yields (begin, end, new text, rule) of each fault of a source text; places are in bytes of its UTF-8."""
    data = text.encode()
    starts = [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]
    at = lambda node, end=False: (  # noqa: E731
        starts[(node.end_lineno if end else node.lineno) - 1] + (node.end_col_offset if end else node.col_offset)
    )

    def between(left: ast.AST, right: ast.AST, old: str, new: str, rule: str):
        begin, end = at(left, end=True), at(right)
        place = data[begin:end].find(old.encode())
        if place >= 0:
            yield begin + place, begin + place + len(old), new, rule

    for node in visited(ast.parse(text)):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for left, right, op in zip(operands, operands[1:], node.ops, strict=False):
                if type(op) in COMPARISONS:
                    yield from between(left, right, *COMPARISONS[type(op)], "comparison")
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            if not any(
                isinstance(part, ast.Constant) and isinstance(part.value, str) for part in (node.left, node.right)
            ):
                yield from between(node.left, node.right, *ARITHMETIC[type(node.op)], "arithmetic")
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in itertools.pairwise(node.values):
                yield from between(left, right, old, new, "logic")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield at(node), at(node) + len("not"), "", "logic"
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
            new = str(not node.value) if type(node.value) is bool else str(node.value + 1)
            yield at(node), at(node, end=True), new, "constant"


def visited(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes in which a fault would be one."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr):
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(node, ast.ClassDef) and name == "keywords":  # such as kw_only=True
                continue
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "option":
                continue
            todo += [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST)]


def all_mutations(targets: tuple[str, ...] = TARGETS) -> list[Fault]:
    """Every fault of every file."""
    found = []
    for path in files(targets):
        text, inside, tests = (
            path.read_text(encoding="utf-8"),
            str(path.relative_to(ROOT / "attn_jax")),
            checked_by(path),
        )
        data, lines = text.encode(), text.splitlines()
        for begin, end, new, rule in edits(text):
            line = data.count(b"\n", 0, begin)
            column = begin - (data.rfind(b"\n", 0, begin) + 1)
            name = f"{inside}:{line + 1}:{column} {rule}"
            becomes = mutated(text, begin, end, new).splitlines()[line].strip()
            found.append(Fault(name, inside, lines[line].strip(), becomes, rule, begin, end, new, tests))
    return found


def mutated(text: str, begin: int, end: int, new: str) -> str:
    """The text with a fault."""
    data = text.encode()
    return (data[:begin] + new.encode() + data[end:]).decode()


def sample(count: int, seed: int, targets: tuple[str, ...] = TARGETS) -> list[Fault]:
    """A random sample, the same for the same source, seed and files."""
    found = sorted(all_mutations(targets))
    return random.Random(seed).sample(found, min(count, len(found)))
