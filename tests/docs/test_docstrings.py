"""Examples in docstrings are executed, and names in docstrings and comments lead somewhere, in the whole package."""

import ast
import doctest
import importlib
import io
import pathlib
import re
import tokenize

import jax
import jax.numpy as jnp
import pytest

import attn_jax

ROOT = pathlib.Path(attn_jax.__file__).resolve().parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def examples(path: pathlib.Path) -> list[tuple[str, str]]:
    """(name, docstring) of everything in a file whose docstring has an example."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, DOCUMENTED)]
    found = [(getattr(node, "name", path.stem), ast.get_docstring(node) or "") for node in nodes]
    return [(name, text) for name, text in found if ">>> " in text]


def globals_of(path: pathlib.Path) -> dict:
    """What an example may use: the names of its module, and five queries, keys and values of eight columns."""
    dotted = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    query, keys, values = jax.random.normal(jax.random.key(0), (3, 5, 8))
    names = {"jax": jax, "jnp": jnp, "attn_jax": attn_jax, "rng": jax.random.key(1)}
    return vars(importlib.import_module(dotted)) | names | {"query": query, "keys": keys, "values": values}


def prose(path: pathlib.Path) -> str:
    """The docstrings and comments of a file."""
    text = path.read_text(encoding="utf-8")
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*docstrings, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def home(name: str) -> str:
    """The dotted name of the module where a dotted name is defined; "" if there is no such name.

    A package, such as attn_jax itself, may pass on the names of its modules; a module may not.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = ".".join(parts[:length])
        try:
            found = module = importlib.import_module(place)
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return ""
            found = getattr(found, part)
        passes_on = hasattr(module, "__path__") or length == len(parts)
        defined = place if passes_on else getattr(getattr(module, parts[length]), "__module__", place)
        return defined if defined.startswith("attn_jax") else place  # a type may be one of another library
    return ""


FILES = [path for path in sorted(ROOT.rglob("*.py")) if examples(path)]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_print_what_they_say(path):
    runner = doctest.DocTestRunner(verbose=False)
    for name, text in examples(path):
        runner.run(doctest.DocTestParser().get_doctest(text, globals_of(path), name, str(path), 0))
    assert runner.tries > 0 and runner.failures == 0


@pytest.mark.slow
def test_names_in_docstrings_and_comments_lead_somewhere():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        for name in set(re.findall(r"\battn_jax(?:\.\w+)+", prose(path))):
            if not name.startswith(place := home(name)) or not place:
                wrong.append(f"{path.relative_to(ROOT.parent)}: {name}{f' is in {place}' if place else ''}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("attn_jax.attend", "attn_jax"),
        ("attn_jax.tasks.task.Task.kept", "attn_jax.tasks.task"),
        ("attn_jax.tasks.text.inflection.read_forms", "attn_jax.tasks.text.inflection_files"),
        ("attn_jax.tasks.task.Task.keep", ""),
        ("attn_jax.taskz", ""),
    ],
)
def test_the_home_of_a_name(name, place):
    assert home(name) == place


def test_the_main_names_have_examples():
    for name in ("attend", "Attention", "MultiHead", "combine", "blockwise_attention", "softmax", "sparsemax"):
        assert ">>> " in (getattr(attn_jax, name).__doc__ or ""), name
