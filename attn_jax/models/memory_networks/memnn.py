"""Memory networks with strong supervision (Weston 2015, arXiv 1410.3916; Weston 2015, arXiv 1502.05698, section 5).

Four parts:

    I   features of a sentence: its words and, hashed, its three-word pieces (NG)
    G   writes a statement into the next slot of the memory
    O   chooses supporting facts one after another: o_k = argmax_i s_O([q, m_o1, ..., m_ok-1], m_i)
    R   chooses the word with the largest s_R([q, m_o1, ..., m_oK], w) as the answer

The chain of facts ends when the stop memory is chosen (AM). s(x, y) = embed(x) . embed(y), where embed is linear or,
with NL, two layers of tanh (in R for x only; each word has a vector). The matrix of embed has separate blocks for the
question, for the candidate, and either for each supporting fact or for the last fact and all facts before it. So O is
attention with score dot and normalizer hardmax that reads one fact per hop. It is trained by a margin ranking loss on
the true supporting facts, not by gradients through the hops.

Statements are compared in pairs, because their order matters (arXiv 1410.3916, section 3.4):

    s(x, y, y') = embed(x) . (embed(y) - embed(y')
                              + t_1 [x older than y] + t_2 [x older than y'] + t_3 [y older than y'])

where x has the age of its last fact, y is the older of the two statements, and y' wins if s is negative. The best
statement is the winner of a tournament in story order: each statement is compared with the winner so far. Finally, the
best statement is compared with the stop memory by embed(x) . (embed(y) - stop + t_4 [x older than y]).
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import loops
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.masks import checked_masks
from attn_jax.models.memory_networks.base import Answer, StoryLayout, StoryModule, bags, find_sentences
from attn_jax.token_ids import PAD
from attn_jax.types import Array, Bool, Float, Int

INIT = nn.initializers.normal(0.1)


class Blocks(nn.Module, kw_only=True):
    """embed(x): the sum over the parts of x of features times block of the part; with NL, tanh(V tanh(.) + b)."""

    num_blocks: int
    num_inputs: int
    features: int
    nonlinear: bool

    def setup(self):
        self.table = self.param("table", INIT, (self.num_blocks, self.num_inputs, self.features), jnp.float32)
        if self.nonlinear:
            self.second = nn.Dense(self.features)

    def __call__(self, parts: Sequence[tuple[int, Float[Array, "... i"]]]) -> Float[Array, "... d"]:
        """Embeds parts, given as pairs (index of the block, features)."""
        total = sum(features @ self.table[block] for block, features in parts)
        return jnp.tanh(self.second(jnp.tanh(total))) if self.nonlinear else total


class MemNN(StoryModule, kw_only=True):
    """A memory network that answers from a chain of at most `num_facts` statements."""

    vocab_size: int
    features: int
    num_facts: int
    memory_size: int  # largest number of statements in the memory
    margin: float = 0.1
    num_grams: int = 0  # NG: number of features that three-word pieces are hashed into; 0: words only
    nonlinear: bool = False  # NL
    stop_memory: bool = True  # AM: a stop memory can end the chain; False: chains of exactly num_facts facts
    time_features: bool = True  # False: the statement of largest s_O, whatever its age (Weston 2015a, section 3.1)
    block_per_fact: bool = True  # False: one block for the last fact and one for all facts before it
    dropout: float = 0.0  # of the features

    def setup(self):
        inputs = self.vocab_size + self.num_grams
        common = dict(num_inputs=inputs, features=self.features, nonlinear=self.nonlinear)
        # O: block 0 is for the question, the others are for the facts chosen so far.
        self.asking = Blocks(num_blocks=self.num_facts + 1 if self.block_per_fact else 3, **common)
        self.candidate = Blocks(num_blocks=1, **common)
        self.stop = self.param("stop", INIT, (self.features,), jnp.float32)
        if self.time_features:
            self.order = self.param("order", INIT, (4, self.features), jnp.float32)  # t_1 to t_4
        # R: block 0 is for the question, the others are for the facts.
        self.answering = Blocks(num_blocks=self.num_facts + 1 if self.block_per_fact else 2, **common)
        self.words = self.param("words", INIT, (self.vocab_size, self.features), jnp.float32)
        self.drop = Dropout(rate=self.dropout)

    # I and G

    def write(
        self, source: Int[Array, "b s"], train: bool
    ) -> tuple[StoryLayout, Float[Array, "b n i"], Float[Array, "b i"], Float[Array, "b n d"]]:
        """Returns the layout, the features of the statements and of the question, and the statements' keys."""
        layout = find_sentences(source, self.memory_size)
        memory, question = bags(source, layout, jnp.ones(source.shape, jnp.float32), self.vocab_size)
        if self.num_grams:
            grams = three_grams(source, layout, self.num_grams)
            memory_grams, question_grams = bags(grams, layout, jnp.ones(source.shape, jnp.float32), self.num_grams)
            memory = jnp.concatenate([memory, memory_grams], axis=-1)
            question = jnp.concatenate([question, question_grams], axis=-1)
        memory, question = self.drop(memory, deterministic=not train), self.drop(question, deterministic=not train)
        return layout, memory, question, self.candidate([(0, memory)])

    # O

    def ask(self, question: Float[Array, "b i"], facts: list[Float[Array, "b i"]]) -> Float[Array, "b d"]:
        """embed([question, facts so far]) of O: the query for the next fact."""
        if self.block_per_fact:
            blocks = list(range(1, len(facts) + 1))
        else:
            blocks = [*[2] * (len(facts) - 1), *[1] * min(len(facts), 1)]  # the last fact has block 1
        return self.asking([(0, question), *zip(blocks, facts, strict=True)])

    def pairwise(
        self,
        asking: Float[Array, "b d"],
        keys: Float[Array, "b n d"],
        slot: Int[Array, "b"],
        last: Int[Array, "b"],
    ) -> Float[Array, "b n"]:
        """Margin by which the statement in `slot` wins against each other: s(x, y, y') if it is y, -s if it is y'.

        Args:
            asking: embed(x).
            keys: embedded statements.
            slot: slot of the statement.
            last: slot of the last fact in x; memory_size if x is only the question, which is younger than every
                statement.
        """
        slots = jnp.arange(keys.shape[1])[None]
        key = jnp.take_along_axis(keys, slot[:, None, None], axis=1)
        gain = jnp.einsum("bd,bnd->bn", asking, key - keys)
        is_older = slot[:, None] < slots
        older, newer = jnp.minimum(slot[:, None], slots), jnp.maximum(slot[:, None], slots)
        bonus = self.bonus(asking, last[:, None] < older, last[:, None] < newer)
        return gain + jnp.where(is_older, bonus, -bonus)

    def bonus(
        self, asking: Float[Array, "b d"], before_older: Bool[Array, "b n"], before_newer: Bool[Array, "b n"]
    ) -> Float[Array, "b n"]:
        """Returns the terms of s(x, y, y') that depend on the order of x, the older y and the newer y'."""
        if not self.time_features:
            return jnp.zeros(jnp.broadcast_shapes(before_older.shape, before_newer.shape), asking.dtype)
        first, second, third = jnp.split(asking @ self.order[:3].T, 3, axis=-1)
        return first * before_older + second * before_newer + third

    @checked_masks
    def best(
        self, asking: Float[Array, "b d"], keys: Float[Array, "b n d"], mask: Bool[Array, "b n"], last: Int[Array, "b"]
    ) -> Int[Array, "b"]:
        """Slot of the winner of the tournament: each statement is compared with the winner among earlier statements."""
        values = jnp.einsum("bd,bnd->bn", asking, keys)

        def meet(winner: Int[Array, "b"], slot: Int[Array, ""]):
            value = jnp.take_along_axis(values, winner[:, None], axis=1)[:, 0]
            bonus = self.bonus(asking, (last < winner)[:, None], (last < slot)[:, None])[:, 0]
            return jnp.where((value - values[:, slot] + bonus < 0) & mask[:, slot], slot, winner), None

        winner, _ = loops.scan(meet, jnp.zeros(len(keys), jnp.int32), jnp.arange(1, keys.shape[1], dtype=jnp.int32))
        return winner

    def chain(
        self,
        layout: StoryLayout,
        memory: Float[Array, "b n i"],
        question: Float[Array, "b i"],
        keys: Float[Array, "b n d"],
    ) -> Float[Array, "b h n"]:
        """One-hot weights of the chosen facts; zeros once the stop memory is chosen."""
        mask = layout.mask()
        last = jnp.full(len(question), self.memory_size)
        continues, hops, facts = layout.count > 0, [], []
        for hop in range(self.num_facts):
            asking = self.ask(question, facts)
            slot = self.best(asking, keys=keys, mask=mask, last=last)
            if self.stop_memory and hop:
                continues &= self.stop_gain(asking, keys=keys, slot=slot, last=last) > 0
            weights = jax.nn.one_hot(slot, self.memory_size, dtype=jnp.float32) * continues[:, None]
            facts.append(jnp.einsum("bn,bni->bi", weights, memory))
            last = jnp.where(continues, slot, last)
            hops.append(weights)
        return jnp.stack(hops, axis=1)

    def stop_gain(
        self, asking: Float[Array, "b d"], keys: Float[Array, "b n d"], slot: Int[Array, "b"], last: Int[Array, "b"]
    ) -> Float[Array, "b"]:
        """Margin by which the statement in `slot` wins against the stop memory."""
        return jnp.take_along_axis(self.stop_gains(asking, keys, last), slot[:, None], axis=1)[:, 0]

    def stop_gains(
        self, asking: Float[Array, "b d"], keys: Float[Array, "b n d"], last: Int[Array, "b"]
    ) -> Float[Array, "b n"]:
        """Margin by which each statement wins against the stop memory."""
        gains = jnp.einsum("bd,bnd->bn", asking, keys - self.stop[None, None])
        if not self.time_features:
            return gains
        is_newer = last[:, None] < jnp.arange(keys.shape[1])[None]
        return gains + (asking @ self.order[3])[:, None] * is_newer

    # R

    def respond(
        self, memory: Float[Array, "b n i"], question: Float[Array, "b i"], hops: Float[Array, "b h n"]
    ) -> Float[Array, "b v"]:
        """s_R of all words, given the weights of the facts."""
        facts = jnp.einsum("bhn,bni->bhi", hops, memory)
        blocks = [hop + 1 if self.block_per_fact else 1 for hop in range(self.num_facts)]
        parts = zip(blocks, jnp.moveaxis(facts, 1, 0), strict=True)
        return self.answering([(0, question), *parts]) @ self.words.T

    def answer(self, source: Int[Array, "b s"], train: bool = False, step: Int[Array, ""] | int = 0) -> Answer:
        """Log-softmax of s_R, and the one-hot weights of the chosen facts."""
        layout, memory, question, keys = self.write(source, train)
        hops = self.chain(layout, memory=memory, question=question, keys=keys)
        return Answer(log_probs=jax.nn.log_softmax(self.respond(memory, question, hops)), hops=hops)

    def losses(
        self, source: Int[Array, "b s"], answers: Int[Array, "b"], evidence: Int[Array, "b e"], step: Int[Array, ""]
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Margin ranking loss of the true chain (arXiv 1410.3916, equation 6), and -log p(answer).

        The loss is the sum of three parts:

            over the facts f of the evidence:
                sum over other statements y of max(0, margin - margin by which f wins against y)
                + max(0, margin - margin by which f wins against the stop memory), from the second fact on
            if the chain ends before num_facts:
                sum over statements y of max(0, margin + margin by which y wins against the stop memory)
            sum over words w other than the answer r of max(0, margin - s_R(x, r) + s_R(x, w))
        """
        layout, memory, question, keys = self.write(source, True)
        mask = layout.mask()
        numbers = self._first_facts(evidence)
        slots = layout.slot_of(numbers)
        weights = jax.nn.one_hot(slots, self.memory_size, dtype=jnp.float32)  # zeros where the chain has ended
        last = jnp.full(len(question), self.memory_size)
        facts, continues, loss = [], jnp.ones(len(question), bool), 0.0
        # Hop k is trained with the true facts 1 ... k - 1 as its query (teacher forcing), so no gradient has to pass
        # through the choice of a fact. The masks select the rows whose chain has not ended at this hop.
        for hop in range(self.num_facts):
            asking = self.ask(question, facts)
            # If a fact has been cut from the memory, later hops of the chain are not trained, and the stop memory is
            # not either: the true chain does not end there.
            slot, is_fact = jnp.maximum(slots[:, hop], 0), continues & (slots[:, hop] >= 0)
            is_other = jnp.arange(self.memory_size)[None] != slot[:, None]
            statement_losses = nn.relu(self.margin - self.pairwise(asking, keys=keys, slot=slot, last=last))
            loss += jnp.sum(jnp.where(mask & is_other & is_fact[:, None], statement_losses, 0), axis=-1)
            if self.stop_memory and hop:
                stop_loss = nn.relu(self.margin - self.stop_gain(asking, keys=keys, slot=slot, last=last))
                loss += jnp.where(is_fact, stop_loss, 0)
                ends_here = continues & (numbers[:, hop] == 0)  # the stop memory has to win against all statements
                end_losses = nn.relu(self.margin + self.stop_gains(asking, keys=keys, last=last))
                loss += jnp.sum(jnp.where(mask & ends_here[:, None], end_losses, 0), axis=-1)
            facts.append(jnp.einsum("bn,bni->bi", weights[:, hop], memory))
            last, continues = jnp.where(is_fact, slot, last), continues & is_fact
        scores = self.respond(memory, question, weights)
        loss += self._answer_loss(scores, answers)
        nll = -jnp.take_along_axis(jax.nn.log_softmax(scores), answers[:, None], axis=-1)[:, 0]
        return loss, nll

    def _first_facts(self, evidence: Int[Array, "b e"]) -> Int[Array, "b h"]:
        """Numbers of the first num_facts statements of the evidence; 0 after the last one."""
        numbers = evidence[:, : self.num_facts]
        return jnp.pad(numbers, ((0, 0), (0, self.num_facts - numbers.shape[1])))

    def _answer_loss(self, scores: Float[Array, "b v"], answers: Int[Array, "b"]) -> Float[Array, "b"]:
        """Sums max(0, margin - score of the answer + score of the word) over the other words."""
        right = jnp.take_along_axis(scores, answers[:, None], axis=-1)
        is_other = jnp.arange(self.vocab_size)[None] != answers[:, None]
        return jnp.sum(jnp.where(is_other, nn.relu(self.margin - right + scores), 0), axis=-1)


def three_grams(source: Int[Array, "b s"], layout: StoryLayout, num_grams: int) -> Int[Array, "b s"]:
    """Hashes each word together with the next two words of its sentence, to a number in 0 ... num_grams - 1.

    Words missing at the end of a sentence count as pad.
    """
    num_after = layout.length - 1 - layout.position  # words after this one in its sentence
    following = [jnp.where(num_after >= k, jnp.roll(source, -k, axis=1), PAD) for k in (1, 2)]
    code = source.astype(jnp.uint32)
    for other in following:
        code = code * jnp.uint32(1_000_003) + other.astype(jnp.uint32) * jnp.uint32(0x9E3779B1)
    code = (code ^ (code >> 15)) * jnp.uint32(0x2C1B3C6D)
    return ((code ^ (code >> 13)) % jnp.uint32(num_grams)).astype(jnp.int32)
