"""Trains, evaluates and applies attention models; see `python launch.py --help`."""

from attn_jax.cli.__main__ import main

if __name__ == "__main__":
    main()
