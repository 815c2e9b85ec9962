"""What a fixed text means for a parameter; what is left of a space, and what falls with it."""

from typing import Any

import pytest

from tests.spaces import space_of
from tuner.definitions.models import Parameter
from tuner.definitions.narrowing import pinned_value
from tuner.definitions.space import Space
from tuner.errors import SpaceError


def parameter(**content) -> Parameter:
    return space_of(parameters={"a": content}).parameters["a"]


BOOL = parameter(type="bool")
NUMBER = parameter(type="int", low=1, high=8)
CHOICE = parameter(type="choice", choices=[1, 8, "auto"])


@pytest.mark.parametrize(
    ("of", "written", "is_"),
    [
        (BOOL, True, True),
        (BOOL, None, False),  # a flag that stands alone is off where it is left out
        (BOOL, "1", True),
        (BOOL, "False", False),
        (BOOL, "auto", "auto"),
        (parameter(type="bool", style="negation"), None, None),
        (NUMBER, "4", 4),
        (NUMBER, "9", "9"),
        (NUMBER, "x", "x"),
        (NUMBER, 16, 16),
        (parameter(type="float", low=0, high=1), "0.5", 0.5),
        (CHOICE, "8", 8),
        (CHOICE, "auto", "auto"),
        (CHOICE, "none", "none"),
        (CHOICE, None, None),
    ],
)
def test_a_fixed_text_is_the_value_that_it_stands_for(of, written, is_):
    found = pinned_value(of, written)
    assert found == is_
    assert type(found) is type(is_)


CONTENT: dict[str, Any] = {
    "parameters": {
        "tp": {"type": "int", "low": 1, "high": 4, "default": 1},
        "ep": {"type": "choice", "choices": [1, 2], "default": 1, "when": {"tp": {"gt": 1}}},
        "old": {"type": "bool", "style": "negation", "versions": "<2"},
        "quick": {"type": "bool", "style": "negation", "default": True},
    },
    "forbid": [{"if": {"old": None, "ep": 2}, "reason": "only the old one can"}],
    "hypotheses": [
        {"id": "a", "change": {"old": True}, "claim": "c", "gain_percent": [1, 2]},
        {"id": "b", "change": {"ep": 2}, "claim": "c", "gain_percent": [1, 2], "depends_on": ["a"]},
        {"id": "c", "change": {"tp": 2}, "claim": "c", "gain_percent": [1, 2], "depends_on": ["b"]},
        {"id": "d", "change": {"tp": 8}, "claim": "c", "gain_percent": [1, 2]},
    ],
}


def narrowed(**scope) -> Space:
    return Space(space_of(**CONTENT).definition, **scope)


def test_conditions_see_what_is_not_in_this_version_as_null():
    new, old = narrowed(version="2.1"), narrowed(version="1.9")
    assert new.broken({"tp": 2, "ep": 2}) == "only the old one can"
    assert old.broken({"tp": 2, "ep": 2}) is None
    assert new.size() == 4 * 2  # ep 2 is forbidden throughout
    assert old.size() == (1 + 3 * 2) * 2 * 2
    assert "old" not in new.configuration({}).as_dict()


def test_to_set_what_is_not_in_this_version_is_refused_with_the_reason():
    with pytest.raises(SpaceError, match="'old' is only in versions <2"):
        narrowed(version="2.1").configuration({"old": True})


def test_without_a_version_all_is_there():
    assert narrowed().parameters.keys() == CONTENT["parameters"].keys()


def test_what_builds_on_something_left_out_is_left_out():
    space = narrowed(version="2.1")
    assert [h.id for h in space.hypotheses] == ["d"]
    assert space.left_out == {
        "a": "changes old, which is not in this version",
        "b": "builds on 'a'",
        "c": "builds on 'b'",
    }


def test_hypotheses_can_be_left_out_later_and_the_space_before_keeps_them():
    space = narrowed(version="1.0")
    other = space.leaving_out({"a": "a reason"})
    assert [h.id for h in other.hypotheses] == ["d"]
    assert other.left_out == {"a": "a reason", "b": "builds on 'a'", "c": "builds on 'b'"}
    assert len(space.hypotheses) == 4


