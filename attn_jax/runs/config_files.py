"""Files of Python that return configs."""

import ast
import pathlib

from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.paths import user_path
from attn_jax.runs.options import change
from attn_jax.runs.python_files import config_folder, load_file


def load_config_file(spec: str) -> ConfigDict:
    """Loads a config.

    Args:
        spec: path of a file, or name of a config in the package, such as "quickstart".

    Raises:
        UserError: the file cannot be loaded, or has a key that its parts do not have.
    """
    path = find_config(spec)
    config = load_file(path, "get_config")
    if not isinstance(config, ConfigDict):
        raise UserError(f"{path}: get_config() gave a {type(config).__name__}; expected a ConfigDict")
    try:
        return change(config, {})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def find_config(spec: str) -> pathlib.Path:
    """Returns the path of a config: the file itself or, for a bare name, the config in the package."""
    path = user_path(spec)
    packaged = config_folder() / f"{spec}.py"
    return packaged if not path.is_file() and path.name == spec and packaged.is_file() else path


def described_configs() -> dict[str, str]:
    """Returns {name of a config: first sentence of its description}, of the folder of configs."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(config_folder().glob("*.py"))}
    found = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in texts.items()}
    return {name: text.partition("\n\n")[0].replace("\n", " ") for name, text in found.items() if name != "__init__"}
