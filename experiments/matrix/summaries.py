"""Rows of one's own for the second table: no attention, but the summary of the source in every step (Cho 2014).

The row `none` has the summary in the first state alone. The width of the readout is that of the column.

python -m experiments.matrix --table=source --own=experiments/matrix/summaries.py --cell=summary_64,dates --out=DIR
"""

ROWS = {
    f"summary_{width}": {
        "decoder": "none",
        "decoder.summary": "every_step",
        "decoder.summary.readout_size": width,
    }
    for width in (64, 128)
}
