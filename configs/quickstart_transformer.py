"""Dates to ISO 8601 with a small Transformer: the task of quickstart.py without recurrence.

python launch.py --config=configs/quickstart_transformer.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import switch
from attn_jax.runs.tree import part
from configs import quickstart


def get_config() -> ConfigDict:
    config = switch(quickstart.get_config(), model="transformer")
    config.name = "quickstart_transformer"
    config.description = "Transformer, 2 + 2 layers of 128, dates to ISO"
    config.model.hidden_size = 128
    config.model.dropout = 0.1
    layers = dict(num_layers=2, num_heads=4, feed_forward_size=256, positions=part("rotary"))
    config.model.encoder = part("transformer", **layers)
    config.model.decoder = layers
    config.model.attention.score = part("scaled_dot")
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    return config
