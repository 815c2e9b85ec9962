"""Spaces for tests, written as in a file, and a strategy that draws them."""

import json
from typing import Any

from hypothesis import strategies as st

from tuner.definitions.models import SpaceDefinition, Value
from tuner.definitions.space import Space


def space_of(**content: Any) -> Space:
    """A space whose file would hold this."""
    return Space(SpaceDefinition.model_validate_json(json.dumps(content)))


NUMBERS = st.integers(1, 12)


def _parameter(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    kind = draw(st.sampled_from(["bool", "choice", "int", "log", "float"]))
    when = draw(st.sampled_from([None, *names]))
    common: dict[str, Any] = {"when": {when: {"not": None}}} if when else {}
    if kind == "bool":
        return {"type": "bool", "default": draw(st.booleans()), **common}
    if kind == "choice":
        choices = draw(st.lists(st.sampled_from([None, True, 1, "1", 2.5, "x"]), min_size=1))
        return {"type": "choice", "choices": choices, "default": choices[-1], **common}
    low = draw(NUMBERS)
    high = low + draw(st.integers(0, 6))
    default = draw(st.sampled_from([None, low, high]))
    number = {"low": low, "high": high, "default": default, **common}
    if kind == "float":
        return {"type": "float", "step": 0.5, **number}
    return {"type": "int", "log": kind == "log", **number}


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Up to four parameters, some active only where an earlier one is set, and one rule."""
    parameters: dict[str, Any] = {}
    for name in "abcd"[: draw(st.integers(1, 4))]:
        parameters[name] = _parameter(draw, list(parameters))
    forbid = [{"if": {"a": {"gt": 5}}, "reason": "a is large"}] if draw(st.booleans()) else []
    return space_of(parameters=parameters, forbid=forbid)


@st.composite
def spaces_with_values(draw: st.DrawFn) -> tuple[Space, dict[str, Value]]:
    """A space and values for some of its parameters, inactive ones included."""
    space = draw(spaces())
    values: dict[str, Value] = {}
    for name in draw(st.sets(st.sampled_from(list(space.parameters)))):
        values[name] = draw(st.sampled_from(space.values_of(name) or [None]))
    return space, values
