"""The overview says what the JSON files say."""

from experiments import babi, inflection, overview

RUN = {
    "setting": inflection.Setting("german", "fed", "soft", width=inflection.LARGE)._asdict(),
    "result": {"metrics": {"exact_match": {"seeds": [60.0, 62.0, 64.0]}}, "train_seconds": 99.6},
}
PEER_SETTING = {"language": "german", "reading": "soft", "forms": 1000}
PEER = {"results": {"runs": [{"setting": PEER_SETTING, "chosen": {"accuracy": 68.1, "epoch": 19}}]}}


def test_the_peer_stands_beside_the_run_of_its_size():
    (row,) = overview.of_inflection({"results": {"runs": [RUN]}}, PEER)
    # t of two degrees of freedom, 4.3027, times 2 / sqrt(3)
    assert row.ours == "62.0 [57.0, 67.0], 3 seeds" and row.peer.startswith("68.1, one seed, chosen by dev")
    for change in ({"width": 128}, {"language": "finnish"}, {"made": True}, {"forms": 10_000}):
        other = RUN | {"setting": RUN["setting"] | change}
        assert [row.peer for row in overview.of_inflection({"results": {"runs": [other]}}, PEER)] == [""]
    assert [row.peer for row in overview.of_inflection({"results": {"runs": [RUN]}}, None)] == [""]
    assert "| German" not in overview.report([row]) and "inflection, German, 1,000 forms" in overview.report([row])


def test_a_family_of_memory_networks_is_its_mean_over_the_tasks_it_was_trained_on():
    tasks = [babi.Row(1, [0.0, 2.0], 1, 1.0)._asdict(), babi.Row(2, [10.0, 20.0], 0, 3.0)._asdict()]
    row = overview.of_babi({"results": {"family": "memn2n", "tasks": tasks}})
    assert row.ours == "6.00 (seed chosen in training), 8.0 (all seeds), 2.0 (new stories)"
    assert row.published.startswith("4.15: Sukhbaatar")  # of 0 and 8.3 %
    assert row.split == "test" and row.task == "bAbI, 2 tasks"


def test_scenes_have_a_row_for_all_cells_and_one_for_one_cell():
    run = {"train_seconds": 9.0, "metrics": {"exact_match": {"seeds": [95.0]}, "one_cell": {"seeds": [90.0]}}}
    rows = list(overview.of_scenes({"results": {"runs": {"soft": run}}}))
    assert [(row.metric, row.ours) for row in rows] == [
        ("exact match", "95.0, one seed"),
        ("exact match, one cell a word", "90.0, one seed"),
    ]


def test_models_of_images_are_named_by_their_task():
    run = {"train_seconds": 9.0, "metrics": {"exact_match": {"seeds": [80.0]}}}
    rows = list(overview.of_images({"results": {"scenes_glimpses, other": run, "scenes_patches": run}}))
    assert [(row.task, row.model) for row in rows] == [
        ("a digit among clutter", "scenes_glimpses, other"),
        ("captions of scenes", "scenes_patches"),
    ]


def test_one_seed_has_no_interval():
    assert overview.interval([99.8]) == "99.8, one seed"


def test_joeynmt_stands_beside_the_model_with_attention_and_greedy_decoding_alone():
    measured = {"bleu": {"seeds": [15.0, 15.0], "ensemble": 16.0}, "perplexity": {"seeds": [8.5, 8.5], "ensemble": 8.0}}
    run = {"size": "width 128", "train_seconds": 60.0, "measured": {"greedy": measured, "beam": measured}}
    found = {"results": {"split": "dev", "runs": [run | {"config": name} for name in ("enja_none", "enja_soft")]}}
    peer = {"results": {"0": {"bleu": [1.0, 15.5], "perplexity": 8.12}}}
    rows = list(overview.of_translation(found, peer))
    assert [row.metric for row in rows] == 2 * ["BLEU, greedy", "BLEU, beam", "perplexity"]
    theirs = ["15.5, one seed (JoeyNMT)", "", "8.12, one seed (JoeyNMT)"]
    assert [row.peer for row in rows] == [""] * 3 + theirs
    assert rows[2].ours == "8.50 [8.50, 8.50], 2 seeds; ensemble 8.00" and rows[2].split == "dev, development"
    assert all(row.peer == "" for row in overview.of_translation(found, None))
