"""From config.model to the memory networks that answer questions about stories."""

from ml_collections import ConfigDict

from attn_jax.attention import NORMALIZERS, SCORES
from attn_jax.build_attention import construct
from attn_jax.errors import UserError, lookup
from attn_jax.models.memn2n import MemN2N
from attn_jax.models.memnn import MemNN
from attn_jax.models.stories import StoryModel

TYINGS = {"adjacent": True, "layerwise": False}
ENCODINGS = {"position": True, "bag": False}


def build_memn2n(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> StoryModel:
    """config.model as an end-to-end memory network."""
    check_stories(config)
    model, stories = config.model, config.model.stories
    score = lookup(SCORES, model.attention.score, "model.attention.score")
    normalize = lookup(NORMALIZERS, model.attention.normalize, "model.attention.normalize")
    options = {"query_features": model.hidden_size, "num_heads": 1}
    options |= {key: model.attention[key] for key in ("features", "max_length", "alpha", "fusion")}
    module = MemN2N(
        vocab_size=source_vocab_size,
        features=model.hidden_size,
        num_hops=stories.num_hops,
        memory_size=stories.memory_size,
        score=construct(score, options),
        normalize=construct(normalize, options) if isinstance(normalize, type) else normalize,
        adjacent=lookup(TYINGS, stories.tying, "model.stories.tying"),
        position_encoding=lookup(ENCODINGS, stories.encoding, "model.stories.encoding"),
        nonlinear=stories.nonlinear,
        noise=stories.noise,
        linear_steps=stories.linear_steps,
    )
    return StoryModel(module)


def build_memnn(config: ConfigDict, source_vocab_size: int, target_vocab_size: int) -> StoryModel:
    """config.model as a memory network with strong supervision."""
    check_stories(config)
    model, stories = config.model, config.model.stories
    module = MemNN(
        vocab_size=source_vocab_size,
        features=model.hidden_size,
        num_facts=stories.num_hops,
        memory_size=stories.memory_size,
        margin=stories.margin,
        num_grams=stories.num_grams,
        nonlinear=stories.nonlinear,
        adaptive=stories.adaptive,
        dropout=model.dropout,
    )
    return StoryModel(module)


def check_stories(config: ConfigDict) -> None:
    """UserError where the task has no stories."""
    if config.task.name != "babi":
        raise UserError(
            f"model.name {config.model.name} answers questions about stories; it needs task.name babi, got "
            f"{config.task.name}"
        )


STORY_MODELS = {"memn2n": build_memn2n, "memnn": build_memnn}
