"""English to German image captions with soft attention (Multi30k, 29,000 sentences).

python -m attn_jax.data.download multi30k --data_dir=data/multi30k
python launch.py --config=configs/multi30k_soft.py --config.data_dir=data/multi30k
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.name = "multi30k_soft"
    config.description = "LSTM 512, general attention, input feeding, English to German captions"
    config.task.train = ("train.en", "train.de")
    config.task.valid = ("val.en", "val.de")
    config.task.test = ("test_2016_flickr.en", "test_2016_flickr.de")
    config.task.vocabulary = part("sentencepiece", model="bpe")
    config.task.vocab_size = (6000, 6000)
    config.task.batch_size = 64
    config.model.hidden_size = 512
    config.model.tie_embeddings = True
    config.model.dropout = 0.3
    config.model.output.label_smoothing = 0.1
    config.train.num_epochs = 15.0
    config.train.average = 4
    config.train.keep = 4
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    return config
