"""Options of memory networks, which answer questions about stories."""

import dataclasses
from collections import ChainMap
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import NORMALIZERS, SCORES, Attention
from attn_jax.attention.maps import Hopfield
from attn_jax.attention.selective import Selective
from attn_jax.attention.signed import Subtract
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.transformer import NORM_FIRST
from attn_jax.models.attention_options import (
    ORDER,
    WRAPPERS,
    AttentionOptions,
    DroppedAttentionOptions,
    width_of_head,
)
from attn_jax.models.family import Family, Nothing
from attn_jax.models.memory_networks.base import StoryModel
from attn_jax.models.memory_networks.dmn import dmn, dmn_plus
from attn_jax.models.memory_networks.entnet import INIT as ENTNET_INIT
from attn_jax.models.memory_networks.entnet import entity_network
from attn_jax.models.memory_networks.episodes import GATE_SCORES, GATES
from attn_jax.models.memory_networks.memn2n import MemN2N
from attn_jax.models.memory_networks.memnn import MemNN
from attn_jax.models.memory_networks.universal import universal_transformer
from attn_jax.models.setting import Setting
from attn_jax.outputs import OUTPUTS, OutputLayer, OutputSetting
from attn_jax.outputs.base import OutputOptions
from attn_jax.parts import Options, Recipe, choice, option, repeat, section
from attn_jax.types import Array

