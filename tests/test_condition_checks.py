import pytest

from tests.spaces import space_of
from tuner.definitions.condition_checks import Checker
from tuner.definitions.findings import Findings
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError

PARAMETERS = space_of(
    parameters={
        "ep": {"type": "choice", "choices": [1, 8], "default": 1},
        "tp": {"type": "int", "low": 1, "high": 8, "default": 8},
        "a2a": {"type": "choice", "choices": ["none", "flashinfer"], "default": "none"},
        "buffer": {"type": "int", "low": 1, "high": 4, "default": 2, "when": {"a2a": "flashinfer"}},
        "graphs": {"type": "bool"},
        "token": {"env": "HF_TOKEN", "type": "choice", "choices": ["hf_1", "hf_2"]},
    }
).parameters


def said_of(text, other=""):
    """What is said of a condition, and of it together with another."""
    source, findings = parse(f"when: {text}\n", name="x"), Findings()
    checker = Checker(source=source, parameters=PARAMETERS, findings=findings)
    condition = source.value["when"]
    checker.condition(("when",), condition)
    if other:
        checker.together(("when",), parse(other, name="y").value, condition)
    try:
        findings.settled(())
    except DefinitionError as error:
        return [problem.message for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "text",
    [
        "{ep: 8}",
        "{ep: [1, 8], graphs: true}",
        "{ep: {gt: 1}}",
        "{ep: {le: tp}}",
        "{tp: {ge: 2, lt: 8}}",
        "{a2a: {not: none}}",
        "{buffer: null}",
        "{buffer: {not: null}}",
        "{buffer: [null, 1]}",
        "{token: null}",
        "{token: hf_2}",
    ],
)
def test_nothing_is_said_of_a_condition_that_means_something(text):
    assert said_of(text) == []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("{tpp: 8}", ["unknown parameter 'tpp' (did you mean 'tp'?)"]),
        ("{ep: 4, tp: 16}", ["found the number 4, expected 1 or 8",
                            "found the number 16, expected a whole number from 1 to 8"]),
        ("{ep: [1, 4]}", ["found the number 4, expected 1 or 8"]),
        ("{ep: null}", ["found nothing (null), expected 1 or 8"]),
        ("{graphs: 1}", ["found the number 1, expected true or false"]),
        ("{ep: []}", ["found an empty list, which never holds"]),
        ("{ep: {}}", ["found an empty mapping, expected a comparison such as {gt: 8}"]),
        ("{ep: {gt: tpp}}", ["unknown parameter 'tpp' (did you mean 'tp'?)"]),
        ("{ep: {gt: null}}", ["found nothing (null), expected a number or a parameter's name"]),
        ("{tp: {gt: null, lt: 1}}",
         ["found nothing (null), expected a number or a parameter's name"]),
        ("{a2a: {gt: 1}}",
         ["found a comparison of something that is not a number, expected a value"]),
        ("{graphs: {ge: 1}}",
         ["found a comparison of something that is not a number, expected a value"]),
        ("{buffer: {not: null, gt: 4}}", ["no value of 'buffer' satisfies this"]),
        ("{tp: {gt: 8}}", ["no value of 'tp' satisfies this"]),
        ("{ep: {gt: 1, lt: 8}}", ["no value of 'ep' satisfies this"]),
        ("{a2a: flashinfr}", ["found the text 'flashinfr', expected 'none' or 'flashinfer' "
                              "(did you mean 'flashinfer'?)"]),
        ("{token: hf_3}", ["found a hidden value, expected one of the choices"]),
    ],
)  # fmt: skip
def test_what_means_nothing_is_told(text, messages):
    assert said_of(text) == messages


def test_two_conditions_that_exclude_each_other_are_told():
    assert said_of("{tp: {lt: 4}}", "{tp: {gt: 4}, ep: 8}") == ["no value of 'tp' satisfies this"]
    assert said_of("{tp: {lt: ep}}", "{tp: {gt: 4}}") == []
    assert said_of("{tp: {ge: 4}}", "{tp: {le: 4}}") == []
