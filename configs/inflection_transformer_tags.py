"""Inflection with the Transformer of Wu, Cotterell & Hulden 2021 (arXiv 2005.10213), tags without positions.

The size, the batches of 400 and the schedule are those of the authors' script for CoNLL-SIGMORPHON 2017: for a GPU, or
for patience.

python launch.py --config=configs/inflection_transformer_tags.py
python launch.py --config=configs/inflection_transformer_tags.py --config.data_dir=data/sigmorphon2017 \\
    --config.task.language=german
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_transformer


def get_config() -> ConfigDict:
    config = inflection_transformer.get_config()
    config.name = "inflection_transformer_tags"
    config.description = "Transformer, 4 + 4 layers of 256, tags without positions, inflection"
    config.task.tags = "apart"
    config.task.batch_size = 400
    config.model.tags = part("invariant")
    config.model.hidden_size = 256
    config.model.encoder.feed_forward_size = 1024
    config.model.decoder.feed_forward_size = 1024
    config.train.num_steps = 20_000
    config.train.num_epochs = 0.0
    config.train.eval_every = 400
    config.optimizer.schedule = part("inverse_sqrt")
    config.optimizer.warmup_steps = 4000
    config.optimizer.clip.norm = 1.0
    return config
