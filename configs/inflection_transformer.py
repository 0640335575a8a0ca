"""Morphological inflection with a Transformer (Wu, Cotterell & Hulden 2021, arXiv 2005.10213).

python launch.py --config=configs/inflection_transformer.py
python -m attn_jax.data.download sigmorphon2017 --data_dir=data/sigmorphon2017
python launch.py --config=configs/inflection_transformer.py --config.data_dir=data/sigmorphon2017 \\
    --config.task.language=german
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import switch
from attn_jax.runs.tree import part
from configs import inflection_soft


def get_config() -> ConfigDict:
    config = switch(inflection_soft.get_config(), model="transformer")
    config.name = "inflection_transformer"
    config.description = "Transformer, 4 + 4 layers of 128, inflection"
    config.task.batch_size = 128
    config.model.hidden_size = 128
    layers = dict(num_layers=4, num_heads=4, feed_forward_size=256)
    config.model.encoder = part("transformer", **layers)
    config.model.decoder = layers
    config.model.dropout = 0.3
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 60.0
    config.model.output.label_smoothing = 0.1
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 500
    config.optimizer.b2 = 0.98
    return config
