"""Entry point: `python -m attn_jax.cli` is the same as `python launch.py`."""

from attn_jax.cli.main import run

if __name__ == "__main__":
    run()
