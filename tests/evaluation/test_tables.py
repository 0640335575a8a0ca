"""Tables of runs: what differs from the first by a paired test has a star, and nothing else."""

import numpy as np

from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.tables import answers, differences_table, results_table

RNG = np.random.default_rng(0)
COMMON = RNG.normal(30, 5, 8)  # what the seeds have in common, far more than the runs differ


def run(seeds, **metrics):
    return {"seeds": list(seeds), "metrics": {name: summarize(list(values)) for name, values in metrics.items()}}


def test_a_row_for_each_run():
    table = results_table({"a": run([0, 1], bleu=[30.0, 31.0]), "b": run([0], bleu=[29.5], loss=[1.25])})
    assert table.splitlines() == [
        "| run | bleu | loss | seeds |",
        "| --- | --- | --- | --- |",
        "| a | 30.5 (SD 0.71) |  | 2 |",
        "| b | 29.5 | 1.25 | 1 |",
    ]


def test_a_deviation_of_the_last_bits_is_none():
    values = [0.1 + 0.2, 0.3, 0.3]
    assert np.std(values) > 0
    assert "| a | 0.3 (SD 0) | 3 |" in results_table({"a": run(range(3), share=values)})
    assert "| a | nan (SD nan) | 2 |" in results_table({"a": run(range(2), share=[np.nan, 1.0])})


def test_a_star_needs_a_difference_and_enough_seeds():
    better, same = COMMON + 1 + RNG.normal(0, 0.1, 8), COMMON + RNG.normal(0, 0.1, 8) * np.array([1, -1] * 4)
    results = {name: run(range(8), bleu=x) for name, x in {"base": COMMON, "better": better, "same": same}.items()}
    head, _, first, second, _, note = differences_table(results).splitlines()
    assert head == "| difference to base | bleu |"
    assert first.startswith("| better | +0.9") and first.endswith("] * |") and "*" not in second
    assert note.startswith("95% intervals of paired differences (Student's t); * differs by the exact sign-flip test, ")
    some = results | {"same": run(range(3), bleu=same[:3])}  # one has enough seeds for a star, the other has not
    assert differences_table(some).endswith("adjusted by Holm.") and "] * |" in differences_table(some)
    few = {name: run(range(3), bleu=result["metrics"]["bleu"]["seeds"][:3]) for name, result in results.items()}
    chance = "can tell a difference from chance at 0.05."
    assert "*" not in differences_table(few)
    assert differences_table(few).endswith(f"Fewer than 7 seeds (6 for one of the 2 runs alone): no test {chance}")
    del few["same"]
    assert differences_table(few).endswith(f"Fewer than 6 seeds: no test {chance}")


def test_what_was_measured_in_another_way_has_no_difference():
    base, other = (run(range(8), bleu=COMMON + shift, loss=COMMON + shift) for shift in (0, 1))
    base["signatures"], other["signatures"] = {"bleu": "tok:13a"}, {"bleu": "tok:none"}
    head, *_ = differences_table({"base": base, "other": other}).splitlines()
    assert head == "| difference to base | loss |"
    other["signatures"] = base["signatures"]
    head, *_ = differences_table({"base": base, "other": other}).splitlines()
    assert head == "| difference to base | bleu | loss |"


def test_several_comparisons_need_more_than_one():
    """The smallest p-value of six pairs is 1/32: enough for one comparison at 0.05, not for two."""
    base, other = COMMON[:6], COMMON[:6] + 1 + RNG.normal(0, 0.1, 6)
    one = {"base": run(range(6), bleu=base), "other": run(range(6), bleu=other)}
    assert "] * |" in differences_table(one)
    assert "] * |" not in differences_table(one | {"third": run(range(6), bleu=other)})


def test_pairs_are_of_the_same_seeds():
    results = {"base": run([0, 1, 2], bleu=[1.0, 2.0, 3.0]), "other": run([2, 1, 7], bleu=[4.0, 3.5, 9.0])}
    assert "| other | +1.25 [" in differences_table(results)


def test_nothing_to_compare_gives_nothing():
    one = run([0, 1], bleu=[1.0, 2.0])
    assert differences_table({"a": one}) == ""
    assert differences_table({"a": one, "b": run([5, 6], bleu=[1.0, 2.0])}) == ""
    assert differences_table({"a": run([0], bleu=[1.0]), "b": run([0], bleu=[2.0])}) == ""
    assert differences_table({"a": one, "ensemble": run([0, 1], bleu=[2.0])}) == ""


def test_the_answer_in_words():
    better, noisy = COMMON + 1 + RNG.normal(0, 0.1, 8), COMMON + 1 + RNG.normal(0, 4, 8)
    results = {name: run(range(8), bleu=x) for name, x in (("base", COMMON), ("better", better), ("noisy", noisy))}
    first, second = answers(results | {"other": run([9], bleu=[1.0])}).splitlines()
    assert first.startswith("better − base, bleu over 8 seeds: +0.9") and first.endswith("more than by chance")
    assert "cannot be told; about" in second and second.endswith("seeds would show this difference")
    assert answers({"base": results["base"]}) == ""
    assert answers({"base": results["base"], "same": results["base"]}).endswith("no difference")
