import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spaces import space_of, spaces, spaces_with_values
from tuner.definitions.space import MAX_COUNT, Space, canonical_key, flag_of
from tuner.errors import SpaceError

EXPERTS = {
    "ep-size": {"type": "choice", "choices": [1, 8], "default": 1},
    "a2a": {"type": "choice", "choices": [None, "flashinfer"], "when": {"ep-size": {"gt": 1}}},
    "a2a-buffer": {"type": "int", "low": 1, "high": 4, "default": 2, "when": {"a2a": "flashinfer"}},
    "graphs": {"type": "bool", "default": True},
}


def hypothesis_of(identity, change, *parents):
    return {
        "id": identity,
        "change": change,
        "claim": "faster",
        "gain_percent": [1, 2],
        "depends_on": list(parents),
    }


def test_defaults_fill_in_and_inactive_parameters_are_absent():
    space = space_of(parameters=EXPERTS)
    assert space.configuration({}).as_dict() == {"ep-size": 1, "graphs": True}


def test_when_chains():
    space = space_of(parameters=EXPERTS)
    assert space.configuration({"ep-size": 8, "a2a": "flashinfer"}).as_dict() == {
        "ep-size": 8,
        "a2a": "flashinfer",
        "a2a-buffer": 2,
        "graphs": True,
    }
    assert space.configuration({"a2a": "flashinfer", "a2a-buffer": 4}) == space.configuration({})


def test_when_may_read_a_parameter_that_is_declared_later():
    space = space_of(
        parameters={
            "size": {"type": "int", "low": 1, "high": 2, "default": 1, "when": {"graphs": True}},
            "graphs": {"type": "bool"},
        }
    )
    assert space.configuration({}).values == (("graphs", False),)
    assert space.configuration({"graphs": True}).values == (("size", 1), ("graphs", True))
    assert space.size() == 3


def test_a_when_that_depends_on_itself_is_no_space():
    parameters = {
        "a": {"type": "bool", "when": {"b": True}},
        "b": {"type": "bool", "when": {"a": True}},
    }
    with pytest.raises(SpaceError, match="'when' depends on itself: a -> b -> a"):
        space_of(parameters=parameters)


def test_bools_whole_numbers_and_texts_are_different_values():
    space = space_of(parameters={"x": {"type": "choice", "choices": [1, True, "1"], "default": 1}})
    keys = {space.configuration({"x": value}).key for value in (1, True, "1")}
    assert len(keys) == 3
    assert space.configuration({"x": 1}) != space.configuration({"x": True})


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ({"type": "int", "low": 0, "high": 8, "default": 1}, True),
        ({"type": "int", "low": 0, "high": 8, "default": 1}, 1.0),
        ({"type": "int", "low": 0, "high": 8, "default": 1}, "1"),
        ({"type": "int", "low": 0, "high": 8, "default": 1}, 9),
        ({"type": "int", "low": 0, "high": 8, "default": 0, "step": 4}, 2),
        ({"type": "int", "low": 0, "high": 8, "default": 1}, None),
        ({"type": "float", "low": 0.0, "high": 1.0, "default": 0.5}, False),
        ({"type": "float", "low": 0.0, "high": 1.0, "default": 0.5}, float("nan")),
        ({"type": "bool"}, 1),
        ({"type": "bool"}, None),
        ({"type": "choice", "choices": [1], "default": 1}, True),
    ],
)
def test_a_value_outside_its_domain_is_refused(parameter, value):
    with pytest.raises(SpaceError, match=r"'x' cannot be .*: expected "):
        space_of(parameters={"x": parameter}).configuration({"x": value})


def test_one_value_has_one_spelling():
    parameters = {
        "f": {"type": "float", "low": 0, "high": 1, "default": 0},
        "s": {"type": "float", "low": 0.1, "high": 0.9, "step": 0.1, "default": 0.1},
        "c": {"type": "choice", "choices": [1, 0.5], "default": 1},
    }
    space = space_of(parameters=parameters)
    written = {"f": 1, "s": 0.1 + 0.2, "c": 1.0}
    assert space.configuration(written).as_dict() == {"f": 1.0, "s": 0.3, "c": 1}
    assert repr(space.configuration(written).as_dict()["c"]) == "1"
    assert str(space.configuration({"f": -0.0}).as_dict()["f"]) == "0.0"


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SpaceError, match=r"unknown parameter 'ep_size' \(did you mean 'ep-size'"):
        space_of(parameters=EXPERTS).configuration({"ep_size": 8})


