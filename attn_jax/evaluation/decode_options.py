"""Options of decoding."""

from typing import NamedTuple

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.decode import METHODS, check_sampling


class DecodeOptions(NamedTuple):
    """The options in config.decode."""

    method: str
    beam_size: int
    length_penalty: float
    n_best: int
    temperature: float
    top_k: int
    top_p: float
    max_length: int
    batch_size: int
    replace_unk: bool
    with_scores: bool
    seed: int = 0  # of sampling; 0: that of the run

    def check(self) -> None:
        """Raises a UserError if an option is out of its range."""
        lookup(METHODS, self.method, "decode.method")
        for name in ("beam_size", "n_best", "max_length", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"decode.{name} is {getattr(self, name)}; expected at least 1")
        if self.method != "sample" and self.n_best > (self.beam_size if self.method == "beam" else 1):
            raise UserError(
                f"decode.n_best {self.n_best} needs decode.method=beam and a decode.beam_size of at least as many, or "
                "decode.method=sample"
            )
        if not 0 <= self.seed < 2**32:
            raise UserError(f"decode.seed is {self.seed}; expected 0 to {2**32 - 1}")
        check_sampling(self.temperature, self.top_k, self.top_p)
