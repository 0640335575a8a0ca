"""The program as a module: `python -m attn_jax.cli` is `python launch.py`."""

from attn_jax.cli.main import run

if __name__ == "__main__":
    run()
