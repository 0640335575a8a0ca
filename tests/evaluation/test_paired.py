"""The statistics of sentences add up to the metric of all, and comparisons by them are those of their sums."""

import json

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from attn_jax.evaluation import paired
from attn_jax.evaluation.kinds import find_metric
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.paired import by_seed, changed_data, over_sentences, same_examples, sentences_of
from attn_jax.evaluation.tables import sentence_differences_table
from attn_jax.evaluation.text import TEXT_METRICS

RNG = np.random.default_rng(0)
WORDS = np.array("a bird can dance every fine green hill".split())
REFERENCES = [" ".join(RNG.choice(WORDS, 7)) for _ in range(50)]


def spoilt(share, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(w if rng.random() > share else "x" for w in line.split()) for line in REFERENCES]


def sentences(outputs, seeds=(0,), checksum=1):
    of = lambda metric: [metric.statistics(one, REFERENCES, "13a") for one in outputs]  # noqa: E731
    return sentences_of(list(seeds), {name: of(metric) for name, metric in TEXT_METRICS.items()}, outputs, checksum)


def result(outputs, seeds=(0,)):
    of = lambda metric: summarize([metric.compute(one, REFERENCES, "13a")[0] for one in outputs])  # noqa: E731
    return {"metrics": {name: of(metric) for name, metric in TEXT_METRICS.items()}, "seeds": list(seeds)}


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_a_metric_is_the_score_of_the_sum_of_its_statistics(name):
    hypotheses, metric = [*spoilt(0.2, 1)[:-2], "", REFERENCES[-1]], TEXT_METRICS[name]
    value, _ = metric.compute(hypotheses, REFERENCES, "13a")
    table = metric.statistics(hypotheses, REFERENCES, "13a")
    assert len(table) == len(REFERENCES) and metric.score(table.sum(0)) == pytest.approx(value)
    for i in (3, -2, -1):  # one by one as well
        one, _ = metric.compute([hypotheses[i]], [REFERENCES[i]], "13a")
        assert metric.score(table[i]) == pytest.approx(one)


def test_the_statistics_of_sentences_are_written_as_they_were_computed():
    table = np.array([[np.float32(1) / 3, 2.0], [1e-9 / 7, 123456789.125]])
    (found,) = json.loads(json.dumps(sentences_of([0], {"loss": [table]}, [[""] * 2], 0)))["statistics"]["loss"]
    assert np.array_equal(found, table) and isinstance(found[0][1], int)


def test_a_comparison_over_sentences_has_the_scores_of_sacrebleu():
    outputs = {"baseline": spoilt(0.3, 1), "other": spoilt(0.22, 2)}
    metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, expected = PairedTest(list(outputs.items()), metrics, [REFERENCES], "bs", n_samples=200)()
    ours, theirs = sentences([outputs["other"]]), sentences([outputs["baseline"]])
    for name, key in (("bleu", "BLEU"), ("chrf", "chrF2")):
        found = over_sentences(ours, theirs, name, num_resamples=200)
        assert found.difference.mean == pytest.approx(expected[key][1].score - expected[key][0].score)
        assert found.p_value >= expected[key][1].p_value


def test_several_seeds_are_averaged_and_paired_by_seed():
    a, b, c = (spoilt(0.3, seed) for seed in range(3))
    ours, theirs = sentences([a, b], (4, 7)), sentences([c, a, b], (9, 4, 7))
    same = over_sentences(ours, theirs, "bleu", num_resamples=50)
    assert same.difference.mean == same.difference.low == same.difference.high == 0
    found = over_sentences(sentences([b, c], (4, 7)), sentences([a, c], (4, 7)), "chrf", num_resamples=50)
    alone = over_sentences(sentences([b]), sentences([a]), "chrf", num_resamples=50)
    assert found.difference.mean == pytest.approx(alone.difference.mean / 2)
    assert over_sentences(ours, theirs, "loss") is None and find_metric("loss").score
    ensemble = sentences([a], (4, 7))  # one table for two seeds
    assert over_sentences(ensemble, ensemble, "bleu", num_resamples=9).difference.mean == 0
    against = over_sentences(ensemble, theirs, "bleu", num_resamples=9).difference  # the mean over the seeds
    alone = [over_sentences(sentences([a]), sentences([one]), "bleu", num_resamples=9) for one in (c, a, b)]
    means = [found.difference.mean for found in alone]
    assert against.mean == pytest.approx(np.mean(means)) and against.mean != 0
    back = over_sentences(theirs, ensemble, "bleu", num_resamples=9).difference
    assert back.mean == pytest.approx(-against.mean)


