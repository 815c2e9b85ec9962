import json

import pytest

from tuner.definitions.findings import Findings
from tuner.definitions.models import SpaceDefinition, StudyDefinition
from tuner.definitions.together import check_together, space_of
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


def checked(text, space=SPACE, version=None):
    """What is said of a study, and its space with the baseline."""
    source, space_source, findings = parse(text, name="x"), parse(space, name="s"), Findings()
    study = StudyDefinition.model_validate_json(json.dumps(source.value))
    definition = SpaceDefinition.model_validate_json(json.dumps(space_source.value))
    narrow = space_of(study, definition, version)
    both = check_together(source, study, space_source, narrow, findings)
    try:
        findings.settled(())
    except DefinitionError as error:
        return [str(problem) for problem in error.problems], both
    return [], both


def said_of(text, space=SPACE):
    """What is said of a study, and its baseline."""
    problems, both = checked(text, space)
    return problems, both and both[1]


def test_nothing_is_said_where_study_and_space_agree():
    problems, baseline = said_of(STUDY)
    assert problems == []
    assert baseline is not None
    assert baseline.as_dict() == {"ep-size": 1, "kernels": None, "debug": False}


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


PINNED = """parameters:
  tp-size: {type: choice, choices: [1, 2, 4], default: 1}
  ep-size: {type: choice, choices: [1, 8], default: 1, when: {tp-size: {gt: 1}}}
  debug: {env: NCCL_DEBUG, type: bool}
require:
  - {if: {ep-size: 8}, then: {tp-size: 8}, reason: experts go with ranks}
hypotheses:
  - {id: ep8, change: {ep-size: 8}, claim: c, gain_percent: [1, 2]}
  - {id: tp2, change: {tp-size: 2}, claim: c, gain_percent: [1, 2]}
  - {id: tp2-ep8, change: {ep-size: 8}, claim: c, gain_percent: [1, 2], depends_on: [tp2]}
"""


def test_what_is_fixed_is_pinned_also_outside_the_domain():
    said, both = checked(STUDY + "fixed: {flags: {--tp_size: 8}, env: {NCCL_DEBUG: '1'}}\n", PINNED)
    assert said == []
    space, baseline = both
    assert space.pinned == {"tp-size": 8, "debug": True}
    assert baseline.as_dict() == {"tp-size": 8, "ep-size": 1, "debug": True}
    assert space.size() == 2
    assert [h.id for h in space.hypotheses] == ["ep8"]
    assert space.left_out == {
        "tp2": "changes tp-size, which is fixed at 8",
        "tp2-ep8": "builds on 'tp2'",
    }


SGLANG = STUDY.replace("name: vllm", "name: sglang")


@pytest.mark.parametrize("alias", ["tp", "--tp", "tensor_parallel_size", "tp-size"])
def test_an_alias_of_a_fixed_flag_pins_as_well(alias):
    fixed = f"fixed: {{flags: {{{alias}: 8}}}}\n"
    said, (space, baseline) = checked(SGLANG + fixed, PINNED)
    assert said == []
    assert space.pinned == {"tp-size": 8}
    assert space.settings(baseline).flags == {"ep-size": 1}
    said, both = checked(SGLANG + fixed + "baseline: {tp-size: 2}\n", PINNED)
    assert said == ["x:7:12: baseline.tp-size: set here and fixed at x:6:17\n  keep one"]
    assert both is None


def test_two_names_of_one_flag_may_not_be_searched_both():
    both = (
        "parameters:\n  tp-size: {type: int, low: 1, high: 8}\n  tp: {type: int, low: 1, high: 8}\n"
    )
    assert checked(STUDY, both)[0] == []
    assert checked(SGLANG, both)[0] == [
        "s:3:3: parameters.tp: sets the same flag tp as 'tp-size' on line 2"
    ]


def test_a_hypothesis_that_a_pin_rules_out_is_left_out_and_no_fault():
    said, (space, _) = checked(STUDY + "fixed: {flags: {tp-size: 4}}\n", PINNED)
    assert said == []
    assert space.left_out["ep8"] == "experts go with ranks"
    said, (space, _) = checked(STUDY + "fixed: {flags: {tp-size: 1}}\n", PINNED)
    assert said == []
    assert space.left_out["ep8"] == "'ep-size' is active only when tp-size: {gt: 1}"


def test_what_a_pin_rules_out_two_conditions_away_is_left_out_as_well():
    chain = (
        PINNED.replace("  debug:", "  route: {type: bool, when: {ep-size: 8}}\n  debug:")
        + "  - {id: far, change: {route: true}, depends_on: [ep8], claim: c, gain_percent: [0, 1]}"
    )
    said, (space, _) = checked(STUDY + "fixed: {flags: {tp-size: 8}}\n", chain)
    assert (said, "far" in space.left_out) == ([], False)
    said, (space, _) = checked(
        STUDY + "fixed: {flags: {tp-size: 1}}\n", chain.replace("depends_on: [ep8], ", "")
    )
    assert said == []
    assert space.left_out["far"] == "'route' is active only when ep-size: 8"


