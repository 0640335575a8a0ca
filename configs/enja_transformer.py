"""English to Japanese with a Transformer on small_parallel_enja (50,000 short sentences, tokenized).

BLEU on dev, six seeds: 38.1 +- 0.4 greedy (experiments/results/translation_transformer.json).

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/enja_transformer.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import switch
from attn_jax.runs.tree import part
from configs import enja_soft


def get_config() -> ConfigDict:
    config = switch(enja_soft.get_config(), model="transformer")
    config.name = "enja_transformer"
    config.description = "Transformer, 3 + 3 layers of 256, English to Japanese"
    config.model.hidden_size = 256
    config.model.dropout = 0.2
    layers = dict(num_layers=3, num_heads=4, feed_forward_size=512, positions=part("rotary"))
    config.model.encoder = part("transformer", **layers)
    config.model.decoder = layers
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 16.0
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup_steps = 800
    config.optimizer.b2 = 0.98
    return config