def test_forbidden_and_required_combinations_are_refused_with_their_reason():
    space = space_of(
        parameters=EXPERTS,
        forbid=[{"if": {"ep-size": 8, "graphs": True}, "reason": "experts break capture"}],
        require=[{"if": {"ep-size": 8}, "then": {"a2a": "flashinfer"}, "reason": "no other path"}],
    )
    assert space.broken({"ep-size": 8}) == "experts break capture"
    assert space.broken({"ep-size": 8, "graphs": False}) == "no other path"
    assert space.broken({"ep-size": 8, "graphs": False, "a2a": "flashinfer"}) is None
    assert space.broken_rule({}) is None
    with pytest.raises(SpaceError, match="forbidden: experts break capture"):
        space.configuration({"ep-size": 8})


def test_rules_see_the_canonical_form_alone():
    forbid = [{"if": {"a2a": "flashinfer"}, "reason": "broken"}]
    space = space_of(parameters=EXPERTS, forbid=forbid)
    assert space.broken({"ep-size": 1, "a2a": "flashinfer"}) is None
    assert space.broken({"ep-size": 8, "a2a": "flashinfer"}) == "broken"


def test_settings_speak_of_flags_variables_and_a_build():
    space = space_of(
        parameters={
            "tp": {"flag": "--tp-size", "type": "choice", "choices": [4, 8], "default": 8},
            "--graphs": {"type": "bool", "style": "negation"},
            "backend": {"type": "choice", "choices": ["fa3"]},
            "bytes": {"env": "MAX_BYTES", "type": "int", "low": 1, "high": 8, "default": 4},
            "ratio": {"env": "RATIO", "type": "float", "low": 0, "high": 1, "default": 0.5},
            "unset": {"env": "UNSET", "type": "choice", "choices": ["a"]},
            "debug": {"env": "DEBUG", "type": "bool", "default": True},
            "quiet": {"env": "QUIET", "type": "bool"},
            "fast": {"env": "FAST", "type": "bool", "style": "value"},
            "kernels": {"build": True, "type": "choice", "choices": [None, "patched"]},
        }
    )
    settings_now = space.settings(space.configuration({"kernels": "patched"}))
    assert settings_now.flags == {"tp-size": 8, "graphs": False}
    assert settings_now.bool_styles == {"graphs": "negation"}
    assert settings_now.env == {"MAX_BYTES": "4", "RATIO": "0.5", "DEBUG": "1", "FAST": "0"}
    assert settings_now.build == "patched"
    assert space.settings(space.configuration({})).build is None


def test_a_hypothesis_stands_on_all_that_it_depends_on():
    space = space_of(
        parameters=EXPERTS,
        hypotheses=[
            hypothesis_of("ep8", {"ep-size": 8, "graphs": False}),
            hypothesis_of("a2a", {"a2a": "flashinfer"}, "ep8"),
            hypothesis_of("buffer", {"a2a-buffer": 4, "graphs": True}, "a2a", "ep8"),
        ],
    )
    baseline = space.configuration({})
    changed = space.hypothesis_configuration(space.hypotheses[2], baseline)
    assert changed.as_dict() == {
        "ep-size": 8,
        "a2a": "flashinfer",
        "a2a-buffer": 4,
        "graphs": True,
    }


@pytest.mark.parametrize(
    ("parent", "message"),
    [("a", "hypothesis 'a' depends on itself"), ("z", "there is no hypothesis 'z'")],
)
def test_a_hypothesis_without_ground_is_refused(parent, message):
    hypotheses = [hypothesis_of("a", {"graphs": False}, parent)]
    space = space_of(parameters=EXPERTS, hypotheses=hypotheses)
    with pytest.raises(SpaceError, match=message):
        space.hypothesis_configuration(space.hypotheses[0], space.configuration({}))


def test_size_counts_admissible_configurations_once():
    assert space_of(parameters=EXPERTS).size() == 2 * (1 + 1 + 4)
    forbid = [{"if": {"a2a-buffer": {"ge": 3}}, "reason": "memory"}]
    assert space_of(parameters=EXPERTS, forbid=forbid).size() == 2 * (1 + 1 + 2)


