"""Entry point: `python -m attn_jax.cli` and `attn-jax` are the same as `python launch.py`."""

from attn_jax.cli.allocator import use_huge_pages


def main() -> None:
    """Runs the command line of this process and exits."""
    use_huge_pages()
    from attn_jax.cli.main import run  # after a new start, not before it as well

    run()


if __name__ == "__main__":
    main()
