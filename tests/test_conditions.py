import pytest

from tests.spaces import space_of
from tuner.definitions.conditions import can_hold, holds, parameters_of
from tuner.definitions.models import Condition, Value

VALUES: dict[str, Value] = {
    "ep": 8,
    "tp": 8,
    "a2a": "flashinfer",
    "graphs": True,
    "unset": None,
    "ratio": 0.5,
}


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"ep": 8},
        {"ep": 8.0},
        {"ep": [1, 8]},
        {"graphs": True, "a2a": "flashinfer"},
        {"ep": {"gt": 1, "le": 8}},
        {"ep": {"ge": "tp"}},
        {"ratio": {"lt": "ep"}},
        {"unset": None},
        {"unset": {"not": 8}},
        {"ep": {"not": None}},
        {"absent": None},
        {"absent": {"not": "x"}},
    ],
)
def test_holds(condition):
    assert holds(condition, VALUES)


@pytest.mark.parametrize(
    "condition",
    [
        {"ep": 1},
        {"ep": "8"},
        {"graphs": 1},
        {"graphs": {"gt": 0}},
        {"ep": []},
        {"ep": 8, "a2a": "none"},
        {"ep": {"gt": 1, "lt": 8}},
        {"ep": {"gt": "tp"}},
        {"ep": {"gt": "unset"}},
        {"ep": {"gt": "absent"}},
        {"unset": {"lt": 8}},
        {"absent": {"ge": 0}},
        {"a2a": {"lt": 8}},
        {"ep": {"lt": None}},
        {"ep": {"not": 8}},
        {"ep": {"not": 8.0}},
        {"absent": 8},
    ],
)
def test_does_not_hold(condition):
    assert not holds(condition, VALUES)


def test_a_condition_reads_its_names_and_those_it_compares_with():
    condition: Condition = {
        "ep": {"gt": "tp", "not": "a2a"},
        "ratio": {"lt": "unknown"},
        "a2a": "tp",
    }
    assert list(parameters_of(condition, VALUES)) == ["ep", "tp", "ratio", "a2a"]


PARAMETERS = space_of(
    parameters={
        "log": {"type": "int", "low": 1, "high": 64, "log": True, "default": 1},
        "ratio": {"type": "float", "low": 0, "high": 1, "default": 0},
        "free": {"type": "float", "low": 0, "high": 1},
        "sometimes": {"type": "bool", "when": {"log": 1}},
        "huge": {"type": "int", "low": 1, "high": 10**9, "default": 1},
        "flag": {"type": "bool"},
    }
).parameters


@pytest.mark.parametrize(
    ("name", "operands", "possible"),
    [
        ("log", [{"gt": 32, "lt": 64}], True),
        ("log", [{"gt": 64}], False),
        ("log", [{"not": 1}], True),
        ("ratio", [{"gt": 0.2, "lt": 0.3}], True),
        ("ratio", [{"gt": 0.3, "lt": 0.2}], False),
        ("ratio", [{"gt": 0.5}, {"lt": 0.2}], False),
        ("ratio", [0.25], True),
        ("ratio", [None], False),
        ("free", [None], True),
        ("sometimes", [None], True),
        ("flag", [None], False),
        ("flag", [True, False], False),
        ("huge", [{"ge": 10**9}], True),
        ("huge", [{"gt": 10**9}], False),
        ("huge", [[5, 10**10], {"gt": 5}], False),
    ],
)
def test_whether_any_value_satisfies_operands_at_once(name, operands, possible):
    assert can_hold(PARAMETERS[name], *operands) == possible
