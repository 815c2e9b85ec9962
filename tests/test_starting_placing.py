"""What of a launch is searched and what is fixed, by a space; the baseline stays that launch."""

import pytest

from tests.spaces import space_of
from tuner.definitions.models import Budget, EngineDefinition, Hardware, StudyDefinition
from tuner.errors import TunerError
from tuner.starting.placing import Placed, place, placeholder_free, typed
from tuner.starting.shell import PLACEHOLDER

STUDY = StudyDefinition(
    engine=EngineDefinition(name="vllm", python="python3"),
    model="m",
    space="",
    objective="",
    budget=Budget(hours=1),
)
PARAMETERS = {
    "a": {"type": "int", "low": 1, "high": 9},
    "f": {"type": "float", "low": 0.5, "high": 0.9, "step": 0.1, "flag": "fraction"},
    "c": {"type": "choice", "choices": [None, 1, 2, "auto", True]},
    "on": {"type": "bool"},
    "neg": {"type": "bool", "style": "negation", "default": True},
    "val": {"type": "bool", "style": "value"},
    "e": {"env": "ENV_E", "type": "choice", "choices": ["1", "2"], "default": "1"},
    "eb": {"env": "ENV_B", "type": "bool"},
    "sub": {"type": "int", "low": 1, "high": 4, "when": {"on": True}},
    "new": {"type": "bool", "versions": ">=2"},
}


def placed(flags=None, env=None, version="1.0", **space) -> Placed:
    content = {"parameters": PARAMETERS, **space}
    return place(flags or {}, env or {}, space_of(**content).definition, STUDY, version)


@pytest.mark.parametrize(
    ("flags", "baseline"),
    [
        ({"a": "4"}, {"a": 4}),
        ({"fraction": "0.70"}, {"f": 0.7}),
        ({"c": "2"}, {"c": 2}),
        ({"c": "auto"}, {"c": "auto"}),
        ({"c": True}, {"c": True}),
        ({"on": True}, {"on": True}),
        ({"no-neg": True}, {"neg": False}),
        ({"neg": True}, {"neg": True}),
        ({"val": "False"}, {"val": False}),
        ({"on": True, "sub": "2"}, {"on": True, "sub": 2}),
        ({"new": True}, {"new": True}),
    ],
)
def test_what_the_space_has_is_the_baselines(flags, baseline):
    found = placed(flags, version="2.0")
    assert {name: found.baseline[name] for name in baseline} == baseline
    assert found.flags == {}
    assert found.added == []


@pytest.mark.parametrize(
    ("flags", "fixed", "why"),
    [
        ({"a": "40"}, {"a": 40}, "the space has a whole number from 1 to 9, or null"),
        ({"a": "x"}, {"a": "x"}, "the space has another kind of value"),
        ({"fraction": "0.75"}, {"fraction": 0.75}, "steps of 0.1"),
        ({"c": "3"}, {"c": 3}, "the space has null, 1, 2, 'auto' or true"),
        ({"on": "true"}, {"on": "true"}, "another kind of value"),
        ({"val": True}, {"val": True}, "another kind of value"),
        ({"sub": "2"}, {"sub": 2}, "only under a condition"),
    ],
)
def test_what_it_has_otherwise_is_fixed_with_the_reason(flags, fixed, why):
    found = placed(flags)
    assert found.flags == fixed
    assert why in found.why[next(iter(fixed))]


@pytest.mark.parametrize("flags", [{"other": "1"}, {"no-other": True}, {"no-on": True}])
def test_what_it_does_not_have_is_fixed(flags):
    found = placed(flags)
    assert list(found.flags) == list(flags)
    assert found.why == {}


def test_a_parameter_of_another_version_is_fixed():
    assert placed({"new": True}, version="1.0").flags == {"new": True}


def test_variables_are_placed_alike():
    found = placed(env={"ENV_E": "2", "ENV_B": "1", "OTHER": "x"})
    assert found.baseline["e"] == "2"
    assert found.baseline["eb"] is True
    assert found.env == {"OTHER": "x"}
    assert placed(env={"ENV_E": "7"}).env == {"ENV_E": "7"}


