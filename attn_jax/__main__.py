"""Entry point: `python -m attn_jax` is the same as `attn-jax` and `python launch.py`."""

from attn_jax.cli.__main__ import main

if __name__ == "__main__":
    main()