def test_size_is_not_known_of_continuous_or_huge_spaces():
    ratio = {"type": "float", "low": 0, "high": 1}
    assert space_of(parameters={"ratio": ratio}).size() is None
    digits = {str(n): {"type": "int", "low": 0, "high": 9, "default": 0} for n in range(7)}
    assert space_of(parameters=digits).size() == 10**7
    forbid = [{"if": {"0": 1, "1": 1}, "reason": "never"}]
    assert MAX_COUNT < 10**7
    assert space_of(parameters=digits, forbid=forbid).size() is None


def test_a_continuous_space_cannot_be_listed():
    ratio = {"type": "float", "low": 0, "high": 1}
    with pytest.raises(SpaceError, match="'ratio' is continuous"):
        space_of(parameters={"ratio": ratio}).configurations()


def test_the_first_configurations_of_a_continuous_space_are_its_ends():
    space = space_of(parameters={"r": {"type": "float", "low": 0, "high": 1, "default": 0}})
    assert [dict(c.values)["r"] for c in space.first(5) or []] == [0.0, 1.0]


def test_what_is_admissible_is_looked_for_near_the_defaults():
    """From the first values on it would take longer than anybody waits."""
    many = {f"p{n}": {"type": "bool", "default": True} for n in range(30)}
    only = [{"if": {"p0": True}, "then": {"p1": True, "p2": True}, "reason": "r"},
            {"if": {"p0": False}, "then": {"p29": True, "p28": False}, "reason": "r"}]  # fmt: skip
    space = space_of(parameters=many, require=only)
    assert space.first(1) == [space.configuration({})]
    assert space.size() is None


def test_what_nobody_can_tell_in_time_is_not_told():
    many = {f"p{n}": {"type": "bool"} for n in range(30)}
    only = [{"if": {"p0": {"not": None}}, "then": {"p0": True, "p29": True}, "reason": "r"}]
    assert space_of(parameters=many, require=only).first(1) is None


def test_configurations_come_in_the_order_of_declaration():
    space = space_of(parameters={"a": {"type": "bool"}, "b": {"type": "bool"}})
    listed = [tuple(c.as_dict().values()) for c in space.configurations()]
    assert listed == [(False, False), (False, True), (True, False), (True, True)]


def test_neighbours_differ_in_one_parameter_and_its_children():
    forbid = [{"if": {"graphs": False, "ep-size": 1}, "reason": "slow"}]
    space = space_of(parameters=EXPERTS, forbid=forbid)
    here = space.configuration({"ep-size": 8, "a2a": "flashinfer", "a2a-buffer": 1})
    assert [c.as_dict() for c in space.neighbours(here)] == [
        {"ep-size": 1, "graphs": True},
        {"ep-size": 8, "a2a": None, "graphs": True},
        {"ep-size": 8, "a2a": "flashinfer", "a2a-buffer": 2, "graphs": True},
        {"ep-size": 8, "a2a": "flashinfer", "a2a-buffer": 1, "graphs": False},
    ]
    assert [c.as_dict()["ep-size"] for c in space.neighbours(space.configuration({}))] == [8]


