"""Options of decoding and evaluation."""

import dataclasses
from typing import ClassVar, NamedTuple

from attn_jax.errors import UserError
from attn_jax.evaluation.beam_search import beam_search
from attn_jax.evaluation.decode import check_sampling, greedy, sample
from attn_jax.options import LARGEST, option
from attn_jax.token_ids import NEVER_GENERATED, UNK
from attn_jax.types import Callable


class Method(NamedTuple):
    """A decoding method and the arguments that only it takes."""

    search: Callable  # (step, memory, state, **arguments) -> Hypotheses
    options: tuple[str, ...] = ()  # names of its options
    has_beams: bool = False  # its Hypotheses have an axis of beams, best first
    is_random: bool = False  # it takes `rngs`, one for each sentence


METHODS = {
    "greedy": Method(greedy),
    "beam": Method(beam_search, options=("beam_size", "length_penalty"), has_beams=True),
    "sample": Method(sample, options=("temperature", "top_k", "top_p"), is_random=True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointDecodeOptions:
    """Options of predictions by a kernel regression."""

    # A regression has no options of these names.
    max_length: ClassVar[int] = 0
    ensemble: ClassVar[bool] = False
    runs: ClassVar[tuple] = ()

    batch_size: int = option(100, "points predicted at a time", at_least=1)
    with_scores: bool = option(False, "predict: print 'score TAB value'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """Options of decoding."""

    method: str = option("greedy", "decoding method", choices=METHODS)
    beam_size: int = option(5, "beam: number of hypotheses", at_least=1, at_most=10_000, only=("method", ("beam",)))
    length_penalty: float = option(
        1.0,
        "beam: exponent alpha of the penalty ((5 + length) / 6) ** alpha (Wu 2016)",
        at_least=-10,  # beyond these it leaves the range of float32
        at_most=10,
        only=("method", ("beam",)),
    )
    n_best: int = option(
        1,
        "predictions per sentence: the best of the beam, or samples",
        at_least=1,
        only=("method", ("beam", "sample")),
    )
    temperature: float = option(1.0, "sample: temperature; the logits are divided by it", only=("method", ("sample",)))
    top_k: int = option(
        0, "sample: number of most probable tokens to sample from; 0: all", only=("method", ("sample",))
    )
    top_p: float = option(
        1.0, "sample from the smallest set of tokens with at least this probability", only=("method", ("sample",))
    )
    seed: int = option(
        0,
        "sample: random seed; 0: derived from the seed of the run",
        at_least=0,
        at_most=2**32 - 1,
        large=True,
        only=("method", ("sample",)),
    )
    max_length: int = option(
        100,
        "largest number of target tokens, also at most 2 * source + 10, with the end of the source",
        at_least=1,
        at_most=100_000,
    )
    batch_size: int = option(100, "sentences decoded at a time", at_least=1)
    ensemble: bool = option(False, "predict and evaluate with the mean of the probabilities of all seeds of the run")
    runs: tuple = option(
        (),
        "work directories of other runs with the same vocabularies, whose probabilities are averaged with this run's; "
        "of each run the chosen seed, or with ensemble all",
        each=str,
        path=True,
    )
    replace_unk: bool = option(False, "replace each unk by the source word of largest attention weight, never by a tag")
    forbid_unk: bool = option(False, "never generate unk")
    with_scores: bool = option(False, "predict: print 'score TAB text'")

    def __post_init__(self):
        if self.method != "sample" and self.n_best > (self.beam_size if self.method == "beam" else 1):
            raise UserError(
                f"decode.n_best {self.n_best} needs decode.method=beam and a decode.beam_size of at least as many, or "
                "decode.method=sample"
            )
        check_sampling(self.temperature, self.top_k, self.top_p)
        if self.replace_unk and self.forbid_unk:
            raise UserError(
                "decode.replace_unk replaces unk, which decode.forbid_unk never generates; expected one of them"
            )

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Tokens that are never generated."""
        return (*NEVER_GENERATED, UNK) if self.forbid_unk else NEVER_GENERATED

    def check_vocabulary(self, vocab_size: int) -> None:
        """Checks that the number of candidates of a beam search fits into an int32.

        Raises:
            UserError: it does not.
        """
        if self.method == "beam" and self.beam_size * vocab_size > LARGEST:
            raise UserError(
                f"decode.beam_size {self.beam_size} times {vocab_size:,} target tokens are more candidates than can be "
                f"searched; expected a decode.beam_size of at most {LARGEST // vocab_size}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointEvalOptions:
    """Options of evaluating a kernel regression."""

    metrics: tuple = option(("mse",), "metrics to compute on the test split", each=str)
    num_pictures: int = option(8, "number of pictures to plot at the end of a run", at_least=0, affects="nothing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of evaluating a text model."""

    metrics: tuple = option(
        ("perplexity", "bleu", "chrf", "exact_match", "accuracy"),
        "metrics to compute on the test split",
        each=str,
    )
    tokenize: str = option(
        "13a", "bleu: tokenizer of sacrebleu; none: the text is tokenized already", only=("metrics", ("bleu",))
    )
    num_pictures: int = option(8, "number of pictures to plot at the end of a run", at_least=0, affects="nothing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageEvalOptions(EvalOptions):
    """Options of evaluating a model of a task without sources: there is no output to compare with a reference."""

    metrics: tuple = option(("perplexity", "accuracy"), "metrics to compute on the test split", each=str)
