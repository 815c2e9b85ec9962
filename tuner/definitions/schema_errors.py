"""What pydantic says of a document → faults that a person understands, where they stand."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.definitions.findings import Findings, found
from tuner.definitions.nearest import did_you_mean, nearest
from tuner.definitions.yaml_source import Place, Source

_TYPES: Mapping[str, str] = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_OF_THE_WHOLE = {*_TYPES, "literal_error"}
"""What is said of a value as a whole, before anybody looks inside."""
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_PLAIN = ("true or false", "a whole number", "a number", "a text")
_SWITCHES: Mapping[str, str] = {
    **dict.fromkeys(("true", "yes", "on", "1"), "true"),
    **dict.fromkeys(("false", "no", "off", "0"), "false"),
}
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """One error of pydantic's, its location freed of the names of union members.

    `unions` are the places where such names were dropped.
    """

    kind: str
    place: Place
    unions: tuple[Place, ...]
    at_key: bool
    missing: str | int | None
    message: str
    context: Mapping[str, Any]

    @property
    def subject(self) -> tuple[Place, bool, str | int | None]:
        """What it is about; faults about one thing are told as one."""
        return self.place, self.at_key, self.missing


def report(
    error: ValidationError, source: Source, model: type[BaseModel], findings: Findings
) -> None:
    """Note every fault of a document that failed against its model."""
    faults = [_fault(details, source.value) for details in error.errors(include_url=False)]
    faults = _without_union_noise(faults)
    reporter = _Reporter(schema=model.model_json_schema(), source=source, findings=findings)
    guessed = {guess for fault in faults for guess in reporter.guesses(fault)}
    for subject in dict.fromkeys(fault.subject for fault in faults):
        if (subject[0], subject[2]) not in guessed:
            reporter.note([fault for fault in faults if fault.subject == subject])


def without_unknown_keys(error: ValidationError, value: Any) -> Any | None:
    """A copy of the document without its unknown keys; None where more than those was wrong."""
    faults = [_fault(details, value) for details in error.errors(include_url=False)]
    if any(fault.kind != "extra_forbidden" for fault in faults):
        return None
    left = copy.deepcopy(value)
    for fault in faults:
        parent = left
        for part in fault.place[:-1]:
            parent = parent[part]
        parent.pop(fault.place[-1], None)
    return left


def _fault(details: ErrorDetails, data: Any) -> _Fault:
    place: Place = ()
    unions: list[Place] = []
    at_key = False
    missing: str | int | None = None
    *_, last = [None, *range(len(details["loc"]))]
    for index, part in enumerate(details["loc"]):
        if _leads_on(data, part):
            place, data = (*place, part), data[part]
        elif index == last and part == "[key]":
            at_key = True
        elif index == last and details["type"] == "missing":
            missing = part
        else:
            unions.append(place)
    return _Fault(
        kind=details["type"],
        place=place,
        unions=tuple(unions),
        at_key=at_key,
        missing=missing,
        message=details["msg"],
        context=details.get("ctx", {}),
    )


def _leads_on(data: Any, part: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(part, int) and part < len(data)
    return isinstance(data, dict) and part in data


def _without_union_noise(faults: Sequence[_Fault]) -> list[_Fault]:
    """Where one member of a union went deeper than the rest, the rest has nothing to say."""
    entered = {
        place
        for fault in faults
        for place in fault.unions
        if len(fault.place) > len(place) or fault.missing is not None
    }
    return [
        fault
        for fault in faults
        if not (
            fault.kind in _OF_THE_WHOLE and fault.place in fault.unions and fault.place in entered
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reporter:
    """Puts the faults of one document into words."""

    schema: Mapping[str, Any]
    source: Source
    findings: Findings

    def guesses(self, fault: _Fault) -> Iterator[tuple[Place, str]]:
        """The missing key that an unknown one was meant to be, as (place, key)."""
        if fault.kind == "extra_forbidden":
            parent, key = fault.place[:-1], str(fault.place[-1])
            if near := nearest(key, self._absent(parent)):
                yield parent, near

    def note(self, group: Sequence[_Fault]) -> None:
        """Note one fault, told by one error or by one for each member of a union."""
        fault = group[0]
        if fault.kind == "extra_forbidden":
            self._unknown_key(fault.place)
        elif fault.kind == "missing":
            self._missing(fault.place, fault.missing)
        elif fault.kind.startswith("union_tag"):
            self._tag(fault)
        elif fault.kind == "literal_error":
            self._literal(fault.place, fault.context["expected"], at_key=fault.at_key)
        elif fault.kind in {"value_error", "assertion_error"}:
            message = str(fault.context.get("error", fault.message))
            self.findings.add(self.source, fault.place, message)
        else:
            self._mismatch(group)

    def _unknown_key(self, place: Place) -> None:
        parent, key = place[:-1], str(place[-1])
        near = did_you_mean(key, self._absent(parent))
        keys = list(self._node(parent).get("properties", {}))
        hint = "" if near or not keys else f"known here: {', '.join(keys)}"
        message = f"unknown key '{key}'{near}"
        self.findings.add(self.source, place, message, hint, key=True, about=parent)

    def _missing(self, place: Place, name: str | int | None) -> None:
        if isinstance(name, int):
            expected = self._node(place).get("description", "more entries")
            have = len(self._value(place))
            message = f"found {have} {'entry' if have == 1 else 'entries'}, expected {expected}"
            self.findings.add(self.source, place, message)
        else:
            self.findings.add(self.source, place, f"missing key '{name}'", key=True)

    def _tag(self, fault: _Fault) -> None:
        name = str(fault.context["discriminator"]).strip("'")
        if fault.kind == "union_tag_invalid":
            self._literal((*fault.place, name), fault.context["expected_tags"])
            return
        tags = ", ".join(f"'{tag}'" for tag in self._tags(fault.place))
        self.findings.add(
            self.source, fault.place, f"missing key '{name}'", f"one of {tags}", key=True
        )

    def _literal(self, place: Place, expected: str, *, at_key: bool = False) -> None:
        value = place[-1] if at_key else self._value(place)
        options = re.findall(r"'([^']*)'", expected)
        near = did_you_mean(value, options) if isinstance(value, str) else ""
        message = f"found {found(value, place)}, expected {_either(options)}{near}"
        self.findings.add(self.source, place, message, key=at_key)

    def _mismatch(self, group: Sequence[_Fault]) -> None:
        fault = group[0]
        value = fault.place[-1] if fault.at_key else self._value(fault.place)
        expected = self._expected(group)
        what = found(value, fault.place)
        if fault.kind == "too_long":
            what = f"{fault.context['actual_length']} entries"
        self.findings.add(
            self.source,
            fault.place,
            f"found {what}, expected {expected}",
            _remedy(expected, value) if what != "a hidden value" else "",
            key=fault.at_key,
        )

    def _expected(self, group: Sequence[_Fault]) -> str:
        fault = group[0]
        if fault.kind in _BOUNDS:
            words, bound = _BOUNDS[fault.kind]
            return f"{words} {fault.context[bound]:.15g}"
        if fault.kind == "too_short":
            count = fault.context["min_length"]
            return f"at least {count} {'entry' if count == 1 else 'entries'}"
        if fault.kind == "string_too_short":
            return "some text"
        described = self._raw_node(fault.place).get("description")
        if described and fault.kind in {"string_pattern_mismatch", "tuple_type", "too_long"}:
            return str(described)
        if fault.kind == "too_long":
            return f"at most {fault.context['max_length']} entries"
        types = dict.fromkeys(_TYPES.get(fault.kind, fault.message) for fault in group)
        return _one_type(list(types))

    def _value(self, place: Place) -> Any:
        value = self.source.value
        for part in place:
            value = value[part]
        return value

    def _absent(self, place: Place) -> list[str]:
        """The keys that could stand here and do not."""
        present = self._value(place)
        return [name for name in self._node(place).get("properties", {}) if name not in present]

    def _tags(self, place: Place) -> list[str]:
        return list(self._raw_node(place).get("discriminator", {}).get("mapping", {}))

    def _node(self, place: Place) -> Mapping[str, Any]:
        """The schema of a place, its references and unions followed by what stands there."""
        return self._resolved(self._raw_node(place), self._value(place))

    def _raw_node(self, place: Place) -> Mapping[str, Any]:
        node: Mapping[str, Any] = self.schema
        for index, part in enumerate(place):
            node = self._resolved(node, self._value(place[:index]))
            if isinstance(part, int):
                node = node.get("items", {})
            else:
                members = node.get("additionalProperties")
                anything = members if isinstance(members, Mapping) else {}
                node = node.get("properties", {}).get(part, anything)
        return self._deref(node)

    def _resolved(self, node: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
        node = self._deref(node)
        mapping = node.get("discriminator", {}).get("mapping", {})
        if mapping and isinstance(value, dict):
            tag = value.get(node["discriminator"]["propertyName"])
            return self._deref({"$ref": mapping[tag]}) if tag in mapping else {}
        kind = "object" if isinstance(value, dict) else "array"
        members = [self._deref(member) for member in node.get("anyOf", ())]
        return next((member for member in members if member.get("type") == kind), node)

    def _deref(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in node:
            node = self.schema["$defs"][node["$ref"].rpartition("/")[2]]
        return node


def _either(options: Sequence[str]) -> str:
    quoted = [f"'{option}'" for option in options]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _one_type(types: list[str]) -> str:
    if set(_PLAIN) <= set(types):
        rest = [name for name in types if name not in _PLAIN]
        types = ["a single value", *(f"{name}" for name in rest)]
    types = [name for name in types if name]
    return types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"


def _remedy(expected: str, value: Any) -> str:
    """What to write instead, where that can be told."""
    if expected == "a text" and isinstance(value, bool | int | float):
        shown = str(value).lower() if isinstance(value, bool) else value
        return f'write it in quotes: "{shown}"'
    if expected in {"a number", "a whole number"} and isinstance(value, str):
        return f"write it without quotes: {value}" if _NUMBER.fullmatch(value) else ""
    if expected == "a whole number" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if expected == "true or false" and isinstance(value, str | int):
        switch = _SWITCHES.get(str(value).lower())
        return f"write {switch}" if switch else ""
    if expected == "a list" and isinstance(value, str) and value:
        return f"write [{', '.join(value.split())}]"
    if expected == "a mapping" and isinstance(value, str) and ":" in value:
        return "write KEY: VALUE, with a space"
    return ""
