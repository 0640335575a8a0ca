"""English to Japanese without attention: one vector represents the whole source, and enters every step (Cho 2014).

With --config.model.feed_summary=False and --config.model.tie_embeddings=False it is the first state alone, which
--config.model.bridge=copy and --config.model.bidirectional=False make the last state of the encoder (Sutskever 2014).
All else is as in enja_soft, except that unknown words cannot be replaced, so compare with
--config.decode.replace_unk=False there.

    python -m attn_jax.tasks.download enja --data_dir=data/enja
    python launch.py --config=configs/enja_none.py --config.data_dir=data/enja

BLEU on dev (tokens of the corpus), six seeds: 34.0 +- 0.9 greedy, 36.8 +- 0.7 with beam 5
(experiments/results/translation.md). One seed took 25 to 40 minutes on two cores (raw numbers not kept).
"""

from ml_collections import ConfigDict

from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "enja_none"
    config.description = "LSTM 512, no attention, English to Japanese"
    config.model.decoder = "none"
    config.model.feed_summary = True  # the encoder summary enters every step and the readout (Cho 2014)
    config.decode.replace_unk = False
    return config
