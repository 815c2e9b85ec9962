"""What one parameter can be set to: its domain, in words, as a grid, and step by step. Pure."""

import math
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Value,
)

MAX_GRID = 10_000
"""A parameter with more values than this counts as continuous."""
_DECIMALS = 12
"""Where a stepped float is rounded, so that 0.1 + 2 * 0.1 and 0.3 are one value."""
_SLACK = 1e-6
"""How far from a step, in steps, a float may be and still be meant."""
_STRIDE = 0.1


class NotInDomain(ValueError):
    """The value is not in the parameter's domain; the text says what was expected."""


def same(left: Value, right: Value) -> bool:
    """Equality of values: 1 is 1.0, but true is not 1 and text is never a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def is_number(value: Value) -> TypeGuard[int | float]:
    """Whether the value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def show(value: object) -> str:
    """A value as it is written in a definition file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)


def one_of(values: Iterable[object]) -> str:
    """`1, 2 or 3`, each as it is written in a definition file."""
    shown = [show(value) for value in values]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def expected(parameter: Parameter) -> str:
    """The domain in words."""
    if isinstance(parameter, BoolParameter):
        return "true or false"
    if isinstance(parameter, ChoiceParameter):
        return one_of(_choices(parameter))
    text = f"a number from {parameter.low:g} to {parameter.high:g}"
    if isinstance(parameter, IntParameter):
        text = f"a whole number from {parameter.low} to {parameter.high}"
    if parameter.step is not None and parameter.step != 1:
        text += f" in steps of {parameter.step:g}"
    return text + (", or null" if parameter.default is None else "")


def canonical(parameter: Parameter, value: Value) -> Value:
    """The one spelling of a value of the domain. Raises NotInDomain."""
    if isinstance(parameter, BoolParameter):
        found: Value = value if isinstance(value, bool) else None
    elif isinstance(parameter, ChoiceParameter):
        return _choice(parameter, value)
    elif value is None and parameter.default is None:
        return None
    elif isinstance(parameter, IntParameter):
        found = _int(parameter, value)
    else:
        found = _float(parameter, value)
    if found is None:
        raise NotInDomain(expected(parameter))
    return found


def grid(parameter: Parameter) -> list[Value] | None:
    """The values worth trying, in order, or None where they are as good as continuous.

    Null comes first where it is the default: what the engine takes by itself is a value like any
    other. Whole numbers on a log scale are tried at powers of two and at both ends; any other
    from low to high may still be asked for.
    """
    if isinstance(parameter, BoolParameter):
        return [False, True]
    if isinstance(parameter, ChoiceParameter):
        return _choices(parameter)
    numbers = _numbers(parameter)
    if numbers is None:
        return None
    return [None, *numbers] if parameter.default is None else [*numbers]


def adjacent(parameter: Parameter, value: Value) -> list[Value]:
    """The values one step away: all others of a choice, the next on either side of a number.

    A continuous parameter steps by a tenth of its range, of its logarithm on a log scale; a
    number that was left to the engine steps to its ends.
    """
    if isinstance(parameter, BoolParameter | ChoiceParameter):
        return [other for other in grid(parameter) or [] if not same(other, value)]
    numbers = _numbers(parameter)
    if value is None:
        return [parameter.low, parameter.high] if numbers is None else [numbers[0], numbers[-1]]
    at = float(value)
    if numbers is None:
        numbers = _strides(parameter, at)
    beside = [other for other in numbers if other < at][-1:]
    beside += [other for other in numbers if other > at][:1]
    return [None, *beside] if parameter.default is None else [*beside]


def _choices(parameter: ChoiceParameter) -> list[Value]:
    unset = [] if parameter.default is not None else [None]
    kept: list[Value] = [] if any(choice is None for choice in parameter.choices) else [*unset]
    for choice in parameter.choices:
        if not any(same(choice, other) for other in kept):
            kept.append(choice)
    return kept


def _choice(parameter: ChoiceParameter, value: Value) -> Value:
    for choice in _choices(parameter):
        if same(choice, value):
            return choice
    raise NotInDomain(expected(parameter))


def _int(parameter: IntParameter, value: Value) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    inside = parameter.low <= value <= parameter.high
    return value if inside and (value - parameter.low) % parameter.step == 0 else None


def _float(parameter: FloatParameter, value: Value) -> float | None:
    if value is None or isinstance(value, bool | str) or not math.isfinite(value):
        return None
    number = float(value)
    if parameter.step is not None:
        number = _on_step(parameter, parameter.step, number)
        if not math.isclose(number, value, rel_tol=1e-9, abs_tol=parameter.step * _SLACK):
            return None
    # adding zero turns -0.0 into 0.0
    return number + 0.0 if parameter.low <= number <= parameter.high else None


def _on_step(parameter: FloatParameter, step: float, number: float) -> float:
    """The nearest step; one that rounding alone put outside the domain is its end."""
    nearest = round(parameter.low + round((number - parameter.low) / step) * step, _DECIMALS)
    ends = (parameter.low, parameter.high)
    return next((end for end in ends if abs(end - nearest) <= step * _SLACK), nearest) + 0.0


def _numbers(parameter: IntParameter | FloatParameter) -> Sequence[int] | Sequence[float] | None:
    """The grid of a number, ascending; None where it is continuous."""
    if isinstance(parameter, FloatParameter):
        return _float_grid(parameter)
    if parameter.log:
        powers = (1 << exponent for exponent in range(parameter.high.bit_length()))
        inside = (power for power in powers if parameter.low <= power <= parameter.high)
        return sorted({parameter.low, *inside, parameter.high})
    numbers = range(parameter.low, parameter.high + 1, parameter.step)
    return numbers if len(numbers) <= MAX_GRID else None


def _float_grid(parameter: FloatParameter) -> list[float] | None:
    if parameter.low == parameter.high:
        return [parameter.low + 0.0]
    if parameter.step is None or (parameter.high - parameter.low) / parameter.step > MAX_GRID:
        return None
    count = math.floor((parameter.high - parameter.low) / parameter.step + _SLACK) + 1
    low, step = parameter.low, parameter.step
    return [_on_step(parameter, step, low + index * step) for index in range(count)]


def _strides(parameter: IntParameter | FloatParameter, at: float) -> list[float]:
    """A stride below and a stride above `at`, inside the domain."""
    low, high = float(parameter.low), float(parameter.high)
    if parameter.log:
        factor = (high / low) ** _STRIDE
        pair = [max(at / factor, low), min(at * factor, high)]
    else:
        stride = (high - low) * _STRIDE
        pair = [max(at - stride, low), min(at + stride, high)]
    if isinstance(parameter, IntParameter):
        return [parameter.low + round((x - low) / parameter.step) * parameter.step for x in pair]
    if parameter.step is not None:
        return [_on_step(parameter, parameter.step, x) for x in pair]
    return pair
