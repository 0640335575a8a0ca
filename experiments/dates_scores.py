"""Which score learns the alignment of dates fastest?

    python launch.py --sweep=experiments/dates_scores.py

Every score with three seeds in one vmapped program and a quarter of the training steps of quickstart, so few that not
every score reaches 100 % and differences show. Answer: the table that the sweep prints.
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
