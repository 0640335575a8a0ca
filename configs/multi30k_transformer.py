"""English to German image captions with a tiny Transformer (Multi30k, 29,000 sentences).

Four layers of width 128 with four heads, the size for which Wu 2021 (arXiv 2105.14462) reports 41.0 BLEU from text
alone. Mean of the last ten checkpoints, beam 5: 39.7 on val, 39.1 on test_2016_flickr; two hours on one CPU core,
one seed (docs/results.md; raw numbers not kept).

python -m attn_jax.data.download multi30k --data_dir=data/multi30k
python launch.py --config=configs/multi30k_transformer.py --config.data_dir=data/multi30k
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import switch
from attn_jax.runs.tree import part
from configs import multi30k_soft


def get_config() -> ConfigDict:
    config = switch(multi30k_soft.get_config(), model="transformer")
    config.name = "multi30k_transformer"
    config.description = "Transformer, 4 + 4 layers of 128, English to German captions"
    config.task.joint_vocabulary = True
    config.task.vocab_size = (8000, 8000)
    config.task.batch_size = 128
    config.model.hidden_size = 128
    layers = dict(num_layers=4, num_heads=4, feed_forward_size=256)
    config.model.encoder = part("transformer", **layers)
    config.model.decoder = layers
    config.model.share_embeddings = True
    config.model.dropout = 0.3
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 35.0
    config.train.average = 10
    config.train.keep = 1
    config.optimizer.learning_rate = 5e-3
    config.optimizer.schedule = part("inverse_sqrt")
    config.optimizer.warmup_steps = 2000
    config.optimizer.b2 = 0.98
    return config
