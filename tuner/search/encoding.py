"""A configuration as a sampler sees it: a flat point, always with the same coordinates. Pure.

Choices become texts (to a sampler true and 1 would be the same choice), inactive parameters stand
at a fixed value, and a number that may be left to the engine gets a second coordinate that says
whether it is set. What a sampler proposes is brought back onto the grid.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.definitions.domain import is_number
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Value,
)
from tuner.definitions.space import Configuration, Space

Coordinate = str | int | float
SIGNIFICANT_DIGITS = 4
"""Of a continuous number: no server can tell 0.87 from 0.8700321."""


@dataclass(frozen=True, slots=True)
class Labels:
    """An axis of texts, one for each value."""

    values: tuple[Value, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, values: tuple[Value, ...]) -> "Labels":
        """Texts as they are and all else as JSON, or all as JSON where that would be ambiguous."""
        plain = [value if isinstance(value, str) else json.dumps(value) for value in values]
        exact = [json.dumps(value) for value in values]
        return cls(values, tuple(plain if len(set(plain)) == len(plain) else exact))

    @property
    def grid(self) -> tuple[str, ...]:
        """All coordinates of the axis."""
        return self.labels

    def draw(self, rng: random.Random) -> str:
        """Any coordinate, all alike likely."""
        return rng.choice(self.labels)

    def encode(self, value: Value) -> str:
        """The text of a value."""
        exact = [json.dumps(known) for known in self.values]
        return self.labels[exact.index(json.dumps(value))]

    def decode(self, label: Coordinate) -> Value:
        """The value of a text."""
        return self.values[self.labels.index(str(label))]


@dataclass(frozen=True, slots=True)
class Numbers:
    """An axis of numbers; `grid` holds all of them, or None where they are continuous."""

    low: int | float
    high: int | float
    step: int | float | None
    log: bool
    whole: bool
    grid: tuple[int | float, ...] | None

    @classmethod
    def of(cls, parameter: IntParameter | FloatParameter, values: list[Value] | None) -> "Numbers":
        """The axis of a parameter with this grid."""
        grid = None if values is None else tuple(value for value in values if is_number(value))
        return cls(
            low=parameter.low,
            high=grid[-1] if grid else _last_step(parameter),
            step=None if parameter.log else parameter.step,
            log=parameter.log,
            whole=isinstance(parameter, IntParameter),
            grid=grid,
        )

    def draw(self, rng: random.Random) -> int | float:
        """Any number, all alike likely, or their logarithms on a log scale where continuous."""
        if self.grid is not None:
            return rng.choice(self.grid)
        if self.whole:
            steps = (self.high - self.low) // (self.step or 1)
            return self.low + rng.randint(0, int(steps)) * (self.step or 1)
        if self.log:
            return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return rng.uniform(self.low, self.high)

    def decode(self, drawn: Coordinate) -> int | float:
        """The nearest number of the grid, of its logarithm on a log scale."""
        number = min(max(float(drawn), self.low), self.high)
        if self.grid is None:
            return self._continuous(number)
        scale = math.log if self.log else float
        at = scale(number)
        return min(self.grid, key=lambda known: abs(scale(known) - at))

    def _continuous(self, number: float) -> int | float:
        if self.whole:
            return round(number)
        if self.step is not None:
            return number
        return min(max(float(f"{number:.{SIGNIFICANT_DIGITS}g}"), self.low), self.high)


Axis = Labels | Numbers
_IS_SET = Labels((False, True), ("no", "yes"))


class Encoding:
    """The axes of a space, and the way between its configurations and points on them."""

    def __init__(self, space: Space) -> None:
        self._parameters = {n: p for n, p in space.parameters.items() if n not in space.dead}
        self.axes: dict[str, Axis] = {}
        for name, parameter in self._parameters.items():
            self.axes.update(_axes(name, parameter, space.values_of(name)))

    def point(self, configuration: Configuration) -> dict[str, Coordinate]:
        """The configuration with a coordinate on every axis."""
        values = configuration.as_dict()
        point: dict[str, Coordinate] = {}
        for name, parameter in self._parameters.items():
            axis = self.axes[name]
            value = values.get(name, parameter.default)
            if isinstance(axis, Labels):
                point[name] = axis.encode(value)
                continue
            point[name] = value if is_number(value) else axis.low
            if _set_axis(name) in self.axes:
                point[_set_axis(name)] = _IS_SET.encode(value is not None)
        return point

    def values(self, point: Mapping[str, Coordinate]) -> dict[str, Value]:
        """The values of a point, on the grid; the inactive ones included."""
        values: dict[str, Value] = {}
        for name in self._parameters:
            is_set = _IS_SET.decode(point.get(_set_axis(name), "yes"))
            values[name] = self.axes[name].decode(point[name]) if is_set else None
        return values

    def random_point(self, rng: random.Random) -> dict[str, Coordinate]:
        """Any point of the space."""
        return {name: axis.draw(rng) for name, axis in self.axes.items()}

    def shown(self, configuration: Configuration) -> dict[str, Coordinate]:
        """The coordinates that people know: of the active parameters that are set."""
        active = {
            name
            for name, value in configuration.values
            if value is not None or isinstance(self.axes.get(name), Labels)
        }
        return {name: at for name, at in self.point(configuration).items() if name in active}


def _axes(name: str, parameter: Parameter, values: list[Value] | None) -> dict[str, Axis]:
    if isinstance(parameter, BoolParameter | ChoiceParameter):
        return {name: Labels.of(tuple(values or ()))}
    axes: dict[str, Axis] = {name: Numbers.of(parameter, values)}
    if parameter.default is None:
        axes[_set_axis(name)] = _IS_SET
    return axes


def _last_step(parameter: IntParameter | FloatParameter) -> int | float:
    """The highest number that is whole steps above the lowest."""
    if parameter.step is None:
        return parameter.high
    steps = math.floor((parameter.high - parameter.low) / parameter.step + 1e-9)
    return parameter.low + steps * parameter.step


def _set_axis(name: str) -> str:
    return f"{name} is set"