TYINGS = {"adjacent": True, "layerwise": False}
ENCODINGS = {"position": True, "bag": False}
EPISODES = {"soft": True, "gru": False}
ALL_NORMALIZERS = ChainMap(GATES, NORMALIZERS)  # views, which include later additions to the tables
ALL_SCORES = ChainMap(GATE_SCORES, SCORES)
OWN_WRAPPERS = {name: kind for name, kind in WRAPPERS.items() if kind is not Selective}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateOptions(AttentionOptions):
    """Options of attention weights that need not sum to one."""

    normalize: Recipe = choice(
        ALL_NORMALIZERS,
        "softmax",
        "function that turns scores into weights; logistic: gates that need not sum to one",
    )
    wrappers: tuple[Recipe, ...] = repeat(OWN_WRAPPERS, (), ORDER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedGateOptions(GateOptions, DroppedAttentionOptions):
    """Options of attention weights that need not sum to one, with dropout."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeGateOptions(DroppedGateOptions):
    """Options of the gates of a dynamic memory network."""

    score: Recipe = choice(
        ALL_SCORES, "general", "score function of queries and facts; gate_network: the published one"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoryOptions(Family):
    """Options of every memory network."""

    data_kinds: ClassVar[tuple[str, ...]] = ("stories",)

    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    memory_size: int = option(
        50,
        "largest number of memory slots, for the last statements of a story; never more than the longest training "
        "story has statements, so that a longer story loses its first ones",
        at_least=1,
    )

    def build(self, sizes: TextSizes, setting: Setting) -> StoryModel:
        """Builds the model, with at most as many memory slots as the longest training story has statements.

        Raises:
            UserError: the task has no stories, or options do not fit each other.
        """
        if sizes.longest_story is None:
            raise UserError(f"model.name {self.name} answers questions about stories; it needs task.name babi")
        if setting.dtype is not jnp.float32:
            raise UserError(f"model.name {self.name} needs dtype float32")
        slots = max(1, min(self.memory_size, sizes.longest_story))
        return StoryModel(self.network(sizes, slots))

    def network(self, sizes: TextSizes, memory_size: int) -> nn.Module:
        """Builds the network.

        Args:
            sizes: sizes of the stories; their shortest statement bounds the number of statements in a batch.
            memory_size: number of slots for statements.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftmaxStoryOptions(StoryOptions):
    """Options of a memory network whose answer is predicted by an output layer."""

    output: OutputOptions = choice(OUTPUTS, "full", "output layer")

    def build_output(self, sizes: TextSizes, **changed: Any) -> OutputLayer:
        """Builds the output layer; `changed` overrides the settings of a layer with kernel and bias."""
        setting = OutputSetting(vocab_size=sizes.target_vocab_size, counts=sizes.target_counts, group="")
        return self.output.build(setting._replace(**changed))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemN2NOptions(SoftmaxStoryOptions):
    """Options of the end-to-end memory network (Sukhbaatar 2015)."""

    name: ClassVar[str] = "memn2n"

    num_hops: int = option(3, "number of hops: times the memory is read", at_least=1, at_most=1000)
    encoding: str = option(
        "position", "encoding of a statement: position (word order counts) or bag of words", choices=ENCODINGS
    )
    tying: str = option("adjacent", "how hops share embeddings", choices=TYINGS)
    nonlinear: bool = option(False, "apply relu after each hop")
    attend_empty: bool = option(False, "attend to empty slots, as zeros; else they are masked")
    noise: float = option(
        0.0,
        "training: empty memories inserted at random, at most this share of the statements, rounded up",
        at_least=0,
        at_most=1,
    )
    linear_steps: int = option(0, "linear start: number of training steps without the normalizer", at_least=0)
    attention: GateOptions = section(GateOptions, "attention to the memory")

    def network(self, sizes: TextSizes, memory_size: int) -> MemN2N:
        return MemN2N(
            vocab_size=sizes.source_vocab_size,
            output=self.build_output(sizes, tied=True, use_bias=False),
            features=self.hidden_size,
            num_hops=self.num_hops,
            memory_size=memory_size,
            attention=self.attention.build(self.hidden_size),
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

    name: ClassVar[str] = "memnn"

    num_hops: int = option(3, "largest number of supporting facts", at_least=1, at_most=1000)
    margin: float = option(0.1, "margin of the ranking loss", at_least=0)
    num_grams: int = option(0, "number of features that word trigrams are hashed into; 0: words alone", at_least=0)
    nonlinear: bool = option(False, "embed with two tanh layers")
    roles: bool = option(True, "own parameters for the first, second, ... fact; else shared by all but the last")
    adaptive: bool = option(True, "let a stop memory end the chain of facts; else it has num_hops facts")
    time_features: bool = option(
        True, "compare statements in pairs by their age; else the one of largest score is read"
    )
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)

    @property
    def learns_from_facts(self) -> str:
        return "name memnn"

    def network(self, sizes: TextSizes, memory_size: int) -> MemNN:
        return MemNN(
            vocab_size=sizes.source_vocab_size,
            features=self.hidden_size,
            num_facts=self.num_hops,
            memory_size=memory_size,
            margin=self.margin,
            num_grams=self.num_grams,
            nonlinear=self.nonlinear,
            stop_memory=self.adaptive,
            block_per_fact=self.roles,
            time_features=self.time_features,
            dropout=self.dropout,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodicOptions(SoftmaxStoryOptions):
    """Options common to both dynamic memory networks."""

    num_hops: int = option(3, "number of passes over the facts", at_least=1, at_most=1000)
    episode: str = option(
        "gru", "summary of the facts: a GRU whose updates are gated, or their weighted sum (soft)", choices=EPISODES
    )
    gate_weight: float = option(
        0.0, "weight in the loss of the cross entropy between the gates of pass i and supporting fact i", at_least=0
    )
    gate_steps: int = option(0, "number of first training steps with the loss of the gates alone", at_least=0)
    fact_dropout: float = option(
        0.0, "dropout rate of words (dmn) or of statements (dmn_plus)", at_least=0, at_most=0.999
    )
    sentence_size: int = option(16, "number of last words of a question that are read", at_least=1)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    attention: EpisodeGateOptions = section(EpisodeGateOptions)

    @property
    def learns_from_facts(self) -> str:
        return "gate_weight" if self.gate_weight else ""

    def __post_init__(self):
        if self.gate_steps and not self.gate_weight:
            raise UserError(
                f"model.gate_steps {self.gate_steps}: before these steps only the gates are trained; it needs a "
                "model.gate_weight of more than 0"
            )
        attention = self.attention
        of_context = {"wrappers gate": attention.gate, "dropout": attention.dropout}
        if not EPISODES[self.episode] and (given := [name for name, value in of_context.items() if value]):
            raise UserError(
                f"model.attention.{given[0]} changes a context, and model.episode {self.episode} reads the weights "
                "alone; it needs model.episode soft"
            )
        if self.gate_weight and attention.has(Hopfield):
            raise UserError(
                "model.gate_weight trains the scores of one query, and model.attention.wrappers hopfield asks several; "
                "expected one of the two"
            )
        if self.gate_weight and attention.has(Subtract):
            raise UserError(
                "model.gate_weight trains the scores of one map, and model.attention.wrappers difference has two; "
                "expected one of the two"
            )

    def parts(self, sizes: TextSizes, memory_size: int, all_terms: bool) -> dict[str, Any]:
        """Returns the fields common to both networks.

        The queries of the gates are [question; memory], so they are twice as wide as a fact.
        """
        attention = self.attention.build(2 * self.hidden_size, all_terms=all_terms)
        check_score(attention, 2 * self.hidden_size, self.hidden_size)
        return dict(
            vocab_size=sizes.source_vocab_size,
            output=self.build_output(sizes),
            memory_size=memory_size,
            features=self.hidden_size,
            num_passes=self.num_hops,
            attention=attention,
            soft=EPISODES[self.episode],
            question_size=self.sentence_size,
            shortest=sizes.shortest_statement,
            fact_dropout=self.fact_dropout,
            dropout=self.dropout,
            gate_weight=self.gate_weight,
            warmup_steps=self.gate_steps,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DMNOptions(EpisodicOptions):
    """Options of the dynamic memory network (Kumar 2016)."""

    name: ClassVar[str] = "dmn"

    embedding_size: int = option(256, "width of the embeddings", at_least=1)

    def network(self, sizes: TextSizes, memory_size: int) -> nn.Module:
        return dmn(embedding_size=self.embedding_size, **self.parts(sizes, memory_size, all_terms=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DMNPlusOptions(EpisodicOptions):
    """Options of the dynamic memory network DMN+ (Xiong 2016)."""

    name: ClassVar[str] = "dmn_plus"

    def network(self, sizes: TextSizes, memory_size: int) -> nn.Module:
        return dmn_plus(**self.parts(sizes, memory_size, all_terms=False))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntNetOptions(SoftmaxStoryOptions):
    """Options of the recurrent entity network (Henaff 2017)."""

    name: ClassVar[str] = "entnet"

    num_slots: int = option(20, "number of memory slots", at_least=1)
    sentence_size: int = option(
        16, "number of words of a sentence with a learned mask; later words have none", at_least=1
    )
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    attention: DroppedGateOptions = section(DroppedGateOptions)

    def network(self, sizes: TextSizes, memory_size: int) -> nn.Module:
        return entity_network(
            vocab_size=sizes.source_vocab_size,
            output=self.build_output(sizes, use_bias=False, kernel_init=ENTNET_INIT),
            memory_size=memory_size,
            features=self.hidden_size,
            num_slots=self.num_slots,
            read=self.attention.build(self.hidden_size),
            sentence_size=self.sentence_size,
            shortest=sizes.shortest_statement,
            dropout=self.dropout,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HaltingOptions(Options):
    """Options of adaptive computation time."""

    threshold: float = option(0.99, "sum of the step weights at which a position stops", at_least=0, at_most=1)
    ponder_weight: float = option(0.01, "weight of the mean number of steps in the loss", at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniversalOptions(SoftmaxStoryOptions):
    """Options of the Universal Transformer over the statements of a story (Dehghani 2019)."""

    name: ClassVar[str] = "universal"

    num_hops: int = option(3, "number of steps; with halting, the largest number", at_least=1, at_most=1000)
    num_heads: int = option(4, "number of attention heads", at_least=1)
    feed_forward_size: int = option(1024, "hidden width of the feed-forward layers", at_least=1)
    norm: str = option(
        "pre", "layer norm before each sublayer (pre) or after each residual sum (post)", choices=NORM_FIRST
    )
    halting: Options = choice(
        {"none": Nothing, "adaptive": HaltingOptions},
        "none",
        "whether each position stops after its own number of steps",
    )
    sentence_size: int = option(
        16, "number of words of a sentence with a learned mask; later words have none", at_least=1
    )
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    attention: DroppedGateOptions = section(DroppedGateOptions)

    def network(self, sizes: TextSizes, memory_size: int) -> nn.Module:
        width = width_of_head(self.hidden_size, self.num_heads)
        return universal_transformer(
            vocab_size=sizes.source_vocab_size,
            output=self.build_output(sizes),
            memory_size=memory_size,
            features=self.hidden_size,
            num_heads=self.num_heads,
            feed_forward_size=self.feed_forward_size,
            num_steps=self.num_hops,
            halting=bool(self.halting),
            **(dataclasses.asdict(self.halting) if self.halting else {"threshold": 1.0, "ponder_weight": 0.0}),
            attention=self.attention.build(width, num_heads=self.num_heads, gate=False),
            gate=self.attention.gate,
            norm_first=NORM_FIRST[self.norm],
            dropout=self.dropout,
            sentence_size=self.sentence_size,
            shortest=sizes.shortest_statement,
        )


def check_score(attention: Attention, query_features: int, key_features: int) -> None:
    """Checks that a score can compare queries and keys of given widths.

    Raises:
        UserError: the score needs other widths.
    """
    pieces = attention.map.num_pieces
    query, key = jnp.zeros((1, query_features // pieces)), jnp.zeros((1, key_features // pieces))

    def compare(score: nn.Module, query: Array, key: Array) -> Array:
        return score(query, score.project_keys(key))

    try:
        jax.eval_shape(lambda rng: attention.score.init(rng, query, key, method=compare), jax.random.key(0))
    except ValueError as error:
        raise UserError(f"model.attention.score: {error}") from None
