"""English to Japanese without attention: one vector represents the whole source, and enters every step (Cho 2014).

With --config.model.decoder.summary=start and --config.model.tie_embeddings=False it is the first state alone, which
--config.model.decoder.bridge=copy and --config.model.encoder.bidirectional=False make the last state of the encoder
(Sutskever 2014). All else is as in enja_soft, except that unknown words cannot be replaced, so compare with
--config.decode.unk=keep there.

    python -m attn_jax.data.download enja --data_dir=data/enja
    python launch.py --config=configs/enja_none.py --config.data_dir=data/enja

BLEU on dev (tokens of the corpus), six seeds: 34.0 +- 0.9 greedy, 36.8 +- 0.7 with beam 5
(experiments/results/translation.md). One seed took 25 to 40 minutes on two cores (raw numbers not kept).
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import change
from attn_jax.runs.tree import part
from configs import enja_soft


def get_config() -> ConfigDict:
    config = change(enja_soft.get_config(), {"model.decoder": "none"})
    config.name = "enja_none"
    config.description = "LSTM 512, no attention, English to Japanese"
    config.model.decoder.summary = part("every_step")  # it enters every step and the readout (Cho 2014)
    config.decode.unk = "keep"
    return config
