"""Weights of a report's page, read as its script reads them."""

from attn_jax.inspection.report.run import DIGITS, OFFSET, RUNS


def read_digits(text: str) -> list[int]:
    """The integers that attn_jax.inspection.report.run.digits_of has written."""
    places = [bytes(DIGITS).decode().index(character) for character in text]
    found = []
    for high, low in zip(places[::2], places[1::2], strict=True):
        code = 64 * high + low
        found += [0] * (code - RUNS) if code > RUNS else [code - OFFSET]
    return found
