"""What can be wrong with one condition: names, values, comparisons, and whether it can hold."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.definitions.conditions import can_hold
from tuner.definitions.domain import NotInDomain, canonical
from tuner.definitions.findings import Findings, found
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    Condition,
    Operand,
    Parameter,
    Value,
)
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.yaml_source import Place, Source
from tuner.flags.secrets import is_secret_variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks names, values and conditions of one file against the parameters of a space."""

    source: Source
    parameters: Mapping[str, Parameter]
    findings: Findings

    def values(self, place: Place, values: Mapping[str, Value]) -> bool:
        """Note unknown names and values outside their domain; true where there were none."""
        right = [self._entry((*place, name), name, value) for name, value in values.items()]
        return all(right)

    def condition(self, place: Place, condition: Condition) -> None:
        """Note what keeps a condition from meaning anything."""
        for name, operand in condition.items():
            here = (*place, name)
            if self.known(here, name) and self._operand(here, self.parameters[name], operand):
                self._possible(here, name, [operand])

    def together(self, place: Place, first: Condition, second: Condition) -> None:
        """Note entries of two conditions that no value can satisfy at once."""
        for name in first.keys() & second.keys() & self.parameters.keys():
            self._possible((*place, name), name, [first[name], second[name]])

    def known(self, place: Place, name: str, *, key: bool = True) -> bool:
        """Note a name (a key, or else a value) that is no parameter; true where it is one."""
        if name in self.parameters:
            return True
        near = did_you_mean(name, self.parameters)
        hint = "" if near else f"parameters: {', '.join(self.parameters)}"
        self.findings.add(self.source, place, f"unknown parameter '{name}'{near}", hint, key=key)
        return False

    def value(self, place: Place, parameter: Parameter, value: Value) -> bool:
        """Note a value outside the domain of its parameter; true where it is inside."""
        try:
            canonical(parameter, value)
        except NotInDomain as error:
            hidden = parameter.env is not None and is_secret_variable(parameter.env)
            shown = "a hidden value" if hidden else found(value, place)
            wanted = "one of the choices" if hidden else str(error)
            options = getattr(parameter, "choices", []) if not hidden else []
            words = [option for option in options if isinstance(option, str)]
            near = did_you_mean(value, words) if isinstance(value, str) else ""
            self.findings.add(self.source, place, f"found {shown}, expected {wanted}{near}")
            return False
        return True

    def _entry(self, place: Place, name: str, value: Value) -> bool:
        return self.known(place, name) and self.value(place, self.parameters[name], value)

    def _operand(self, place: Place, parameter: Parameter, operand: Operand) -> bool:
        if isinstance(operand, list):
            if not operand:
                self.findings.add(self.source, place, "found an empty list, which never holds")
            right = [
                self._equality((*place, index), parameter, value)
                for index, value in enumerate(operand)
            ]
            return bool(operand) and all(right)
        if not isinstance(operand, dict):
            return self._equality(place, parameter, operand)
        if not operand:
            self.findings.add(
                self.source, place, "found an empty mapping, expected a comparison such as {gt: 8}"
            )
        right = [
            self._equality((*place, name), parameter, value)
            if name == "not"
            else self._comparison((*place, name), parameter, value)
            for name, value in operand.items()
        ]
        return bool(operand) and all(right)

    def _equality(self, place: Place, parameter: Parameter, value: Value) -> bool:
        """Null stands for a parameter that is inactive, so that it may be asked of any that can
        be."""
        if value is None and (parameter.when or parameter.versions):
            return True
        return self.value(place, parameter, value)

    def _comparison(self, place: Place, parameter: Parameter, value: Value) -> bool:
        if not _is_numeric(parameter):
            message = "found a comparison of something that is not a number, expected a value"
            self.findings.add(self.source, place, message, key=True)
            return False
        if isinstance(value, str):
            return self.known(place, value, key=False)
        if value is None or isinstance(value, bool):
            message = f"found {found(value, place)}, expected a number or a parameter's name"
            self.findings.add(self.source, place, message)
            return False
        return True

    def _possible(self, place: Place, name: str, operands: Iterable[Operand]) -> None:
        parameter, operands = self.parameters[name], list(operands)
        if any(_refers(operand) for operand in operands):
            return
        if not can_hold(parameter, *operands):
            self.findings.add(self.source, place, f"no value of '{name}' satisfies this", key=True)


def _refers(operand: Operand) -> bool:
    return isinstance(operand, dict) and any(
        name != "not" and isinstance(value, str) for name, value in operand.items()
    )


def _is_numeric(parameter: Parameter) -> bool:
    if isinstance(parameter, ChoiceParameter):
        return all(
            choice is None or (isinstance(choice, int | float) and not isinstance(choice, bool))
            for choice in parameter.choices
        )
    return not isinstance(parameter, BoolParameter)
