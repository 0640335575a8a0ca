"""From config.model to the memory networks that answer questions about stories."""

import flax.linen as nn
from ml_collections import ConfigDict

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, Attention
from attn_jax.errors import UserError, lookup
from attn_jax.layers.transformer import NORM_FIRST
from attn_jax.models.attention_options import build_attention, width_of_head
from attn_jax.models.memory_networks.base import StoryModel
from attn_jax.models.memory_networks.dmn import kumar2016, xiong2016
from attn_jax.models.memory_networks.entnet import henaff2017
from attn_jax.models.memory_networks.episodes import GateNetwork, logistic
from attn_jax.models.memory_networks.memn2n import MemN2N
from attn_jax.models.memory_networks.memnn import MemNN
from attn_jax.models.memory_networks.universal import dehghani2019
from attn_jax.tasks.vocabulary import Stories

TYINGS = {"adjacent": True, "layerwise": False}
ENCODINGS = {"position": True, "bag": False}
EPISODES = {"soft": True, "gru": False}
# The only value there is of an option, for every network ("") and for some.
NEEDED = {
    "": {
        "dtype": "float32",
        "train.label_smoothing": 0.0,
        "model.objective": "soft",
        "model.attention.read": "expectation",
        "model.attention.window": "global",
        "model.attention.transition": "independent",
    },
    "memn2n": {"model.dropout": 0.0, "model.attention.dropout": 0.0},
    "universal": {"model.activation": "relu", "model.positions": "sinusoidal", "model.num_kv_heads": 0},
}


def build_memn2n(config: ConfigDict, vocab_size: int) -> nn.Module:
    """config.model as an end-to-end memory network."""
    model, stories = config.model, config.model.stories
    attention = build_gates(config, model.hidden_size, {})
    return MemN2N(
        vocab_size=vocab_size,
        features=model.hidden_size,
        num_hops=stories.num_hops,
        memory_size=stories.memory_size,
        score=attention.score,
        normalize=attention.normalize,
        adjacent=lookup(TYINGS, stories.tying, "model.stories.tying"),
        position_encoding=lookup(ENCODINGS, stories.encoding, "model.stories.encoding"),
        nonlinear=stories.nonlinear,
        attend_empty=stories.attend_empty,
        noise=stories.noise,
        linear_steps=stories.linear_steps,
    )


def build_memnn(config: ConfigDict, vocab_size: int) -> nn.Module:
    """config.model as a memory network with strong supervision."""
    model, stories = config.model, config.model.stories
    return MemNN(
        vocab_size=vocab_size,
        features=model.hidden_size,
        num_facts=stories.num_hops,
        memory_size=stories.memory_size,
        margin=stories.margin,
        num_grams=stories.num_grams,
        nonlinear=stories.nonlinear,
        adaptive=stories.adaptive,
        roles=stories.roles,
        dropout=model.dropout,
    )


def build_dmn(config: ConfigDict, vocab_size: int) -> nn.Module:
    """config.model as a dynamic memory network, DMN or DMN+."""
    model, stories = config.model, config.model.stories
    plus = model.name == "dmn_plus"
    widths = {} if plus else {"embedding_size": model.embedding_size}
    # What the facts are asked is the question beside the memory, twice as wide as a fact.
    attention = build_gates(config, 2 * model.hidden_size, {"gate_network": GateNetwork}, whole=not plus)
    return (xiong2016 if plus else kumar2016)(
        vocab_size=vocab_size,
        memory_size=stories.memory_size,
        features=model.hidden_size,
        num_passes=stories.num_hops,
        attention=attention,
        soft=lookup(EPISODES, stories.episode, "model.stories.episode"),
        question_size=stories.sentence_size,
        shortest=stories.shortest,
        fact_dropout=stories.fact_dropout,
        dropout=model.dropout,
        gate_weight=stories.gate_weight,
        warmup_steps=stories.gate_steps,
        **widths,
    )


def build_entnet(config: ConfigDict, vocab_size: int) -> nn.Module:
    """config.model as a recurrent entity network."""
    model, stories = config.model, config.model.stories
    return henaff2017(
        vocab_size=vocab_size,
        memory_size=stories.memory_size,
        features=model.hidden_size,
        num_slots=stories.num_slots,
        read=build_gates(config, model.hidden_size, {}),
        sentence_size=stories.sentence_size,
        shortest=stories.shortest,
        dropout=model.dropout,
    )


def build_universal(config: ConfigDict, vocab_size: int) -> nn.Module:
    """config.model as a Universal Transformer over the statements of a story."""
    model, stories = config.model, config.model.stories
    width = width_of_head(model.hidden_size, model.num_heads)
    return dehghani2019(
        vocab_size=vocab_size,
        memory_size=stories.memory_size,
        features=model.hidden_size,
        num_heads=model.num_heads,
        feed_forward_size=model.feed_forward_size,
        num_steps=stories.num_hops,
        adaptive=stories.halting,
        threshold=stories.threshold,
        ponder_weight=stories.ponder_weight,
        attention=build_gates(config, width, {}, num_heads=model.num_heads),
        norm_first=lookup(NORM_FIRST, model.norm, "model.norm"),
        dropout=model.dropout,
        sentence_size=stories.sentence_size,
        shortest=stories.shortest,
    )


def build_gates(
    config: ConfigDict, query_features: int, more: dict[str, type], whole: bool = False, num_heads: int = 1
) -> Attention:
    """model.attention as soft attention, with `more` scores, and gates that need not sum to one, to choose from."""
    return build_attention(
        config.model.attention,
        query_features,
        READINGS["expectation"],
        num_heads,
        scores=SCORES | more,
        normalizers=NORMALIZERS | {"logistic": logistic},
        whole=whole,
    )


def check_stories(config: ConfigDict) -> None:
    """UserError where the task has no stories, or an option is set that these networks do not have."""
    if config.task.name != "babi":
        raise UserError(
            f"model.name {config.model.name} answers questions about stories; it needs task.name babi, got "
            f"{config.task.name}"
        )
    for key, value in (NEEDED[""] | NEEDED.get(config.model.name, {})).items():
        if config[key] != value:
            raise UserError(f"model.name {config.model.name} needs {key} {value}, got {config[key]}")
    if config.model.attention.normalize == "monotonic":
        raise UserError(f"model.name {config.model.name} takes no model.attention.normalize monotonic")
    if config.model.stories.gate_steps and not config.model.stories.gate_weight:
        raise UserError(
            f"model.stories.gate_steps {config.model.stories.gate_steps}: before these steps only the gates are "
            "trained; it needs a model.stories.gate_weight of more than 0"
        )


def fit_memory(config: ConfigDict, vocabulary: Stories) -> ConfigDict:
    """The config with what the training stories tell of slots: of those nobody needs, none is worked on.

    The memory is no larger than the longest story, and a batch needs no more slots than it has room for statements as
    short as the shortest.
    """
    config = config.copy_and_resolve_references()
    stories = config.model.stories
    stories.memory_size = max(1, min(stories.memory_size, vocabulary.longest))
    stories.shortest = vocabulary.shortest
    return config


BUILDERS = {
    "memn2n": build_memn2n,
    "memnn": build_memnn,
    "dmn": build_dmn,
    "dmn_plus": build_dmn,
    "entnet": build_entnet,
    "universal": build_universal,
}


def build_story_model(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> StoryModel:
    """config.model as a network that answers questions about stories; both sides have one vocabulary."""
    check_stories(config)
    return StoryModel(BUILDERS[config.model.name](config, source_vocab_size))


STORY_MODELS = dict.fromkeys(BUILDERS, build_story_model)
