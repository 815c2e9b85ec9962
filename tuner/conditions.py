"""Whether a condition holds for some values. Pure."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tuner.definitions import Condition, Operand, Parameter, Value
from tuner.domain import grid, same

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


def can_hold(parameter: Parameter, operand: Operand) -> bool:
    """Whether some value of the parameter satisfies an operand that refers to no other."""
    return any(_operand_holds(value, operand, {}) for value in _candidates(parameter, operand))


def _candidates(parameter: Parameter, operand: Operand) -> Sequence[Value]:
    """The grid; for a continuous parameter its ends, the operand's numbers and what lies between:
    comparisons can change nowhere else."""
    values = grid(parameter)
    if values is not None and not getattr(parameter, "log", False):
        return values
    inside = [float(value) for value in _numbers_in(operand)]
    low, high = float(getattr(parameter, "low", 0)), float(getattr(parameter, "high", 0))
    marks = sorted({low, high, *(number for number in inside if low <= number <= high)})
    between = [(left + right) / 2 for left, right in pairwise(marks)]
    unset = [None] if getattr(parameter, "default", None) is None else []
    return [*unset, *marks, *between]


def _numbers_in(operand: Operand) -> Iterator[float]:
    flat = operand.values() if isinstance(operand, dict) else operand
    for value in flat if not isinstance(flat, bool | int | float | str | None) else [flat]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


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
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value is not None else None
