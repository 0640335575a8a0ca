"""The page of a sweep has the table that the sweep prints, in short names."""

from attn_jax.evaluation import tables
from attn_jax.inspection.report.sweep import short_names, sweep_data


def result(*values):
    mean = sum(values) / len(values)
    return {
        "metrics": {"bleu": {"mean": mean, "std": 1.0, "seeds": list(map(float, values))}},
        "seeds": list(range(len(values))),
    }


def test_tables_and_figure_are_those_of_the_results():
    results = {"c,score=dot,lr=1": result(1, 2, 3, 4, 5, 6), "c,score=general,lr=1": result(8, 9, 9, 11, 12, 14)}
    page = sweep_data("s", results, {"c,score=dot,lr=1": "there/report.html"})
    short = {"score=dot": results["c,score=dot,lr=1"], "score=general": results["c,score=general,lr=1"]}
    assert tables.markdown(page["table"]) == tables.results_table(short)
    assert tables.markdown(page["differences"]) + "\n\n" + page["note"] == tables.differences_table(short)
    assert page["differences"][1][1].endswith(" *") and page["description"] == "2 runs, c, lr=1"
    assert page["links"] == {"score=dot": "there/report.html"}
    first, second = page["figure"][0]["runs"]
    assert first["low"] < first["mean"] < first["high"] and second["values"] == [8, 9, 9, 11, 12, 14]


def test_a_single_seed_has_no_interval_and_a_metric_may_be_missing():
    other = {"metrics": {"loss": {"mean": 1.0, "std": 0.0, "seeds": [1.0]}}, "seeds": [0]}
    page = sweep_data("s", {"a": result(1), "b": other}, {})
    assert [[run["name"] for run in panel["runs"]] for panel in page["figure"]] == [["a"], ["b"]]
    assert page["figure"][0]["runs"][0]["low"] is None and page["differences"] == []


def test_names_lose_what_all_have_unless_two_would_be_equal():
    assert short_names(["c,a=((1,2),3),b=1", "c,a=((1,2),4),b=1"])[0] == {
        "c,a=((1,2),3),b=1": "a=((1,2),3)",
        "c,a=((1,2),4),b=1": "a=((1,2),4)",
    }
    assert short_names(["c", "c,a=1"]) == ({"c": "c", "c,a=1": "a=1"}, ["c"])
    assert short_names(["c,a=1"]) == ({"c,a=1": "c,a=1"}, [])
    assert short_names(["a,b", "a,b,a"]) == ({"a,b": "a,b", "a,b,a": "a,b,a"}, [])
