"""Memory networks with strong supervision (Weston 2015, arXiv 1410.3916; Weston 2015, arXiv 1502.05698, section 5).

Four parts:

    I   a sentence becomes features: its words and, hashed, the three-word pieces of it (NG)
    G   a statement is written into the next slot of the memory
    O   supporting facts are chosen one after the other: o_k = argmax_i s_O([q, m_o1, ..., m_ok-1], m_i)
    R   the answer is the word with the largest s_R([q, m_o1, ..., m_oK], w)

The facts end where the stop memory is chosen (AM). s(x, y) = embed(x) . embed(y) with embed linear or, with NL, two
layers of tanh (in R of x alone; a word has a vector), and a block of the matrix of its own for the question, the
candidate, and each supporting fact, or, where these are a list rather than links with roles, for the last of them and
for those before it. So O is attention with score dot and normalizer hardmax, read one fact per hop. It is trained on
the supporting facts, not through the reading, by a margin ranking loss.

Statements are compared in pairs, because it matters which was earlier (arXiv 1410.3916, section 3.4):

    s(x, y, y') = embed(x) . (embed(y) - embed(y')
                              + t_1 [x older than y] + t_2 [x older than y'] + t_3 [y older than y'])

where the age of x is that of the last fact in it, y is the older of the two, and y' wins where this is negative. The
best statement is the one left after each has met the winner among those before it. It meets the stop memory last, with
embed(x) . (embed(y) - stop + t_4 [x older than y]): that nothing of what comes after it matters ends a list.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.models.memory_networks.base import Answered, Story, bags, find_sentences
from attn_jax.tasks.vocabulary import PAD
from attn_jax.types import Array, Bool, Float, Int

INIT = nn.initializers.normal(0.1)


class Blocks(nn.Module):
    """embed(x): the sum over the parts of x of their features times the part's own block; with NL, tanh(V tanh(.))."""

    num_blocks: int
    num_inputs: int
    features: int
    nonlinear: bool

    def setup(self):
        self.table = self.param("table", INIT, (self.num_blocks, self.num_inputs, self.features))
        if self.nonlinear:
            self.second = nn.Dense(self.features)

    def __call__(self, parts: Sequence[tuple[int, Float[Array, "... i"]]]) -> Float[Array, "... d"]:
        """The parts are (block, features)."""
        total = sum(features @ self.table[block] for block, features in parts)
        return jnp.tanh(self.second(jnp.tanh(total))) if self.nonlinear else total


