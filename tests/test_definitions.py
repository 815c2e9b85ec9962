from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from tuner.definitions.models import (
    EFFORT_HOURS,
    Effort,
    EngineDefinition,
    Fixed,
    Hypothesis,
    Launch,
    Parameter,
    SpaceDefinition,
    Value,
)


def parameter(content):
    return TypeAdapter(Parameter).validate_json(content)


def test_flags_are_stored_in_one_spelling():
    assert parameter('{"type": "bool", "flag": "--tp_size"}').flag == "tp-size"
    assert Fixed(flags={"--a": 1, "b": 2}).flags == {"a": 1, "b": 2}


def test_values_keep_their_types():
    values: list[Value] = [True, 1, 1.0, "1", None]
    stored = SpaceDefinition.model_validate(
        {"parameters": {"x": {"type": "choice", "choices": values}}}
    )
    again = SpaceDefinition.model_validate_json(stored.model_dump_json(by_alias=True))
    kept = again.parameters["x"]
    assert kept.type == "choice"
    assert [type(value) for value in kept.choices] == [type(value) for value in values]


@pytest.mark.parametrize(
    "content",
    [
        '{"type": "int", "low": "1", "high": 2}',
        '{"type": "int", "low": true, "high": 2}',
        '{"type": "int", "low": 1.0, "high": 2}',
        '{"type": "bool", "default": 1}',
        '{"type": "bool", "default": "true"}',
        '{"type": "choice", "choices": []}',
        '{"type": "float", "low": 0, "high": 1, "hihg": 1}',
    ],
)
def test_nothing_is_coerced_and_nothing_unknown_is_taken(content):
    with pytest.raises(ValidationError):
        parameter(content)


def test_definitions_do_not_change():
    with pytest.raises(ValidationError):
        parameter('{"type": "bool"}').note = "x"


def test_every_effort_has_its_hours():
    assert set(EFFORT_HOURS) == set(get_args(Effort))


def test_an_engine_is_a_launch_with_builds():
    builds = {"patched": Launch(command=["patched", "serve"])}
    engine = EngineDefinition(name="vllm", python="python3", builds=builds)
    assert isinstance(engine, Launch)
    assert engine.builds["patched"].command == ["patched", "serve"]


def test_a_gain_is_read_from_a_list():
    content = '{"id": "a", "change": {"x": 1}, "claim": "c", "gain_percent": [10, 20.5]}'
    assert Hypothesis.model_validate_json(content).gain_percent == (10, 20.5)
