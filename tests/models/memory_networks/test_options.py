"""Options of the networks for stories: every option reaches its module, and wrong ones are a UserError."""

import pytest

from attn_jax.attention import NORMALIZERS
from attn_jax.attention.scores import General, ScaledDot
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.models.memory_networks.dmn import GRUUpdate, ReLUUpdate
from attn_jax.models.memory_networks.episodes import (
    LOGISTIC,
    GatedEpisode,
    GateNetwork,
    SoftEpisode,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
)
from attn_jax.runs.options import change, resolve
from configs import base


def module_of(name, **options):
    config = base.get_config(task="babi", model=name)
    config = change(config, {f"model.{key}": value for key, value in options.items()})
    return resolve(config).build_model(TextSizes(20, 20, longest_story=1000)).module


def test_gates_are_what_the_config_says():
    gates = {"attention.score": "gate_network", "attention.score.features": 7, "hidden_size": 6, "num_hops": 2}
    for name, all_terms, update in (("dmn", True, GRUUpdate), ("dmn_plus", False, ReLUUpdate)):
        module = module_of(name, **gates)
        assert (
            module.attention.score == GateNetwork(features=7, all_terms=all_terms)
            and module.gate_loss is softmax_cross_entropy
        )
        assert isinstance(module.update, update) and isinstance(module.episode, GatedEpisode)
        assert (module.num_passes, module.episode.features) == (2, 6)
    module = module_of("dmn", **gates | {"attention.normalize": "logistic", "episode": "soft"})
    assert module.attention.normalize == LOGISTIC and module.gate_loss is sigmoid_cross_entropy
    assert isinstance(module.episode, SoftEpisode)
    del gates["attention.score.features"]
    module = module_of("dmn", **gates | {"attention.score": "general", "attention.normalize": "sparsemax"})
    assert (
        module.attention.score == General(query_features=12) and module.attention.normalize == NORMALIZERS["sparsemax"]
    )


def test_a_kernel_has_the_width_of_the_config():
    options = {"attention.score": "gaussian", "attention.score.width": (0.5,), "tying": "layerwise"}
    module = module_of("memn2n", **options)
    assert module.attention.score.width == (0.5,) and not module.adjacent
    assert module_of("memnn", dropout=0.25).dropout == 0.25


def test_the_other_networks_read_with_the_attention_of_the_config():
    entnet = module_of("entnet", hidden_size=6, **{"attention.score": "scaled_dot", "num_slots": 3})
    assert entnet.read.score == ScaledDot() and entnet.write.normalize == LOGISTIC and entnet.num_slots == 3
    steps = {"num_hops": 5, "halting": "adaptive", "halting.threshold": 0.7, "halting.ponder_weight": 0.2}
    steps |= {"attention.normalize": "learned_entmax"}
    universal = module_of("universal", hidden_size=6, num_heads=3, norm="post", **steps)
    stack, heads = universal.stack, universal.stack.layer.make_attention()
    assert (stack.num_steps, stack.halting, stack.threshold, universal.ponder_weight) == (5, True, 0.7, 0.2)
    assert heads.attention.score == General(query_features=2) and not stack.layer.norm_first
    assert heads.attention.normalize.num_heads == 3


DOT = {"hidden_size": 4, "attention.score": "dot"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dmn", {"episode": "gated"}, "unknown model.episode 'gated'"),
        ("dmn", {"attention.normalize": "logistik"}, "unknown model.attention.normalize .logistik"),
        ("entnet", {"attention.score": "gate_network"}, "unknown model.attention.score 'gate_network'"),
        ("universal", {"hidden_size": 6, "num_heads": 4}, "num_heads 4 does not divide the width 6"),
        ("universal", {"norm": "pro"}, "unknown model.norm 'pro'"),
        ("memn2n", {"attention.score": "triangular"}, "it needs model.attention.normalize kernel_sum"),
        ("entnet", {"attention.normalize": "monotonic"}, "unknown model.attention.normalize 'monotonic'"),
        ("dmn", {"attention.dropout": 0.5}, "attention.dropout changes a context, and model.episode gru reads the"),
        ("dmn_plus", {"attention.wrappers": ("gate",)}, "attention.wrappers gate changes a context"),
        ("dmn", {"gate_weight": 1.0, "attention.wrappers": ("difference",)}, "attention.wrappers difference has two"),
        ("dmn", {"gate_weight": 1.0, "attention.wrappers": ("hopfield",)}, "attention.wrappers hopfield asks several"),
        ("dmn", {"gate_steps": 3}, "only the gates are trained; it needs a model.gate_weight"),
        ("dmn_plus", DOT, "attention.score: the Dot score needs queries and keys of one width, got 8 and 4"),
        *[
            ("memn2n", {key: 1}, f"unknown config key model.{key};")
            for key in ("dropout", "attention.dropout", "attention.read", "num_kv_heads")
        ],
    ],
)
def test_a_wrong_option_is_told(name, options, message):
    with pytest.raises(UserError, match=message):
        module_of(name, **options)


def test_networks_for_stories_need_stories():
    message = r"model\.name entnet reads stories, and task\.name dates has text; expected task\.name babi"
    with pytest.raises(UserError, match=message):
        base.get_config(task="dates", model="entnet")


@pytest.mark.parametrize("name", ["dmn", "dmn_plus", "entnet", "universal"])
def test_weights_are_dropped_at_the_rate_of_the_config(name):
    options = {"hidden_size": 6, "num_heads": 3} if name == "universal" else {"hidden_size": 6}
    options |= {"episode": "soft"} if name.startswith("dmn") else {}
    module = module_of(name, **options, **{"attention.dropout": 0.25})
    attention = {"entnet": lambda: module.read, "universal": lambda: module.stack.layer.make_attention().attention}.get(
        name, lambda: module.attention
    )()
    assert attention.read.rate == 0.25
