"""Each rule changes the program, and what no program is made of is left alone."""

import ast
import contextlib
import importlib.util
import json
import pathlib

import pytest
from generated import (
    EXPLAINED,
    TESTS,
    all_mutations,
    checked_by,
    edits,
    explanation,
    files,
    key_of,
    mutated,
    sample,
)

SOURCE = '''"""1 + 1 == 2"""
x: "a < 1" = option(3, at_least=1)
def f(a: int = 1, *, é=True):
    assert a == 0 or a
    if not (a <= 2 and é) or a != b:
        raise ValueError(f"{a + 1} is not {b}")
    return a - 5 * len("é") / b
'''
EXPECTED = {
    "def f(a: int = 2, *, é=True)",
    "é=False",
    "if  (a <= 2 and é) or a != b",
    "(a < 2 and é)",
    "(a <= 3 and é)",
    "(a <= 2 or é)",
    "é) and a != b",
    "a == b",
    "return a + 5 * len",
    "return a - 6 * len",
    "return a - 5 / len",
    'len("é") * b',
}


def test_each_rule_changes_the_program_and_nothing_else_is_changed():
    found = [mutated(SOURCE, begin, end, new) for begin, end, new, _ in edits(SOURCE)]
    assert len(found) == len(EXPECTED)
    for text in EXPECTED:
        assert text not in SOURCE and sum(text in other for other in found) == 1, text
    assert all(ast.dump(ast.parse(other)) != ast.dump(ast.parse(SOURCE)) for other in found)


@pytest.mark.slow
def test_a_sample_is_the_same_again_and_every_file_has_tests():
    assert sample(5, 1) == sample(5, 1) != sample(5, 2)
    assert len(all_mutations()) > 1000 and all(checked_by(path) for path in files())
    named = {test for path in files() for group in checked_by(path) for test in group}
    assert all((TESTS / test).exists() for test in named) and "models/seq2seq" in named


def test_every_explained_fault_still_exists():
    files_of_them = tuple({file for file, _ in EXPLAINED})
    explained = [key_of(fault) for fault in all_mutations(files_of_them) if explanation(fault)]
    assert sorted(explained) == sorted(EXPLAINED)  # each of them once


def test_survivors_are_looked_at_again(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("mutations", pathlib.Path(__file__).with_name("__main__.py"))
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    monkeypatch.setattr(program, "copied", lambda: contextlib.nullcontext(tmp_path))
    monkeypatch.setattr(program, "about", dict)
    faults = all_mutations()
    explained = next(fault for fault in faults if explanation(fault))
    noticed, unnoticed, killed = [fault for fault in faults if not explanation(fault)][:3]
    gone = unnoticed._replace(line="of yesterday")
    monkeypatch.setattr(program, "noticed_by", lambda root, fault, own: "a test" if fault == noticed else "")
    of_before = [{"result": "survived", **fault._asdict()} for fault in (explained, noticed, unnoticed, gone)]
    of_before = [found | {"noticed_by": ""} for found in of_before]
    of_before.append({"result": "killed", **killed._asdict(), "noticed_by": "another"})
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps({"of": len(faults), "results": of_before}))
    assert program.run_again(str(before), str(after)) == 1  # 2 of 5
    record = json.loads(after.read_text())
    assert [found["result"] for found in record["results"]] == [
        "explained",
        "mended",
        "survived",
        "survived",
        "killed",
    ]
    assert record["rate"] == 0.4 and record["counts"] == {"explained": 1, "mended": 1, "survived": 2, "killed": 1}
    assert "changed" in capsys.readouterr().out
