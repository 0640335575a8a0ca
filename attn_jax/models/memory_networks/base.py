"""The parts that all memory networks share: the layout of a story in a row of tokens, and the adapter to Model.

A source is several statements and a question (see attn_jax/tasks/stories/babi.py):

    mary moved to the bathroom . john went to the hallway . where is mary ?

The memory has one slot for each of the last `memory_size` statements, in the order of the story: slot 0 has the oldest
one. Networks that mask empty slots can use fewer slots for short sources; batches hold sources of similar length, so
most batches need far fewer slots than the longest story.

A network for stories is a module with two methods,

    answer(source, train, step) -> Answer(log_probs [b, v], hops [b, h, n])
    losses(source, answers [b], evidence [b, e], step) -> (training loss [b], negative log-likelihood [b])

and StoryModel turns it into a Model.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from attn_jax.attention.information import entropy
from attn_jax.data.vocabulary import PERIOD_ID, QUESTION_ID
from attn_jax.models.base import Model, best_tokens, shares
from attn_jax.models.ensemble import ensemble_of, mean_log_prob
from attn_jax.models.module import SequenceModule, one_word
from attn_jax.outputs.base import nll_and_correct
from attn_jax.token_ids import BOS, EOS, PAD, UNK
from attn_jax.types import Array, Batch, Bool, Float, Int, Params


class StoryLayout(struct.PyTreeNode):
    """The memory slot and the position in its sentence of each token of a source."""

    size: int = struct.field(pytree_node=False)  # number of slots
    slot: Int[Array, "b s"]  # slot of the token's statement; `size` for tokens of no statement in the memory
    position: Int[Array, "b s"]  # index of the token in its statement or question, from 0
    length: Int[Array, "b s"]  # number of words of the token's statement or question
    is_question: Bool[Array, "b s"]  # True for words of the question
    count: Int[Array, "b"]  # number of statements in the memory
    num_cut: Int[Array, "b"]  # number of earlier statements, which have no slot

    def mask(self) -> Bool[Array, "b n"]:
        """Mask of the slots that hold a statement."""
        return jnp.arange(self.size)[None] < self.count[:, None]

    def age(self) -> Int[Array, "b n"]:
        """Age of each slot: 0 for the last statement, 1 for the previous one, ...; 0 for empty slots."""
        return jnp.maximum(self.count[:, None] - 1 - jnp.arange(self.size)[None], 0)

    def slot_of(self, number: Int[Array, "b e"]) -> Int[Array, "b e"]:
        """Slot of the statement with this number, counted from 1; -1 for number 0 (none) and for cut statements."""
        return jnp.maximum(number - 1 - self.num_cut[:, None], -1)


def find_sentences(source: Int[Array, "b s"], memory_size: int, shortest: int = 0) -> StoryLayout:
    """Finds the sentences of each source. Periods and question marks end a sentence and belong to none.

    Args:
        source: token ids.
        memory_size: largest number of slots.
        shortest: number of tokens of the shortest possible statement, period included. The memory then has at most as
            many slots as statements of this length fit into a row; 0: always `memory_size` slots.
    """
    if shortest:
        memory_size = max(1, min(memory_size, source.shape[1] // shortest))
    index = jnp.arange(source.shape[1])[None]
    end = source == PERIOD_ID
    mark = end | (source == QUESTION_ID)
    word = ~mark & (source != PAD) & (source != EOS) & (source != BOS)
    number = jnp.cumsum(end, axis=1) - end  # statements that ended before the token
    total = jnp.sum(end, axis=1)
    num_cut = jnp.maximum(total - memory_size, 0)
    is_question = word & (number == total[:, None])
    in_memory = word & ~is_question & (number >= num_cut[:, None])
    slot = jnp.where(in_memory, number - num_cut[:, None], memory_size)
    after_mark = jnp.pad(mark, ((0, 0), (1, 0)))[:, :-1]
    start = jax.lax.cummax(jnp.where(after_mark, index, 0), axis=1)
    stop = jax.lax.cummin(jnp.where(mark, index, source.shape[1]), axis=1, reverse=True)
    # A question without a question mark ends with its last word.
    stop = jnp.minimum(stop, 1 + jnp.max(jnp.where(word, index, -1), axis=1, keepdims=True))
    return StoryLayout(
        size=memory_size,
        slot=slot,
        position=index - start,
        length=jnp.maximum(stop - start, 1),
        is_question=is_question,
        count=total - num_cut,
        num_cut=num_cut,
    )


def bags(
    source: Int[Array, "b s"], layout: StoryLayout, weight: Float[Array, "b s *w"], vocab_size: int
) -> tuple[Float[Array, "b n v *w"], Float[Array, "b v *w"]]:
    """Weighted word counts of each statement and of the question, for one weight or several (*w) per token.

    Embedding a memory, and its gradient, are then matrix products with these counts. For small vocabularies this is
    several times faster than gathering rows and scattering their gradients.
    """
    rows = jnp.broadcast_to(jnp.arange(len(source))[:, None], source.shape)
    # The question gets the slot after the statements; other tokens get the next one, which is out of range.
    slot = jnp.where(layout.slot == layout.size, layout.size + 1, layout.slot)
    slot = jnp.where(layout.is_question, layout.size, slot)
    counts = jnp.zeros((len(source), layout.size + 1, vocab_size, *weight.shape[2:]), weight.dtype)
    counts = counts.at[rows, slot, source].add(weight, mode="drop")
    return counts[:, :-1], counts[:, -1]


def sum_words(words: Float[Array, "b s d"], layout: StoryLayout) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
    """Sums of the word vectors of each statement and of the question."""
    slots = jax.nn.one_hot(layout.slot, layout.size, dtype=words.dtype)  # zeros for words without a slot
    is_question = layout.is_question.astype(words.dtype)
    return jnp.einsum("bsn,bsd->bnd", slots, words), jnp.einsum("bs,bsd->bd", is_question, words)


def centred_position(layout: StoryLayout) -> Float[Array, "b s"]:
    """Returns 4 (j - (J + 1) / 2) / J for the j-th of J words: the factor of the position encoding for words."""
    position, length = (x.astype(jnp.float32) for x in (layout.position, layout.length))
    return 4 * (position + 1 - (length + 1) / 2) / length


def centred_feature(features: int) -> Float[Array, "d"]:
    """Returns (k - (d + 1) / 2) / d for k = 1 ... d: the factor of the position encoding that depends on the feature.

    weight[k, j] = 1 + centred_feature[k] * centred_position[j] is the position encoding of Sukhbaatar 2015
    (arXiv 1503.08895), section 4.1, twice as large and shifted by half a step, as in their code. (Their code takes J
    from the longest sentence and also weights the time vectors.)
    """
    return (jnp.arange(1, features + 1, dtype=jnp.float32) - (features + 1) / 2) / features


class Answer(struct.PyTreeNode):
    """The answer of a network to each story, and its attention weights on the memory."""

    log_probs: Float[Array, "b v"]
    hops: Float[Array, "b h n"]  # weight of each slot in each hop or episode


class StoryModule(SequenceModule, kw_only=True):
    """Base of the modules that a `StoryModel` calls; the arguments of `losses` are those of `StoryModel._arguments`."""

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answer:
        """Returns log-probabilities of all answers, and the weights of the hops."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class StoryModel(Model):
    """A network for stories as pure functions of (params, batch).

    The first target token is the answer; the second is eos, with probability one. Answers that never occur in training
    are unk and always count as wrong.
    """

    def _evaluated(self, params: Params, batch: Batch) -> tuple[dict[str, Array], Array]:
        """Returns (nll, accuracy and mean entropy of the hops of each answer, 1 where there is an answer), all [b]."""
        answers = _first(batch["target_out"])
        answered = self.answer(params, batch["source"])
        nll, correct = nll_and_correct(answered.log_probs, answers)
        values = {
            "loss": nll,
            "accuracy": correct * (answers != UNK),
            "attention_entropy": jnp.mean(entropy(shares(answered.hops)), axis=-1),
        }
        return values, self._real(batch)

    def score(self, params: Params, batch: Batch) -> Float[Array, "b"]:
        """log p(answer | story)."""
        nll, _ = nll_and_correct(self.answer(params, batch["source"]).log_probs, _first(batch["target_out"]))
        return -nll * self._real(batch)

    def attention_weights(self, params: Params, batch: Batch) -> Float[Array, "b t s"]:
        """Weight of each source token for the answer: the weight of its statement, averaged over the hops."""
        weights = jnp.mean(self.answer(params, batch["source"]).hops, axis=1)
        layout = find_sentences(jnp.asarray(batch["source"]), weights.shape[1])
        weights = jnp.pad(weights, ((0, 0), (0, 1)))
        of_token = jnp.take_along_axis(weights, layout.slot, axis=1)[:, None]
        return jnp.pad(of_token, ((0, 0), (0, batch["target_out"].shape[1] - 1), (0, 0)))

    def answer(self, params: Params, source: Int[Array, "b s"]) -> Answer:
        """Log-probabilities of all answers, and the weights of the hops."""
        return self.module.apply({"params": params}, jnp.asarray(source), method="answer")

    def start(
        self, params: Params, source: Int[Array, "b s"], length: int = 100
    ) -> tuple[Float[Array, "b v"], Int[Array, "b"]]:
        """Returns (memory: log-probabilities of the answer, decode state: number of tokens so far)."""
        return self.answer(params, source).log_probs, jnp.zeros(len(source), jnp.int32)

    def step(self, params: Params, memory: Float[Array, "b v"], state: Int[Array, "b"], token: Int[Array, "b"]):
        """One decoding step: the answer first, then eos."""
        return one_word(memory, state, EOS)

    def step_top_k(self, params: Params, memory: Float[Array, "b v"], state: Int[Array, "b"], token, k: int | None):
        """Returns (decode state, log-probabilities, tokens) of the k most probable next tokens, best first."""
        state, log_probs = self.step(params, memory, state, token)
        return state, *best_tokens(log_probs, k)

    def _arguments(self, batch: Batch, step: Int[Array, ""]):
        source, answers = jnp.asarray(batch["source"]), _first(batch["target_out"])
        evidence = batch.get("evidence", jnp.zeros((len(source), 1), jnp.int32))
        return source, answers, jnp.asarray(evidence), step

    def _real(self, batch: Batch) -> Float[Array, "b"]:
        return (_first(batch["target_out"]) != PAD).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class StoryEnsemble(StoryModel):
    """The mean of the answers of a network over several sets of parameters, which have a leading axis."""

    def answer(self, params: Params, source: Int[Array, "b s"]) -> Answer:
        """Log of the mean probability of each answer, and the mean weights of the hops."""

        def of_one(params):
            answered = StoryModel.answer(self, params, source)
            return answered.log_probs, answered.hops

        log_probs, hops = jax.vmap(of_one)(params)
        return Answer(mean_log_prob(log_probs), jnp.mean(hops, axis=0))


@ensemble_of.register
def _(model: StoryModel) -> StoryEnsemble:
    return StoryEnsemble(model.module)


def _first(targets: Int[Array | np.ndarray, "b t"]) -> Int[Array, "b"]:
    return jnp.asarray(targets)[:, 0]
