"""Every run of the sweep is a valid config, and the report says what the results say."""

import pathlib

from attn_jax.cli.overrides import load_file
from attn_jax.cli.runs import check
from experiments import recall

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_run_of_the_sweep_is_a_valid_config():
    runs = list(recall.sweep())
    assert len(runs) == len(recall.MECHANISMS) == 11 and all(len(run["seeds"]) == 5 for run in runs)
    for run in runs:
        config = load_file(ROOT / run.pop("config"), "get_config")
        config.update_from_flattened_dict(run)
        check(config)


def test_the_report_has_every_mechanism_and_seed_and_paired_differences():
    text = recall.report({"softmax": [100.0, 98.0], "linear attention": [50.0, 52.0], "delta rule": [92.0, 94.0]})
    assert "| softmax | 99.0 ± 12.7 | 100.0 | 98.0 |" in text
    assert "| linear attention − softmax | -48.0 ± 25.4 |" in text
    assert "| delta rule − linear attention | 42.0 ± 0.0 |" in text and "gated" not in text
    alone = recall.report({"softmax": [100.0]})
    assert "| softmax | 100.0 | 100.0 |" in alone and "Differences" not in alone
