import json
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from tuner.definitions.findings import Findings
from tuner.definitions.schema_errors import report
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError
from tuner.frozen import Frozen


class Circle(Frozen):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(Frozen):
    kind: Literal["square"]
    side: int = Field(ge=1, le=9)
    square: int = 0


Shape = Annotated[Circle | Square, Field(discriminator="kind")]
Plain = bool | int | float | str | None


class Drawing(Frozen):
    shapes: list[Shape] = []
    named: dict[str, Shape] = {}
    anything: Plain = None
    several: Plain | list[Plain] | dict[Literal["lt", "gt"], Plain] = None
    factors: float | dict[int, float] = 1.0
    pair: tuple[int, int] = Field(default=(0, 1), description="two whole numbers")
    only: list[int] = Field(default=[1], min_length=1, max_length=2)

    @model_validator(mode="after")
    def _consistent(self) -> "Drawing":
        if self.pair == (7, 7):
            raise ValueError("pair: expected two different numbers")
        return self


def said_of(text):
    source, findings = parse(text, name="x"), Findings()
    with pytest.raises(ValidationError) as error:
        Drawing.model_validate_json(json.dumps(source.value))
    report(error.value, source, Drawing, findings)
    with pytest.raises(DefinitionError) as told:
        findings.settled(None)
    return str(told.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shapes:\n  - {kind: circle, radius: 0}\n",
            "x:2:28: shapes.0.radius: found the number 0, expected more than 0",
        ),
        (
            "named: {square: {kind: square, side: 10}}\n",
            "x:1:38: named.square.side: found the number 10, expected at most 9",
        ),
        (
            "named: {circle: {kind: square, side: 1, square: x}}\n",
            "x:1:49: named.circle.square: found the text 'x', expected a whole number",
        ),
        (
            "named: {a: {kind: circle, side: 1}}\n",
            "x:1:9: named.a: missing key 'radius'\n"
            "x:1:27: named.a: unknown key 'side'\n  known here: kind, radius",
        ),
        (
            "named: {a: {kind: circle, raduis: 1}}\n",
            "x:1:27: named.a: unknown key 'raduis' (did you mean 'radius'?)",
        ),
        (
            "named: {a: {side: 1}}\n",
            "x:1:9: named.a: missing key 'kind'\n  one of 'circle', 'square'",
        ),
        ("anything: [1]\n", "x:1:11: anything: found a list, expected a single value"),
        (
            "several: {le: 1}\n",
            "x:1:11: several.le: found the text 'le', expected 'lt' or 'gt'",
        ),
        ("several: [[1]]\n", "x:1:11: several.0: found a list, expected a single value"),
        (
            "several: {gt: {}}\n",
            "x:1:15: several.gt: found an empty mapping, expected a single value",
        ),
        ("factors: x\n", "x:1:10: factors: found the text 'x', expected a number or a mapping"),
        (
            "factors: {a: 1}\n",
            "x:1:11: factors.a: found the text 'a', expected a whole number",
        ),
        ("factors: {1: x}\n", "x:1:14: factors.1: found the text 'x', expected a number"),
        ("pair: [1]\n", "x:1:7: pair: found 1 entry, expected two whole numbers"),
        ("pair: [1, 2, 3]\n", "x:1:7: pair: found 3 entries, expected two whole numbers"),
        ("pair: 3\n", "x:1:7: pair: found the number 3, expected two whole numbers"),
        ("pair: [1, a]\n", "x:1:11: pair.1: found the text 'a', expected a whole number"),
        ("pair: [7, 7]\n", "x:1:1: pair: expected two different numbers"),
        ("only: []\n", "x:1:7: only: found an empty list, expected at least 1 entry"),
        ("only: [1, 2, 3]\n", "x:1:7: only: found 3 entries, expected at most 2 entries"),
        ("[1]\n", "x:1:1: found a list, expected a mapping"),
    ],
)
def test_errors_are_told_without_the_names_of_types_and_unions(text, message):
    assert said_of(text) == message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("only: ['8']\n", "write it without quotes: 8"),
        ("only: [8.0]\n", "write 8"),
        ("only: 8\n", ""),
        ("only: a b\n", "write [a, b]"),
        ("named: 'a: 1'\n", "write KEY: VALUE, with a space"),
        ("shapes: [{kind: circle, radius: '1e3'}]\n", "write it without quotes: 1e3"),
        ("shapes: [{kind: circle, radius: big}]\n", ""),
    ],
)
def test_what_to_write_instead_is_told_where_it_can_be(text, hint):
    assert said_of(text).partition("\n  ")[2] == hint
