"""Trains, evaluates and applies attention models; see `python launch.py --help`."""

from attn_jax.cli.main import run

if __name__ == "__main__":
    run()
