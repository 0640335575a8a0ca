"""What `attn_jax/__init__.pyi` says to editors and type checkers: where each public name comes from.

    python tests/stub.py        writes it; tests/test_library.py compares it with the package

The package imports its names at their first use, which no type checker can follow.
"""

import pathlib

import attn_jax

PATH = pathlib.Path(__file__).resolve().parents[1] / "attn_jax" / "__init__.pyi"


def text() -> str:
    """Returns the text of the file: one import for each public name, sorted."""
    # In the order of imports that ruff expects: constants, classes, functions.
    order = lambda name: (attn_jax._MODULE_OF[name], not name.isupper(), not name[0].isupper(), name)  # noqa: E731
    names = sorted(attn_jax.__all__, key=order)
    imports = [f"from {attn_jax._MODULE_OF[name]} import {name} as {name}" for name in names]
    # attn_jax.attention is a package that can be called, too; to a type checker it is the function.
    parts = [path.rpartition(".")[::2] for name, path in attn_jax._PACKAGES.items() if name != "attention"]
    imports += [f"from {package} import {name} as {name}" for package, name in parts]
    end = ["", "attention = build_attention", "__version__: str", ""]
    return "\n".join(["# Written by tests/stub.py.", *sorted(imports, key=lambda x: x.split()[1]), *end])


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