def test_what_cannot_be_compared():
    one = sentences([spoilt(0.3, 1)])
    assert paired.can_compare(one, one) and not paired.can_compare(one, None)
    other = sentences([spoilt(0.3, 1)], checksum=2)
    assert not paired.can_compare(one, other) and not paired.can_compare(one, sentences([spoilt(0.3, 1)], (3,)))
    with pytest.raises(ValueError, match="expected the same sentences"):
        over_sentences(one, other, "bleu")


def test_values_of_seeds_are_paired_by_seed_and_an_ensemble_has_none():
    a = {"seeds": [0, 1, 2], "metrics": {"loss": summarize([1.0, 2.0, 3.0])}}
    b = {"seeds": [2, 1], "metrics": {"loss": summarize([2.5, 1.0])}}
    assert paired.over_seeds(a, b, "loss").difference.mean == pytest.approx(0.75)
    assert paired.over_seeds(a, {"seeds": [0, 1], "metrics": {"loss": summarize([1.0])}}, "loss") is None
    assert paired.over_seeds(a, b, "bleu") is None


def test_the_table_marks_what_differs_over_sentences():
    outputs = {"base": spoilt(0.3, 1), "better": spoilt(0.05, 2), "same": spoilt(0.3, 3)}
    results = {name: result([one]) for name, one in outputs.items()}
    tables = {name: sentences([one]) for name, one in outputs.items()}
    head, _, better, same, _, note = sentence_differences_table(results, tables).splitlines()
    assert head == "| over sentences, to base | bleu | chrf | exact_match | edit_distance |"
    assert better.count(" *") == 4 and " *" not in same and "a star in one alone is no contradiction" in note
    del tables["same"]
    assert sentence_differences_table(results, tables).splitlines()[3] == "| same |  |  |  |  |"
    assert sentence_differences_table(results, {}) == "" and sentence_differences_table({}, {}) == ""


def test_an_ensemble_with_other_runs_is_no_seed_even_of_a_run_of_one_seed():
    """It has one table, as a seed has; it is compared with the mean over all seeds of the other run."""
    together, seeds = spoilt(0.1, 1), [spoilt(share, 2) for share in (0.5, 0.2, 0.3)]
    table = [TEXT_METRICS["bleu"].statistics(together, REFERENCES, "13a")]
    ours = sentences_of([0], {"bleu": table}, [together], 1, ensemble=True)
    found = over_sentences(ours, sentences(seeds, (0, 1, 2)), "bleu", num_resamples=10)
    value = lambda outputs: TEXT_METRICS["bleu"].compute(outputs, REFERENCES, "13a")[0]  # noqa: E731
    assert found.difference.mean == pytest.approx(value(together) - np.mean([value(one) for one in seeds]))
    plain = result([together])
    for decode in ({"ensemble": {"name": "runs", "workdirs": ["other"]}}, {"ensemble": False, "runs": ["other"]}):
        assert by_seed(plain | {"decode": decode}, "bleu") == {}
    assert by_seed(plain | {"decode": {"ensemble": {"name": "seeds"}}}, "bleu") == {}
    for decode in ({}, {"ensemble": {"name": "none"}}, {"ensemble": False, "runs": []}):
        assert by_seed(plain | {"decode": decode}, "bleu") == {0: value(together)}


def test_data_that_was_changed_between_two_runs_is_named():
    """Where the options of the data are equal; other options, seeds and splits may be of other data."""
    about = {"split": "test", "seeds": [0], "config": {"data_dir": "data", "task": {"name": "parallel_text"}}}
    first = about | {"checksums": {"examples": 1, "statistics": 2, "train": 3}}
    same = about | {"checksums": {"examples": 1, "statistics": 7, "train": 3}}
    changed = about | {"checksums": {"examples": 5, "statistics": 7, "train": 4}}
    started = changed | {"config": about["config"] | {"train": {"start": {"name": "run", "workdir": "runs/a"}}}}
    elsewhere = changed | {"config": about["config"] | {"data_dir": "other"}}
    assert changed_data({"a": first, "b": same, "c": elsewhere, "s": started, "old": about}) == []
    (line,) = changed_data({"a": first, "b": same, "c": changed, "d": elsewhere})
    assert line.startswith("data differs: examples, train of c and of a have other checksums")
    assert same_examples(first, same) and same_examples(first, about) and not same_examples(first, changed)
