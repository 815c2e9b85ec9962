"""Whether a condition holds for some values. Pure."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tuner.definitions.domain import grid, same
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    Condition,
    Operand,
    Parameter,
    Value,
)

_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def holds(condition: Condition, values: Mapping[str, Value]) -> bool:
    """Whether every entry of the condition holds; a parameter that is absent counts as null."""
    return all(
        _operand_holds(values.get(name), operand, values) for name, operand in condition.items()
    )


def parameters_of(condition: Condition, names: Mapping[str, object]) -> Iterator[str]:
    """The parameters that a condition reads, those that a comparison refers to included."""
    for name, operand in condition.items():
        yield name
        if isinstance(operand, dict):
            yield from (
                other
                for comparison, other in operand.items()
                if comparison != "not" and isinstance(other, str) and other in names
            )


def can_hold(parameter: Parameter, *operands: Operand) -> bool:
    """Whether some value of the parameter, or its absence where it can be inactive, satisfies all
    operands; none may refer to another parameter."""
    absence = [None] if parameter.when or parameter.versions else []
    candidates = [*_candidates(parameter, operands), *absence]
    return any(
        all(_operand_holds(value, operand, {}) for operand in operands) for value in candidates
    )


def _candidates(parameter: Parameter, operands: Sequence[Operand]) -> Sequence[Value]:
    """The grid; for a number, where it may stand off its grid, its ends, the operands' numbers
    and what lies between: comparisons can change nowhere else."""
    values = grid(parameter) or []
    if isinstance(parameter, BoolParameter | ChoiceParameter) or not (parameter.log or not values):
        return values
    inside = {float(value) for operand in operands for value in _numbers_in(operand)}
    marks = sorted(
        {float(parameter.low), float(parameter.high)}
        | {number for number in inside if parameter.low <= number <= parameter.high}
    )
    unset = [None] if parameter.default is None else []
    return [*unset, *marks, *((left + right) / 2 for left, right in pairwise(marks))]


def _numbers_in(operand: Operand) -> Iterator[float]:
    if isinstance(operand, dict):
        members: Iterable[Value] = operand.values()
    else:
        members = operand if isinstance(operand, list) else [operand]
    yield from (number for number in map(_number, members) if number is not None)


def _operand_holds(value: Value, operand: Operand, values: Mapping[str, Value]) -> bool:
    if isinstance(operand, list):
        return any(same(value, wanted) for wanted in operand)
    if not isinstance(operand, dict):
        return same(value, operand)
    return all(_compares(value, name, other, values) for name, other in operand.items())


def _compares(value: Value, name: str, other: Value, values: Mapping[str, Value]) -> bool:
    if name == "not":
        return not same(value, other)
    left, right = _number(value), _number(values.get(other) if isinstance(other, str) else other)
    return left is not None and right is not None and _ORDER[name](left, right)


def _number(value: Value) -> float | None:
    if value is None or isinstance(value, bool | str):
        return None
    return float(value)
