import json

import pytest

from tuner.definitions.findings import Findings
from tuner.definitions.models import SpaceDefinition, StudyDefinition
from tuner.definitions.space import Space
from tuner.definitions.study_checks import check_study, check_together
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError

SPACE = """parameters:
  ep-size: {type: choice, choices: [1, 8], default: 1}
  a2a: {type: choice, choices: [none, flashinfer], default: none, when: {ep-size: {gt: 1}}}
  kernels: {build: true, type: choice, choices: [null, patched]}
  debug: {env: NCCL_DEBUG, type: bool}
hypotheses:
  - {id: ep8, change: {ep-size: 8}, claim: c, gain_percent: [1, 2]}
  - {id: a2a, change: {a2a: flashinfer}, claim: c, gain_percent: [1, 2], depends_on: [ep8]}
"""
STUDY = """engine: {name: vllm, python: python3, builds: {patched: {python: python4}}}
model: m
space: space.yaml
objective: objective.yaml
budget: {hours: 8}
"""


def said_of(text, space=SPACE):
    """What is said of a study, and its baseline."""
    source, space_source, findings = parse(text, name="x"), parse(space, name="s"), Findings()
    study = StudyDefinition.model_validate_json(json.dumps(source.value))
    definition = SpaceDefinition.model_validate_json(json.dumps(space_source.value))
    check_study(source, study, findings)
    baseline = check_together(source, study, space_source, Space(definition), findings)
    try:
        findings.settled(())
    except DefinitionError as error:
        return [str(problem) for problem in error.problems], baseline
    return [], baseline


def test_nothing_is_said_where_study_and_space_agree():
    problems, baseline = said_of(STUDY)
    assert problems == []
    assert baseline is not None
    assert baseline.as_dict() == {"ep-size": 1, "kernels": None, "debug": False}


@pytest.mark.parametrize(
    "engine",
    [
        "{name: sglang, command: [sglang, serve], builds: {patched: {python: p}}}",
        "{name: vllm, python: python3, builds: {patched: {command: [x]}}}",
        "{name: rehearsal, surface: s.yaml, builds: {patched: {}}}",
        "{name: rehearsal, surface: s.yaml, python: r, builds: {patched: {python: p}}}",
    ],
)
def test_each_engine_has_its_ways_to_launch(engine):
    assert said_of(STUDY.replace(STUDY.splitlines()[0], f"engine: {engine}"))[0] == []


@pytest.mark.parametrize("budget", ["{trials: 1}", "{hours: 0.5}", '{deadline: "07:30"}'])
def test_one_limit_is_budget_enough(budget):
    assert said_of(STUDY.replace("{hours: 8}", budget))[0] == []


def test_a_variable_is_fixed_or_searched():
    said, _ = said_of(STUDY + "fixed: {env: {NCCL_DEBUG: INFO, OTHER: x}}\n")
    assert said == [
        "x:6:15: fixed.env.NCCL_DEBUG: variable 'NCCL_DEBUG' is fixed here and searched as 'debug' "
        "(s:5:3)\n  keep one"
    ]


def test_a_flag_and_a_variable_of_one_name_are_two_things():
    assert said_of(STUDY + "fixed: {env: {ep-size: x}, flags: {NCCL_DEBUG: x}}\n")[0] == []


def test_a_baseline_that_cannot_be_has_none():
    for baseline in ("{ep-size: 4}", "{epsize: 8}"):
        problems, configuration = said_of(f"{STUDY}baseline: {baseline}\n")
        assert len(problems) == 1
        assert configuration is None


def test_a_child_is_checked_with_its_parents_changes():
    forbid = "forbid:\n  - {if: {a2a: flashinfer, kernels: null}, reason: needs the patch}\n"
    said, _ = said_of(STUDY, SPACE + forbid)
    assert said == [
        "s:8:15: hypotheses.1.change: forbidden on top of the baseline: needs the patch\n"
        "  the rule stands at s:10:5"
    ]
    assert said_of(STUDY + "baseline: {kernels: patched}\n", SPACE + forbid)[0] == []


def test_an_orphan_has_no_effect():
    said, _ = said_of(STUDY, SPACE.replace(", depends_on: [ep8]", ""))
    assert said == [
        "s:8:24: hypotheses.1.change.a2a: has no effect here: 'a2a' is active only when "
        "ep-size: {gt: 1}"
    ]


def test_a_condition_is_told_as_it_is_written():
    when = "when: {ep-size: {gt: 1}, kernels: [null, patched], debug: false}"
    said, _ = said_of(
        STUDY + "baseline: {a2a: none}\n", SPACE.replace("when: {ep-size: {gt: 1}}", when)
    )
    assert said[0].endswith(
        "active only when ep-size: {gt: 1} and kernels: [null, 'patched'] and debug: false"
    )
