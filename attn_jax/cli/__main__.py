"""Entry point: `python -m attn_jax.cli` and `attn-jax` are the same as `python launch.py`."""

import sys

from attn_jax.cli import program
from attn_jax.cli.allocator import keep_memory


def main() -> None:
    """Runs the command line of this process and exits."""
    try:
        keep_memory()
        try:
            from attn_jax.cli.main import run  # after a new start, not before it as well
        except ModuleNotFoundError as error:
            sys.exit(f"{program.name()}: needs {error.name}: pip install 'attn_jax[train]'")
        run()
    except KeyboardInterrupt:  # Ctrl-C while the libraries are imported
        sys.exit(130)


if __name__ == "__main__":
    main()
