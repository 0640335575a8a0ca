"""Inflection from many forms: LSTM of width 320, tags beside the lemma, monotonic alignments of first order.

Wu & Cotterell 2019 (arXiv 1905.06319). 1.6 million parameters. Without files the package generates a language; from
10,000 forms of CoNLL-SIGMORPHON 2017 the last checkpoint has 89.8 [88.9, 90.7] % of the German dev set exact, 94.1
[93.4, 94.9] % of the Finnish and 98.0 [97.7, 98.3] % of the Turkish one, the mean of three seeds, trained together in
53 to 73 minutes on one core beside other programs; their ensembles have 90.5, 94.6 and 98.5 %
(experiments/results/inflection.md):

    python launch.py --config=configs/inflection_wide.py --config.data_dir=data/sigmorphon2017 \\
        --config.task.language=german --config.seeds="(0, 1, 2)"
    python launch.py --mode=eval --workdir=runs/inflection_wide --config.decode.ensemble=seeds
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_tags


def get_config() -> ConfigDict:
    config = inflection_tags.get_config()
    config.name = "inflection_wide"
    config.description = "LSTM 320, exact monotonic alignments to the lemma, tags beside it, inflection"
    config.task.batch_size = 20
    config.model.hidden_size = 320
    config.model.decoder.readout_size = 320
    config.model.objective = part("markov", jump_size=5)
    config.train.num_epochs = 20.0
    config.train.eval_every = 5000
    return config
