"""The page of a sweep has the table that the sweep prints, and a figure."""

from attn_jax.evaluation import tables
from attn_jax.inspection.report.sweep import sweep_data


def result(*values):
    mean = sum(values) / len(values)
    return {
        "metrics": {"bleu": {"mean": mean, "std": 1.0, "seeds": list(map(float, values))}},
        "seeds": list(range(len(values))),
    }


def test_tables_and_figure_are_those_of_the_results():
    results = {"score=dot": result(1, 2, 3, 4, 5, 6), "score=general": result(8, 9, 9, 11, 12, 14)}
    page = sweep_data("s", results, {"score=dot": "there/report.html"})
    assert tables.markdown(page["table"]) == tables.results_table(results)
    assert tables.markdown(page["differences"]) + "\n\n" + page["note"] == tables.differences_table(results)
    assert page["differences"][1][1].endswith(" *") and page["description"] == "2 configs"
    assert page["links"] == {"score=dot": "there/report.html"}
    first, second = page["figure"][0]["runs"]
    assert first["low"] < first["mean"] < first["high"] and second["values"] == [8, 9, 9, 11, 12, 14]


def test_a_single_seed_has_no_interval_and_a_metric_may_be_missing():
    other = {"metrics": {"loss": {"mean": 1.0, "std": 0.0, "seeds": [1.0]}}, "seeds": [0]}
    page = sweep_data("s", {"a": result(1), "b": other}, {})
    assert [[run["name"] for run in panel["runs"]] for panel in page["figure"]] == [["a"], ["b"]]
    assert page["figure"][0]["runs"][0]["low"] is None and page["differences"] == []
