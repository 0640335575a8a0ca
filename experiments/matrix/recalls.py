"""Columns of one's own for the first table: recall with four times the steps, and with twice the width.

A row of the table that does not recall may have had too few steps, or be too small; all else is as in the table.

python -m experiments.matrix --own=experiments/matrix/recalls.py --cell=delta,recall_8000 --out=DIR
"""

from attn_jax.tasks.synthetic.recall import is_value
from experiments.matrix.columns import MODEL, Sequences
from experiments.matrix.tables import RECALLED

WIDER = MODEL | {"hidden_size": 128, "feed_forward_size": 512}
COLUMNS = {
    "recall_8000": Sequences("recall", RECALLED, asked=is_value, steps=8000),
    "recall_128": Sequences("recall", RECALLED, asked=is_value, model=WIDER),
}
