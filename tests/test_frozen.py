"""The base of stored values: immutable, strict, closed, finite."""

import pytest
from pydantic import ValidationError

from tuner.frozen import Frozen


class Point(Frozen):
    x: int
    y: float = 0.0


def test_a_value_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Point(x=1).x = 2  # type: ignore[misc]


@pytest.mark.parametrize("text", ['{"x": "1"}', '{"x": 1.5}', '{"x": true}', '{"x": 1, "z": 2}'])
def test_nothing_is_coerced_and_nothing_unknown_is_taken(text):
    with pytest.raises(ValidationError):
        Point.model_validate_json(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_are_finite(number):
    with pytest.raises(ValidationError, match="finite"):
        Point(x=1, y=number)


def test_it_survives_json():
    assert Point.model_validate_json(Point(x=1, y=2.5).model_dump_json()) == Point(x=1, y=2.5)
