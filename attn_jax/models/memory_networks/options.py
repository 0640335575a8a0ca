"""Options of the memory networks, which answer questions about stories."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import NORMALIZERS, SCORES, Attention
from attn_jax.errors import UserError
from attn_jax.layers.transformer import NORM_FIRST
from attn_jax.models.attention_options import AttentionOptions, DroppedAttentionOptions
from attn_jax.models.encoder_options import width_of_head
from attn_jax.models.memory_networks.base import StoryModel
from attn_jax.models.memory_networks.dmn import dmn, dmn_plus
from attn_jax.models.memory_networks.entnet import entity_network
from attn_jax.models.memory_networks.episodes import GATE_SCORES, GATES
from attn_jax.models.memory_networks.memn2n import MemN2N
from attn_jax.models.memory_networks.memnn import MemNN
from attn_jax.models.memory_networks.universal import universal_transformer
from attn_jax.models.setting import Setting
from attn_jax.options import option, section
from attn_jax.tasks.sizes import TextSizes
from attn_jax.types import Array

TYINGS = {"adjacent": True, "layerwise": False}
ENCODINGS = {"position": True, "bag": False}
EPISODES = {"soft": True, "gru": False}
ALL_NORMALIZERS = NORMALIZERS | GATES
ALL_SCORES = SCORES | GATE_SCORES


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateOptions(AttentionOptions):
    """Options of weights that need not sum to one."""

    normalize: str = option("softmax", "normalizer; logistic: gates that need not sum to one", choices=ALL_NORMALIZERS)

    @property
    def normalizers(self) -> Mapping[str, Any]:
        return ALL_NORMALIZERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedGateOptions(GateOptions, DroppedAttentionOptions):
    """Options of weights that need not sum to one, with dropout."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeGateOptions(DroppedGateOptions):
    """Options of the gates of a dynamic memory network."""

    score: str = option("general", "score of a fact; gate_network: that of the papers", choices=ALL_SCORES)

    @property
    def scores(self) -> Mapping[str, type]:
        return ALL_SCORES


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoryOptions:
    """Options of every memory network."""

    sizes: ClassVar[type] = TextSizes
    has_label_smoothing: ClassVar[bool] = False
    reads_stories: ClassVar[bool] = True
    has_weights: ClassVar[bool] = True
    main_attention: ClassVar[None] = None

    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    memory_size: int = option(50, "statements of a story that are seen, the last ones", at_least=1)

    def build(self, sizes: TextSizes, setting: Setting) -> StoryModel:
        """Builds the model. Its memory has no more slots than the longest story of training has statements.

        Raises:
            UserError: the task has no stories, or options do not go together.
        """
        if sizes.longest_story is None:
            raise UserError(f"model.name {self.name} answers questions about stories; it needs task.name babi")
        if setting.dtype is not jnp.float32:
            raise UserError(f"model.name {self.name} needs dtype float32")
        slots = max(1, min(self.memory_size, sizes.longest_story))
        return StoryModel(self.network(sizes.source_vocab_size, slots, sizes.shortest_statement))

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> nn.Module:
        """Builds the network.

        Args:
            vocab_size: words of stories and answers.
            memory_size: slots for statements.
            shortest: tokens of the shortest statement, which bounds how many statements fit into a batch.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemN2NOptions(StoryOptions):
    """Options of the end-to-end memory network (Sukhbaatar 2015)."""

    name: str = option("memn2n", "the family")
    num_hops: int = option(3, "readings of the memory", at_least=1, at_most=1000)
    encoding: str = option("position", "of a statement: word order counts, or a bag of words", choices=ENCODINGS)
    tying: str = option("adjacent", "which embeddings of the hops are the same", choices=TYINGS)
    nonlinear: bool = option(False, "relu after each hop")
    attend_empty: bool = option(False, "slots without a statement are read as zeros, else masked")
    noise: float = option(0.0, "training: largest share of empty memories that is put in", at_least=0, at_most=1)
    linear_steps: int = option(0, "training steps before the softmax comes in", at_least=0)
    attention: GateOptions = section(GateOptions)

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> MemN2N:
        attention = self.attention.build(self.hidden_size)
        return MemN2N(
            vocab_size=vocab_size,
            features=self.hidden_size,
            num_hops=self.num_hops,
            memory_size=memory_size,
            score=attention.score,
            normalize=attention.normalize,
            adjacent=TYINGS[self.tying],
            position_encoding=ENCODINGS[self.encoding],
            nonlinear=self.nonlinear,
            attend_empty=self.attend_empty,
            noise=self.noise,
            linear_steps=self.linear_steps,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemNNOptions(StoryOptions):
    """Options of the memory network with strong supervision (Weston 2015)."""

    name: str = option("memnn", "the family")
    num_hops: int = option(3, "supporting facts, at most", at_least=1, at_most=1000)
    margin: float = option(0.1, "by which the right fact has to win", at_least=0)
    num_grams: int = option(0, "features that three-word pieces are hashed into; 0: words alone", at_least=0)
    nonlinear: bool = option(False, "two layers of tanh")
    roles: bool = option(True, "the first fact, the second, ... differ in kind; else they are a list")
    adaptive: bool = option(True, "a stop memory ends the chain of facts; else it has num_hops links")
    dropout: float = option(0.2, "dropout", at_least=0, at_most=0.999)

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> MemNN:
        return MemNN(
            vocab_size=vocab_size,
            features=self.hidden_size,
            num_facts=self.num_hops,
            memory_size=memory_size,
            margin=self.margin,
            num_grams=self.num_grams,
            nonlinear=self.nonlinear,
            stop_memory=self.adaptive,
            block_per_fact=self.roles,
            dropout=self.dropout,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodicOptions(StoryOptions):
    """Options of both dynamic memory networks."""

    num_hops: int = option(3, "passes over the facts", at_least=1, at_most=1000)
    episode: str = option(
        "gru", "over the facts: a GRU that the gates let them into, or their weighted sum", choices=EPISODES
    )
    gate_weight: float = option(
        0.0, "weight of the cross entropy of the gates of pass i and supporting fact i", at_least=0
    )
    gate_steps: int = option(0, "training steps before the answer counts, so that the gates learn first", at_least=0)
    fact_dropout: float = option(0.0, "dropout of words (dmn), of statements (dmn_plus)", at_least=0, at_most=0.999)
    sentence_size: int = option(16, "words of a question that are read, the last ones", at_least=1)
    dropout: float = option(0.2, "dropout", at_least=0, at_most=0.999)
    attention: EpisodeGateOptions = section(EpisodeGateOptions)

    def __post_init__(self):
        if self.gate_steps and not self.gate_weight:
            raise UserError(
                f"model.gate_steps {self.gate_steps}: before these steps only the gates are trained; it needs a "
                "model.gate_weight of more than 0"
            )

    def parts(self, vocab_size: int, memory_size: int, shortest: int, all_terms: bool) -> dict[str, Any]:
        """Returns the fields of either network. The gates see the question beside the memory: twice a fact's width."""
        attention = self.attention.build(2 * self.hidden_size, all_terms=all_terms)
        check_score(attention, 2 * self.hidden_size, self.hidden_size, self.attention.score)
        return dict(
            vocab_size=vocab_size,
            memory_size=memory_size,
            features=self.hidden_size,
            num_passes=self.num_hops,
            attention=attention,
            soft=EPISODES[self.episode],
            question_size=self.sentence_size,
            shortest=shortest,
            fact_dropout=self.fact_dropout,
            dropout=self.dropout,
            gate_weight=self.gate_weight,
            warmup_steps=self.gate_steps,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DMNOptions(EpisodicOptions):
    """Options of the dynamic memory network (Kumar 2016)."""

    name: str = option("dmn", "the family")
    embedding_size: int = option(256, "width of the embeddings", at_least=1)

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> nn.Module:
        return dmn(embedding_size=self.embedding_size, **self.parts(vocab_size, memory_size, shortest, all_terms=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DMNPlusOptions(EpisodicOptions):
    """Options of the dynamic memory network DMN+ (Xiong 2016)."""

    name: str = option("dmn_plus", "the family")

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> nn.Module:
        return dmn_plus(**self.parts(vocab_size, memory_size, shortest, all_terms=False))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntNetOptions(StoryOptions):
    """Options of the recurrent entity network (Henaff 2017)."""

    name: str = option("entnet", "the family")
    num_slots: int = option(20, "slots", at_least=1)
    sentence_size: int = option(16, "words of a sentence that have masks; the others have none", at_least=1)
    dropout: float = option(0.2, "dropout", at_least=0, at_most=0.999)
    attention: DroppedGateOptions = section(DroppedGateOptions)

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> nn.Module:
        return entity_network(
            vocab_size=vocab_size,
            memory_size=memory_size,
            features=self.hidden_size,
            num_slots=self.num_slots,
            read=self.attention.build(self.hidden_size),
            sentence_size=self.sentence_size,
            shortest=shortest,
            dropout=self.dropout,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniversalOptions(StoryOptions):
    """Options of the Universal Transformer over the statements of a story (Dehghani 2019)."""

    name: str = option("universal", "the family")
    num_hops: int = option(3, "steps, at most where halting", at_least=1, at_most=1000)
    num_heads: int = option(4, "heads of attention", at_least=1)
    feed_forward_size: int = option(1024, "width of the feed-forward layers", at_least=1)
    norm: str = option("pre", "layer norm before each part, or after each sum", choices=NORM_FIRST)
    halting: bool = option(False, "each position takes as many of num_hops steps as it wants")
    threshold: float = option(0.99, "halting: where the weights of the steps add up to so much", at_least=0, at_most=1)
    ponder_weight: float = option(0.01, "halting: weight of the mean number of steps in the loss", at_least=0)
    sentence_size: int = option(16, "words of a sentence that have masks; the others have none", at_least=1)
    dropout: float = option(0.2, "dropout", at_least=0, at_most=0.999)
    attention: DroppedGateOptions = section(DroppedGateOptions)

    def network(self, vocab_size: int, memory_size: int, shortest: int) -> nn.Module:
        width = width_of_head(self.hidden_size, self.num_heads)
        return universal_transformer(
            vocab_size=vocab_size,
            memory_size=memory_size,
            features=self.hidden_size,
            num_heads=self.num_heads,
            feed_forward_size=self.feed_forward_size,
            num_steps=self.num_hops,
            halting=self.halting,
            threshold=self.threshold,
            ponder_weight=self.ponder_weight,
            attention=self.attention.build(width, num_heads=self.num_heads),
            norm_first=NORM_FIRST[self.norm],
            dropout=self.dropout,
            sentence_size=self.sentence_size,
            shortest=shortest,
        )


def check_score(attention: Attention, query_features: int, key_features: int, name: str) -> None:
    """Checks that a score can compare queries and keys of these widths.

    Raises:
        UserError: it cannot.
    """
    query, key = jnp.zeros((1, query_features)), jnp.zeros((1, key_features))

    def compare(score: nn.Module, query: Array, key: Array) -> Array:
        return score(query, score.project_keys(key))

    try:
        jax.eval_shape(lambda rng: attention.score.init(rng, query, key, method=compare), jax.random.key(0))
    except ValueError as error:
        raise UserError(f"model.attention.score {name}: {error}") from None
