"""Trains, evaluates and uses models of attention; `python launch.py --help` says how."""

from attn_jax.cli.main import run

if __name__ == "__main__":
    run()
