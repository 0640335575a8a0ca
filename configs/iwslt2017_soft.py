"""Japanese to English TED talks with soft attention, in the setting of the lecture notes.

As in the notes: 8000 pieces a side, embeddings and one LSTM of 512 each, dot attention; the decoder starts at
h = W dropout(last h) + b and c = 0; dropout 0.2 there and before the output layer; batches of 32, Adam 1e-4, no
clipping; 20 epochs, a fifth of the pairs held out, their perplexity after each epoch; the last parameters translate.

Their cells do not show how the context reaches the output: here by tanh(W [context; h] + b). Batches here hold
sentences of similar length, and initial values are those of this package. The model has 17,281,856 parameters; the
notes print 35,926,336, of another model than they show (docs/sources.md).

    python -m attn_jax.data.download iwslt2017-ja-en --data_dir=data/iwslt2017
    python launch.py --config=configs/iwslt2017_soft.py --config.data_dir=data/iwslt2017
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.name = "iwslt2017_soft"
    config.description = "LSTM 512, dot attention, TED talks, Japanese to English"
    config.task.train = ("train.ja", "train.en")
    config.task.valid_size = 44621
    config.task.vocabulary = part("sentencepiece")
    config.task.vocab_size = (8000, 8000)
    config.task.batch_size = 32
    config.model.embedding_size = 512
    config.model.hidden_size = 512
    config.model.encoder.bidirectional = False
    config.model.decoder.readout_size = 512
    config.model.decoder.input_feeding = False
    config.model.decoder.bridge = "linear"
    config.model.attention.score = part("dot")
    config.model.dropout = 0.2
    config.model.dropout_places = ("summary", "readout")
    config.train.num_epochs = 20.0
    config.train.best_metric = "perplexity"  # shown after each epoch
    config.train.average = 1  # the last parameters
    config.optimizer.learning_rate = 1e-4
    config.optimizer.clip = part("none")
    return config
