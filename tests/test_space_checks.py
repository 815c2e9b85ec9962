import json

import pytest

from tuner.definitions.findings import Findings
from tuner.definitions.models import SpaceDefinition
from tuner.definitions.space_checks import check_space, target_of
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError


def said_of(text):
    source, findings = parse(text, name="x"), Findings()
    check_space(source, SpaceDefinition.model_validate_json(json.dumps(source.value)), findings)
    try:
        findings.settled(())
    except DefinitionError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "text",
    [
        "parameters: {a: {type: bool}}",
        "parameters: {a: {type: int, low: 1, high: 1}}",
        "parameters: {a: {type: float, low: 0, high: 1, default: 0.123}}",
        "parameters: {a: {type: float, low: 0.001, high: 1, log: true}}",
        "parameters: {a: {type: int, low: 3, high: 100, log: true, default: 48}}",
        "parameters: {a: {type: choice, choices: [1, true, '1']}}",
        "parameters: {a: {build: true, type: choice, choices: [null, patched]}}",
        "parameters: {a: {type: bool}, b: {env: A, type: bool}, c: {flag: --b, type: bool}}",
    ],
)
def test_nothing_is_said_of_a_space_that_can_be_searched(text):
    assert said_of(f"{text}\n") == []


def test_every_parameter_is_looked_at():
    bad = "{type: int, low: 2, high: 1}"
    assert len(said_of(f"parameters: {{a: {bad}, b: {bad}, c: {{type: bool}}}}\n")) == 2


def test_a_space_is_counted_only_where_it_is_right():
    said = said_of("parameters: {a: {type: choice, choices: [1], default: 2}}\n")
    assert said == ["parameters.a.default: found 2, expected one of the choices"]


def test_the_other_of_two_is_told_by_the_line_of_its_name():
    said = said_of("parameters:\n  a-b:\n    type: bool\n  a_b:\n    type: bool\n")
    assert said == ["parameters.a_b: sets the same flag a-b as 'a-b' on line 2"]


def test_an_expected_gain_may_be_one_number_twice():
    hypothesis = "{id: x, change: {a: true}, claim: c, gain_percent: [5, 5]}"
    assert said_of(f"parameters: {{a: {{type: bool}}}}\nhypotheses: [{hypothesis}]\n") == []


def test_targets_are_compared_in_one_spelling():
    parameters = SpaceDefinition.model_validate(
        {
            "parameters": {
                "ep_size": {"type": "bool"},
                "b": {"type": "bool", "flag": "--ep-size"},
                "c": {"type": "bool", "env": "C"},
                "d": {"type": "choice", "choices": ["x"], "build": True},
            }
        }
    ).parameters
    assert [target_of(name, parameter) for name, parameter in parameters.items()] == [
        ("flag", "ep-size"),
        ("flag", "ep-size"),
        ("variable", "C"),
        ("build", ""),
    ]