class MemNN(nn.Module):
    """An answer from a chain of at most `num_facts` statements, chosen one by one."""

    vocab_size: int
    features: int
    num_facts: int
    memory_size: int
    margin: float = 0.1
    num_grams: int = 0  # NG: three-word pieces are hashed into so many features; 0: words alone
    nonlinear: bool = False  # NL
    adaptive: bool = True  # AM: a stop memory ends the chain; else it has num_facts links
    roles: bool = True  # the first fact, the second, ... have blocks of their own; else they are a list
    dropout: float = 0.0  # of the features

    def setup(self):
        inputs = self.vocab_size + self.num_grams
        common = dict(features=self.features, nonlinear=self.nonlinear)
        # Of O: the question, each fact so far, or the last one, and those before it.
        self.asking = Blocks(self.num_facts + 1 if self.roles else 3, inputs, **common)
        self.candidate = Blocks(1, inputs, **common)
        self.stop = self.param("stop", INIT, (self.features,))
        self.order = self.param("order", INIT, (4, self.features))  # t_1 to t_4
        self.answering = Blocks(self.num_facts + 1 if self.roles else 2, inputs, **common)  # of R
        self.words = self.param("words", INIT, (self.vocab_size, self.features))
        self.drop = nn.Dropout(self.dropout)

    # I and G

    def write(
        self, source: Int[Array, "b s"], train: bool
    ) -> tuple[Story, Float[Array, "b n i"], Float[Array, "b i"], Float[Array, "b n d"]]:
        """The story in the memory: (places, features of the statements, of the question, the statements embedded)."""
        story = find_sentences(source, self.memory_size)
        memory, question = bags(source, story, jnp.ones(source.shape), self.vocab_size)
        if self.num_grams:
            grams = three_grams(source, story, self.num_grams)
            grams = bags(grams, story, jnp.ones(source.shape), self.num_grams)
            memory = jnp.concatenate([memory, grams[0]], axis=-1)
            question = jnp.concatenate([question, grams[1]], axis=-1)
        memory, question = self.drop(memory, deterministic=not train), self.drop(question, deterministic=not train)
        return story, memory, question, self.candidate([(0, memory)])

    # O

    def ask(self, question: Float[Array, "b i"], facts: list[Float[Array, "b i"]]) -> Float[Array, "b d"]:
        """embed([question, facts so far])."""
        blocks = range(1, len(facts) + 1) if self.roles else [*[2] * (len(facts) - 1), 1]
        return self.asking([(0, question), *zip(blocks, facts, strict=False)])

    def pairwise(
        self,
        asking: Float[Array, "b d"],
        keys: Float[Array, "b n d"],
        slot: Int[Array, "b"],
        last: Int[Array, "b"],
    ) -> Float[Array, "b n"]:
        """By how much the statement in `slot` wins against each: s(x, y, y') where it is y, its negative where y'.

        `last` is the slot of x's last fact. A question is younger than all statements: its slot is memory_size.
        """
        slots = jnp.arange(keys.shape[1])
        key = jnp.take_along_axis(keys, slot[:, None, None], axis=1)
        gain = jnp.einsum("bd,bnd->bn", asking, key - keys)
        is_older = slot[:, None] < slots
        older, newer = jnp.minimum(slot[:, None], slots), jnp.maximum(slot[:, None], slots)
        bonus = self.bonus(asking, last[:, None] < older, last[:, None] < newer)
        return gain + jnp.where(is_older, bonus, -bonus)

    def bonus(
        self, asking: Float[Array, "b d"], before_older: Bool[Array, "b n"], before_newer: Bool[Array, "b n"]
    ) -> Float[Array, "b n"]:
        """What the order of x and of two statements adds to s(x, y, y'), y being the older."""
        first, second, third = jnp.split(asking @ self.order[:3].T, 3, axis=-1)
        return first * before_older + second * before_newer + third

    def best(
        self, asking: Float[Array, "b d"], keys: Float[Array, "b n d"], mask: Bool[Array, "b n"], last: Int[Array, "b"]
    ) -> Int[Array, "b"]:
        """The slot that is left when each statement has met the winner among those before it."""
        values = jnp.einsum("bd,bnd->bn", asking, keys)

        def meet(winner: Int[Array, "b"], slot: Int[Array, ""]):
            value = jnp.take_along_axis(values, winner[:, None], axis=1)[:, 0]
            bonus = self.bonus(asking, (last < winner)[:, None], (last < slot)[:, None])[:, 0]
            return jnp.where((value - values[:, slot] + bonus < 0) & mask[:, slot], slot, winner), None

        winner, _ = jax.lax.scan(meet, jnp.zeros(len(keys), jnp.int32), jnp.arange(1, keys.shape[1]))
        return winner

    def chain(
        self,
        story: Story,
        memory: Float[Array, "b n i"],
        question: Float[Array, "b i"],
        keys: Float[Array, "b n d"],
    ) -> Float[Array, "b h n"]:
        """The facts chosen, one-hot; all zero from where the stop memory was chosen."""
        mask = story.mask()
        last = jnp.full(len(question), self.memory_size)
        going, hops, facts = story.count > 0, [], []
        for hop in range(self.num_facts):
            asking = self.ask(question, facts)
            slot = self.best(asking, keys, mask, last)
            if self.adaptive and hop:
                going &= self.stop_gain(asking, keys, slot, last) > 0
            weights = jax.nn.one_hot(slot, self.memory_size) * going[:, None]
            facts.append(jnp.einsum("bn,bni->bi", weights, memory))
            last = jnp.where(going, slot, last)
            hops.append(weights)
        return jnp.stack(hops, axis=1)

    def stop_gain(
        self, asking: Float[Array, "b d"], keys: Float[Array, "b n d"], slot: Int[Array, "b"], last: Int[Array, "b"]
    ) -> Float[Array, "b"]:
        """By how much the statement in `slot` wins against the stop memory."""
        return jnp.take_along_axis(self.stop_gains(asking, keys, last), slot[:, None], axis=1)[:, 0]

    def stop_gains(
        self, asking: Float[Array, "b d"], keys: Float[Array, "b n d"], last: Int[Array, "b"]
    ) -> Float[Array, "b n"]:
        """By how much each statement does."""
        after = last[:, None] < jnp.arange(keys.shape[1])
        return jnp.einsum("bd,bnd->bn", asking, keys - self.stop) + (asking @ self.order[3])[:, None] * after

    # R

    def respond(
        self, memory: Float[Array, "b n i"], question: Float[Array, "b i"], hops: Float[Array, "b h n"]
    ) -> Float[Array, "b v"]:
        """s_R of every word."""
        facts = jnp.einsum("bhn,bni->bhi", hops, memory)
        blocks = [hop + 1 if self.roles else 1 for hop in range(self.num_facts)]
        parts = zip(blocks, jnp.moveaxis(facts, 1, 0), strict=True)
        return self.answering([(0, question), *parts]) @ self.words.T

    def answer(self, source: Int[Array, "b s"], train: bool = False, step: Int[Array, ""] | int = 0) -> Answered:
        """log softmax of s_R, and the facts it was made from."""
        story, memory, question, keys = self.write(source, train)
        hops = self.chain(story, memory, question, keys)
        return Answered(jax.nn.log_softmax(self.respond(memory, question, hops)), hops)

    def losses(
        self, source: Int[Array, "b s"], answers: Int[Array, "b"], evidence: Int[Array, "b e"], step: Int[Array, ""]
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Training on the true chain: the margin ranking loss of each of its links and of the answer (equation 6).

        sum over all other statements of max(0, margin - what the fact f wins by), likewise against the stop memory, and
        sum over all other words w of max(0, margin - s_R(x, r) + s_R(x, w)).
        """
        story, memory, question, keys = self.write(source, True)
        mask = story.mask()
        slots = story.slot_of(evidence)[:, : self.num_facts]
        slots = jnp.pad(slots, ((0, 0), (0, max(self.num_facts - slots.shape[1], 0))), constant_values=-1)
        facts = jax.nn.one_hot(slots, self.memory_size)  # all zero where there is no fact
        last, loss, so_far = jnp.full(len(question), self.memory_size), 0.0, []
        before = jnp.ones(len(question), bool)
        for hop in range(self.num_facts):
            asking, slot = self.ask(question, so_far), jnp.maximum(slots[:, hop], 0)
            is_fact = slots[:, hop] >= 0
            others = mask & (jnp.arange(self.memory_size) != slot[:, None]) & is_fact[:, None]
            loss += jnp.sum(jnp.where(others, nn.relu(self.margin - self.pairwise(asking, keys, slot, last)), 0), -1)
            if self.adaptive and hop:
                loss += jnp.where(is_fact, nn.relu(self.margin - self.stop_gain(asking, keys, slot, last)), 0)
                ends = before & ~is_fact  # here the stop memory has to win against all
                others = nn.relu(self.margin + self.stop_gains(asking, keys, last))
                loss += jnp.sum(jnp.where(mask & ends[:, None], others, 0), axis=-1)
            so_far.append(jnp.einsum("bn,bni->bi", facts[:, hop], memory))
            last, before = jnp.where(is_fact, slot, last), before & is_fact
        scores = self.respond(memory, question, facts)
        right = jnp.take_along_axis(scores, answers[:, None], axis=-1)
        is_other = jnp.arange(self.vocab_size) != answers[:, None]
        loss += jnp.sum(jnp.where(is_other, nn.relu(self.margin - right + scores), 0), axis=-1)
        nll = -jnp.take_along_axis(jax.nn.log_softmax(scores), answers[:, None], axis=-1)[:, 0]
        return loss, nll


def three_grams(source: Int[Array, "b s"], story: Story, num_grams: int) -> Int[Array, "b s"]:
    """For each word a number in 0 ... num_grams - 1 that stands for it and the two words after it in its sentence.

    Shorter pieces, at the end of a sentence, have pad in the place of what is missing.
    """
    left = story.length - 1 - story.position  # words after this one
    following = [jnp.where(left >= k, jnp.roll(source, -k, axis=1), PAD) for k in (1, 2)]
    code = source.astype(jnp.uint32)
    for other in following:
        code = code * jnp.uint32(1_000_003) + other.astype(jnp.uint32) * jnp.uint32(0x9E3779B1)
    code = (code ^ (code >> 15)) * jnp.uint32(0x2C1B3C6D)
    return ((code ^ (code >> 13)) % jnp.uint32(num_grams)).astype(jnp.int32)
