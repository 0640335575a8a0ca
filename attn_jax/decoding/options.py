"""Options of decoding."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from attn_jax.decoding.beam_search import beam_search
from attn_jax.decoding.decode import check_sampling, greedy, sample
from attn_jax.errors import UserError
from attn_jax.parts import LARGEST, Options, choice, option
from attn_jax.token_ids import NEVER_GENERATED, UNK


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreedyOptions(Options):
    """Options of greedy decoding; base of the other methods."""

    search: ClassVar[Callable] = staticmethod(greedy)  # (step, memory, state, **arguments) -> Hypotheses
    has_beams: ClassVar[bool] = False  # its Hypotheses have an axis of beams, best first
    is_random: ClassVar[bool] = False  # it takes `rngs`, one for each sentence
    n_best: ClassVar[int] = 1
    seed: ClassVar[int] = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `search` that are specific to the method."""
        return {}

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises a UserError if the vocabulary is too large for the search."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions(GreedyOptions):
    """Options of beam search."""

    search: ClassVar[Callable] = staticmethod(beam_search)
    has_beams: ClassVar[bool] = True

    beam_size: int = option(5, "number of hypotheses", at_least=1, at_most=10_000)
    length_penalty: float = option(
        1.0,
        "exponent alpha of the penalty ((5 + length) / 6) ** alpha (Wu 2016)",
        at_least=-10,  # beyond these limits the score leaves the range of float32
        at_most=10,
    )
    n_best: int = option(1, "predictions per sentence, the best of the beam", at_least=1)

    def __post_init__(self):
        if self.n_best > self.beam_size:
            raise UserError(f"decode.method.n_best {self.n_best} needs a decode.method.beam_size of at least as many")

    @property
    def arguments(self) -> dict[str, Any]:
        return {"beam_size": self.beam_size, "length_penalty": self.length_penalty}

    def check_vocabulary(self, vocab_size: int) -> None:
        if self.beam_size * vocab_size > LARGEST:
            raise UserError(
                f"decode.method.beam_size {self.beam_size} times {vocab_size:,} target tokens are more candidates than "
                f"can be searched; expected a decode.method.beam_size of at most {LARGEST // vocab_size}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions(GreedyOptions):
    """Options of sampling."""

    search: ClassVar[Callable] = staticmethod(sample)
    is_random: ClassVar[bool] = True

    temperature: float = option(1.0, "temperature; the logits are divided by it")
    top_k: int = option(0, "number of most probable tokens to sample from; 0: all")
    top_p: float = option(1.0, "sample from the smallest set of tokens with at least this probability")
    seed: int = option(0, "random seed; 0: derived from the seed of the run", at_least=0, at_most=2**32 - 1, large=True)
    n_best: int = option(1, "samples per sentence", at_least=1)

    def __post_init__(self):
        try:
            check_sampling(self.temperature, self.top_k, self.top_p)
        except ValueError as error:
            raise UserError(f"decode.method: {error}") from None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}


METHODS = {"greedy": GreedyOptions, "beam": BeamOptions, "sample": SampleOptions}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoEnsemble(Options):
    """Options of decoding with a single model."""

    every_seed: ClassVar[bool] = False
    workdirs: ClassVar[tuple] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedEnsemble(NoEnsemble):
    """Options of an ensemble of all seeds of a run."""

    every_seed: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEnsemble(NoEnsemble):
    """Options of an ensemble of several runs."""

    workdirs: tuple = option((), "work directories of other runs with the same vocabularies", each=str, path=True)
    every_seed: bool = option(False, "all seeds of each run, not its chosen one alone")

    def __post_init__(self):
        if not self.workdirs:
            raise UserError("decode.ensemble.workdirs is (); expected work directories of other runs")


ENSEMBLES = {"none": NoEnsemble, "seeds": SeedEnsemble, "runs": RunEnsemble}
UNKNOWN = ("keep", "replace", "forbid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointDecodeOptions(Options):
    """Options of predictions by a kernel regression."""

    # A regression has no options of these names.
    max_length: ClassVar[int] = 0
    ensemble: ClassVar[NoEnsemble] = NoEnsemble()

    batch_size: int = option(100, "points predicted at a time", at_least=1)
    with_scores: bool = option(False, "predict: print 'score TAB value'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeOptions(Options):
    """Options of decoding."""

    method: GreedyOptions = choice(METHODS, "greedy", "decoding method")
    max_length: int = option(
        100,
        "largest number of target tokens, also at most 2 * source + 10, with the end of the source",
        at_least=1,
        at_most=100_000,
    )
    batch_size: int = option(100, "sentences decoded at a time", at_least=1)
    ensemble: NoEnsemble = choice(ENSEMBLES, "none", "mean of the probabilities of several models")
    unk: str = option(
        "keep",
        "unk: as it is generated; replaced by the source word of largest weight, never by a tag; never generated",
        choices=UNKNOWN,
    )
    with_scores: bool = option(False, "predict: print 'score TAB text'")

    @property
    def n_best(self) -> int:
        """Number of predictions for each sentence."""
        return self.method.n_best

    @property
    def replace_unk(self) -> bool:
        """Tells whether a generated unk is replaced by a source word."""
        return self.unk == "replace"

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Tokens that are never generated."""
        return (*NEVER_GENERATED, UNK) if self.unk == "forbid" else NEVER_GENERATED
