"""What does attention make of a recurrent translator, in both directions, when all else is equal?

    python launch.py --sweep=experiments/attention.py --config.data_dir=data/enja
    python experiments/attention_gap.py --data_dir=data/enja \\
        runs/attention/enja_soft,hidden_size=256,num_epochs=6.0 runs/attention/enja_none,hidden_size=256,num_epochs=6.0

Half the width and half the epochs of the configs themselves: minutes instead of an hour each on two cores.
Answer: 24.7 BLEU with attention and 23.0 without (greedy, English to Japanese); at the full size of the configs 35.0
and 34.4, by source length in experiments/results/attention_gap.md.
"""


def sweep():
    for config in ("enja_soft", "enja_none", "jaen_soft"):
        yield {"config": f"configs/{config}.py", "model.hidden_size": 256, "train.num_epochs": 6.0}
