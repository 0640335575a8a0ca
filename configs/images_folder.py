"""Captions of your own images: PNG or JPEG files of one size, and a file of lines `image TAB caption`.

    python launch.py --config=configs/images_folder.py --config.data_dir=my_images

The folder has captions.tsv (--config.task.train=NAME for another name). With --config.task.questions=True the lines are
`image TAB question TAB answer`. True boxes may follow in a last field, see docs/images.md; then
--config.eval.metrics="('exact_match', 'touch', 'point')" measures where the model looks.
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="pictures")
    config.name = "images_folder"
    config.description = "CNN, LSTM 128, soft attention, captions of images in a folder"
    config.task.num_examples = 0
    config.task.valid_size = 200
    config.task.batch_size = 32
    config.model.encoder = part("none")
    config.model.embedding_size = 96
    config.model.hidden_size = 128
    config.model.decoder.readout_size = 128
    config.model.decoder.input_feeding = False
    config.model.attention.score = part("additive", features=96)
    config.model.dropout = 0.3
    config.train.num_epochs = 20.0
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 24
    config.eval.metrics = ("exact_match", "accuracy", "bleu")
    return config
