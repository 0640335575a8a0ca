"""Examples in docstrings are executed, in the whole package."""

import ast
import doctest
import importlib
import pathlib

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


FILES = [path for path in sorted(ROOT.rglob("*.py")) if examples(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_print_what_they_say(path):
    runner = doctest.DocTestRunner(verbose=False)
    for name, text in examples(path):
        runner.run(doctest.DocTestParser().get_doctest(text, globals_of(path), name, str(path), 0))
    assert runner.tries > 0 and runner.failures == 0


def test_the_main_names_have_examples():
    for name in ("attend", "Attention", "MultiHead", "combine", "blockwise_attention", "softmax", "sparsemax"):
        assert ">>> " in (getattr(attn_jax, name).__doc__ or ""), name