def test_what_is_not_said_is_left_to_the_engine():
    found = placed({"a": "4"})
    assert found.baseline == {"a": 4, "neg": None, "val": None, "e": None}
    assert {name for name, value in found.launch_flags.items() if value} == {"a"}


def test_a_default_that_a_rule_needs_is_added_and_said():
    rule = {"if": {"on": True}, "then": {"neg": True}, "reason": "r"}
    found = placed({"on": True}, require=[rule])
    assert "neg" not in found.baseline
    assert found.added == ["--neg true"]


@pytest.mark.parametrize(
    ("flags", "gpus", "fixed"),
    [
        ({"tp-size": "4"}, 8, {}),
        ({"tp-size": "4"}, 4, {"tp-size": 4}),
        ({}, 2, {"tp-size": None}),
        ({"tp-size": "16"}, 16, {"tp-size": 16}),
    ],
)
def test_no_size_goes_beyond_the_host(flags, gpus, fixed):
    parameters = {"tp": {"type": "choice", "choices": [1, 4, 8], "default": 8, "flag": "tp-size"}}
    study = STUDY.model_copy(update={"hardware": Hardware(gpus=gpus)})
    definition = space_of(parameters=parameters | {"on": {"type": "bool"}}).definition
    found = place(flags, {}, definition, study, None)
    assert found.flags == fixed
    beyond = "beyond the 4 GPUs" in found.why.get("tp-size", "")
    assert beyond is (gpus == 4)


def test_a_launch_that_the_space_forbids_is_said():
    rule = {"if": {"on": True, "a": {"gt": 3}}, "reason": "it hangs"}
    with pytest.raises(TunerError, match="does what the space forbids: it hangs"):
        placed({"on": True, "a": "4"}, forbid=[rule])


def test_what_no_hypothesis_goes_with_is_fixed():
    rule = {"if": {"on": True, "a": 9}, "reason": "r"}
    hypothesis = {"id": "h", "change": {"a": 9}, "claim": "c", "gain_percent": [1, 2]}
    found = placed({"on": True}, forbid=[rule], hypotheses=[hypothesis])
    assert found.flags == {"on": True}
    assert found.why == {"on": "hypothesis h does not go with it"}


@pytest.mark.parametrize(
    ("flags", "env", "secrets"),
    [
        ({"api-key": "sk-1"}, {}, ["API_KEY"]),
        ({"hf.access-token": "x"}, {}, ["HF_ACCESS_TOKEN"]),
        ({"url": "http://me:pw@host/"}, {}, ["URL"]),
        ({}, {"HF_TOKEN": "hf_x"}, ["HF_TOKEN"]),
        ({}, {"A": "${OTHER}/x"}, ["OTHER"]),
        ({"api-key": "${KEY}"}, {}, ["KEY"]),
        ({"api-key": f"{PLACEHOLDER}your-key"}, {}, ["API_KEY"]),
        ({}, {"TOKEN_LIMIT": "5"}, []),
    ],
)
def test_secrets_become_references(flags, env, secrets):
    found = placed(flags, env)
    assert list(found.secrets) == secrets
    written = str([found.flags, found.env])
    assert not any(secret in written for secret in ("sk-1", "pw", "hf_x", "your-key"))


def test_a_placeholder_is_refused_by_its_name():
    with pytest.raises(TunerError, match=r"--x: found the placeholder <my.dir>"):
        placed({"x": f"/a/{PLACEHOLDER}my.dir/b"})
    assert placeholder_free("x", "a<b") == "a<b"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-1", -1),
        ("0.9", 0.9),
        ("0.90", "0.90"),
        ("1e-3", "1e-3"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("true", "true"),
        (True, True),
        ("", ""),
    ],
)
def test_a_number_is_one_only_where_it_is_written_again_as_it_was(text, value):
    assert typed(text) == value
    assert type(typed(text)) is type(value)
