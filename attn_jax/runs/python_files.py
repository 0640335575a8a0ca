"""Files of Python that a user names: configs, sweeps and plugins."""

import importlib
import importlib.util
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from attn_jax.errors import UserError, nearest

OF_PART = re.compile(r"Could not override field '(\w+)' \(reference\)\. (.*) is of original type .*\.ConfigDict'>$")


def config_folder() -> pathlib.Path:
    """Returns the folder of configs: in the checkout if it can be imported, else inside the package."""
    for name in ("configs", "attn_jax.configs"):
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (pathlib.Path(place) / "base.py").is_file():
                return pathlib.Path(place)
    return pathlib.Path("configs")


def load_file(path: pathlib.Path, function: str = "", *arguments: str) -> Any:
    """Runs a Python file; returns the result of `function`(*arguments) in it, if given. A generator becomes a list."""
    if not path.is_file():
        folders = (path.parent, config_folder()) if path.name == str(path) else (path.parent,)
        files = [file for folder in folders for file in folder.glob("*.py")] or list(config_folder().glob("*.py"))
        names = {file.name if path.suffix else file.stem for file in files}
        raise UserError(f"there is no file {path}; {nearest(path.name, names)}")
    if "configs" not in sys.modules and importlib.util.find_spec("configs") is None:
        # Configs import each other ("from configs import base"); an installed package contains them.
        sys.modules["configs"] = importlib.import_module("attn_jax.configs")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise UserError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        # exec_module could use stale bytecode, of a version with the same size saved in the same second.
        exec(spec.loader.source_to_code(path.read_bytes(), str(path)), module.__dict__)
        if not function:
            return None
        if not hasattr(module, function):
            raise UserError(f"{path} has no function {function}()")
        made = getattr(module, function)(*arguments)
        return list(made) if isinstance(made, Iterator) else made
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # any fault in the user's own code
        # Messages of ml_collections have many lines; the first sentence and the nearest key are enough.
        lines = str(error).replace("\\n", "\n").splitlines()
        nearest_key = lines[-1].strip("\"'") if lines and "Did you mean" in lines[-1] else ""
        reason = lines[0].split(" Other fields")[0].strip() if lines else ""
        if found := OF_PART.match(reason):
            reason = (
                f"{found[1]} holds a part, got {found[2]}; expected part(NAME), or sequence(NAME, ...) of several, of "
                "attn_jax.runs.tree"
            )
        elif isinstance(error, SystemExit):
            reason = f"it ends the process, with {error.code!r}; expected a value from {function}()"
        elif isinstance(error, OSError) and error.strerror:
            reason = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
        elif not reason or (isinstance(error, LookupError | AssertionError) and not nearest_key):
            reason = f"{type(error).__name__} {reason}"  # the text alone, such as 'x', does not explain the error
        raise UserError(f"cannot load {path}: {reason} {nearest_key}".rstrip()) from error
