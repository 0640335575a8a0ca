"""The protocol of the module of a sequence model, and the names of its attention maps."""

import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.outputs.top_k import Extensions, top_k
from attn_jax.types import Array, Bool, Float, Int, PyTree, Source

# Maps [b, layers, heads, q, k], or [b, q, k] where there are no layers.
TO_SOURCE = "attention to the source"
ENCODER = "encoder self-attention"
DECODER = "decoder self-attention"
BOTH = "self-attention"  # over the source and the target
Maps = dict[str, Float[Array, "b ..."]]


class Beams(NamedTuple):
    """The alive hypotheses of a search."""

    token: Int[Array, "b k"]  # last token of each hypothesis
    parent: Int[Array, "b k"]  # the hypothesis of the step before that it extends
    log_prob: Float[Array, "b k"]


class SequenceModule(nn.Module, kw_only=True):
    """Base of the modules that a `Model` calls, with their common defaults.

    With `one_token`, a target is one token and eos, such as a label, and `query_weights` returns the weights of each of
    `num_queries` queries. If the queries are glimpses (`has_path`), `trajectory` returns their places.
    """

    one_token: ClassVar[bool] = False
    has_path: ClassVar[bool] = False
    num_queries: ClassVar[int] = 1
    query_map: ClassVar[tuple[str, str]] = ("pooling", "query")  # names of `query_weights`, and of a row
    reads_target: ClassVar[bool] = False  # weights on the source sum to less than one: also attends to the target
    continue_source: ClassVar[bool] = False  # the source is the beginning of the target: eos, bos, source, target
    reads_tags: ClassVar[bool] = False  # a source "text eos tags" is split into text and tags; see tags.py
    is_latent: ClassVar[bool] = False  # hard attention: reads one key at a time, sampled from the weights
    grows: ClassVar[bool] = False  # room for steps costs time, and `grow` makes more of it
    takes_step: ClassVar[bool] = False  # the fourth argument of `losses` is the number of updates so far

    def real(self, targets: Int[Array, "b t"]) -> Bool[Array, "b t"]:
        """True at positions to predict."""
        raise NotImplementedError

    def losses(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (training loss, negative log-likelihood), each [b, t]."""
        raise NotImplementedError

    def evaluate(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (negative log-likelihood [b, t], 1 where the target is most probable [b, t], weights [b, t, s])."""
        raise NotImplementedError

    def maps(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]) -> Maps:
        """Returns the attention maps of the layers in the teacher-forced pass, by name; `evaluate` has the others."""
        return {}

    def start(self, source: Source, length: int) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state), with room for `length` steps."""
        raise NotImplementedError

    @property
    def follows_beams(self) -> bool:
        """Tells whether there are `start_beams` and `step_beams`, for beams that a search need not reorder."""
        return False

    def start_beams(self, source: Source, length: int, beams: int) -> tuple[PyTree, PyTree]:
        """Returns (memory, decode state of all beams), with room for `length` steps."""
        raise NotImplementedError

    def step_beams(
        self, memory: PyTree, state: PyTree, beams: Beams, n: int, forbidden: Sequence[int]
    ) -> tuple[PyTree, Extensions]:
        """Returns (decode state after the last token of each hypothesis, its n best extensions); see Model."""
        raise NotImplementedError

    def grow(self, state: PyTree, length: int) -> PyTree:
        """Returns the decode state with room for `length` steps in all."""
        return state

    def step(self, memory: PyTree, state: PyTree, token: Int[Array, "b"]) -> tuple[PyTree, Float[Array, "b v"]]:
        """Returns (decode state after `token`, log p(next token))."""
        raise NotImplementedError

    def step_top_k(self, memory: PyTree, state: PyTree, token: Int[Array, "b"], k: int):
        """Returns (decode state after `token`, (log-probabilities, tokens) of the k most probable next tokens)."""
        state, log_probs = self.step(memory, state, token)
        return state, top_k(log_probs, min(k, log_probs.shape[-1]))


class OneTokenModule(SequenceModule, kw_only=True):
    """Base of modules whose target is one token, such as a label: after it, eos has probability one."""

    pad: int = 0
    eos: int = 3
    one_token: ClassVar[bool] = True

    def real(self, targets: Int[Array, "b t"]) -> Bool[Array, "b t"]:
        return (targets != self.pad) & (jnp.arange(targets.shape[1]) == 0)[None]

    def query_weights(self, source: Source) -> Float[Array, "b r s"]:
        """Returns the weights of each query."""
        raise NotImplementedError

    def step(self, memory: Float[Array, "b v"], state: Int[Array, "b"], token: Int[Array, "b"]):
        """Predicts the token at the first step, then eos; `memory` has the log p of the token."""
        return one_word(memory, state, self.eos)

    def _first(self, x: Float[Array, "b"], targets: Int[Array, "b t"]) -> Float[Array, "b t"]:
        """Puts values of the token at its position, and zeros after it."""
        return x[:, None] * jax.nn.one_hot(0, targets.shape[1], dtype=x.dtype)[None]

    def _mean_weights(self, weights: Float[Array, "b r s"], targets: Int[Array, "b t"]) -> Float[Array, "b t s"]:
        """Returns the mean weights of the queries at the position of the token, and zeros after it."""
        weights = jnp.mean(weights, axis=1, keepdims=True)
        return jnp.pad(weights, ((0, 0), (0, targets.shape[1] - 1), (0, 0)))


def of_run(number: int, name: str) -> str:
    """Returns the name of a map of model `number`, counted from 1, in an ensemble."""
    return f"run {number}: {name}"


def run_and_name(name: str) -> tuple[int, str]:
    """Splits a name of `of_run` into (number of the model, from 1; name of its map); (0, name) for other names."""
    found = re.fullmatch(r"run (\d+): (.*)", name)
    return (int(found[1]), found[2]) if found else (0, name)


def of_layers(weights: list[Float[Array, "b h q k"]]) -> Float[Array, "b l h q k"]:
    """Stacks the maps of layers."""
    return jnp.stack(weights, axis=1)


def one_word(
    log_probs: Float[Array, "b v"], state: Int[Array, "b"], eos: int
) -> tuple[Int[Array, "b"], Float[Array, "b v"]]:
    """One step of decoding for a model whose target is a single word: the word, then eos.

    `state` counts the steps taken; `log_probs` are the log-probabilities of the word.
    """
    end = jnp.where(jnp.arange(log_probs.shape[-1]) == eos, 0.0, -jnp.inf)
    return state + 1, jnp.where((state == 0)[:, None], log_probs, end)
