"""How does a recurrent decoder look at the source, and does it help to look at its own past too?

    python launch.py --sweep=experiments/decoders.py

Dates, with three seeds in one vmapped program and a third of the training steps of quickstart: no attention (Sutskever
2014), attend and then step (Bahdanau 2015), step and then attend (Luong 2015) without and with input feeding, and
attention to the source and to the decoder's own past states (Paulus 2018). Answer: the table that the sweep prints.
"""

DECODERS = {
    "none": {"model.decoder": "none"},
    "bahdanau": {"model.decoder": "bahdanau"},
    "source": {"model.decoder": "luong", "model.input_feeding": False},
    "source, fed": {"model.decoder": "luong", "model.input_feeding": True},
    "source and target": {"model.decoder": "luong", "model.input_feeding": False, "model.self_attention": True},
}


def sweep():
    for changes in DECODERS.values():
        yield {
            "config": "configs/quickstart.py",
            **changes,
            "seeds": (0, 1, 2),
            "train.num_steps": 500,
            "train.eval_every": 500,
        }
