"""Inflection from 1,000 forms, and as many more as are made from them: forms with random stems, and words to copy.

After Anastasopoulos & Neubig 2019 (arXiv 1908.05838). The tags are beside the source, see inflection_tags.py.

python launch.py --config=configs/inflection_made.py
python launch.py --config=configs/inflection_made.py --config.data_dir=data/sigmorphon2017 --config.task.language=german
"""

from ml_collections import ConfigDict

from configs import inflection_tags


def get_config() -> ConfigDict:
    config = inflection_tags.get_config()
    config.name = "inflection_made"
    config.description = "LSTM 128, soft attention to the lemma, made training forms, inflection"
    config.task.size = "medium"
    config.task.num_examples = 1000
    config.task.hallucinated = 2000
    config.task.copy_words = True
    config.train.num_epochs = 20.0
    return config