def test_the_key_is_the_same_in_another_process():
    code = (
        "from tuner.definitions.space import canonical_key as key\n"
        "print(key({'b': True, 'a': 'x', 'f': 0.1, 'n': None}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == canonical_key({"n": None, "a": "x", "f": 0.1, "b": True})
    assert there.stdout.strip() == "92fcb50ab185"


def test_a_flag_is_named_without_dashes_and_by_its_parameter_where_nothing_is_said():
    parameters = space_of(
        parameters={
            "--a": {"type": "bool"},
            "b": {"type": "bool", "flag": "--no-b"},
            "c": {"type": "bool", "env": "C"},
        }
    ).parameters
    assert [flag_of(name, parameter) for name, parameter in parameters.items()] == [
        "a",
        "no-b",
        None,
    ]


QUICK = settings(deadline=None, max_examples=80)


@QUICK
@given(spaces_with_values())
def test_the_canonical_form_is_its_own_canonical_form(drawn):
    space, values = drawn
    if space.broken(values) is None:
        configuration = space.configuration(values)
        assert space.configuration(configuration.as_dict()) == configuration
        assert configuration.as_dict().keys() == space.active(values)


@QUICK
@given(spaces_with_values(), st.randoms(use_true_random=False))
def test_the_key_does_not_depend_on_any_order(drawn, random):
    space, values = drawn
    names, said = list(space.parameters), list(values)
    random.shuffle(names)
    random.shuffle(said)
    parameters = {name: space.parameters[name] for name in names}
    definition = space.definition.model_copy(update={"parameters": parameters})
    if space.broken(values) is None:
        other = Space(definition).configuration({name: values[name] for name in said})
        assert other.key == space.configuration(values).key


@QUICK
@given(spaces())
def test_listed_configurations_are_canonical_distinct_and_as_many_as_the_size(space):
    listed = list(space.configurations())
    assert len({configuration.key for configuration in listed}) == len(listed) == space.size()
    assert all(space.configuration(c.as_dict()) == c for c in listed)


@QUICK
@given(spaces_with_values())
def test_neighbours_are_admissible_and_others(drawn):
    space, values = drawn
    if space.broken(values) is None:
        here = space.configuration(values)
        for neighbour in space.neighbours(here):
            assert neighbour != here
            assert space.configuration(neighbour.as_dict()) == neighbour


def test_a_configuration_survives_json():
    ratio = {"type": "float", "low": 0, "high": 2, "default": 1}
    space = space_of(parameters={**EXPERTS, "ratio": ratio})
    here = space.configuration({"ep-size": 8})
    assert space.configuration(json.loads(json.dumps(here.as_dict()))) == here


STEPS = {
    "steps": {"type": "int", "low": 1, "high": 8, "default": 1},
    "chunk": {"type": "choice", "choices": [1, 2], "default": 1},
    "graphs": {"type": "bool", "when": {"steps": {"gt": 4}}},
}
HYPOTHESES = [
    {"id": name, "change": change, "claim": "c", "gain_percent": [0, 1]}
    for name, change in {"idle": {"steps": 8}, "busy": {"steps": 8, "chunk": 2}}.items()
]


def without_steps(values=None):
    space = space_of(parameters=STEPS, hypotheses=HYPOTHESES)
    return space.ignoring({"steps"}, space.configuration(values or {}))


def test_what_differs_only_in_a_dead_flag_is_one_configuration_with_its_own_values():
    space = without_steps()
    one, other = space.configuration({"steps": 1}), space.configuration({"steps": 3})
    assert one == other
    assert (
        one.key == other.key == space_of(parameters={"chunk": STEPS["chunk"]}).configuration({}).key
    )
    assert other.as_dict()["steps"] == 3
    assert space.settings(other).flags["steps"] == 3
    assert one != space.configuration({"chunk": 2})


def test_the_search_leaves_a_dead_flag_where_the_baseline_has_it():
    space = without_steps({"steps": 3})
    assert space.dead == {"steps": 3}
    assert space.values_of("steps") == [3]
    listed = list(space.configurations())
    assert [c.as_dict() for c in listed] == [{"steps": 3, "chunk": 1}, {"steps": 3, "chunk": 2}]
    assert space.size() == 2
    assert space.configuration({"chunk": 2}).as_dict()["steps"] == 3
    assert [c.as_dict() for c in space.neighbours(listed[0])] == [{"steps": 3, "chunk": 2}]


def test_what_hangs_on_a_dead_flag_still_does():
    here = without_steps({"steps": 4})
    assert [c.as_dict() for c in here.neighbours(here.configuration({}))] == [
        {"steps": 4, "chunk": 2}
    ]
    assert without_steps({"steps": 8}).size() == 4
    assert without_steps().configuration({"steps": 8}).as_dict()["graphs"] is False


def test_a_hypothesis_is_idle_where_it_changes_nothing_but_dead_flags():
    space = without_steps()
    assert [h.id for h in space.hypotheses if space.is_idle(h)] == ["idle"]
    plain = space_of(parameters=STEPS, hypotheses=HYPOTHESES)
    assert not any(plain.is_idle(h) for h in plain.hypotheses)


def test_the_space_itself_stays_as_it_was():
    plain = space_of(parameters=STEPS)
    assert plain.size() == 24
    assert plain.ignoring({"steps"}, plain.configuration({})).size() == 2
    assert plain.dead == {}
    assert plain.size() == 24
