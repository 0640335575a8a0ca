"""Writes the reference of the public names into docs/api before Sphinx looks for pages: signatures and docstrings."""

import dataclasses
import importlib
import inspect
import os
import pathlib
import re
import shutil
from typing import Any

import docstrings

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = {  # module with public names -> what it is
    "attn_jax": "What `import attn_jax` offers.",
    "attn_jax.attention": "The wrappers around the parts of attention, and heads.",
    "attn_jax.attention.scores": "All scores; the table SCORES has them by name.",
    "attn_jax.attention.normalizers": "All normalizers; the table NORMALIZERS has them by name.",
    "attn_jax.attention.hard.readings": "All readings; the table READINGS has them by name.",
    "attn_jax.attention.recurrent": "Memories of fixed size.",
    "attn_jax.outputs": "Output layers; the table OUTPUTS has their options by name.",
}
HIDDEN = ("parent", "name")  # fields of every flax module
LONGEST = 88  # characters of a signature on one line


def names_of(module: Any) -> list[str]:
    """Returns the public names of a module: its __all__, or the functions and classes that it defines itself."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [name for name in own if not name.startswith("_") and callable(getattr(module, name))]


def members() -> dict[str, list[tuple[str, Any]]]:
    """Returns (name, object) of each module; an object is listed once, where it comes first."""
    seen, found = set(), {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        of_module = [(name, getattr(module, name)) for name in names_of(module)]
        found[module_name] = [(name, value) for name, value in of_module if id(value) not in seen]
        seen |= {id(value) for _, value in of_module}
    return found


def signature(name: str, value: Any) -> str:
    """Returns how a function or a class is called, with annotations, in lines that are not too long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [x for x in found.parameters.values() if x.name not in HIDDEN]
    shown = [re.sub(r"(?:[a-z_]+\.)+(?=[A-Z])", "", str(x.replace(default=_Shown(x.default)))) for x in parameters]
    starred = [i for i, x in enumerate(parameters) if x.kind is x.KEYWORD_ONLY]
    if starred and not any(x.kind is x.VAR_POSITIONAL for x in parameters):
        shown.insert(starred[0], "*")
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= LONGEST else f"{name}(\n    " + ",\n    ".join(shown) + ",\n)"


class _Shown:
    """A default value as it reads best: functions by their names, objects without addresses."""

    def __new__(cls, value: Any) -> Any:
        return value if value is inspect.Parameter.empty else super().__new__(cls)

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self) -> str:
        if inspect.isfunction(self.value) or isinstance(self.value, type):
            return self.value.__name__
        return re.sub(r" at 0x[0-9a-f]+", "", repr(self.value)).splitlines()[0]


def section(name: str, value: Any) -> str:
    """Returns the part of a page about a name."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        kind = f"A table of {len(value)}: " + ", ".join(f"`{key}`" for key in value) if isinstance(value, dict) else ""
        return f"## {name}\n\n{kind or docstrings.escape(str(type(value).__name__))}\n"
    parts = [
        f"## {name}\n",
        f"```python\n{signature(name, value)}\n```\n",
        docstrings.markdown(docstrings.text_of(value)),
    ]
    options = getattr(value, "__dataclass_fields__", {}) if inspect.isclass(value) else {}
    meanings = {key: field.metadata["option"].meaning for key, field in options.items() if "option" in field.metadata}
    parts += [f"- `{key}`: {docstrings.escape(meaning)}\n" for key, meaning in meanings.items()]
    if file := inspect.getsourcefile(inspect.unwrap(value)):
        path = pathlib.Path(file).resolve()
        if path.is_relative_to(ROOT):
            parts.append(f"[{path.name}]({os.path.relpath(path, ROOT / 'docs' / 'api')})\n")
    for method_name, method in methods(value).items():
        parts += [f"### `{name}.{method_name}`\n", f"```python\n{signature(method_name, method)}\n```\n"]
        parts.append(docstrings.markdown(docstrings.text_of(method)))
    return "\n".join(parts)


def methods(value: Any) -> dict[str, Any]:
    """Returns the public methods of a class with docstrings of their own, but for those that flax adds, and fields."""
    if not inspect.isclass(value):
        return {}
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    return {
        name: method
        for name, method in vars(value).items()
        if inspect.isfunction(method)
        and method.__module__.startswith("attn_jax")
        and name not in fields
        and (name == "__call__" or not name.startswith("_"))
        and docstrings.text_of(method)
    }


def pages() -> dict[str, str]:
    """Returns the text of each page by its name."""
    found = {"index": "# Reference\n\nThe public names, from their docstrings.\n\n| | |\n|---|---|\n"}
    for module, inside in members().items():
        page = module.replace(".", "_")
        found["index"] += f"| [{module}]({page}.md) | {', '.join(f'`{name}`' for name, _ in inside)} |\n"
        sections = "\n".join(section(name, value) for name, value in inside)
        found[page] = f"# {module}\n\n{MODULES[module]}\n\n{sections}"
    toctree = "\n".join(name for name in found if name != "index")
    found["index"] += f"\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"
    return found


def write(folder: pathlib.Path) -> int:
    """Writes the pages, and returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = pages()
    for name, text in found.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return len(found)


def setup(app):
    app.connect("builder-inited", lambda app: write(pathlib.Path(app.srcdir, "api")))
    return {"version": "1", "parallel_read_safe": True}
