"""Which attention learns which task? Rows are mechanisms, columns are tasks, and a cell is one trained on the other.

    python -m experiments.matrix                                     every cell that has no result yet
    python -m experiments.matrix --cell=delta,recall                 one cell
    python -m experiments.matrix --only=softmax,delta --budget=30    cells of rows or columns, 30 minutes
    python -m experiments.matrix --own=mine.py --cell=mine,recall    with rows and columns of one's own
    python -m experiments.matrix.page --out=matrix.html              the table as one page, to sort, filter and open
    python -m experiments.matrix.picture --out=matrix.png            the table as a picture
    python -m experiments.matrix.again --cells=FIRST --cells=SECOND  how far two measurements are apart
    python -m experiments.matrix.ranks                               whether one task stands for another

The protocol is in docs/matrix.md.

    tables.py    rows and columns
    columns.py   what a column trains and measures
    cell.py      training and measurement of one cell, which writes results/matrix/ROW,COLUMN.json
    analysis.py  means, intervals, differences to softmax
    page.py      the page
    picture.py   the picture
    again.py     two measurements of the same cells
    ranks.py     rank correlations of the columns
    summaries.py, recalls.py   rows and columns beside the tables
"""
