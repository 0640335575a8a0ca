"""From a config to the networks for stories: every option arrives, a wrong one is told."""

import jax
import jax.numpy as jnp
import pytest

from attn_jax.attention.normalizers.entmax import sparsemax
from attn_jax.attention.scores import General, ScaledDot
from attn_jax.attention.scores.base import ScoreError
from attn_jax.errors import UserError
from attn_jax.models.memory_networks.dmn import GRUUpdate, ReLUUpdate
from attn_jax.models.memory_networks.episodes import (
    GatedEpisode,
    GateNetwork,
    SoftEpisode,
    each_alone,
    logistic,
    one_of_all,
)
from attn_jax.models.memory_networks.options import STORY_MODELS
from configs import base


def module_of(name, **options):
    config = base.get_config()
    config.task.name = "babi"
    config.model.name = name
    config.update_from_flattened_dict({f"model.{key}": value for key, value in options.items()})
    return STORY_MODELS[name](config, 20, 20).module


def test_gates_are_what_the_config_says():
    gates = {"attention.score": "gate_network", "attention.features": 7, "hidden_size": 6, "stories.num_hops": 2}
    for name, whole, update in (("dmn", True, GRUUpdate), ("dmn_plus", False, ReLUUpdate)):
        module = module_of(name, **gates)
        assert module.attention.score == GateNetwork(features=7, whole=whole) and module.gate_loss is one_of_all
        assert isinstance(module.update, update) and isinstance(module.episode, GatedEpisode)
        assert (module.num_passes, module.episode.features) == (2, 6)
    module = module_of("dmn", **gates | {"attention.normalize": "logistic", "stories.episode": "soft"})
    assert module.attention.normalize is logistic and module.gate_loss is each_alone
    assert isinstance(module.episode, SoftEpisode)
    module = module_of("dmn", **gates | {"attention.score": "general", "attention.normalize": "sparsemax"})
    assert module.attention.score == General(query_features=12) and module.attention.normalize is sparsemax


def test_a_kernel_has_the_width_of_the_config():
    options = {"dropout": 0.0, "attention.score": "gaussian", "attention.width": (0.5,), "stories.tying": "layerwise"}
    module = module_of("memn2n", **options)
    assert module.score.width == (0.5,) and not module.adjacent
    assert module_of("memnn", dropout=0.25).dropout == 0.25


def test_the_other_networks_read_with_the_attention_of_the_config():
    entnet = module_of("entnet", hidden_size=6, **{"attention.score": "scaled_dot", "stories.num_slots": 3})
    assert entnet.read.score == ScaledDot() and entnet.write.normalize is logistic and entnet.num_slots == 3
    steps = {"stories.num_hops": 5, "stories.halting": True, "stories.threshold": 0.7, "stories.ponder_weight": 0.2}
    steps |= {"attention.normalize": "learned_entmax"}
    universal = module_of("universal", hidden_size=6, num_heads=3, norm="post", **steps)
    stack, heads = universal.stack, universal.stack.layer.make_attention()
    assert (stack.num_steps, stack.adaptive, stack.threshold, universal.ponder_weight) == (5, True, 0.7, 0.2)
    assert heads.attention.score == General(query_features=2) and not stack.layer.norm_first
    assert heads.attention.normalize.num_heads == 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dmn", {"stories.episode": "gated"}, "unknown model.stories.episode 'gated'"),
        (
            "dmn",
            {"attention.normalize": "logistik"},
            "unknown model.attention.normalize .logistik",
        ),
        ("entnet", {"attention.score": "gate_network"}, "unknown model.attention.score 'gate_network'"),
        ("universal", {"hidden_size": 6, "num_heads": 4}, "num_heads 4 does not divide the width 6"),
        ("universal", {"norm": "pro"}, "unknown model.norm 'pro'"),
        ("universal", {"num_kv_heads": 2}, "model.name universal needs model.num_kv_heads 0, got 2"),
        ("memn2n", {"dropout": 0.5}, "model.name memn2n needs model.dropout 0.0, got 0.5"),
        ("memn2n", {"dropout": 0.0, "attention.score": "triangular"}, "it needs model.attention.normalize kernel_sum"),
        ("entnet", {"attention.window": "local_m"}, "needs model.attention.window global, got local_m"),
        ("entnet", {"attention.normalize": "monotonic"}, "entnet takes no model.attention.normalize monotonic"),
        ("entnet", {"attention.read": "reinforce"}, "needs model.attention.read expectation, got reinforce"),
        ("dmn", {"stories.gate_steps": 3}, "only the gates are trained; it needs a model.stories.gate_weight"),
    ],
)
def test_a_wrong_option_is_told(name, options, message):
    with pytest.raises(UserError, match=message):
        module_of(name, **options)


def test_a_score_that_cannot_compare_a_question_and_a_memory_with_a_fact_is_told():
    module = module_of("dmn_plus", hidden_size=4, **{"attention.score": "dot"})
    source = jnp.array([[6, 4, 7, 5]])
    with pytest.raises(ScoreError, match="the Dot score needs queries and keys of one width, got 8 and 4"):
        jax.eval_shape(lambda: module.init(jax.random.key(0), source, method="answer"))


def test_networks_for_stories_need_stories():
    config = base.get_config()
    config.model.name = "entnet"
    with pytest.raises(UserError, match="answers questions about stories"):
        STORY_MODELS["entnet"](config, 20, 20)