def test_a_hypothesis_that_a_rule_of_this_version_alone_rules_out_is_left_out():
    dated = VERSIONS + "forbid: [{if: {no-piecewise: true}, reason: broken, versions: '<0.5.20'}]\n"
    said, (space, _) = checked(STUDY, dated, "0.5.17")
    assert said == []
    assert space.left_out["whole"] == "broken"
    assert "whole" not in checked(STUDY, dated, "0.5.20")[1][0].left_out
    always = dated.replace(", versions: '<0.5.20'", "")
    assert "forbidden on top of the baseline: broken" in checked(STUDY, always, "0.5.17")[0][0]


def test_a_hypothesis_that_its_own_space_rules_out_is_a_fault_where_nothing_is_pinned():
    alone = PINNED.split("  - {id: tp2,")[0]
    said, _ = checked(STUDY + "baseline: {tp-size: 2}\n", alone)
    assert [line.split("\n")[0] for line in said] == [
        "s:8:15: hypotheses.0.change: forbidden on top of the baseline: experts go with ranks"
    ]


@pytest.mark.parametrize(
    ("fixed", "name", "where"),
    [("flags: {--tp_size: 8}", "tp-size", "x:6:17"), ("env: {NCCL_DEBUG: x}", "debug", "x:6:15")],
)
def test_a_variable_or_flag_is_fixed_or_in_the_baseline(fixed, name, where):
    value = "1" if name == "tp-size" else "true"
    said, both = checked(f"{STUDY}fixed: {{{fixed}}}\nbaseline: {{{name}: {value}}}\n", PINNED)
    assert said == [f"x:7:12: baseline.{name}: set here and fixed at {where}\n  keep one"]
    assert both is None


VERSIONS = """parameters:
  graphs: {type: bool}
  piecewise: {type: bool, versions: "<0.5.12"}
  no-piecewise: {type: bool, versions: ">=0.5.12"}
  mode: {flag: graphs, type: choice, choices: [full], versions: ">=0.6"}
hypotheses:
  - {id: pieces, change: {piecewise: true}, claim: c, gain_percent: [1, 2]}
  - {id: whole, change: {no-piecewise: true}, claim: c, gain_percent: [1, 2]}
"""


def test_what_is_not_in_this_version_is_not_there():
    said, (space, baseline) = checked(STUDY, VERSIONS, "0.5.17")
    assert said == []
    assert baseline.as_dict() == {"graphs": False, "no-piecewise": False}
    assert space.absent == {"piecewise": "<0.5.12", "mode": ">=0.6"}
    assert space.left_out == {"pieces": "changes piecewise, which is not in this version"}
    said, _ = checked(STUDY + "baseline: {piecewise: true}\n", VERSIONS, "0.5.17")
    assert said == ["x:6:12: baseline.piecewise: not in vllm 0.5.17 (versions <0.5.12)"]


def test_a_flag_of_another_version_may_be_fixed_all_the_same():
    said, (space, _) = checked(STUDY + "fixed: {flags: {piecewise: true}}\n", VERSIONS, "0.5.17")
    assert said == []
    assert space.pinned == {}


def test_two_of_one_version_may_not_set_one_thing():
    said, _ = checked(STUDY, VERSIONS, "0.6.1")
    assert said == [
        "s:5:3: parameters.mode: sets the same flag graphs as 'graphs' on line 2, and vllm 0.6.1 "
        "has both"
    ]


BUILDS = """parameters:
  kernels: {build: true, type: choice, choices: [null, patched, l2-pinning, sparsity]}
  graphs: {type: bool, when: {kernels: l2-pinning}}
hypotheses:
  - {id: patched, change: {kernels: patched}, claim: c, gain_percent: [1, 2]}
  - {id: sparse, change: {kernels: sparsity}, claim: c, gain_percent: [1, 2]}
"""


def test_builds_that_the_study_does_not_have_are_left_out():
    said, (space, _) = checked(STUDY, BUILDS)
    assert said == []
    assert space.no_builds == {"kernels": ("l2-pinning", "sparsity")}
    assert space.values_of("kernels") == [None, "patched"]
    assert space.left_out == {"sparse": "the study has no build 'sparsity'"}


def test_a_build_that_was_probably_meant_is_a_fault():
    said, _ = checked(STUDY.replace("{patched:", "{sparsty:"), BUILDS)
    assert said == [
        "s:2:77: parameters.kernels.choices.3: unknown build 'sparsity' (did you mean 'sparsty'?)\n"
        "  the study (x:1:39) has sparsty"
    ]


def test_a_build_that_is_the_default_must_be_there():
    said, _ = checked(STUDY, BUILDS.replace("sparsity]", "sparsity], default: sparsity"))
    assert said[0].startswith("s:2:77: parameters.kernels.choices.3: unknown build 'sparsity'")