def test_a_pin_is_the_only_value_and_conditions_see_it():
    space = narrowed(pins={"tp": 8})
    assert space.values_of("tp") == [8]
    assert space.active({}) >= {"ep"}
    assert [h.id for h in space.hypotheses] == ["a", "b", "d"]  # d changes nothing
    with pytest.raises(SpaceError, match="'tp' cannot be 2: expected 8"):
        space.configuration({"tp": 2})


def test_a_pinned_flag_is_told_by_the_study_and_spelt_as_its_parameter_says():
    space = narrowed(pins={"quick": False, "tp": 8})
    settings = space.settings(space.configuration({}))
    assert settings.flags == {"ep": 1, "old": False}
    assert settings.bool_styles["quick"] == "negation"


def test_what_a_baseline_leaves_unsaid_is_null_by_default_and_tried_so():
    space = narrowed(unsaid=["tp", "quick"])
    assert space.values_of("tp") == [None, 1, 2, 3, 4]
    assert space.values_of("quick") == [None, False, True]
    unsaid, off = space.configuration({}), space.configuration({"quick": False})
    assert "tp" not in space.settings(unsaid).flags
    assert "quick" not in space.settings(unsaid).flags
    assert space.settings(off).flags["quick"] is False
    assert space.settings(off).bool_styles["quick"] == "negation"


def test_what_is_left_unsaid_still_has_the_choices_of_its_version_only():
    space = Space(space_of(**DATED).definition, version="2.1", unsaid=["runner", "dp"])
    assert space.values_of("dp") == [None, 1, 8]
    assert "old" not in (space.values_of("runner") or [])


DATED: dict[str, Any] = {
    "parameters": {
        "runner": {
            "type": "choice",
            "choices": ["auto", "routed", "old", 8, None],
            "choice_versions": {"routed": ">=2", "old": "<2", "8": ">=3"},
            "default": "auto",
        },
        "dp": {"type": "choice", "choices": [1, 8], "default": 1},
    },
    "require": [
        {"if": {"runner": "routed"}, "then": {"dp": 8}, "reason": "r", "versions": ">=2.5"},
        {"if": {"runner": "auto"}, "then": {"dp": 1}, "reason": "a", "versions": "<2"},
    ],
    "forbid": [{"if": {"runner": None}, "reason": "n", "versions": ">=2"}],
    "hypotheses": [
        {"id": "a", "change": {"runner": "old"}, "claim": "c", "gain_percent": [1, 2]},
        {"id": "b", "change": {"dp": 8}, "claim": "c", "gain_percent": [1, 2], "versions": ">=2"},
    ],
}


def dated(version: str) -> Space:
    return Space(space_of(**DATED).definition, version=version)


def test_a_version_has_its_choices_rules_and_hypotheses():
    old, new, newest = dated("1.0"), dated("2.1"), dated("3")
    assert old.values_of("runner") == ["auto", "old", None]
    assert new.values_of("runner") == ["auto", "routed", None]
    assert newest.values_of("runner") == ["auto", "routed", 8, None]
    assert [bool(space.broken({"runner": "routed", "dp": 1})) for space in (new, newest)] == [
        False,
        True,
    ]
    assert old.broken({"dp": 8}) == "a"
    assert [space.broken({"runner": None}) for space in (old, new)] == [None, "n"]
    assert old.left_out == {"b": "is for versions >=2"}
    assert new.left_out == {"a": "sets runner to 'old', which is not in this version"}
    assert new.no_choices == {"runner": {"old": "<2", "8": ">=3"}}


def test_a_default_that_a_version_does_not_have_is_left_to_the_engine():
    content = {**DATED, "hypotheses": []}
    content["parameters"] = {**DATED["parameters"]}
    content["parameters"]["runner"] = {**DATED["parameters"]["runner"], "default": "routed"}
    space = Space(space_of(**content).definition, version="1.0")
    assert space.parameters["runner"].default is None
