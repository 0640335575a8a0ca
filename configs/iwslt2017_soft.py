"""Japanese to English TED talks with soft attention, in the setting of the lecture notes.

8000 pieces a side, LSTM 512, dot attention, batch 32, Adam 1e-4, 20 epochs; a fifth of the pairs is held out. The cell
state of the decoder starts at zero. The notes print 35,926,336 parameters and show the code of a smaller model, which
this is (docs/sources.md).

    python -m attn_jax.tasks.download iwslt2017-ja-en --data_dir=data/iwslt2017
    python launch.py --config=configs/iwslt2017_soft.py --config.data_dir=data/iwslt2017
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.name = "iwslt2017_soft"
    config.description = "LSTM 512, dot attention, TED talks, Japanese to English"
    config.task.train = ("train.ja", "train.en")
    config.task.valid_size = 44621
    config.task.vocabulary = "sentencepiece"
    config.task.vocab_size = (8000, 8000)
    config.task.batch_size = 32
    config.model.embedding_size = 512
    config.model.hidden_size = 512
    config.model.readout_size = 512
    config.model.bidirectional = False
    config.model.input_feeding = False
    config.model.bridge = "hidden"
    config.model.attention.score = "dot"
    config.model.dropout = 0.2
    config.train.num_epochs = 20.0
    config.optimizer.learning_rate = 1e-4
    config.optimizer.clip_norm = 0.0
    return config
