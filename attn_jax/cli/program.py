"""The name of the program, by the way it was started."""

import pathlib
import sys

COMMANDS = {"launch.py": "python launch.py", "attn-jax": "attn-jax", "attn_jax": "python -m attn_jax"}


def name() -> str:
    """Returns the name in front of an error: launch.py, attn-jax, or attn_jax for `python -m attn_jax`."""
    path = pathlib.Path(sys.argv[0])
    found = path.parent.name if path.name == "__main__.py" else path.name
    return found if found in COMMANDS else "launch.py"


def command() -> str:
    """Returns the command that started this process, as a user types it."""
    return COMMANDS[name()]
