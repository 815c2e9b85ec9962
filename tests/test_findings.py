import pytest

from tuner.definitions.findings import Findings, dotted, found
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError, Problem

FIRST = parse("a: 1\nb: {c: 2}\n", name="first.yaml")
SECOND = parse("d: 4\n", name="second.yaml")


def problems_of(findings):
    with pytest.raises(DefinitionError) as error:
        findings.settled(None)
    return [str(problem) for problem in error.value.problems]


def test_faults_come_file_by_file_and_each_from_top_to_bottom():
    findings = Findings()
    findings.mention("first.yaml")
    findings.add(SECOND, ("d",), "late")
    findings.add(FIRST, ("b", "c"), "third", "mend it", key=True)
    findings.add(FIRST, ("b",), "second")
    findings.extend("first.yaml", [Problem(where="first.yaml:1:4", path="a", message="first")])
    assert problems_of(findings) == [
        "first.yaml:1:4: a: first",
        "first.yaml:2:4: b: second",
        "first.yaml:2:5: b.c: third\n  mend it",
        "second.yaml:1:4: d: late",
    ]


def test_the_same_fault_is_told_once():
    findings = Findings()
    findings.add(FIRST, ("a",), "wrong")
    findings.add(FIRST, ("a",), "wrong")
    assert problems_of(findings) == ["first.yaml:1:4: a: wrong"]


def test_a_fault_of_a_key_may_be_told_of_its_owner():
    findings = Findings()
    findings.add(FIRST, ("b", "c"), "unknown key 'c'", key=True, about=("b",))
    assert problems_of(findings) == ["first.yaml:2:5: b: unknown key 'c'"]


def test_a_problem_without_a_line_comes_first():
    findings = Findings()
    findings.add(FIRST, ("b",), "second")
    findings.extend("first.yaml", [Problem(where="first.yaml", path="", message="no such file")])
    assert problems_of(findings)[0] == "first.yaml: no such file"


def test_a_value_is_given_back_where_nothing_was_found():
    findings = Findings()
    assert findings.settled(3) == 3
    assert not findings.has_faults("first.yaml")
    findings.add(FIRST, ("a",), "wrong")
    assert findings.has_faults("first.yaml")
    assert not findings.has_faults("second.yaml")
    with pytest.raises(DefinitionError):
        findings.settled(3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing (null)"),
        (True, "true"),
        (3, "the number 3"),
        (0.5, "the number 0.5"),
        ("x", "the text 'x'"),
        ("", "an empty text"),
        ("x" * 70, f"the text '{'x' * 60}...'"),
        ([1], "a list"),
        ({}, "an empty mapping"),
    ],
)
def test_a_value_is_told_in_words(value, words):
    assert found(value, ("a",)) == words


def test_a_value_that_may_be_a_secret_is_not():
    assert found("hf_1", ("fixed", "env", "HF_TOKEN")) == "a hidden value"


def test_places_are_written_with_dots():
    assert dotted(("a", 0, "b")) == "a.0.b"
