"""Inflection with exact hard monotonic attention of order 0 or 1 (Wu & Cotterell 2019, arXiv 1905.06319).

python launch.py --config=configs/inflection_monotonic.py
python launch.py --config=configs/inflection_monotonic.py --config.model.objective.jump_size=0
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_marginal


def get_config() -> ConfigDict:
    config = inflection_marginal.get_config()
    config.name = "inflection_monotonic"
    config.description = "LSTM 128, exact monotonic alignments, inflection"
    config.model.objective = part("markov", jump_size=5)
    return config
