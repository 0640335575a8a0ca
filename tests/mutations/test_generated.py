"""Each rule changes the program, and what no program is made of is left alone."""

import ast

from generated import EXPLAINED, TESTS, Fault, all_mutations, checked_by, edits, explanation, files, mutated, sample

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
    found = [mutated(SOURCE, Fault("", "", "", rule, begin, end, new, ())) for begin, end, new, rule in edits(SOURCE)]
    assert len(found) == len(EXPECTED)
    for text in EXPECTED:
        assert text not in SOURCE and sum(text in other for other in found) == 1, text
    assert all(ast.dump(ast.parse(other)) != ast.dump(ast.parse(SOURCE)) for other in found)


def test_a_sample_is_the_same_again_and_every_file_has_tests():
    assert sample(5, 1) == sample(5, 1) != sample(5, 2)
    assert len(all_mutations()) > 1000 and all(checked_by(path) for path in files())
    named = {test for path in files() for group in checked_by(path) for test in group}
    assert all((TESTS / test).exists() for test in named) and "models/seq2seq" in named


def test_every_explained_fault_still_exists():
    explained = {(fault.file, fault.line, fault.new) for fault in all_mutations() if explanation(fault)}
    assert explained == EXPLAINED.keys()
