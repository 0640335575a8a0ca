"""Stories: what every memory network needs to find its sentences in a row of tokens, and what it is from outside.

A source is statements and a question, one after the other (see attn_jax/tasks/babi/task.py):

    mary moved to the bathroom . john went to the hallway . where is mary ?

The memory has a slot for each of the last `memory_size` statements, in their order: slot 0 is the first of those kept.
Where empty slots count for nothing, it has no more slots than a row of the batch has room for statements: sources are
batched with others of their length, so most batches need a fraction of what the longest story does.

A module that answers has two methods,

    answer(source, train, step) -> Answered(log_probs [b, v], hops [b, h, n])
    losses(source, answers [b], evidence [b, e], step) -> (what is minimized [b], negative log-likelihood [b])

and StoryModel makes of it what the rest of the project asks of a model.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from attn_jax.attention.hard.estimators import entropy
from attn_jax.models.base import Model, one_word
from attn_jax.models.metrics import Mean
from attn_jax.outputs.loss import nll_and_correct
from attn_jax.tasks.vocabulary import BOS, EOS, PAD, PERIOD_ID, QUESTION_ID, UNK
from attn_jax.types import Array, Batch, Bool, Float, Int, Metrics, Params


@struct.dataclass
class Story:
    """Where each token of a source stands."""

    size: int = struct.field(pytree_node=False)  # slots
    slot: Int[Array, "b s"]  # of its statement in the memory; `size` for all that is in none
    position: Int[Array, "b s"]  # within its statement or question, 0 the first word
    length: Int[Array, "b s"]  # words of its statement or question
    asked: Bool[Array, "b s"]  # words of the question
    count: Int[Array, "b"]  # statements in the memory
    cut: Int[Array, "b"]  # statements before these, that the memory has no slot for

    def mask(self) -> Bool[Array, "b n"]:
        """The slots that hold a statement."""
        return jnp.arange(self.size) < self.count[:, None]

    def age(self) -> Int[Array, "b n"]:
        """0 for the last statement, 1 for the one before, ...; 0 also for empty slots."""
        return jnp.maximum(self.count[:, None] - 1 - jnp.arange(self.size), 0)

    def slot_of(self, number: Int[Array, "b e"]) -> Int[Array, "b e"]:
        """The slot of the statement with this number, 1 the story's first; -1 where it is 0 (none) or cut."""
        return jnp.maximum(number - 1 - self.cut[:, None], -1)


