"""Which score learns the alignment of dates fastest?

    python launch.py --sweep=experiments/dates_scores.py

Every score, three seeds each in one vmapped program, a third of quickstart's training: short enough that
not every score gets to 100 %, so that the differences show. The table that the sweep prints is the answer.
"""


def sweep():
    for score in ("dot", "scaled_dot", "general", "concat", "additive", "location"):
        yield {
            "config": "configs/quickstart.py",
            "model.attention.score": score,
            "seeds": (0, 1, 2),
            "train.num_steps": 500,
            "train.eval_every": 500,
        }