def find_sentences(source: Int[Array, "b s"], memory_size: int, shortest: int = 0) -> Story:
    """The places of a source's tokens. A mark (period or question mark) is no word and stands nowhere.

    With `shortest`, the tokens of the shortest statement there can be, its period included, the memory has as many
    slots as a row has room for, `memory_size` at most; with 0 it has `memory_size`.
    """
    if shortest:
        memory_size = max(1, min(memory_size, source.shape[1] // shortest))
    index = jnp.arange(source.shape[1])
    end = source == PERIOD_ID
    mark = end | (source == QUESTION_ID)
    word = ~mark & (source != PAD) & (source != EOS) & (source != BOS)
    number = jnp.cumsum(end, axis=1) - end  # statements that ended before the token
    total = jnp.sum(end, axis=1)
    cut = jnp.maximum(total - memory_size, 0)
    asked = word & (number == total[:, None])
    slot = jnp.where(word & ~asked & (number >= cut[:, None]), number - cut[:, None], memory_size)
    after_mark = jnp.pad(mark, ((0, 0), (1, 0)))[:, :-1]
    start = jax.lax.cummax(jnp.where(after_mark, index, 0), axis=1)
    stop = jax.lax.cummin(jnp.where(mark, index, source.shape[1]), axis=1, reverse=True)
    # A question without a mark ends where its words do.
    stop = jnp.minimum(stop, 1 + jnp.max(jnp.where(word, index, -1), axis=1, keepdims=True))
    return Story(memory_size, slot, index - start, jnp.maximum(stop - start, 1), asked, total - cut, cut)


def bags(
    source: Int[Array, "b s"], story: Story, weight: Float[Array, "b s *w"], vocab_size: int
) -> tuple[Float[Array, "b n v *w"], Float[Array, "b v *w"]]:
    """(of each statement, of the question): the summed weight, or several, of each word of the vocabulary.

    With these counts an embedding of a whole memory is one matrix product, and so is its gradient; for small
    vocabularies that is several times faster than gathering rows and scattering their gradients.
    """
    rows = jnp.broadcast_to(jnp.arange(len(source))[:, None], source.shape)
    slot = jnp.where(story.asked, story.size, jnp.where(story.slot == story.size, story.size + 1, story.slot))
    counts = jnp.zeros((len(source), story.size + 1, vocab_size, *weight.shape[2:]), weight.dtype)
    counts = counts.at[rows, slot, source].add(weight, mode="drop")
    return counts[:, :-1], counts[:, -1]


def sum_words(words: Float[Array, "b s d"], story: Story) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
    """(of each statement, of the question): the sum of the vectors of its words."""
    slots = jax.nn.one_hot(story.slot, story.size, dtype=words.dtype)  # all zero for a word in none
    return jnp.einsum("bsn,bsd->bnd", slots, words), jnp.einsum("bs,bsd->bd", story.asked.astype(words.dtype), words)


def centred_position(story: Story) -> Float[Array, "b s"]:
    """4 (j - (J + 1) / 2) / J of the j-th of J words: that part of the position encoding which the word decides."""
    return 4 * (story.position + 1 - (story.length + 1) / 2) / story.length


def centred_feature(features: int) -> Float[Array, "d"]:
    """(k - (d + 1) / 2) / d for k = 1 ... d: the other part of the position encoding.

    weight[k, j] = 1 + centred_feature[k] * centred_position[j] is the position encoding of Sukhbaatar 2015
    (arXiv 1503.08895), section 4.1, twice as large and shifted by half a step, as in their code. (There J is that
    of the longest sentence, and the vectors of time are weighted as well.)
    """
    return (jnp.arange(1, features + 1) - (features + 1) / 2) / features


@struct.dataclass
class Answered:
    """What a module makes of a story."""

    log_probs: Float[Array, "b v"]
    hops: Float[Array, "b h n"]  # how much each hop or episode read of each slot


@dataclasses.dataclass(frozen=True)
class StoryModel(Model):
    """A module that answers questions about stories, as pure functions.

    An answer is a sentence of one word: the first target token is the answer, after which eos is certain. An answer
    that training never had is unk, and never counts as right.
    """

    def eval_fn(self, params: Params, batch: Batch) -> Metrics:
        """Of the answers: nll, the share that is right, the entropy of what the hops read."""
        answers = _first(batch["target_out"])
        answered = self.answer(params, batch["source"])
        nll, correct = nll_and_correct(answered.log_probs, answers)
        values = {
            "loss": nll,
            "accuracy": correct * (answers != UNK),
            "attention_entropy": jnp.mean(entropy(answered.hops), axis=-1),
        }
        real = self._real(batch)
        return {name: Mean(jnp.sum(value * real), jnp.sum(real)) for name, value in values.items()}

    def score(self, params: Params, batch: Batch) -> Float[Array, "b"]:
        """log p(answer | story)."""
        nll, _ = nll_and_correct(self.answer(params, batch["source"]).log_probs, _first(batch["target_out"]))
        return -nll * self._real(batch)

    def attention_weights(self, params: Params, batch: Batch) -> Float[Array, "b t s"]:
        """For the answer, the mean over the hops of the weight of the statement that each token is part of."""
        weights = jnp.mean(self.answer(params, batch["source"]).hops, axis=1)
        story = find_sentences(jnp.asarray(batch["source"]), weights.shape[1])
        weights = jnp.pad(weights, ((0, 0), (0, 1)))
        of_token = jnp.take_along_axis(weights, story.slot, axis=1)[:, None]
        return jnp.pad(of_token, ((0, 0), (0, batch["target_out"].shape[1] - 1), (0, 0)))

    def answer(self, params: Params, source: Int[Array, "b s"]) -> Answered:
        """log p of every answer, and what was read."""
        return self.module.apply({"params": params}, jnp.asarray(source), method="answer")

    def start(self, params: Params, source: Int[Array, "b s"]) -> tuple[Float[Array, "b v"], Int[Array, "b"]]:
        return self.answer(params, source).log_probs, jnp.zeros(len(source), jnp.int32)

    def step(self, params: Params, memory: Float[Array, "b v"], state: Int[Array, "b"], token: Int[Array, "b"]):
        """The answer, then eos."""
        return one_word(memory, state, EOS)

    def _arguments(self, batch: Batch, step: Int[Array, ""]):
        source, answers = jnp.asarray(batch["source"]), _first(batch["target_out"])
        evidence = batch.get("evidence", jnp.zeros((len(source), 1), jnp.int32))
        return source, answers, jnp.asarray(evidence), step

    def _real(self, batch: Batch) -> Float[Array, "b"]:
        return (_first(batch["target_out"]) != PAD).astype(jnp.float32)


def _first(targets: Int[Array | np.ndarray, "b t"]) -> Int[Array, "b"]:
    return jnp.asarray(targets)[:, 0]
